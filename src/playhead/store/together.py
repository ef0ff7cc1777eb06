"""Work in several threads; requests for several files, in flight together where each takes a round trip."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import copy_context
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

from playhead.store.access import num_costly
from playhead.store.files import Files

if TYPE_CHECKING:  # `import playhead` stays quick
    from concurrent.futures import ThreadPoolExecutor

MOST_IN_FLIGHT = 32  # of one call; those of all calls in a process share as many threads

R = TypeVar("R")


def ask_together(files: Files, paths: Sequence[str], ask: Callable[[int], R]) -> list[R]:
    """The result of `ask(i)` for each path i, in the order of the paths; `ask` makes its requests to `files`.

    Law: results and exceptions are those of sequential calls: the exception is that of the first path that fails.
    """
    if len(paths) < 2 or num_costly(files, paths) < 2:
        return [ask(i) for i in range(len(paths))]
    return done_together(_threads(), MOST_IN_FLIGHT - 1, len(paths), ask)


def done_together(threads: ThreadPoolExecutor, num_threads: int, count: int, do: Callable[[int], R]) -> list[R]:
    """The result of `do(i)` for each i below `count`, in order, by this thread with the help of others.

    Law: results and exceptions are those of sequential calls: the exception is that of the first that fails.
    """
    results: dict[int, R] = {}
    problems: dict[int, Exception] = {}
    waiting = deque(range(count))

    def work() -> None:
        while waiting:
            try:
                i = waiting.popleft()
            except IndexError:  # another thread took the last one
                return
            try:
                results[i] = do(i)
            except Exception as error:  # noqa: BLE001 - raised below, in its turn
                problems[i] = error

    # Each with a context of its own: the time of a request belongs to the work that it is made for.
    helpers = [threads.submit(copy_context().run, work) for _ in range(min(count - 1, num_threads))]
    try:
        work()
        for helper in helpers:
            if not helper.cancel():  # one that has not begun is not waited for, so calls cannot wait for each other
                helper.result()
    except BaseException:  # an interrupt
        waiting.clear()
        raise
    if problems:
        raise problems[min(problems)]
    return [results[i] for i in range(count)]


@lru_cache(maxsize=1)
def _threads() -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(MOST_IN_FLIGHT - 1, thread_name_prefix="playhead-requests")


os.register_at_fork(after_in_child=_threads.cache_clear)  # the threads do not exist in the child
