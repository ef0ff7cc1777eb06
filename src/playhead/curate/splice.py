"""The fast way through both stages: kernels over a row's numbers and text, each segment written once."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np
from msgspec import Struct

from playhead.curate.build import add_up
from playhead.curate.config import WindowConfig
from playhead.curate.exact_json import ByteArray, Writer, loads
from playhead.curate.faults import Row
from playhead.curate.joining import NUM_OTHERS, LineWriter
from playhead.curate.judged import Built, judge, thin_out
from playhead.curate.manifest import number_twins, window_id
from playhead.curate.manifest_kernel import write_windows
from playhead.curate.parts import Parts, room_of, write_parts
from playhead.curate.scanned import Scanned
from playhead.curate.search import REASONS
from playhead.curate.tally import RowFacts
from playhead.types import IntArray

_LOST = [(f"lost_{reason}", f"dur_lost_{reason}") for reason in REASONS]
_AUDIO, _RATE, _SWIFT = 4, 2, 6  # where `row_places` has them


class Spliced(Struct, frozen=True):
    """A row's line and the lines of its kept windows, good until the next row's; and its facts."""

    line: memoryview
    windows: memoryview
    facts: RowFacts


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
        built = judge(found, self._config)
        stats = None if built is None else _stats(found, built)
        if built is None or stats is None:
            return None
        between = perf_counter()
        filtered = thin_out(found, built, self._config)
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
        self, found: Scanned, built: Built, kept: IntArray, items: _Items, heads: int, source: tuple[bytes, int]
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


def _stats(found: Scanned, built: Built) -> Row | None:
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
