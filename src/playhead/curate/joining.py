"""A kernel that puts a row's line together: each window is a stretch of the text of all segments."""

from __future__ import annotations

from typing import Any

import numpy as np

from playhead.curate.exact_json import ByteArray
from playhead.curate.scan_row import END, START
from playhead.curate.search import NO_WINDOW
from playhead.types import IntArray, kernel

# The items after segments and parts, in this order; the speakers' seconds of each window follow.
NUM_OTHERS = 7
(_REST, _STATS, _TOTAL, _DURATIONS, _STAY_TOTAL, _STAY_DURATIONS, _SWIFT) = range(NUM_OTHERS)

_WITHOUT_WINDOWS = (
    '"filtered_windows": [], "filtered_dur": 0.0, "filtered_dur_list": [], "total_dur_window": 0.0, '
    '"total_dur_list_window": [], "total_dur_list_window_timestamps": [], "filtered": [], '
    '"manifest_filepath": null, "swift_filepath": null}\n'
)
_FIXED = [
    ", ",
    '"windows": [',
    '{"segments": [',
    '], "speaker_durations": ',
    "}",
    '], "stats": ',
    ', "lost_win_full_data": [',
    '{"index": ',
    ', "window_segs": [',
    '], "next_seg": ',
    ', "prev_seg": ',
    "]",
    '}, "truncation_events": ',
    ', "total_dur_window": ',
    ', "total_dur_list_window": ',
    ', "total_dur_list_window_timestamps": ',
    ', "filtered": ',
    ', "filtered_windows": [',
    '], "filtered_dur": ',
    ', "filtered_dur_list": ',
    ', "manifest_filepath": null, "swift_filepath": ',
    "}\n",
    _WITHOUT_WINDOWS,
]
_FIXED_TEXT = np.frombuffer("".join(_FIXED).encode(), dtype=np.uint8)
_FIXED_AT = np.cumsum([0, *map(len, _FIXED)]).astype(np.int64)


class LineWriter:
    """Room for a line, kept from row to row."""

    def __init__(self) -> None:
        self._room = np.empty(1 << 18, dtype=np.uint8)

    def line(
        self,
        text: ByteArray,
        starts: IntArray,
        ends: IntArray,
        num_segments: int,
        first_other: int,
        places: IntArray,
        part_values: IntArray,
        windows: tuple[IntArray, IntArray, IntArray, IntArray, IntArray],
        staying: IntArray,
        kept: IntArray,
        num_events: int,
        loss_details: bool,
    ) -> memoryview:
        """The line of items, which start and end in a text: segments, parts, others. Good until the next.

        `places` and `part_values` say where segments and parts have their times. `windows` is (firsts, taken, part_of,
        kinds, stops); `staying` are firsts, in the order of times, and `kept` numbers of windows.
        """
        given: tuple[Any, ...] = (text, starts, ends, num_segments, first_other)
        given += (places, part_values, *windows, staying, kept, num_events, loss_details)
        size = _write_line(self._room, *given)
        if size > self._room.size:
            self._room = np.empty(2 * size, dtype=np.uint8)
            size = _write_line(self._room, *given)
        return self._room.data[:size]


@kernel
def put(out: ByteArray, at: int, text: ByteArray, low: int, high: int) -> int:
    """Copy a stretch if there is room; tells where the next goes, so that the room needed is known in any case."""
    size = high - low
    if at + size <= out.size:
        target, source = out[at : at + size], text[low:high]  # so written, the loop is compiled to vector moves
        for i in range(size):
            target[i] = source[i]
    return at + size


@kernel
def put_byte(out: ByteArray, at: int, byte: int) -> int:
    if at < out.size:
        out[at] = byte
    return at + 1


@kernel
def put_number(out: ByteArray, at: int, number: int) -> int:
    digits = 1
    while number >= 10**digits:
        digits += 1
    if at + digits <= out.size:
        for i in range(digits):
            out[at + digits - 1 - i] = 48 + number % 10
            number //= 10
    return at + digits


@kernel
def _put_run(
    out: ByteArray,
    at: int,
    text: ByteArray,
    starts: IntArray,
    ends: IntArray,
    num_segments: int,
    first: int,
    taken: int,
    part: int,
) -> int:
    """The segments that a start took whole, and its part."""
    if taken:
        at = put(out, at, text, starts[first], ends[first + taken - 1])
    if part >= 0:
        if taken:
            if at + 2 <= out.size:
                out[at] = 44
                out[at + 1] = 32
            at += 2
        at = put(out, at, text, starts[num_segments + part], ends[num_segments + part])
    return at


@kernel
def _put_window(
    out: ByteArray,
    at: int,
    text: ByteArray,
    starts: IntArray,
    ends: IntArray,
    run: tuple[int, int, int, int],
    seconds: int,
) -> int:
    """A window: its run, which is (number of segments, first, taken, part), and the item of its speakers' seconds."""
    at = put(out, at, _FIXED_TEXT, _FIXED_AT[2], _FIXED_AT[3])
    at = _put_run(out, at, text, starts, ends, run[0], run[1], run[2], run[3])
    at = put(out, at, _FIXED_TEXT, _FIXED_AT[3], _FIXED_AT[4])
    at = put(out, at, text, starts[seconds], ends[seconds])
    return put(out, at, _FIXED_TEXT, _FIXED_AT[4], _FIXED_AT[5])


