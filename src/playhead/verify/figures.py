"""What was measured on the way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from playhead.verify.verdict import Share


@dataclass(frozen=True)
class Figures:
    """Seconds to the first batch (of the slowest rank) and waited for each later step, memory by rank and step, and
    the proportions of the sources.
    """

    seconds_to_first: float | None = None
    step_seconds: tuple[float, ...] = ()
    memory: dict[int, tuple[int, ...]] = field(default_factory=dict)
    shares: tuple[Share, ...] = ()


def percentile(values: Sequence[float], percent: float) -> float:
    return float(np.percentile(values, percent))
