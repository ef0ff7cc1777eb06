"""The fast way through both stages: kernels over a row's numbers and text, each segment written once."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np
from msgspec import Struct

from playhead.curate.apart import closest_overlaps, filter_windows
from playhead.curate.build import LEAST_SEGMENTS, add_up
from playhead.curate.config import WindowConfig
from playhead.curate.exact_json import ByteArray, Writer, loads
from playhead.curate.faults import Row
from playhead.curate.joining import NUM_OTHERS, LineWriter
from playhead.curate.manifest import number_twins, window_id
from playhead.curate.manifest_kernel import write_windows
from playhead.curate.overlap import Times, among
from playhead.curate.parts import Parts, cut_parts, grow_and_cut, room_of, write_parts
from playhead.curate.scanned import Scanned
from playhead.curate.search import REASONS, FloatArray, judge_windows
from playhead.curate.tally import RowFacts
from playhead.types import IntArray

_LOST = [(f"lost_{reason}", f"dur_lost_{reason}") for reason in REASONS]
_AUDIO, _RATE, _SWIFT = 4, 2, 6  # where `row_places` has them


class Spliced(Struct, frozen=True):
    """A row's line and the lines of its kept windows, good until the next row's; and its facts."""

    line: memoryview
    windows: memoryview
    facts: RowFacts


class _Built(Struct, frozen=True):
    """What the builder's kernels found. Of each segment as a start: kind, stop, segments taken; then of windows."""

    kinds: IntArray
    stops: IntArray
    taken: IntArray
    parts: Parts
    num_events: int
    firsts: IntArray
    heard: IntArray
    speaker_seconds: list[list[float]]
    lost: list[int]
    lost_seconds: list[float]
    all_seconds: float


class _Filtered(Struct, frozen=True):
    """Times and durations of all; which windows stay, in their order, and are kept; overlaps of all and of those."""

    times: list[Times]
    durations: list[float]
    duration: FloatArray
    staying: IntArray
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
        self._windows = np.empty(1 << 17, dtype=np.uint8)

    def splice(self, found: Scanned, source: tuple[bytes, int], began: float) -> Spliced | None:
        """Both stages of a row; None where words are unusual. `source` is the file, as JSON, and the row's number."""
        built = _build(found, self._config)
        stats = None if built is None else _stats(found, built)
        if built is None or stats is None:
            return None
        between = perf_counter()
        filtered = _filter(found, built, self._config)
        times, durations = filtered.times, filtered.durations
        stay_durations = [durations[i] for i in filtered.staying.tolist()]
        totals = add_up(durations), add_up(stay_durations)
        ended = perf_counter()
        audio = b"null" if found.row_places[_AUDIO] < 0 else _span(found, _AUDIO)
        names = [window_id(audio, times[i][1], times[i][0]) for i in filtered.kept]
        kept_durations = [durations[i] for i in filtered.kept]
        listed = [stats, totals[0], durations, totals[1], stay_durations, ""]
        items = self._items(
            found, built.parts, [*listed, *built.speaker_seconds, *number_twins(names), *kept_durations]
        )
        kept = np.array(filtered.kept, dtype=np.int64)
        count = len(found.starts)
        line = self._lines.line(
            items.text,
            items.starts,
            items.ends,
            count,
            count + built.parts.segments.size,
            found.places,
            items.part_values,
            (built.firsts, built.taken, built.parts.of, built.kinds, built.stops),
            built.firsts[filtered.staying],
            kept,
            built.num_events,
            self._loss_details,
        )
        heads = count + built.parts.segments.size + NUM_OTHERS + built.firsts.size
        windows = self._window_lines(found, built, built.firsts[kept], items, heads, source)
        facts = RowFacts(
            num_segments=count,
            last_end=float(max(found.ends)),
            total_dur=stats["total_dur"],
            losses=dict(zip(REASONS, zip(built.lost, built.lost_seconds, strict=True), strict=True)),
            truncation_events=built.num_events,
            low_rate=False,
            durations=filtered.duration,
            speakers=built.heard,
            overlaps=filtered.overlaps,
            kept=kept,
            kept_overlaps=filtered.kept_overlaps,
            kept_dur=add_up(kept_durations),
            total_dur_window=totals[0],
            filtered_dur=totals[1],
            build_seconds=between - began,
            filter_seconds=ended - between,
        )
        return Spliced(line, windows, facts)

    def _items(self, found: Scanned, parts: Parts, values: list[object]) -> _Items:
        """Everything that the line is made of, in one text: segments, parts, the rest of the row, values."""
        count, num_parts = len(found.starts), parts.segments.size
        first = count + num_parts
        bounds = np.empty((2, first + 1 + len(values)), dtype=np.int64)
        starts, ends = bounds[0], bounds[1]
        room, at = found.text, found.size
        need = at + room_of(found, parts) + found.top.size + self._writer.prepare(values)
        if need > room.size:
            room = np.empty(need, dtype=np.uint8)
            room[:at] = found.text[:at]
        starts[:count], ends[:count] = found.places[:, 0], found.places[:, 1]
        part_values = np.empty((num_parts, 4), dtype=np.int64)
        at = write_parts(found, parts, room, at, starts[count:first], ends[count:first], part_values)
        top = at
        room[at : at + found.top.size] = found.top
        at += found.top.size
        starts[first], ends[first] = top, at
        self._writer.put(room, at, starts[first + 1 :], ends[first + 1 :])
        if found.row_places[_SWIFT] >= 0:
            low, high = found.row_places[_SWIFT : _SWIFT + 2].tolist()
            starts[first + NUM_OTHERS - 1], ends[first + NUM_OTHERS - 1] = top + low, top + high
        return _Items(room, starts, ends, part_values)

    def _window_lines(
        self, found: Scanned, built: _Built, kept: IntArray, items: _Items, heads: int, source: tuple[bytes, int]
    ) -> memoryview:
        if not kept.size:
            return memoryview(b"")
        given: tuple[Any, ...] = (
            items.text,
            found.top,
            found.places,
            found.row_places,
            found.voices,
            found.start,
            found.end,
            kept,
        )
        given += (
            built.taken,
            built.parts.of,
            built.parts.end,
            items.part_values,
            items.starts[heads:],
            items.ends[heads:],
        )
        given += (np.frombuffer(source[0], dtype=np.uint8), source[1])
        size = write_windows(self._windows, *given)
        if size > self._windows.size:
            self._windows = np.empty(2 * size, dtype=np.uint8)
            size = write_windows(self._windows, *given)
        return self._windows.data[:size]


