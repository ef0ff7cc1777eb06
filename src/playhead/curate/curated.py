"""One line of a manifest -> the line with windows, the lines of its kept windows, and facts for the summary."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from playhead.curate.build import LOSS_NAMES, add_up, build_windows, speaker_durations
from playhead.curate.config import CutConfig, WindowConfig
from playhead.curate.cutting import cut_row
from playhead.curate.fast_windows import curate_fast, suits
from playhead.curate.kernels import FloatArray, overlaps_of
from playhead.curate.manifest import WindowSource, speakers_of, window_lines
from playhead.curate.overlap import among, filter_overlaps, times_of
from playhead.curate.rows import CurateRow, check_row, decode, read_row, write_row
from playhead.curate.tally import RowFacts
from playhead.types import IntArray


class Curated(Struct, frozen=True):
    """A row that is done: its line, good until the next row's, the lines of its kept windows, and its facts."""

    line: bytes | bytearray
    windows: bytes
    facts: RowFacts


class Curator:
    """Does row after row.

    Law: a line has the values and the order of keys of what both stages' plain functions give.
    """

    def __init__(self, config: WindowConfig, *, loss_details: bool = True) -> None:
        self._config = config
        self._loss_details = loss_details
        self._suits = suits(config)
        self._encode_into = msgspec.json.Encoder().encode_into
        self._line = bytearray(1 << 18)

    def curate(self, line: bytes, file: str = "", number: int = 0) -> Curated:
        """Raises a RowError that says what is wrong with the line. `file` and row number are its source."""
        done = self.quickly(line, file, number) if self._suits else None
        return self.plainly(read_row(line), file, number) if done is None else done

    def quickly(self, line: bytes, file: str = "", number: int = 0) -> Curated | None:
        """The row by kernels; None if it is unusual or has a fault."""
        try:
            row = decode(line)
        except (msgspec.DecodeError, ValueError, RecursionError):
            return None
        found = curate_fast(row, self._config, loss_details=self._loss_details)
        if found is None:
            return None
        self._encode_into(found.row, self._line)
        self._line += b"\n"
        facts = _facts(row, found.row, found.heard, found.kept, found.overlaps, found.kept_overlaps)
        facts.build_seconds, facts.filter_seconds = found.build_seconds, found.filter_seconds
        return Curated(self._line, window_lines(row, found.kept_segments, WindowSource(file, number)), facts)

    def plainly(self, row: Any, file: str = "", number: int = 0) -> Curated:
        """The row by the stages' plain functions."""
        began = perf_counter()
        built = build_windows(row, self._config, loss_details=self._loss_details)
        between = perf_counter()
        found = filter_overlaps(built, self._config)
        ended = perf_counter()
        line = write_row(found)
        # A row without windows keeps the `filtered_windows` that it brought along; those are none of ours.
        windows = built["windows"]
        times = [times_of(window) for window in windows]
        heard = np.array([len(speaker_durations(window["segments"])) for window in windows], dtype=np.int64)
        kept = among(times, found["filtered"]) if windows else []
        facts = _facts(row, found, heard, kept, overlaps_of(times), overlaps_of([times[i] for i in kept]))
        facts.low_rate = row["audio_sample_rate"] < self._config.min_sample_rate
        facts.build_seconds, facts.filter_seconds = between - began, ended - between
        return Curated(
            line, window_lines(row, [windows[i]["segments"] for i in kept], WindowSource(file, number)), facts
        )


def _facts(
    row: CurateRow, found: CurateRow, heard: IntArray, kept: list[int], overlaps: FloatArray, kept_overlaps: FloatArray
) -> RowFacts:
    """Of a row and what was found in it: speakers and overlaps of all windows; numbers and overlaps of the kept."""
    stats, has_windows = found["stats"], bool(found["windows"])
    durations = found["total_dur_list_window"] if has_windows else []
    return RowFacts(
        num_segments=stats["total_segments"],
        last_end=float(max([segment["end"] for segment in row["segments"]], default=0.0)),
        total_dur=stats["total_dur"],
        losses={reason: (stats[a], stats[b]) for reason, (a, b) in zip(WindowConfig.reasons, LOSS_NAMES, strict=True)},
        durations=np.array(durations, dtype=np.float64),
        speakers=heard,
        overlaps=overlaps,
        kept=np.array(kept, dtype=np.int64),
        kept_overlaps=kept_overlaps,
        kept_dur=add_up([durations[i] for i in kept]),
        total_dur_window=found["total_dur_window"] if has_windows else 0.0,
        filtered_dur=found["filtered_dur"] if has_windows else 0.0,
        truncation_events=found["truncation_events"],
    )


class Cutter:
    """Does row after row. Every window that is cut is kept."""

    def __init__(self, config: CutConfig) -> None:
        self._config = config

    def curate(self, line: bytes, file: str = "", number: int = 0) -> Curated:
        """Raises a RowError that says what is wrong with the line. `file` and row number are its source."""
        row = read_row(line)
        began = perf_counter()
        check_row(row, required=("audio_filepath",))
        found = cut_row(row, self._config)
        facts = _cut_facts(row, found)
        facts.build_seconds = perf_counter() - began
        windows = found["windows"]
        times = [(window["start"], window["end"]) for window in windows]
        source = WindowSource(file, number)
        lines = window_lines(row, [window["segments"] for window in windows], source, times)
        return Curated(write_row(found), lines, facts)


def _cut_facts(row: CurateRow, found: CurateRow) -> RowFacts:
    stats, windows = found["stats"], found["windows"]
    times = [(window["end"], window["start"]) for window in windows]
    durations = [end - start for end, start in times]
    overlaps = overlaps_of(times)
    ends = [segment["end"] for segment in row.get("segments", [])]
    return RowFacts(
        num_segments=stats["total_segments"],
        last_end=float(row.get("duration") or max(ends, default=0.0)),
        total_dur=stats["total_dur"],
        losses={name: (stats[f"lost_{name}"], stats[f"dur_lost_{name}"]) for name in CutConfig.reasons},
        durations=np.array(durations, dtype=np.float64),
        speakers=np.array([len(speakers_of(window["segments"])) for window in windows], dtype=np.int64),
        overlaps=overlaps,
        kept=np.arange(len(windows)),
        kept_overlaps=overlaps,
        kept_dur=add_up(durations),
        total_dur_window=sum(durations, 0.0),
        filtered_dur=sum(durations, 0.0),
    )
