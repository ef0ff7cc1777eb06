"""The fast way through both stages: kernels over a row's numbers, and each segment written once."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

import numpy as np
from msgspec import Struct

from playhead.curate.apart import closest_overlaps, sorted_by_times, stay_apart
from playhead.curate.build import LEAST_SEGMENTS, add_up, strip
from playhead.curate.config import WindowConfig
from playhead.curate.exact_json import Writer
from playhead.curate.faults import Row
from playhead.curate.joining import LineWriter
from playhead.curate.measures import Measures
from playhead.curate.overlap import Times, among
from playhead.curate.parts import Parts, cut_parts
from playhead.curate.search import REASONS, WINDOW, FloatArray, grow_windows, judge_windows
from playhead.curate.tally import RowFacts
from playhead.types import IntArray


class Spliced(Struct, frozen=True):
    """A row's line, good until the next row's; the segments of its kept windows, and its facts."""

    line: memoryview
    kept: Sequence[list[Row]]
    facts: RowFacts


class _Built(Struct, frozen=True):
    """What the builder's kernels found. Of each segment as a start: kind, stop, segments taken; then of windows."""

    kinds: IntArray
    stops: IntArray
    taken: IntArray
    parts: Parts
    num_events: int
    firsts: IntArray
    heard: list[int]
    speaker_seconds: list[list[float]]
    lost: list[int]
    lost_seconds: list[float]


class _Filtered(Struct, frozen=True):
    """The times that stay, in their order; the numbers of the windows that do; overlaps of all and of these."""

    stay: list[Times]
    kept: list[int]
    overlaps: FloatArray
    kept_overlaps: FloatArray


class Splicer:
    """Does row after row with the same room."""

    def __init__(self, config: WindowConfig, *, loss_details: bool) -> None:
        self._config = config
        self._loss_details = loss_details
        self._writer = Writer()
        self._lines = LineWriter()

    def splice(self, row: Row, found: Measures, began: float) -> Spliced | None:
        """Both stages of a row with measures; None where words are unusual."""
        config, dropped = self._config, self._config.dropped
        stripped = [segment if dropped.isdisjoint(segment) else strip(segment, config) for segment in found.segments]
        built = _build(found, stripped, config)
        if built is None:
            return None
        stats = _stats(row, found, built)
        between = perf_counter()
        firsts = built.firsts.tolist()
        times = _times(found, built, firsts)
        filtered = _filter(times, config)
        durations = [end - start for end, start in times]
        stay_durations = [end - start for end, start in filtered.stay]
        totals = add_up(durations), add_up(stay_durations)
        ended = perf_counter()
        cut = built.parts.cut
        others = {key: value for key, value in row.items() if key not in config.dropped_top_level}
        listed = [others, stats, totals[0], durations, times, filtered.stay, totals[1], stay_durations]
        items = self._writer.items([*stripped, *cut, *listed, stats["swift_path"], *built.speaker_seconds])
        line = self._lines.line(
            items,
            len(stripped),
            len(stripped) + len(cut),
            (built.firsts, built.taken, built.parts.of, built.kinds, built.stops),
            np.array(filtered.kept, dtype=np.int64),
            built.num_events,
            self._loss_details,
        )
        facts = RowFacts(
            num_segments=len(stripped),
            total_dur=stats["total_dur"],
            losses=dict(zip(REASONS, zip(built.lost, built.lost_seconds, strict=True), strict=True)),
            truncation_events=built.num_events,
            low_rate=False,
            durations=durations,
            speakers=built.heard,
            overlaps=filtered.overlaps,
            kept=filtered.kept,
            kept_overlaps=filtered.kept_overlaps,
            total_dur_window=totals[0],
            filtered_dur=totals[1],
            build_seconds=between - began,
            filter_seconds=ended - between,
        )
        return Spliced(line, [_segments_of(stripped, built, firsts[i]) for i in filtered.kept], facts)


def _build(found: Measures, stripped: list[Row], config: WindowConfig) -> _Built | None:
    segments = (found.start, found.end)
    who = (found.low, found.speakers, found.num_speakers)
    stops, taken, with_part, events = grow_windows(
        *segments, *who, config.max_duration, config.max_speakers, config.truncation
    )
    parts = cut_parts(found, stripped, events, stops, with_part, config)
    if parts is None:
        return None
    kinds, heard, seconds, whole, lost, lost_seconds = judge_windows(
        *segments,
        found.whole,
        *who,
        stops,
        taken,
        parts.of,
        parts.ends,
        parts.whole,
        (config.min_duration, config.max_duration),
        (LEAST_SEGMENTS, config.min_speakers, config.max_speakers),
    )
    firsts = np.flatnonzero(kinds == WINDOW)
    shown = seconds[firsts].tolist()
    if found.any_whole:
        flags = whole[firsts].tolist()
        shown = [
            [int(value) if is_whole else value for value, is_whole in zip(values, wholes, strict=True)]
            for values, wholes in zip(shown, flags, strict=True)
        ]
    return _Built(
        kinds,
        stops,
        taken,
        parts,
        events.size,
        firsts,
        heard[firsts].tolist(),
        shown,
        lost.tolist(),
        lost_seconds.tolist(),
    )


def _stats(row: Row, found: Measures, built: _Built) -> Row:
    """The row's stats, the records of lost windows aside."""
    stats: Row = {
        "total_segments": len(found.segments),
        "total_dur": add_up([end - start for start, end in zip(found.starts, found.ends, strict=True)]),
        "swift_path": row.get("swift_audio_filepath", ""),
        "audio_sample_rate": row["audio_sample_rate"],
    }
    for reason, count, seconds in zip(REASONS, built.lost, built.lost_seconds, strict=True):
        stats[f"lost_{reason}"] = count
        stats[f"dur_lost_{reason}"] = seconds
    return stats


def _times(found: Measures, built: _Built, firsts: list[int]) -> list[Times]:
    starts, ends, cut = found.starts, found.ends, built.parts.cut
    afters = (built.firsts + built.taken[built.firsts]).tolist()
    of = built.parts.of[built.firsts].tolist()
    return [
        (cut[part]["end"] if part >= 0 else ends[after - 1], starts[first])
        for first, after, part in zip(firsts, afters, of, strict=True)
    ]


def _filter(times: list[Times], config: WindowConfig) -> _Filtered:
    pairs = np.array(times, dtype=np.float64).reshape(-1, 2)
    ends, starts = pairs[:, 0], pairs[:, 1]
    order = sorted_by_times(starts, ends)
    stays, near = stay_apart(starts, ends, order, config.overlap_percentage / 100, config.target_duration)
    staying = order[stays[order]]
    stay = [times[i] for i in staying.tolist()]
    kept = np.flatnonzero(stays).tolist()
    if near:
        kept = among(times, stay)
        staying = order[np.isin(order, kept)]
    return _Filtered(stay, kept, closest_overlaps(starts, ends, order), closest_overlaps(starts, ends, staying))


def _segments_of(stripped: list[Row], built: _Built, first: int) -> list[Row]:
    whole, part = stripped[first : first + int(built.taken[first])], int(built.parts.of[first])
    return whole if part < 0 else [*whole, built.parts.cut[part]]
