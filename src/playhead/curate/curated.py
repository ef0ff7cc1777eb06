"""One line of a manifest -> the line with windows, the lines of its kept windows, and facts for the summary."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any

import numpy as np
from msgspec import Struct

from playhead.curate.apart import closest_overlaps, sorted_by_times
from playhead.curate.build import build_windows, speaker_durations
from playhead.curate.config import WindowConfig
from playhead.curate.exact_json import dumps, loads
from playhead.curate.faults import Row, RowFault
from playhead.curate.measures import measure, suits
from playhead.curate.overlap import Times, among, filter_overlaps, times_of
from playhead.curate.search import FloatArray
from playhead.curate.splice import Splicer
from playhead.curate.summary import REASONS
from playhead.curate.tally import RowFacts


class Curated(Struct, frozen=True):
    """A row that is done: its line, good until the next row's, and the segments of each kept window."""

    line: bytes | memoryview
    row: Row
    kept: Sequence[list[Row]]
    facts: RowFacts


class Curator:
    """Does row after row.

    Law: a line is, to the byte, what Python's `json` writes of both stages' plain functions for what it reads.
    """

    def __init__(self, config: WindowConfig, *, loss_details: bool = True) -> None:
        self._config = config
        self._loss_details = loss_details
        self._suits = suits(config)
        self._splicer = Splicer(config, loss_details=loss_details)

    def curate(self, line: bytes) -> Curated:
        """Raises a RowFault that says what is wrong with the line."""
        row, is_usual = _read(line)
        began = perf_counter()
        measures = measure(row, self._config) if is_usual and self._suits else None
        if measures is not None:
            done = self._splicer.splice(row, measures, began)
            if done is not None:
                return Curated(done.line, row, done.kept, done.facts)
        return self._plainly(row)

    def _plainly(self, row: Any) -> Curated:
        began = perf_counter()
        built = build_windows(row, self._config, loss_details=self._loss_details)
        between = perf_counter()
        found = filter_overlaps(built, self._config)
        ended = perf_counter()
        try:
            line = dumps(found) + b"\n"
        except UnicodeEncodeError as error:
            raise RowFault("", "text with half a surrogate pair", found=str(error)) from error
        facts = _facts(row, built, found, self._config)
        facts.build_seconds, facts.filter_seconds = between - began, ended - between
        return Curated(line, row, [window["segments"] for window in found["filtered_windows"]], facts)


def _read(line: bytes) -> tuple[Any, bool]:
    try:
        return loads(line)
    except UnicodeDecodeError as error:
        raise RowFault("", "not UTF-8", found=str(error), expected="JSON in UTF-8") from error
    except (ValueError, RecursionError) as error:
        raise RowFault("", "broken JSON", found=f"{error}; it starts with {line[:40]!r}", expected="JSON") from error


def _facts(row: Row, built: Row, found: Row, config: WindowConfig) -> RowFacts:
    stats, windows = built["stats"], built["windows"]
    times = [times_of(window) for window in windows]
    kept = among(times, found["filtered"]) if windows else []
    return RowFacts(
        num_segments=stats["total_segments"],
        total_dur=stats["total_dur"],
        losses={reason: (stats[f"lost_{reason}"], stats[f"dur_lost_{reason}"]) for reason in REASONS},
        truncation_events=built["truncation_events"],
        low_rate=row.get("audio_sample_rate", 0) < config.min_sample_rate,
        durations=[end - start for end, start in times],
        speakers=[len(speaker_durations(window["segments"])) for window in windows],
        overlaps=_overlaps(times),
        kept=kept,
        kept_overlaps=_overlaps([times[i] for i in kept]),
        total_dur_window=found["total_dur_window"] if windows else 0.0,
        filtered_dur=found["filtered_dur"] if windows else 0.0,
        build_seconds=0.0,
        filter_seconds=0.0,
    )


def _overlaps(times: list[Times]) -> FloatArray:
    pairs = np.array(times, dtype=np.float64).reshape(-1, 2)
    return closest_overlaps(pairs[:, 1], pairs[:, 0], sorted_by_times(pairs[:, 1], pairs[:, 0]))
