"""Rows counted one by one into a summary."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
import numpy as np
from msgspec import Struct

from playhead.curate.config import CutConfig, WindowConfig
from playhead.curate.kernels import FloatArray
from playhead.curate.summary import (
    NUM_DURATION_BINS,
    NUM_OVERLAP_BINS,
    NUM_SHOWN,
    CurateSummary,
    Metrics,
    Notable,
    SpeechLoss,
    WindowHistogram,
    most,
)
from playhead.types import IntArray, kernel

_NUMBERS = (
    *("num_rows", "num_segments", "seconds_recorded", "seconds_in", "num_low_rate", "num_without_windows"),
    *("num_windows", "num_kept"),
    *("num_truncations", "seconds_windows", "seconds_kept", "filtered_dur", "process_entry_time", "filter_time"),
)


class RowFacts(Struct):
    """The values of one row for a summary: numbers under its own names, windows in order, those kept by number."""

    numbers: dict[str, float]
    losses: dict[str, tuple[int, float]]
    durations: FloatArray
    speakers: IntArray
    overlaps: FloatArray
    kept: IntArray
    kept_overlaps: FloatArray


@dataclass
class CurateTally:
    """Sums rows; `summary` is the current total."""

    config: WindowConfig | CutConfig
    numbers: dict[str, float] = field(default_factory=lambda: dict.fromkeys(_NUMBERS, 0))
    rejected: dict[str, int] = field(default_factory=dict)
    slowest: list[Notable] = field(default_factory=list)
    largest: list[Notable] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.losses = dict.fromkeys(self.config.reasons, SpeechLoss())
        low, high = self.config.min_duration, self.config.max_duration
        self._edges: dict[str, FloatArray] = {
            "duration": np.linspace(low, high, NUM_DURATION_BINS + 1)
            if high > low
            else np.array([low - 0.5, low + 0.5]),
            "speakers": np.arange(self.config.max_speakers + 2, dtype=np.float64) - 0.5,
            "overlap": np.linspace(0.0, 1.0, NUM_OVERLAP_BINS + 1),
        }
        self._counts = [np.zeros((2, edges.size - 1), dtype=np.int64) for edges in self._edges.values()]

    def add(self, facts: RowFacts) -> None:
        for name, number in facts.numbers.items():
            self.numbers[name] += number
        for reason, (count, seconds) in facts.losses.items():
            if not count:
                continue
            before = self.losses[reason]
            self.losses[reason] = SpeechLoss(before.count + count, before.seconds + seconds)
        _count(
            facts.durations,
            facts.speakers,
            facts.overlaps,
            facts.kept,
            facts.kept_overlaps,
            self._edges["duration"],
            self._edges["overlap"],
            *self._counts,
        )

    def reject(self, reason: str) -> None:
        self.rejected[reason] = self.rejected.get(reason, 0) + 1

    def note(self, row: Notable) -> None:
        """Keep a row that is among the slowest or the largest so far."""
        for rows, by in ((self.slowest, "seconds"), (self.largest, "bytes")):
            if len(rows) < NUM_SHOWN or getattr(row, by) > getattr(rows[-1], by):
                rows[:] = most([*rows, row], by)

    def notable(self, seconds: float, num_bytes: int) -> bool:
        """Whether a row would be noted: finding its line costs time."""
        if len(self.largest) < NUM_SHOWN:
            return True
        return seconds > self.slowest[-1].seconds or num_bytes > self.largest[-1].bytes

    def summary(self, bytes_in: int, bytes_out: int, seconds: float) -> CurateSummary:
        of = {name: number for name, number in self.numbers.items() if name in CurateSummary.__struct_fields__}
        histograms = {
            f"{when}_{what}": WindowHistogram(tuple(edges.tolist()), tuple(counts[row].tolist()))
            for row, when in enumerate(("windows", "kept"))
            for (what, edges), counts in zip(self._edges.items(), self._counts, strict=True)
        }
        return CurateSummary(
            stage=self.config.stage,
            parameters=msgspec.to_builtins(self.config),
            **of,  # type: ignore[arg-type]
            num_rejected=sum(self.rejected.values()),
            bytes_in=bytes_in,
            bytes_out=bytes_out,
            losses=self.losses,
            rejected=dict(sorted(self.rejected.items())),
            histograms=histograms,
            slowest=tuple(self.slowest),
            largest=tuple(self.largest),
            metrics=self._metrics(seconds),
            num_shards=1,
        )

    def _metrics(self, seconds: float) -> Metrics:
        of = self.numbers
        return Metrics(
            process_entry_time=of["process_entry_time"],
            segments_processed=int(of["num_segments"]),
            windows_created=int(of["num_windows"]),
            filter_time=of["filter_time"],
            input_windows=int(of["num_windows"]),
            output_windows=int(of["num_kept"]),
            filtered_dur=of["filtered_dur"],
            process_time=seconds,
        )


@kernel
def _bin_of(value: float, edges: FloatArray) -> int:
    """The bin of a value; the first or the last for one outside the range, the last for NaN."""
    found = 0
    while found < edges.size - 2 and not value < edges[found + 1]:
        found += 1
    return found


@kernel
def _count(
    durations: FloatArray,
    speakers: IntArray,
    overlaps: FloatArray,
    kept: IntArray,
    kept_overlaps: FloatArray,
    duration_edges: FloatArray,
    overlap_edges: FloatArray,
    by_duration: IntArray,
    by_speakers: IntArray,
    by_overlap: IntArray,
) -> None:
    """Count a row's windows into the first row of each histogram, the kept ones into the second."""
    most_speakers = by_speakers.shape[1] - 1
    for i in range(durations.size):
        by_duration[0, _bin_of(durations[i], duration_edges)] += 1
        by_speakers[0, min(speakers[i], most_speakers)] += 1
        by_overlap[0, _bin_of(overlaps[i], overlap_edges)] += 1
    for i in range(kept.size):
        by_duration[1, _bin_of(durations[kept[i]], duration_edges)] += 1
        by_speakers[1, min(speakers[kept[i]], most_speakers)] += 1
        by_overlap[1, _bin_of(kept_overlaps[i], overlap_edges)] += 1
