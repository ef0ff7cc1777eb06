"""A kernel that writes the lines of a row's kept windows from the texts of its segments, as `window_lines` does."""

from __future__ import annotations

import numpy as np

from playhead.curate.exact_json import ByteArray
from playhead.curate.joining import put, put_number
from playhead.curate.scan_row import END, FIRST_SPEAKERS, MOST_SPEAKERS, SPEAKER, START, TEXT
from playhead.curate.search import FloatArray
from playhead.types import IntArray, kernel

_FIXED = [
    '{"id":',
    ',"audio_filepath":',
    ',"offset":',
    ',"duration":',
    ',"sample_rate":',
    ',"speakers":[',
    '],"text":"',
    '","turns":[',
    '{"speaker":',
    ',"start":',
    ',"end":',
    ',"text":"',
    '"}',
    '],"source":{"file":',
    ',"row":',
    "}}\n",
    "null",
    " ",
    ",",
]
FIXED_TEXT = np.frombuffer("".join(_FIXED).encode(), dtype=np.uint8)
FIXED_AT = np.cumsum([0, *map(len, _FIXED)]).astype(np.int64)
_NULL, _SPACE, _COMMA = 16, 17, 18
_AUDIO, _RATE = 4, 2  # where `row_places` has them


@kernel
def _put_fixed(out: ByteArray, at: int, fixed: ByteArray, fixed_at: IntArray, i: int) -> int:
    return put(out, at, fixed, fixed_at[i], fixed_at[i + 1])


@kernel
def _put_speaker(
    out: ByteArray, at: int, text: ByteArray, place: IntArray, fixed: ByteArray, fixed_at: IntArray
) -> int:
    if place[SPEAKER] < 0:
        return _put_fixed(out, at, fixed, fixed_at, _NULL)
    return put(out, at, text, place[SPEAKER], place[SPEAKER + 1])


@kernel
def write_windows(
    out: ByteArray,
    text: ByteArray,
    top: ByteArray,
    places: IntArray,
    row_places: IntArray,
    voices: IntArray,
    starts: FloatArray,
    ends: FloatArray,
    kept: IntArray,
    taken: IntArray,
    part_of: IntArray,
    part_ends: FloatArray,
    part_values: IntArray,
    head_starts: IntArray,
    head_ends: IntArray,
    source: ByteArray,
    row: int,
    fixed: ByteArray,
    fixed_at: IntArray,
) -> int:
    """Write a line for each first segment in `kept`; tells how many bytes that takes, also where there is no room.

    Heads are where in `text` the ids are, then the durations; `part_values` where a part's text and end are.
    """
    at = 0
    heard = np.full(MOST_SPEAKERS + FIRST_SPEAKERS, -1, dtype=np.int64)
    for number in range(kept.size):
        first = kept[number]
        part = part_of[first]
        after = first + taken[first] + (part >= 0)
        at = _put_fixed(out, at, fixed, fixed_at, 0)
        at = put(out, at, text, head_starts[number], head_ends[number])
        at = _put_fixed(out, at, fixed, fixed_at, 1)
        if row_places[_AUDIO] < 0:
            at = _put_fixed(out, at, fixed, fixed_at, _NULL)
        else:
            at = put(out, at, top, row_places[_AUDIO], row_places[_AUDIO + 1])
        at = _put_fixed(out, at, fixed, fixed_at, 2)
        at = put(out, at, text, places[first, START], places[first, START + 1])
        at = _put_fixed(out, at, fixed, fixed_at, 3)
        at = put(out, at, text, head_starts[kept.size + number], head_ends[kept.size + number])
        at = _put_fixed(out, at, fixed, fixed_at, 4)
        at = put(out, at, top, row_places[_RATE], row_places[_RATE + 1])
        at = _put_fixed(out, at, fixed, fixed_at, 5)
        begun = False
        for i in range(first, after):
            if voices[i] < 2 or heard[voices[i]] == number:
                continue
            heard[voices[i]] = number
            if begun:
                at = _put_fixed(out, at, fixed, fixed_at, _COMMA)
            begun = True
            at = put(out, at, text, places[i, SPEAKER], places[i, SPEAKER + 1])
        at = _put_fixed(out, at, fixed, fixed_at, 6)
        begun = False
        for i in range(first, after):
            low, high = places[i, TEXT], places[i, TEXT + 1]
            if i == after - 1 and part >= 0:
                low, high = part_values[part, 0], part_values[part, 1]
            if low < 0 or text[low] != 34 or high - low == 2:
                continue
            if begun:
                at = _put_fixed(out, at, fixed, fixed_at, _SPACE)
            begun = True
            at = put(out, at, text, low + 1, high - 1)
        at = _put_fixed(out, at, fixed, fixed_at, 7)
        i, begun = first, False
        while i < after:
            # A turn: from `i` on, segments of one speaker; those that are nothing are passed over.
            voice, opener = -1, -1
            end, end_low, end_high, spoken = 0.0, 0, 0, False
            while i < after:
                low, high = places[i, TEXT], places[i, TEXT + 1]
                own_end, own_low, own_high = ends[i], places[i, END], places[i, END + 1]
                if i == after - 1 and part >= 0:
                    low, high = part_values[part, 0], part_values[part, 1]
                    own_end, own_low, own_high = part_ends[part], part_values[part, 2], part_values[part, 3]
                silent = low < 0 or text[low] != 34 or high - low == 2
                if silent and own_end == starts[i]:
                    i += 1
                    continue
                if opener < 0:
                    opener, voice = i, voices[i]
                    end, end_low, end_high = own_end, own_low, own_high
                    if begun:
                        at = _put_fixed(out, at, fixed, fixed_at, _COMMA)
                    begun = True
                    at = _put_fixed(out, at, fixed, fixed_at, 8)
                    at = _put_speaker(out, at, text, places[i], fixed, fixed_at)
                    at = _put_fixed(out, at, fixed, fixed_at, 9)
                    at = put(out, at, text, places[i, START], places[i, START + 1])
                elif voices[i] != voice:
                    break
                elif own_end > end:
                    end, end_low, end_high = own_end, own_low, own_high
                i += 1
            if opener < 0:
                break
            at = _put_fixed(out, at, fixed, fixed_at, 10)
            at = put(out, at, text, end_low, end_high)
            at = _put_fixed(out, at, fixed, fixed_at, 11)
            for j in range(opener, i):
                low, high = places[j, TEXT], places[j, TEXT + 1]
                if j == after - 1 and part >= 0:
                    low, high = part_values[part, 0], part_values[part, 1]
                if low < 0 or text[low] != 34 or high - low == 2:
                    continue
                if spoken:
                    at = _put_fixed(out, at, fixed, fixed_at, _SPACE)
                spoken = True
                at = put(out, at, text, low + 1, high - 1)
            at = _put_fixed(out, at, fixed, fixed_at, 12)
        at = _put_fixed(out, at, fixed, fixed_at, 13)
        at = put(out, at, source, 0, source.size)
        at = _put_fixed(out, at, fixed, fixed_at, 14)
        at = put_number(out, at, row)
        at = _put_fixed(out, at, fixed, fixed_at, 15)
    return at