class _Items(Struct, frozen=True):
    text: ByteArray
    starts: IntArray
    ends: IntArray
    part_values: IntArray


def _span(found: Scanned, which: int) -> bytes:
    low, high = found.row_places[which : which + 2].tolist()
    return found.top[low:high].tobytes()


def _build(found: Scanned, config: WindowConfig) -> _Built | None:
    stops, taken, events, of, segments, kinds, firsts, heard = np.empty((8, found.start.size), dtype=np.int64)
    num_events, num_parts, has_words = grow_and_cut(
        found.start,
        found.end,
        found.low,
        found.speakers,
        found.num_speakers,
        found.places,
        config.max_duration,
        config.max_speakers,
        config.truncation,
        stops,
        taken,
        events,
        of,
        segments,
    )
    parts = cut_parts(found, events[:num_events], stops, of, segments[:num_parts], has_words, config)
    if parts is None:
        return None
    seconds, whole = np.empty((found.start.size, 5)), np.empty((found.start.size, 5), dtype=np.bool_)
    lost, lost_seconds = np.empty(len(REASONS), dtype=np.int64), np.empty(len(REASONS))
    num_windows, all_seconds = judge_windows(
        found.start,
        found.end,
        found.whole,
        found.low,
        found.speakers,
        found.num_speakers,
        stops,
        taken,
        parts.of,
        parts.end,
        parts.whole,
        (config.min_duration, config.max_duration),
        (LEAST_SEGMENTS, config.min_speakers, config.max_speakers),
        kinds,
        firsts,
        heard,
        seconds,
        whole,
        lost,
        lost_seconds,
    )
    shown = seconds[:num_windows].tolist()
    if found.any_whole:
        flags = whole[:num_windows].tolist()
        shown = [
            [int(value) if is_whole else value for value, is_whole in zip(values, wholes, strict=True)]
            for values, wholes in zip(shown, flags, strict=True)
        ]
    return _Built(
        kinds,
        stops,
        taken,
        parts,
        num_events,
        firsts[:num_windows],
        heard[:num_windows],
        shown,
        lost.tolist(),
        lost_seconds.tolist(),
        all_seconds,
    )


def _stats(found: Scanned, built: _Built) -> Row | None:
    """The row's stats, the records of lost windows aside; None where the other path is no path."""
    swift = "" if found.row_places[_SWIFT] < 0 else loads(_span(found, _SWIFT))
    if swift is not None and type(swift) is not str:
        return None
    total = built.all_seconds
    if found.any_whole:
        total = add_up([end - start for start, end in zip(found.starts, found.ends, strict=True)])
    stats: Row = {
        "total_segments": len(found.starts),
        "total_dur": total,
        "swift_path": swift,
        "audio_sample_rate": loads(_span(found, _RATE)),
    }
    for (name, name_of_seconds), count, seconds in zip(_LOST, built.lost, built.lost_seconds, strict=True):
        stats[name] = count
        stats[name_of_seconds] = seconds
    return stats


def _filter(found: Scanned, built: _Built, config: WindowConfig) -> _Filtered:
    parts, firsts = built.parts, built.firsts
    found_times, orders = np.empty((5, firsts.size)), np.empty((3, firsts.size), dtype=np.int64)
    num_kept, near = filter_windows(
        found.start,
        found.end,
        firsts,
        built.taken,
        parts.of,
        parts.end,
        config.overlap_percentage / 100,
        config.target_duration,
        found_times,
        orders,
    )
    starts, ends, durations = found_times[:3].tolist()
    times = list(zip(ends, starts, strict=True))
    if found.any_whole or parts.texts:
        trios = zip(firsts.tolist(), built.taken[firsts].tolist(), parts.of[firsts].tolist(), strict=True)
        times = [
            (parts.ends[part] if part >= 0 else found.ends[first + taken - 1], found.starts[first])
            for first, taken, part in trios
        ]
        durations = [end - start for end, start in times]
    staying, kept = orders[1, :num_kept], orders[2, :num_kept].tolist()
    kept_overlaps = found_times[4, :num_kept]
    if near:
        kept = among(times, [times[i] for i in staying.tolist()])
        kept_overlaps = closest_overlaps(found_times[0], found_times[1], orders[0][np.isin(orders[0], kept)])
    return _Filtered(times, durations, found_times[2], staying, kept, found_times[3], kept_overlaps)
