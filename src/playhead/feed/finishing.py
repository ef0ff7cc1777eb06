"""Results finished ahead of the training loop in a thread: pinned memory, in the loader for torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import islice
from queue import SimpleQueue
from threading import Semaphore, Thread
from typing import Any

from playhead.feed.main_guard import PATIENCE_SECONDS
from playhead.feed.pool import Pool, Results
from playhead.feed.produce import Produced
from playhead.feed.tasks import Task

_FINISHED_AHEAD = 2


class Finishing:
    """A pool whose results are taken and finished by a thread; `depth` is how many tasks the pool takes ahead.

    Tasks are still planned by the thread that asks for results. Laws: results stay in order; at most two are finished
    ahead; an error is raised where its result would have been.
    """

    def __init__(self, pool: Pool, depth: int, finish: Callable[[Produced], Produced]) -> None:
        self._pool, self._depth, self._finish = pool, depth, finish

    def results(self, tasks: Iterator[Task]) -> Results:
        planned: SimpleQueue[Task | None] = SimpleQueue()
        finished: SimpleQueue[Any] = SimpleQueue()  # a task with its result; an error; None at the end
        room = Semaphore(_FINISHED_AHEAD)
        is_left = False

        def work() -> None:
            try:
                with closing(self._pool.results(iter(planned.get, None))) as found:
                    while room.acquire() and not is_left:
                        task, produced = next(found)
                        finished.put((task, self._finish(produced)))
                        del produced
            except StopIteration:
                finished.put(None)
            except BaseException as error:  # noqa: BLE001  # raised where the result is awaited
                finished.put(error)

        def plan(count: int) -> None:
            for task in islice(tasks, count):
                planned.put(task)
                count -= 1
            if count:
                planned.put(None)

        plan(self._depth + _FINISHED_AHEAD)
        thread = Thread(target=work, name="playhead-finishing", daemon=True)
        thread.start()
        try:
            while (found := finished.get()) is not None:
                if isinstance(found, BaseException):
                    raise found
                given = [found]
                del found
                plan(1)
                room.release()
                yield given.pop()
        finally:
            is_left = True
            room.release()
            planned.put(None)
            thread.join(PATIENCE_SECONDS)
            if thread.is_alive():  # it waits for a worker
                self._pool.close()
                thread.join()

    def close(self) -> None:
        self._pool.close()