@kernel
def _put_records(
    out: ByteArray,
    at: int,
    text: ByteArray,
    starts: IntArray,
    ends: IntArray,
    num_segments: int,
    taken: IntArray,
    part_of: IntArray,
    kinds: IntArray,
    stops: IntArray,
) -> int:
    """The records of lost windows."""
    at = put(out, at, _FIXED_TEXT, _FIXED_AT[6], _FIXED_AT[7])
    begun = False
    for first in range(kinds.size):
        if kinds[first] != NO_WINDOW:
            continue
        if begun:
            at = put(out, at, _FIXED_TEXT, _FIXED_AT[0], _FIXED_AT[1])
        begun = True
        before = max(first - 1, 0)
        at = put(out, at, _FIXED_TEXT, _FIXED_AT[7], _FIXED_AT[8])
        at = put_number(out, at, first)
        at = put(out, at, _FIXED_TEXT, _FIXED_AT[8], _FIXED_AT[9])
        at = _put_run(out, at, text, starts, ends, num_segments, first, taken[first], part_of[first])
        at = put(out, at, _FIXED_TEXT, _FIXED_AT[9], _FIXED_AT[10])
        at = put(out, at, text, starts[stops[first]], ends[stops[first]])
        at = put(out, at, _FIXED_TEXT, _FIXED_AT[10], _FIXED_AT[11])
        at = put(out, at, text, starts[before], ends[before])
        at = put(out, at, _FIXED_TEXT, _FIXED_AT[4], _FIXED_AT[5])
    return put(out, at, _FIXED_TEXT, _FIXED_AT[11], _FIXED_AT[12])


@kernel
def _put_times(
    out: ByteArray,
    at: int,
    text: ByteArray,
    places: IntArray,
    part_values: IntArray,
    firsts: IntArray,
    taken: IntArray,
    part_of: IntArray,
) -> int:
    """A list of the end and the start of each window, as they are written in its segments."""
    at = put_byte(out, at, 91)
    for number in range(firsts.size):
        first = firsts[number]
        part, last = part_of[first], first + taken[first] - 1
        if number:
            at = put(out, at, _FIXED_TEXT, _FIXED_AT[0], _FIXED_AT[1])
        at = put_byte(out, at, 91)
        if part >= 0:
            at = put(out, at, text, part_values[part, 2], part_values[part, 3])
        else:
            at = put(out, at, text, places[last, END], places[last, END + 1])
        at = put(out, at, _FIXED_TEXT, _FIXED_AT[0], _FIXED_AT[1])
        at = put(out, at, text, places[first, START], places[first, START + 1])
        at = put_byte(out, at, 93)
    return put_byte(out, at, 93)


@kernel
def _write_line(
    out: ByteArray,
    text: ByteArray,
    starts: IntArray,
    ends: IntArray,
    num_segments: int,
    first_other: int,
    places: IntArray,
    part_values: IntArray,
    firsts: IntArray,
    taken: IntArray,
    part_of: IntArray,
    kinds: IntArray,
    stops: IntArray,
    staying: IntArray,
    kept: IntArray,
    num_events: int,
    loss_details: bool,
) -> int:
    rest, stats, seconds = first_other + _REST, first_other + _STATS, first_other + NUM_OTHERS
    at = put(out, 0, text, starts[rest], ends[rest] - 1)
    if ends[rest] - starts[rest] > 2:
        at = put(out, at, _FIXED_TEXT, _FIXED_AT[0], _FIXED_AT[1])
    at = put(out, at, _FIXED_TEXT, _FIXED_AT[1], _FIXED_AT[2])
    for number in range(firsts.size):
        if number:
            at = put(out, at, _FIXED_TEXT, _FIXED_AT[0], _FIXED_AT[1])
        run = (num_segments, firsts[number], taken[firsts[number]], part_of[firsts[number]])
        at = _put_window(out, at, text, starts, ends, run, seconds + number)
    at = put(out, at, _FIXED_TEXT, _FIXED_AT[5], _FIXED_AT[6])
    at = put(out, at, text, starts[stats], ends[stats] - 1)
    if loss_details:
        at = _put_records(out, at, text, starts, ends, num_segments, taken, part_of, kinds, stops)
    at = put(out, at, _FIXED_TEXT, _FIXED_AT[12], _FIXED_AT[13])
    at = put_number(out, at, num_events)
    if firsts.size == 0:
        at = put(out, at, _FIXED_TEXT, _FIXED_AT[0], _FIXED_AT[1])
        return put(out, at, _FIXED_TEXT, _FIXED_AT[22], _FIXED_AT[23])
    for i in range(2):
        item = first_other + _TOTAL + i
        at = put(out, at, _FIXED_TEXT, _FIXED_AT[13 + i], _FIXED_AT[14 + i])
        at = put(out, at, text, starts[item], ends[item])
    at = put(out, at, _FIXED_TEXT, _FIXED_AT[15], _FIXED_AT[16])
    at = _put_times(out, at, text, places, part_values, firsts, taken, part_of)
    at = put(out, at, _FIXED_TEXT, _FIXED_AT[16], _FIXED_AT[17])
    at = _put_times(out, at, text, places, part_values, staying, taken, part_of)
    at = put(out, at, _FIXED_TEXT, _FIXED_AT[17], _FIXED_AT[18])
    for i in range(kept.size):
        if i:
            at = put(out, at, _FIXED_TEXT, _FIXED_AT[0], _FIXED_AT[1])
        first = firsts[kept[i]]
        run = (num_segments, first, taken[first], part_of[first])
        at = _put_window(out, at, text, starts, ends, run, seconds + kept[i])
    for i in range(3):
        item = first_other + _STAY_TOTAL + i
        at = put(out, at, _FIXED_TEXT, _FIXED_AT[18 + i], _FIXED_AT[19 + i])
        at = put(out, at, text, starts[item], ends[item])
    return put(out, at, _FIXED_TEXT, _FIXED_AT[21], _FIXED_AT[22])
