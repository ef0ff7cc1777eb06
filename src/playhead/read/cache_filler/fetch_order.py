"""Which units of files a shard cache copies, in which order, and what it evicts for them: a pure function of the plan.

The rule is Belady's, ahead of time. Steps are gone through in order, as far as they are planned; a unit that is missing
is fetched, and evicted for it are the units that are needed furthest in the future. A fetch may be carried out as soon
as its victims have had their last use before it. So no more is fetched than with any rule that fetches on demand.

But where that last use is just before, the fetch would come too late: whole groups of shards are needed at once. So
victims are chosen among the units that are not used in the steps before it, in which `lead_bytes` of units are used up;
then, if there are too few, in a half and a quarter as many, and at last among all.

A unit is not worth a fetch if less than half of it is read before its victims are needed again: its ranges are then
cheaper to read one by one. That is so in a global shuffle over more than the cache holds.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf
from typing import NamedTuple

from playhead.store.shard_cache.directory import Unit

_TRIMMED = 256  # uses in the past that are dropped together
_MOST_OUTDATED = 1024  # entries of the heap, beside as many as are valid


class Fetch(NamedTuple):
    """A unit to copy (or, of an earlier run, to check), the step that needs it, and what is evicted for it."""

    unit: Unit
    step: int
    victims: tuple[Unit, ...] = ()


class FetchOrder:
    """Decides the fetches of one stream, for a cache of `max_bytes`.

    `resident` are the units that are there, `unchecked` those that must be checked before their first use. Without
    `lead_bytes` the fewest bytes are fetched, with them fetches can be carried out that much ahead of their use.
    """

    def __init__(
        self, max_bytes: int, resident: Iterable[Unit] = (), unchecked: Iterable[Unit] = (), *, lead_bytes: int = 0
    ) -> None:
        self.max_bytes, self.lead_bytes = max_bytes, lead_bytes
        self._uses: dict[Unit, _Uses] = {}
        self._planned: deque[tuple[int, int, tuple[Unit, ...]]] = deque()  # what steps need that are not delivered
        self._undecided: deque[tuple[int, int, deque[Unit]]] = deque()
        self._now = self._step = 0
        self._numbers = count()
        self._furthest: list[tuple[float, int, Unit]] = []  # a heap; entries are corrected when they are taken
        self._entries: dict[Unit, int] = {}  # the number of each unit's entry in the heap; others are out of date
        self._resident: set[Unit] = set()
        self._unchecked = set(unchecked)
        self.num_bytes = 0
        self.num_uses = 0
        self.known_bytes = 0  # of all units with a planned use
        self.ahead_bytes = 0  # read by planned steps that are not delivered
        self.undecided_bytes = 0  # read by planned steps that are not decided
        for unit in [*resident, *self._unchecked]:
            self._admit(unit)

    def __contains__(self, unit: Unit) -> bool:
        return unit in self._resident

    def add(self, step: int, needs: Mapping[Unit, int]) -> None:
        """What the next step reads: units in order of need, each with the bytes read of it."""
        if step < self._now:
            return
        for unit, num_bytes in needs.items():
            uses = self._uses.get(unit)
            if uses is None:
                uses = self._uses[unit] = _Uses()
                self.known_bytes += unit.size
            uses.add(step, num_bytes)
        num_bytes = sum(needs.values())
        self.ahead_bytes += num_bytes
        self.num_uses += len(needs)
        self._planned.append((step, num_bytes, tuple(needs)))
        self.undecided_bytes += num_bytes
        self._undecided.append((step, num_bytes, deque(needs)))

    def advance(self, now: int) -> None:
        """Forget what steps before `now` needed: they were delivered."""
        if now <= self._now:
            return
        self._now = now
        while self._undecided and self._undecided[0][0] < now:
            self._decide()
        while self._planned and self._planned[0][0] < now:
            _, num_bytes, units = self._planned.popleft()
            self.ahead_bytes -= num_bytes
            self.num_uses -= len(units)
            for unit in units:
                self._trim(unit)

    def _trim(self, unit: Unit) -> None:
        uses = self._uses.get(unit)
        if uses is not None:
            uses.trim(self._now)
            if not uses.steps:
                del self._uses[unit]
                self.known_bytes -= unit.size

    def next_use(self, unit: Unit, after: int) -> float:
        """The first planned step from `after` on that needs a unit; infinity if none is known."""
        uses = self._uses.get(unit)
        return inf if uses is None else uses.next(after)

    def _decide(self) -> None:
        """Done with the first undecided step."""
        self.undecided_bytes -= self._undecided.popleft()[1]

    def next_fetch(self, *, all_known: bool, beyond: int = 0) -> Fetch | None:
        """The next fetch; None where all planned steps are decided, or none can be for now.

        `all_known` says that no more will be planned for now: before, nothing is evicted; nor where undecided steps
        read less than `beyond` bytes, if more is still to be planned: what a unit is worth would not be known.
        """
        while self._undecided:
            step, _, units = self._undecided[0]
            self._step = step
            while units:
                unit = units[0]
                if unit in self._resident:
                    units.popleft()
                    self._push(unit)
                    if unit in self._unchecked:
                        self._unchecked.remove(unit)
                        return Fetch(unit, step)
                    continue
                may_evict = all_known and self.undecided_bytes >= beyond
                if self.num_bytes + unit.size > self.max_bytes and not may_evict:
                    return None
                units.popleft()
                victims = self._victims(unit, step)
                if victims is not None:
                    self._admit(unit)
                    return Fetch(unit, step, victims)
            self._decide()
        return None

    def lose(self, unit: Unit) -> None:
        """A unit is not there: it could not be copied, or was damaged."""
        if unit in self._resident:
            self._resident.remove(unit)
            self.num_bytes -= unit.size
            self._unchecked.discard(unit)
            self._entries.pop(unit, None)

    def resize(self, max_bytes: int) -> None:
        """Hold less, or more: what is needed furthest in the future is given up."""
        self.max_bytes = max_bytes
        while self.num_bytes > max_bytes and (unit := self._pop_furthest()) is not None:
            self.lose(unit)

    def _victims(self, unit: Unit, step: int) -> tuple[Unit, ...] | None:
        """The units to evict for one, which are given up; None if it is not worth it, and nothing is."""
        lead = self.lead_bytes * len(self._planned) // max(1, self.ahead_bytes, self.known_bytes)
        for unused in dict.fromkeys((lead, lead // 2, lead // 4, 0)):
            victims = self._unused_victims(unit, step, unused)
            if victims is not None:
                for victim in victims:
                    self.lose(victim)
                return tuple(victims)
        return None

    def _unused_victims(self, unit: Unit, step: int, unused: int) -> list[Unit] | None:
        """Victims that are not used in so many steps before a step, and not in the step."""
        victims: list[Unit] = []
        in_use: list[Unit] = []
        freed, worth = 0, True
        while worth and self.num_bytes - freed + unit.size > self.max_bytes:
            furthest = self._pop_furthest()
            if furthest is None:
                worth = False
            elif self.next_use(furthest, max(self._now, step - unused)) <= step:
                in_use.append(furthest)
            else:
                victims.append(furthest)
                freed += furthest.size
                worth = 2 * self._uses[unit].num_bytes(step, self.next_use(furthest, step)) >= unit.size
        for other in in_use if worth else [*in_use, *victims]:
            self._push(other)
        return victims if worth else None

    def _admit(self, unit: Unit) -> None:
        if unit not in self._resident:
            self._resident.add(unit)
            self.num_bytes += unit.size
            self._push(unit)

    def _push(self, unit: Unit) -> None:
        number = self._entries[unit] = next(self._numbers)
        heappush(self._furthest, (-self.next_use(unit, self._step + 1), number, unit))
        if len(self._furthest) > _MOST_OUTDATED + 2 * len(self._entries):
            self._furthest = [entry for entry in self._furthest if self._entries.get(entry[2]) == entry[1]]
            heapify(self._furthest)

    def _pop_furthest(self) -> Unit | None:
        """Take the resident unit that is needed furthest in the future from the heap: each only once."""
        while self._furthest:
            entry, number, unit = heappop(self._furthest)
            if self._entries.get(unit) != number:
                continue
            if -self.next_use(unit, self._step + 1) == entry:
                del self._entries[unit]
                return unit
            self._push(unit)
        return None


class _Uses:
    """The planned uses of a unit: steps in order, and the bytes up to each."""

    def __init__(self) -> None:
        self.steps: list[int] = []
        self._bytes: list[int] = []

    def add(self, step: int, num_bytes: int) -> None:
        if self.steps and self.steps[-1] == step:
            self._bytes[-1] += num_bytes
            return
        self.steps.append(step)
        self._bytes.append(num_bytes)

    def next(self, after: int) -> float:
        i = bisect_left(self.steps, after)
        return self.steps[i] if i < len(self.steps) else inf

    def num_bytes(self, first: float, end: float) -> int:
        return sum(self._bytes[bisect_left(self.steps, first) : bisect_left(self.steps, end)])

    def trim(self, now: int) -> None:
        """Drop the uses before a step, once they are many or all."""
        i = bisect_left(self.steps, now)
        if i >= _TRIMMED or i == len(self.steps):
            del self.steps[:i]
            del self._bytes[:i]
