"""One line of a manifest -> the line with windows, the lines of its kept windows, and facts for the summary."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from time import perf_counter
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from playhead.curate.build import add_up, build_windows, speaker_durations
from playhead.curate.config import CutConfig, WindowConfig
from playhead.curate.cutting import cut_row
from playhead.curate.fast_windows import WindowedRow, curate_fast, suits
from playhead.curate.kernels import FloatArray, overlaps_of
from playhead.curate.manifest import WindowSource, speakers_of, window_lines
from playhead.curate.overlap import among, filter_overlaps, times_of
from playhead.curate.rows import CurateRow, check_row, decode, read_row, write_row
from playhead.curate.tally import RowFacts
from playhead.types import IntArray


class Curated(Struct, frozen=True):
    """A processed row: its line, valid until the next row, the lines of its kept windows, and its facts."""

    line: bytes | bytearray
    windows: bytes
    facts: RowFacts


class Curator:
    """Processes rows one by one.

    Law: a line has the values and the order of keys that both stages' plain functions return.
    """

    def __init__(self, config: WindowConfig, *, loss_details: bool = True) -> None:
        self._config = config
        self._loss_details = loss_details
        self._suits = suits(config)
        self._encode_into = msgspec.json.Encoder().encode_into
        self._line = bytearray(1 << 18)

    def curate(self, line: bytes, file: str = "", number: int = 0) -> Curated:
        """Raises a RowError that describes the problem. `file` and row number are the source of the line."""
        done = self.quickly(line, file, number) if self._suits else None
        return self.plainly(read_row(line), file, number) if done is None else done

    def quickly(self, line: bytes, file: str = "", number: int = 0) -> Curated | None:
        """The row by kernels; None if it is unusual or bad."""
        try:
            row = decode(line)
        except (msgspec.DecodeError, ValueError, RecursionError):
            return None
        found = curate_fast(row, self._config, loss_details=self._loss_details)
        if found is None:
            return None
        self._encode_into(found.row, self._line)
        self._line += b"\n"
        return self._curated(self._line, row, found, WindowSource(file, number))

    def plainly(self, row: Any, file: str = "", number: int = 0) -> Curated:
        """The row by the stages' plain functions."""
        began = perf_counter()
        built = build_windows(row, self._config, loss_details=self._loss_details)
        between = perf_counter()
        found = filter_overlaps(built, self._config)
        ended = perf_counter()
        line = write_row(found)
        # A row without windows keeps the `filtered_windows` of its input; those are not from this run.
        windows = built["windows"]
        times = [times_of(window) for window in windows]
        num_speakers = np.array([len(speaker_durations(window["segments"])) for window in windows], dtype=np.int64)
        kept = among(times, found["filtered"]) if windows else []
        done = WindowedRow(
            found,
            num_speakers,
            overlaps_of(times),
            kept,
            overlaps_of([times[i] for i in kept]),
            [windows[i]["segments"] for i in kept],
            between - began,
            ended - between,
        )
        return self._curated(line, row, done, WindowSource(file, number))

    def _curated(self, line: bytes | bytearray, row: CurateRow, done: WindowedRow, source: WindowSource) -> Curated:
        has_windows = bool(done.row["windows"])
        facts = _facts(
            done.row["stats"],
            WindowConfig.reasons,
            done.row["total_dur_list_window"] if has_windows else [],
            done.num_speakers,
            done.overlaps,
            done.kept,
            done.kept_overlaps,
            seconds_recorded=float(max([segment["end"] for segment in row["segments"]], default=0.0)),
            num_low_rate=row["audio_sample_rate"] < self._config.min_sample_rate,
            num_truncations=done.row["truncation_events"],
            filtered_dur=done.row["filtered_dur"] if has_windows else 0.0,
            process_entry_time=done.build_seconds,
            filter_time=done.filter_seconds,
        )
        return Curated(line, window_lines(row, done.kept_segments, source), facts)


class Cutter:
    """Processes rows one by one. Every window that is cut is kept."""

    def __init__(self, config: CutConfig) -> None:
        self._config = config

    def curate(self, line: bytes, file: str = "", number: int = 0) -> Curated:
        """Raises a RowError that describes the problem. `file` and row number are the source of the line."""
        row = read_row(line)
        began = perf_counter()
        check_row(row, required=("audio_filepath",))
        found = cut_row(row, self._config)
        ended = perf_counter()
        segments = [window["segments"] for window in found["windows"]]
        times = [(window["start"], window["end"]) for window in found["windows"]]
        durations = [end - start for start, end in times]
        overlaps = overlaps_of([(end, start) for start, end in times])
        ends = [segment["end"] for segment in row.get("segments", [])]
        facts = _facts(
            found["stats"],
            CutConfig.reasons,
            durations,
            np.array([len(speakers_of(each)) for each in segments], dtype=np.int64),
            overlaps,
            range(len(times)),
            overlaps,
            seconds_recorded=float(row.get("duration") or max(ends, default=0.0)),
            filtered_dur=add_up(durations) or 0.0,
            process_entry_time=ended - began,
        )
        return Curated(write_row(found), window_lines(row, segments, WindowSource(file, number), times), facts)


def _facts(
    stats: CurateRow,
    reasons: Iterable[str],
    durations: list[float],
    speakers: IntArray,
    overlaps: FloatArray,
    kept: Sequence[int],
    kept_overlaps: FloatArray,
    **numbers: float,
) -> RowFacts:
    """The facts of a row: from its stats, all its windows, and the numbers of those that are kept."""
    added = {
        "num_rows": 1,
        "num_segments": stats["total_segments"],
        "seconds_in": stats["total_dur"],
        "num_without_windows": not durations,
        "num_windows": len(durations),
        "num_kept": len(kept),
        "seconds_windows": add_up(durations) or 0.0,
        "seconds_kept": add_up([durations[i] for i in kept]),
        **numbers,
    }
    losses = {reason: (stats[f"lost_{reason}"], stats[f"dur_lost_{reason}"]) for reason in reasons}
    lengths, numbers_kept = np.array(durations, dtype=np.float64), np.array(kept, dtype=np.int64)
    return RowFacts(added, losses, lengths, speakers, overlaps, numbers_kept, kept_overlaps)
