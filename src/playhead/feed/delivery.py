"""The batches of one rank in order: the current position, and the batches from there on."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cached_property
from itertools import count
from math import ceil, inf
from time import monotonic
from typing import Any, Self
from weakref import WeakSet

from msgspec.structs import replace

from playhead.deal import Identity
from playhead.errors import PlayheadError, StateError
from playhead.feed.batch import Batch, batch_of
from playhead.feed.cache_member import CacheMember, join_cache
from playhead.feed.counters import Counters
from playhead.feed.derived import totals_of
from playhead.feed.ledger import Recorder
from playhead.feed.lightning_guard import refuse_lightning
from playhead.feed.pool import Inline, Pool, Results
from playhead.feed.produce import Blueprint, Produced
from playhead.feed.quarantine import Quarantine
from playhead.feed.rank_stream import RankStream
from playhead.feed.state import Position, check_takeover, read_state, restore, save
from playhead.feed.stats import LoaderStats, Watcher
from playhead.feed.tasks import Task, TaskMaker
from playhead.feed.totals import Totals, nothing_yet
from playhead.plan.segments import round_end

_NUMBERS = count()
_JOIN_SECONDS = 60.0
_OF_THIS_PROCESS = ("_pool", "_results", "_counters", "_cache")


class Delivery:
    """The common part of every loader: batches in order, a state after each, totals, and rounds.

    The loaders for numpy and torch add a constructor and override nothing: they differ only in the pool. They inherit
    because the alternative is a dozen forwarding methods in each.

    `ahead` is how many micro-batches the pool prepares ahead. Where `records` is false, nothing is written to the cache
    directory: neither bad samples nor the ledger.
    """

    def __init__(
        self,
        stream: RankStream,
        blueprint: Blueprint,
        new_pool: Callable[[], Pool],
        *,
        ahead: int = 0,
        records: bool = True,
    ) -> None:
        self._number = next(_NUMBERS)
        self._stream = stream
        self._payload = blueprint.fingerprint()
        self._new_pool = new_pool
        self._pool = new_pool()
        self._ahead, self._records = ahead, records
        self._counters = self._new_counters()
        self._process = os.getpid()  # the process that owns the pool and the results
        self._results: Results | None = None
        self._cache: CacheMember | None = None
        self._join_at = inf  # when a cache whose disk had no space is tried again
        self._at: Position | Task | None = None  # the last task delivered, or the position to begin at
        self._state: Any = None  # loaded before the world size was known, where the plan depends on it
        self._restored = 0  # how often a state was loaded: an iteration that sees it change restarts
        self._resumes = False  # whether a state was loaded and no iteration has begun since

    @property
    def rank(self) -> int:
        return self._identity().rank

    @property
    def world_size(self) -> int:
        return self._identity().world_size

    @property
    def lanes(self) -> int:
        """The micro-batches of a step, on all ranks together."""
        return self._stream.plan.lanes

    @property
    def finished(self) -> bool:
        """Whether a finite stream has delivered its round: iterating then yields nothing until `next_round`."""
        return self._stream.plan.round_of(self._position.cursor) > self._position.round

    def next_round(self) -> None:
        """Begin another round of a finite stream (`epochs` more passes, or all there is once more)."""
        if not self.finished:
            endless = round_end(self._stream.plan.streams[0], 0) is None
            raise PlayheadError(
                "there is no next round: the stream is endless" if endless else "the current round has not finished",
                found=f"the loader is at step {self._position.cursor.step:,} of round {self._position.round}",
                fix="call next_round() only where `loader.finished` is true",
            )
        self._at = replace(self._position, round=self._position.round + 1)

    def __iter__(self) -> Iterator[Batch]:
        """The batches from the current position to the end of the round."""
        while (results := self._begin()) is not None:
            restored = self._restored
            self._counters.begin()
            try:
                # Otherwise restart: from the state that was loaded, or in a fork.
                while self._restored == restored and self._process == os.getpid():
                    asked = monotonic()
                    try:
                        yield self._delivered(asked, *next(results))  # keep no reference to it: its memory is reused
                    except StopIteration:
                        self._rest_in_cache()
                        return
                    if self._results is not results:
                        raise _overtaken()
            finally:
                results.close()

    def __len__(self) -> int:
        return self._stream.num_batches()

    def state_dict(self, after: Batch | None = None) -> dict[str, Any]:
        """The state after the last batch delivered, or after a given one: for trainers that fetch ahead."""
        if after is None:
            if self._stream.split is None:
                refuse_lightning("_state_dicts")
            return save(self._position, self._stream.plan, self._payload)
        if not isinstance(after, Batch):
            raise StateError(
                "`state_dict(after=...)` needs a Batch",
                found=f"a {type(after).__name__}",
                expected="a Batch, as the loader delivered it: a dictionary made from it has no position",
                fix="keep the batch itself, and call state_dict(after=batch)",
            )
        if after.task.loader != self._number:
            raise StateError(
                "the batch was delivered by another loader",
                expected="a batch of this loader: the state would belong to the other loader's stream",
                fix="call state_dict(after=batch) on the loader that delivered the batch",
            )
        return save(after.task.after, self._stream.plan, self._payload)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state; a running iteration continues from there with its next batch."""
        if not self._stream.can_plan:
            read_state(state)
            self._state = state
        else:
            position = restore(state, self._stream.plan, self._payload)
            if self._stream.is_identified:
                check_takeover(position, self.lanes, self._stream.identity().world_size)
            self._at, self._state = position, None
        self._restored += 1
        self._resumes = True

    def totals(self) -> dict[str, Totals]:
        """Samples, length and padding delivered so far on all ranks together: under "all", and by source."""
        return totals_of(self._stream.plan, self._position)

    def stats(self) -> LoaderStats:
        """What this loader has counted since it was made: where time went, bytes, requests, waits, memory.

        Any thread may ask, such as one that answers Prometheus.
        """
        self._leave_to_parent()
        return self._counters.stats()

    def watch(self, function: Watcher | None) -> None:
        """Call `function(timing, asked, given)` with the BatchTiming of every batch, just before it is delivered.

        The training loop asked for the batch at `asked` and is given it at `given`, both of time.monotonic(): the
        difference is its wait. None ends it; without a function nothing is made for it.
        """
        self._leave_to_parent()
        self._counters.watcher = function

    def close(self) -> None:
        """End the workers. The loader may be iterated again; new workers start then."""
        self._leave_to_parent()
        if self._results is not None:
            self._results.close()
        self._pool.close()
        if self._cache is not None:
            self._cache.close()
        self._cache = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self, _is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if hasattr(self, "_pool") and not _is_finalizing():  # at exit `_close_all` has closed it, and modules are gone
            self.close()

    def __getstate__(self) -> dict[str, Any]:
        """Copies and pickles continue from the same position with new workers."""
        return {name: value for name, value in vars(self).items() if name not in _OF_THIS_PROCESS}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _results=None, _cache=None, _join_at=inf)
        self._pool, self._process = self._new_pool(), os.getpid()
        self._counters = self._new_counters()

    def _leave_to_parent(self) -> None:
        """In a fork, which continues from the same position: leave the pool and results to the parent."""
        if self._process != os.getpid():
            self._pool, self._process, self._results = self._new_pool(), os.getpid(), None
            self._counters = self._new_counters()  # another thread may have been counting when it was forked
            self._cache = None

    def _new_counters(self) -> Counters:
        return Counters(has_workers=not isinstance(self._pool, Inline))

    def _begin(self) -> Results | None:
        """The results of an iteration that begins now, to the end of the round; None where the round is finished.

        An evaluation set starts from its beginning every time, except right after a state was loaded.
        """
        self._leave_to_parent()
        identity = self._identity()
        resumes, self._resumes = self._resumes, False
        if self._results is not None:  # of an earlier iteration, which may not have finished
            self._results.close()
            self._results = None
        if self._stream.split is not None and (not resumes or self.finished):
            self._at = self._start()
        elif self.finished:
            refuse_lightning("__next__")
            return None  # without starting any worker
        plan, recipe = self._stream.plan, self._stream.recipe
        _BEGUN.add(self)
        self._join_cache(identity)
        replaces = "substitute" in (recipe.on_error, recipe.on_length_mismatch)
        maker = TaskMaker(plan, recipe, self._stream.units, identity, self._quarantine if replaces else None)
        self._results = self._pool.results(maker.tasks(self._position, self._number))
        return self._results

    def _delivered(self, asked: float, task: Task, produced: Produced) -> Batch:
        """The batch of a task, which becomes the current position; `asked` is when the training loop asked for it."""
        if asked >= self._join_at and self._cache is None:
            self._join_cache(self._stream.identity())
        if self._cache is not None:
            self._cache.warn()  # before: where warnings are errors, the batch is not delivered
        if self._at is None or self._at.lanes_done == 0:
            self._stream.identity()
        if produced.incidents:
            self._quarantine.record(produced.incidents)
        if self._recorder is not None and task.ends_range:
            self._recorder.moved(self._position.cursor, task.after.cursor)
        self._at = task
        if self._cache is not None:
            self._move_in_cache(self._cache, task)
        names = self._stream.plan.streams[task.work.request.stream].source_names
        batch = batch_of(task, produced.payload, names, produced.incidents, produced.worker)
        self._counters.note(produced.timed, asked, batch.num_samples, task.is_last_in_step)
        return batch

    def _join_cache(self, identity: Identity) -> None:
        """Be a member of the recipe's shard cache from here on; storage that was given has none."""
        if self._stream.recipe.shard_cache is None or self._stream.files is not None:
            return
        cursor = self._position.cursor
        if self._cache is None:
            stream, again = self._stream, self._join_at < inf
            steps = ceil(self._ahead * identity.world_size / self.lanes)
            about = stream.recipe, stream.split, identity, cursor, stream.num_bytes, steps
            self._cache = join_cache(*about, again=again)
            self._join_at = monotonic() + _JOIN_SECONDS if self._cache is None else inf
        else:
            self._cache.restarted(cursor)

    def _rest_in_cache(self) -> None:
        if self._cache is not None:
            self._cache.rest()

    def _move_in_cache(self, cache: CacheMember, task: Task) -> None:
        if task.ends_range:
            cache.moved(task.after.cursor)
        cache.at_step(task.work.request.step + task.is_last_in_step)

    @property
    def _position(self) -> Position:
        """The current position of delivery."""
        if self._state is not None:
            self._at, self._state = restore(self._state, self._stream.plan, self._payload), None
        if self._at is None:
            self._at = self._start()
        elif isinstance(self._at, Task):
            self._at = self._at.after
        return self._at

    def _start(self) -> Position:
        plan = self._stream.plan
        return Position(plan.start(), 0, nothing_yet(plan))

    def _identity(self) -> Identity:
        """Rank and world size; a number of ranks that cannot continue from the loaded state is refused."""
        found = self._stream.identity()
        if self._at is not None and self._at.lanes_done:
            check_takeover(self._position, self.lanes, found.world_size)
        return found

    @cached_property
    def _quarantine(self) -> Quarantine:
        rows = {leaf.source.name: table.num_rows for sources in self._stream.sources for leaf, table in sources}
        return Quarantine(self._stream.recipe, self._stream.plan.fingerprint, self._stream.identity().rank, rows)

    @cached_property
    def _recorder(self) -> Recorder | None:
        records = self._stream.identity().rank == 0 and self._stream.split is None
        return Recorder(self._stream.recipe, self._stream.plan) if records else None


_BEGUN: WeakSet[Delivery] = WeakSet()


@atexit.register
def _close_all() -> None:
    """Close the loaders that a program leaves open when it ends, while all that this takes is still there."""
    for delivery in [*_BEGUN]:
        with suppress(ValueError):  # a thread that is in the middle of an iteration
            delivery.close()


def _overtaken() -> PlayheadError:
    """Two interleaved iterations would each see only part of the batches."""
    return PlayheadError(
        "this iterator was replaced by a newer one of the same loader",
        fix="use one iterator at a time, or make a second loader",
    )
