"""Requests for several files: in flight together where each takes a round trip, one after another where it does not."""

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
    answers: dict[int, R] = {}
    problems: dict[int, Exception] = {}
    waiting = deque(range(len(paths)))

    def work() -> None:
        while waiting:
            try:
                i = waiting.popleft()
            except IndexError:  # another thread took the last one
                return
            try:
                answers[i] = ask(i)
            except Exception as error:  # noqa: BLE001 - raised below, in its turn
                problems[i] = error

    # Each with a context of its own: the time of a request belongs to the work that it is made for.
    helpers = [_threads().submit(copy_context().run, work) for _ in range(min(len(paths), MOST_IN_FLIGHT) - 1)]
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
    return [answers[i] for i in range(len(paths))]


@lru_cache(maxsize=1)
def _threads() -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(MOST_IN_FLIGHT - 1, thread_name_prefix="playhead-requests")


os.register_at_fork(after_in_child=_threads.cache_clear)  # the threads do not exist in the child
