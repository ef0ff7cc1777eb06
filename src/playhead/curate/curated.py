"""One line of a manifest -> the line with windows, the lines of its kept windows, and facts for the summary."""

from __future__ import annotations

import json
from time import perf_counter
from typing import Any

import numpy as np
from msgspec import Struct

from playhead.curate.apart import closest_overlaps, sorted_by_times
from playhead.curate.build import add_up, build_windows, speaker_durations
from playhead.curate.config import WindowConfig
from playhead.curate.exact_json import dumps, loads
from playhead.curate.faults import Row, RowError
from playhead.curate.manifest import Source, window_lines
from playhead.curate.overlap import Times, among, filter_overlaps, times_of
from playhead.curate.scanned import Scanner, suits
from playhead.curate.search import FloatArray
from playhead.curate.splice import Splicer
from playhead.curate.tally import RowFacts


class Curated(Struct, frozen=True):
    """A row that is done: its line and the lines of its kept windows, good until the next row's; and its facts."""

    line: bytes | memoryview
    windows: bytes | memoryview
    facts: RowFacts


class Curator:
    """Does row after row.

    Law: a line is, to the byte, what Python's `json` writes of both stages' plain functions for what it reads.
    """

    def __init__(self, config: WindowConfig, *, loss_details: bool = True) -> None:
        self._config = config
        self._loss_details = loss_details
        self._suits = suits(config)
        self._scanner = Scanner(config)
        self._splicer = Splicer(config, loss_details=loss_details)

    def curate(self, line: bytes, file: bytes = b'""', number: int = 0) -> Curated:
        """Raises a RowError that says what is wrong with the line. `file`, as JSON, and row number are its source."""
        if self._suits:
            done = self.quickly(line, file, number)
            if done is not None:
                return done
        return self.plainly(read_row(line), file, number)

    def quickly(self, line: bytes, file: bytes = b'""', number: int = 0) -> Curated | None:
        """The row by kernels; None if it is unusual or has a fault. A row in another writing is written anew first."""
        began = perf_counter()
        found = self._scanner.scan(line, trusted=False) if _is_text(line) else None
        if found is None:
            try:
                line = dumps(loads(line))
            except (ValueError, RecursionError):
                return None
            began = perf_counter()
            found = self._scanner.scan(line, trusted=True)
        done = None if found is None else self._splicer.splice(found, (file, number), began)
        return None if done is None else Curated(done.line, done.windows, done.facts)

    def plainly(self, row: Any, file: bytes = b'""', number: int = 0) -> Curated:
        """The row by the stages' plain functions."""
        began = perf_counter()
        built = build_windows(row, self._config, loss_details=self._loss_details)
        between = perf_counter()
        found = filter_overlaps(built, self._config)
        ended = perf_counter()
        line = write_row(found)
        facts = _facts(row, built, found, self._config)
        facts.build_seconds, facts.filter_seconds = between - began, ended - between
        # A row without windows keeps the `filtered_windows` that it brought along; those are none of ours.
        kept = [window["segments"] for window in found["filtered_windows"]] if built["windows"] else []
        return Curated(line, window_lines(row, kept, Source(json.loads(file), number)), facts)


def _is_text(line: bytes) -> bool:
    if line.isascii():
        return True
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def write_row(row: Row) -> bytes:
    try:
        return dumps(row) + b"\n"
    except UnicodeEncodeError as error:
        raise RowError("", "text with half a surrogate pair", found=str(error)) from error


def read_row(line: bytes) -> Any:
    try:
        return loads(line)
    except UnicodeDecodeError as error:
        raise RowError("", "not UTF-8", found=str(error), expected="JSON in UTF-8") from error
    except (ValueError, RecursionError) as error:
        raise RowError("", "broken JSON", found=f"{error}; it starts with {line[:40]!r}", expected="JSON") from error


def _facts(row: Row, built: Row, found: Row, config: WindowConfig) -> RowFacts:
    stats, windows = built["stats"], built["windows"]
    times = [times_of(window) for window in windows]
    durations = [end - start for end, start in times]
    kept = among(times, found["filtered"]) if windows else []
    return RowFacts(
        num_segments=stats["total_segments"],
        last_end=float(max((segment["end"] for segment in row["segments"]), default=0.0)),
        total_dur=stats["total_dur"],
        losses={reason: (stats[f"lost_{reason}"], stats[f"dur_lost_{reason}"]) for reason in config.reasons},
        truncation_events=built["truncation_events"],
        low_rate=row["audio_sample_rate"] < config.min_sample_rate,
        durations=np.array(durations, dtype=np.float64),
        speakers=np.array([len(speaker_durations(window["segments"])) for window in windows], dtype=np.int64),
        overlaps=overlaps_of(times),
        kept=np.array(kept, dtype=np.int64),
        kept_overlaps=overlaps_of([times[i] for i in kept]),
        kept_dur=add_up(durations[i] for i in kept),
        total_dur_window=found["total_dur_window"] if windows else 0.0,
        filtered_dur=found["filtered_dur"] if windows else 0.0,
        build_seconds=0.0,
        filter_seconds=0.0,
    )


def overlaps_of(times: list[Times]) -> FloatArray:
    pairs = np.array(times, dtype=np.float64).reshape(-1, 2)
    return closest_overlaps(pairs[:, 1], pairs[:, 0], sorted_by_times(pairs[:, 1], pairs[:, 0]))
