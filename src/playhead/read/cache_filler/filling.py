"""The filler of a shard cache: copies what the plans of all ranks on this node need next, in the order they need it.

One process of a node does it (feed/cache_member.py elects it). Each stream has its own order of fetches and its share
of the space; a unit is on the disk as long as a stream holds it.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from math import inf
from operator import attrgetter

from playhead.errors import PlayheadError
from playhead.read.cache_filler.copying import Copier, DiskError
from playhead.read.cache_filler.fetch_order import Fetch, FetchOrder
from playhead.read.cache_filler.streams import CachedStream, StreamKey
from playhead.recipe.storage import stored_files
from playhead.recipe.values import Recipe
from playhead.store.shard_cache.counters import FillerStatus, ProcessCounters, num_direct, write_status
from playhead.store.shard_cache.directory import CacheDirectory, Unit
from playhead.store.shard_cache.queue import write_queue
from playhead.store.shard_cache.ranks import LiveRank, job_recipe, live_ranks
from playhead.store.shard_cache.refusals import NO_SPACE

_REFRESH_SECONDS = 0.2
_REFRESHES = 2  # until what is planned after one is there
_IDLE_SECONDS = 0.02
_STEPS_AT_A_TIME = 8
_MOST_USES = 100_000  # planned ahead: seconds of planning, and some tens of megabytes
_AHEAD = 3  # times the space is read in what is planned ahead, where all files are not twice the space
_BEYOND_SHARE = 0.75  # of what is planned ahead is behind the step that is decided, where less than the space is
_MOST_DECIDED = 256  # fetches of a stream that wait to be carried out
_LEAD_SHARE = 0.5  # of the space: with room for two groups of shards, one of them is copied while the other is read
_FULL_SHARE = 0.95  # of what was on a disk when it was full
_RETRY_SECONDS = 60.0  # until what could not be copied is planned again
_STEPS_APART = 2  # ranks that train together are nearer
_LEFT_SECONDS = 2.0
_GIVE_WAY_SECONDS = 1.0  # after a read past the cache


class _Member:
    """A stream with its fetches: as far as it is planned, and those that are decided."""

    def __init__(self, stream: CachedStream, ranks: list[LiveRank], order: FetchOrder) -> None:
        self.stream, self.order = stream, order
        self.names = {rank.name for rank in ranks}
        self._steps_ahead = self._steps_in_use = max(rank.about.steps_ahead for rank in ranks)
        first = min(ranks, key=lambda rank: rank.about.cursor[0])
        self._steps: Iterator[tuple[int, dict[Unit, int]]] | None = stream.steps(
            first.about.cursor, [rank.about.rank for rank in ranks]
        )
        self.decided: deque[Fetch] = deque()
        self.fetch_steps: dict[Unit, int] = {}  # of those that are decided
        self._moved: dict[str, tuple[int, float]] = {}  # the step of each rank, and since when
        self.leaving: set[Unit] = set()  # victims of decided fetches, which may still be needed before
        self.now = self.planned_to = first.about.cursor[0]
        self.is_planned = False  # as far ahead as it is planned at a time; before, not all that comes next is decided
        self.too_large: Unit | None = None  # the first that cannot be copied

    def plan_some(self) -> bool:
        """Plan a few more steps, unless enough are planned to choose what to evict; returns whether any were."""
        look_ahead = self.stream.options.look_ahead
        last = inf if look_ahead is None else self.now + self._steps_in_use + look_ahead
        for _ in range(_STEPS_AT_A_TIME):
            if self._steps is None or self.order.num_uses >= _MOST_USES:
                return False
            if self._sees_enough():
                return False
            if self.planned_to > last:
                return False
            found = next(self._steps, None)
            if found is None:
                self._steps = None
                return False
            self.planned_to = found[0] + 1
            self.order.add(*found)
            if self.too_large is None:
                self.too_large = next((unit for unit in found[1] if unit.size > self.order.max_bytes), None)
        return True

    def _sees_enough(self) -> bool:
        """Whether enough is planned: what has no use in it is needed later than anything that would be evicted, and
        of a unit that is to be decided, its uses are planned.
        """
        order, most = self.order, self.order.max_bytes
        return order.undecided_bytes >= most and (order.known_bytes >= 2 * most or order.ahead_bytes >= _AHEAD * most)

    def decide_some(self, *, all_known: bool) -> None:
        order = self.order
        beyond = 0 if self._steps is None else int(min(order.max_bytes, _BEYOND_SHARE * order.ahead_bytes))
        while len(self.decided) < _MOST_DECIDED:
            fetch = order.next_fetch(all_known=all_known, beyond=beyond)
            if fetch is None:
                break
            self.decided.append(fetch)
            self.fetch_steps[fetch.unit] = fetch.step
            self.leaving.update(fetch.victims)

    def holds(self, unit: Unit) -> bool:
        return unit in self.order or unit in self.leaving

    def take(self) -> None:
        """Take the first of the decided fetches from the list."""
        fetch = self.decided.popleft()
        self.fetch_steps.pop(fetch.unit, None)
        self.leaving.difference_update(fetch.victims)

    def advance(self, ranks: list[LiveRank]) -> None:
        """Forget what was delivered on all ranks; one that stands still while others go on does not hold them up."""
        now, best = time.monotonic(), max(rank.step for rank in ranks)
        for rank in ranks:
            if self._moved.get(rank.name, (-1, 0.0))[0] != rank.step:
                self._moved[rank.name] = rank.step, now
        moving = [r.step for r in ranks if r.step > best - _STEPS_APART or now - self._moved[r.name][1] < _LEFT_SECONDS]
        before, self.now = self.now, max(self.now, min(moving))
        self._steps_in_use = max(self._steps_in_use, self._steps_ahead + _REFRESHES * (self.now - before))
        self.order.advance(self.now)

    def is_ready(self, fetch: Fetch) -> bool:
        """Whether its victims have had their last use before it."""
        return all(self.order.next_use(victim, self.now) >= fetch.step for victim in fetch.victims)

    def next_ready(self) -> Fetch | None:
        return self.decided[0] if self.decided and self.is_ready(self.decided[0]) else None

    def comes_in_time(self, unit: Unit) -> bool:
        """Whether no step reads a unit before its fetch can be carried out: that step would wait for itself."""
        needed = self.order.next_use(unit, self.now)
        return needed == inf or (unit in self.order and self.fetch_steps.get(unit, -1) <= needed)


class Filler:
    """Fills the cache in a directory until it is told to stop."""

    def __init__(self, directory: CacheDirectory, say: Callable[[str], None]) -> None:
        marker = directory.marker()
        self._directory, self._say = directory, say
        self._generation = 0 if marker is None else marker.generation
        self._members: dict[StreamKey, _Member] = {}
        self._unusable: set[StreamKey] = set()
        self._counters = ProcessCounters(directory)
        self._copier = Copier(directory, self._generation, self._counters)
        self._limit: int | None = None  # less than was asked for, where the disk is full
        self._retry_at = inf
        self._total_bytes = 0
        self._num_begun = 0
        self._refreshed_at = self._passed_at = -inf
        self._num_direct = num_direct(directory)
        self._said: set[str] = set()
        self._published: list[Unit] | None = None

    def run(self, stopped: Callable[[], bool]) -> None:
        try:
            while not stopped() and self._is_current():
                self._refresh()
                worked = self._copy()
                worked |= self._plan()
                self._publish()
                if not worked:
                    time.sleep(_IDLE_SECONDS)
        finally:
            self._copier.close()
            write_queue(self._directory, [])
            self._counters.close()

    def _is_current(self) -> bool:
        """Whether its ranks are those of the current generation: others have come where all of them ended. And whether
        the cache is whole: one that is being removed is filled no more.
        """
        marker = self._directory.marker()
        return marker is not None and marker.generation == self._generation and not self._directory.missing()

    def _refresh(self) -> None:
        """Look at the ranks that live now and need something."""
        now = time.monotonic()
        if now - self._refreshed_at < _REFRESH_SECONDS:
            return
        self._refreshed_at = now
        if self._num_direct != (direct := num_direct(self._directory)):
            self._num_direct, self._passed_at = direct, now
        self._copier.gives_way = now - self._passed_at < _GIVE_WAY_SECONDS
        by_stream: dict[StreamKey, list[LiveRank]] = {}
        for rank in live_ranks(self._directory):
            if not rank.about.is_idle:
                by_stream.setdefault(StreamKey.of(rank), []).append(rank)
        known = {key: member.names for key, member in self._members.items()}
        found = {key: {rank.name for rank in ranks} for key, ranks in by_stream.items() if key not in self._unusable}
        if found != known or now >= self._retry_at:
            self._retry_at, self._limit = inf, None
            self._begin({key: by_stream[key] for key in found})
        for key, member in self._members.items():
            member.advance(by_stream[key])

    def _begin(self, by_stream: dict[StreamKey, list[LiveRank]]) -> None:
        """Plan every stream anew, from where it stands."""
        streams: dict[StreamKey, CachedStream] = {}
        for key in by_stream:
            try:
                streams[key] = self._opened(key)
            except (PlayheadError, OSError, ImportError) as error:
                if any(StreamKey.of(rank) == key for rank in live_ranks(self._directory)):
                    self._leave_out(key, error)  # else its recipe went with its last rank
        self._members = {}
        present = self._copier.present()
        for key, stream in streams.items():
            share = min(each.options.max_bytes for each in streams.values()) // len(streams)
            order = FetchOrder(share, *present, lead_bytes=int(_LEAD_SHARE * share))
            self._members[key] = _Member(stream, by_stream[key], order)
        self._resize()
        self._total_bytes = sum(max(rank.about.total_bytes for rank in by_stream[key]) for key in streams)

    def _leave_out(self, key: StreamKey, error: Exception) -> None:
        """Copy nothing more for a stream, and say so; the others go on."""
        self._unusable.add(key)
        if self._is_current():  # else its recipe may be gone with the cache
            self._say(f"a stream is read without the shard cache: {error}")

    def _opened(self, key: StreamKey) -> CachedStream:
        known = self._members.get(key)
        if known is not None:
            return known.stream
        recipe = Recipe.parse(job_recipe(self._directory, key.job), "/")
        return CachedStream(recipe, key, stored_files(recipe))

    def _resize(self) -> None:
        """Divide the space among the streams."""
        limit = self._max_bytes() if self._limit is None else min(self._max_bytes(), self._limit)
        self._copier.max_bytes = limit
        for member in self._members.values():
            member.order.resize(limit // len(self._members))

    def _max_bytes(self) -> int:
        """The most bytes that all jobs here allow; where there is none, nothing need be evicted."""
        return min((member.stream.options.max_bytes for member in self._members.values()), default=sys.maxsize)

    def _plan(self) -> bool:
        worked = False
        for key, member in [*self._members.items()]:
            try:
                planned = member.plan_some()
            except (PlayheadError, OSError) as error:  # a file that is asked for its size is not there any more
                del self._members[key]
                self._leave_out(key, error)
                continue
            if member.too_large is not None and self._limit is None:  # a full disk was reported already
                self._say_too_large(member, member.too_large)
            member.is_planned |= not planned
            member.decide_some(all_known=not planned)
            worked |= planned
        return worked

    def _say_too_large(self, member: _Member, unit: Unit) -> None:
        self._say_once(
            "too large",
            f"{unit.path}: {unit.size:,} bytes are copied together, and the shard cache has {member.order.max_bytes:,} "
            "for this stream; it is read from its storage. Raise `max_bytes`, or choose `unit: block` or `range`",
        )

    def _copy(self) -> bool:
        """Begin the fetches that can be, and finish what has arrived; returns whether anything was done."""
        worked = False
        if self._is_planned():  # else it is not known what is needed last
            self._copier.trim(self._max_bytes(), self._is_held)
        while not self._copier.is_busy and (found := self._next_fetch()) is not None:
            member, fetch = found
            if self._is_past(member, fetch):
                member.take()
                member.order.lose(fetch.unit)
                continue
            member.take()
            worked = True
            self._num_begun += 1
            others = [other for other in self._members.values() if other is not member]
            victims = [unit for unit in fetch.victims if not any(other.holds(unit) for other in others)]
            if not self._copier.begin(fetch.unit, member.stream.files, victims, self._is_held):
                member.order.lose(fetch.unit)
        try:
            lost = self._copier.finish_some()
        except DiskError as error:
            lost = error.units
            self._shrink(error)
        if self._copier.problem is not None:
            self._say_once("failed", f"some files cannot be copied into the shard cache: {self._copier.problem}")
        if lost:
            self._retry_at = min(self._retry_at, time.monotonic() + _RETRY_SECONDS)
        for unit in lost or ():
            for member in self._members.values():
                member.order.lose(unit)
        return worked or lost is not None

    def _next_fetch(self) -> tuple[_Member, Fetch] | None:
        """The fetch that is needed soonest, counted in steps from where its stream stands."""
        ready = [(member, fetch) for member in self._members.values() if (fetch := member.next_ready()) is not None]
        return min(ready, key=lambda each: each[1].step - each[0].now, default=None)

    def _is_past(self, member: _Member, fetch: Fetch) -> bool:
        """Whether the steps that needed a unit were delivered before it was copied."""
        return member.order.next_use(fetch.unit, member.now) == inf

    def _is_held(self, unit: Unit) -> bool:
        return any(member.holds(unit) for member in self._members.values())

    def _shrink(self, error: DiskError) -> None:
        """Use less of a disk that is full, or cannot be written, and try again later."""
        problem = error.__cause__
        assert isinstance(problem, OSError)
        if isinstance(problem, FileNotFoundError):  # folders are being removed: perhaps the whole cache
            return
        if isinstance(problem, IsADirectoryError):
            place = problem.filename2 or problem.filename
            self._say_once(
                "directory",
                f"{place}: a directory is where a copy belongs, which is read from its storage instead. Remove it",
            )
            return
        self._limit = int(error.num_bytes * _FULL_SHARE)
        self._resize()
        if not self._is_current():  # it was removed
            return
        full = problem.errno in NO_SPACE
        found = "no space left on its disk" if full else f"cannot be written: {problem.strerror or problem}"
        self._say_once(
            "full",
            f"{self._directory.root}: {found}; the shard cache holds {error.num_bytes:,} bytes there, and what does "
            "not fit is read from its storage",
        )

    def _say_once(self, about: str, message: str) -> None:
        if about not in self._said:
            self._said.add(about)
            self._say(message)

    def _publish(self) -> None:
        """What readers may wait for: the units that are being copied, and those that are next."""
        queue = sorted({*self._copier.units(), *self._awaited()}, key=attrgetter("path", "first"))
        if queue != self._published:
            self._published = queue
            write_queue(self._directory, queue)
        if self._members or self._unusable:
            copied = self._counters.counts.copied_bytes
            status = FillerStatus(self._generation, copied, self._total_bytes, self._num_events())
            write_status(self._directory, status)

    def _awaited(self) -> Iterator[Unit]:
        """The units that will come without, or before, the steps that read them.

        Where streams have units of different kinds, a step of one may read a part of what another is to fetch later:
        only what can be fetched at once is sure to come.
        """
        members = [*self._members.values()]
        is_one_kind = len({member.stream.options.unit for member in members}) == 1
        for member in members:
            can_begin = True
            for fetch in member.decided:
                can_begin = can_begin and member.is_ready(fetch)
                if can_begin or (is_one_kind and all(each.comes_in_time(fetch.unit) for each in members)):
                    yield fetch.unit

    def _is_planned(self) -> bool:
        return all(member.is_planned for member in self._members.values())

    def _num_events(self) -> int:
        """A number that grows with everything that is done; 0 while readers cannot know what will come."""
        if not self._is_planned():
            return 0
        counts = self._counters.counts
        return 1 + self._num_begun + counts.copied_bytes + counts.kept_units + counts.damaged_units + counts.failures
