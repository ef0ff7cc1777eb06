"""The loader: numpy batches in order, made ahead of time, exactly resumable."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, get_args

from playhead.errors import RecipeError
from playhead.feed.batch import Batch, batch_of
from playhead.feed.pool import Inline, Pool, Threads
from playhead.feed.processes import Processes, StartMethod
from playhead.feed.session import Session, overtaken
from playhead.feed.tasks import Task
from playhead.feed.totals import Totals
from playhead.recipe.values import Recipe

if TYPE_CHECKING:
    from typing import Self

WorkerKind = Literal["process", "thread"]


class Loader:
    """The batches of one rank.

    Rank and world size are detected where they are not given. `workers` 0 makes batches in this process; else
    `worker_kind` says whether workers are processes or threads, and `lookahead` how many batches each has under way.
    `map` and `collate` are functions in place of those the recipe names. Their number never changes what is delivered.
    """

    def __init__(
        self,
        recipe: Recipe,
        *,
        split: str | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        workers: int = 0,
        worker_kind: WorkerKind = "process",
        start_method: StartMethod = "spawn",
        lookahead: int = 2,
        map: Callable[..., Any] | None = None,  # noqa: A002  # the recipe's word for it
        collate: Callable[..., Any] | None = None,
    ) -> None:
        _check_workers(workers, worker_kind, start_method, lookahead)
        self._session = Session(recipe, split, rank, world_size, (map, collate))
        self._workers, self._kind, self._start_method = workers, worker_kind, start_method
        self._depth = max(1, workers * lookahead)
        self._pool: Pool | None = None
        self._under_way: deque[Task] = deque()
        self._iteration = 0

    @property
    def rank(self) -> int:
        return self._session.identity().rank

    @property
    def world_size(self) -> int:
        return self._session.identity().world_size

    @property
    def lanes(self) -> int:
        """The micro-batches of a step, on all ranks together."""
        return self._session.plan.lanes

    @property
    def finished(self) -> bool:
        """Whether a finite stream has delivered its round: iterating then gives nothing until `next_round`."""
        return self._session.finished

    def next_round(self) -> None:
        """Begin another round of a finite stream (`epochs` more passes, or all there is once more)."""
        self._session.next_round()

    def __iter__(self) -> Iterator[Batch]:
        """The batches from where delivery stands to the end of the round."""
        while True:
            restored = self._session.restored
            yield from self._round(restored)
            if self._session.restored == restored:
                return

    def __len__(self) -> int:
        return self._session.num_batches()

    def state_dict(self, after: Batch | None = None) -> dict[str, Any]:
        """The state after the last batch delivered, or after a given one: for trainers that fetch ahead."""
        return self._session.state_dict(after)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state; an iteration under way goes on from there with its next batch."""
        self._session.load_state_dict(state)

    def totals(self) -> dict[str, Totals]:
        """Samples, length and padding delivered so far on all ranks together: under "all", and by source."""
        return self._session.totals()

    def close(self) -> None:
        """End the workers. The loader may be iterated again; new workers start then."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None
        self._under_way.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_pool", None) is not None:
            self.close()

    def _round(self, restored: int) -> Iterator[Batch]:
        session = self._session
        tasks = session.tasks()
        self._iteration += 1
        iteration = self._iteration
        if self._under_way:
            self.close()  # work of an iteration left lying would come out as our first results
        if session.is_over():
            return  # no worker need start to find that out
        pool = self._pool = self._pool or self._new_pool()
        finished = False
        try:
            for task in islice(tasks, self._depth):
                pool.submit(task.work)
                self._under_way.append(task)
            while self._under_way:
                produced = pool.result()
                task = self._under_way.popleft()
                if (following := next(tasks, None)) is not None:
                    pool.submit(following.work)
                    self._under_way.append(following)
                session.delivered(task, produced.incidents)
                yield batch_of(task, produced.payload, session.source_names(task.work.stream), produced.incidents)
                if self._iteration != iteration:
                    raise overtaken()
                if session.restored != restored:
                    return
            finished = True
        finally:
            if not finished and self._iteration == iteration:
                self.close()

    def _new_pool(self) -> Pool:
        if self._workers == 0:
            return Inline(self._session.blueprint)
        if self._kind == "thread":
            return Threads(self._session.blueprint, self._workers)
        return Processes(self._session.blueprint, self._workers, self._session.describe, self._start_method)


def _check_workers(workers: int, kind: str, start_method: str, lookahead: int) -> None:
    if kind not in get_args(WorkerKind) or start_method not in get_args(StartMethod):
        raise RecipeError(
            "workers of this kind are not known",
            found=f"worker_kind {kind!r}, start_method {start_method!r}",
            expected=f"worker_kind one of: {', '.join(get_args(WorkerKind))}; "
            f"start_method one of: {', '.join(get_args(StartMethod))}",
        )
    for name, value, least in (("workers", workers, 0), ("lookahead", lookahead, 1)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise RecipeError(
                f"{name}: this number cannot be used", found=repr(value), expected=f"a whole number from {least}"
            )
