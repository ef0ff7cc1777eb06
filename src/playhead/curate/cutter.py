"""One line of a manifest -> the line cut into windows, the lines of these, and facts: for rows without speakers."""

from __future__ import annotations

from time import perf_counter

import numpy as np

from playhead.curate.build import add_up
from playhead.curate.curated import Curated
from playhead.curate.cut_config import CutConfig
from playhead.curate.cut_rows import cut_row
from playhead.curate.faults import Row, RowError, check_row
from playhead.curate.manifest import Source, speakers_of, window_lines
from playhead.curate.overlap_kernels import overlaps_of
from playhead.curate.row_json import read_row, write_row
from playhead.curate.tally import RowFacts
from playhead.errors import DataError


class Cutter:
    """Does row after row. Every window that is cut is kept."""

    def __init__(self, config: CutConfig) -> None:
        self._config = config

    def curate(self, line: bytes, file: str = "", number: int = 0) -> Curated:
        """Raises a RowError that says what is wrong with the line. `file` and row number are its source."""
        row = read_row(line)
        began = perf_counter()
        check_row(row, required=("audio_filepath",))
        try:
            found = cut_row(row, self._config)
        except DataError as error:
            field, _, reason = error.problem.partition(": ")
            raise RowError(field, reason, found=error.found, expected=error.expected) from error
        facts = _facts(row, found)
        facts.build_seconds = perf_counter() - began
        windows = found["windows"]
        times = [(window["start"], window["end"]) for window in windows]
        source = Source(file, number)
        lines = window_lines(row, [window["segments"] for window in windows], source, times)
        return Curated(write_row(found), lines, facts)


def _facts(row: Row, found: Row) -> RowFacts:
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
        truncation_events=0,
        low_rate=False,
        durations=np.array(durations, dtype=np.float64),
        speakers=np.array([len(speakers_of(window["segments"])) for window in windows], dtype=np.int64),
        overlaps=overlaps,
        kept=np.arange(len(windows)),
        kept_overlaps=overlaps,
        kept_dur=add_up(durations),
        total_dur_window=sum(durations, 0.0),
        filtered_dur=sum(durations, 0.0),
        build_seconds=0.0,
        filter_seconds=0.0,
    )
