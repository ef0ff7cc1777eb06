"""Bad samples: what stands in for them, and the record that makes a replay identical."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from msgspec import Struct

from playhead.order.hashing import nth_below
from playhead.seeds import extend
from playhead.types import IntArray

NUM_CANDIDATES = 64


class Incident(Struct, frozen=True):
    """A pick whose sample was bad: the row that stood in (None: an empty slot), and why.

    `row` is quarantined from `epoch` on.
    """

    source: str
    epoch: int
    row: int
    substitute: int | None
    reason: str
    step: int = 0
    lane: int = 0


@dataclass
class Faults:
    """What is known to be bad, and what stood in for it: a record from earlier runs, added to as we go."""

    quarantined: dict[tuple[str, int], int] = field(default_factory=dict)
    replaced: dict[tuple[str, int, int], int | None] = field(default_factory=dict)

    @classmethod
    def known(cls, incidents: Iterable[Incident]) -> Faults:
        faults = cls()
        for incident in incidents:
            faults.add(incident)
        return faults

    def add(self, incident: Incident) -> None:
        key = (incident.source, incident.row)
        self.quarantined[key] = min(incident.epoch, self.quarantined.get(key, incident.epoch))
        self.replaced.setdefault((incident.source, incident.epoch, incident.row), incident.substitute)

    def is_bad(self, source: str, epoch: int, row: int) -> bool:
        """Whether a row was found bad at this epoch or before."""
        known = self.quarantined.get((source, row))
        return known is not None and known <= epoch


def candidates(source_key: int, epoch: int, row: int, num_rows: int) -> IntArray:
    """The rows that may stand in for a pick, keyed by it: the same whoever asks."""
    key = np.uint64(extend(source_key, "substitute", epoch, row))
    return np.array([nth_below(key, i, min(num_rows, 1 << 32)) for i in range(NUM_CANDIDATES)], np.int64)
