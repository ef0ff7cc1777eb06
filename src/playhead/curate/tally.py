"""Rows counted one by one into a summary."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
import numpy as np
from msgspec import Struct

from playhead.curate.build import add_up
from playhead.curate.config import WindowConfig
from playhead.curate.cut_config import CutConfig
from playhead.curate.search import FloatArray
from playhead.curate.summary import (
    NUM_DURATION_BINS,
    NUM_OVERLAP_BINS,
    NUM_SHOWN,
    Histogram,
    Loss,
    Metrics,
    Notable,
    Summary,
    most,
)

_MANY = 1 << 16
_NUMBERS = (
    *("num_rows", "num_segments", "seconds_recorded", "seconds_in", "num_low_rate", "num_without_windows"),
    *("num_windows", "num_kept"),
    *("num_truncations", "seconds_windows", "seconds_kept", "filtered_dur", "process_entry_time", "filter_time"),
)


class RowFacts(Struct):
    """What a summary takes from one row. Windows are in order; `kept` are numbers of windows."""

    num_segments: int
    last_end: float
    total_dur: float
    losses: dict[str, tuple[int, float]]
    truncation_events: int
    low_rate: bool
    durations: list[float]
    speakers: list[int]
    overlaps: FloatArray
    kept: list[int]
    kept_overlaps: FloatArray
    total_dur_window: float
    filtered_dur: float
    build_seconds: float
    filter_seconds: float


@dataclass
class Tally:
    """Adds rows up; `summary` at any time says what there is."""

    config: WindowConfig | CutConfig
    numbers: dict[str, float] = field(default_factory=lambda: dict.fromkeys(_NUMBERS, 0))
    rejected: dict[str, int] = field(default_factory=dict)
    slowest: list[Notable] = field(default_factory=list)
    largest: list[Notable] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.losses = dict.fromkeys(self.config.reasons, Loss())
        low, high = self.config.min_duration, self.config.max_duration
        speakers = np.arange(self.config.max_speakers + 2) - 0.5
        self._edges = {
            "duration": np.linspace(low, high, NUM_DURATION_BINS + 1)
            if high > low
            else np.array([low - 0.5, low + 0.5]),
            "speakers": speakers,
            "overlap": np.linspace(0.0, 1.0, NUM_OVERLAP_BINS + 1),
        }
        names = [f"{when}_{what}" for when in ("windows", "kept") for what in self._edges]
        self._counts = {name: np.zeros(self._edges[name.split("_")[1]].size - 1, dtype=np.int64) for name in names}
        self._waiting: dict[str, list[float]] = {name: [] for name in names}

    def add(self, facts: RowFacts) -> None:
        kept, durations, numbers = facts.kept, facts.durations, self.numbers
        kept_durations = [durations[i] for i in kept]
        numbers["num_rows"] += 1
        numbers["num_segments"] += facts.num_segments
        numbers["seconds_recorded"] += facts.last_end
        numbers["seconds_in"] += facts.total_dur
        numbers["num_low_rate"] += facts.low_rate
        numbers["num_without_windows"] += not durations
        numbers["num_windows"] += len(durations)
        numbers["num_kept"] += len(kept)
        numbers["num_truncations"] += facts.truncation_events
        numbers["seconds_windows"] += facts.total_dur_window
        numbers["seconds_kept"] += add_up(kept_durations)
        numbers["filtered_dur"] += facts.filtered_dur
        numbers["process_entry_time"] += facts.build_seconds
        numbers["filter_time"] += facts.filter_seconds
        for reason, (count, seconds) in facts.losses.items():
            if not count:
                continue
            before = self.losses[reason]
            self.losses[reason] = Loss(before.count + count, before.seconds + seconds)
        waiting = self._waiting
        waiting["windows_duration"] += facts.durations
        waiting["windows_speakers"] += facts.speakers
        waiting["windows_overlap"] += facts.overlaps.tolist()
        waiting["kept_duration"] += kept_durations
        waiting["kept_speakers"] += [facts.speakers[i] for i in kept]
        waiting["kept_overlap"] += facts.kept_overlaps.tolist()
        if len(waiting["windows_duration"]) > _MANY:
            self._count()

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

    def _count(self) -> None:
        for name, values in self._waiting.items():
            edges = self._edges[name.split("_")[1]]
            bins = np.clip(np.searchsorted(edges, np.array(values), side="right") - 1, 0, edges.size - 2)
            self._counts[name] += np.bincount(bins, minlength=edges.size - 1)
            values.clear()

    def summary(self, bytes_in: int, bytes_out: int, seconds: float) -> Summary:
        self._count()
        of = {name: number for name, number in self.numbers.items() if name in Summary.__struct_fields__}
        histograms = {
            name: Histogram(tuple(self._edges[name.split("_")[1]].tolist()), tuple(counts.tolist()))
            for name, counts in self._counts.items()
        }
        return Summary(
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
