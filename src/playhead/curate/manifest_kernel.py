"""A kernel that writes the lines of a row's kept windows from the texts of its segments, as `window_lines` does."""

from __future__ import annotations

import numpy as np

from playhead.curate.exact_json import ByteArray
from playhead.curate.joining import put, put_byte, put_number
from playhead.curate.scan_row import END, SPEAKER, START, TEXT
from playhead.curate.search import FloatArray
from playhead.curate.voices import FIRST_SPEAKERS, MOST_SPEAKERS
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
]
_FIXED_TEXT = np.frombuffer("".join(_FIXED).encode(), dtype=np.uint8)
_FIXED_AT = np.cumsum([0, *map(len, _FIXED)]).astype(np.int64)
_NULL = 16
_AUDIO, _RATE = 4, 2  # where `row_places` has them


@kernel
def _put_fixed(out: ByteArray, at: int, i: int) -> int:
    return put(out, at, _FIXED_TEXT, _FIXED_AT[i], _FIXED_AT[i + 1])


@kernel
def _put_speaker(out: ByteArray, at: int, text: ByteArray, place: IntArray) -> int:
    if place[SPEAKER] < 0:
        return _put_fixed(out, at, _NULL)
    return put(out, at, text, place[SPEAKER], place[SPEAKER + 1])


@kernel
def _put_speakers(
    out: ByteArray, at: int, text: ByteArray, places: IntArray, voices: IntArray, first: int, after: int
) -> int:
    """Each speaker once, in order of first speech; without a name, or with an empty one, nobody."""
    heard = np.zeros(MOST_SPEAKERS + FIRST_SPEAKERS, dtype=np.bool_)
    begun = False
    for i in range(first, after):
        if voices[i] < 2 or heard[voices[i]]:
            continue
        heard[voices[i]] = True
        if begun:
            at = put_byte(out, at, 44)
        begun = True
        at = put(out, at, text, places[i, SPEAKER], places[i, SPEAKER + 1])
    return at


@kernel
def _put_texts(out: ByteArray, at: int, text: ByteArray, spoken: IntArray, first: int, after: int) -> int:
    """The texts of segments, without quotes, a space between those that have any."""
    begun = False
    for i in range(first, after):
        if spoken[i, 0] < 0:
            continue
        if begun:
            at = put_byte(out, at, 32)
        begun = True
        at = put(out, at, text, spoken[i, 0], spoken[i, 1])
    return at


@kernel
def _put_turns(
    out: ByteArray,
    at: int,
    text: ByteArray,
    places: IntArray,
    voices: IntArray,
    starts: FloatArray,
    ends: FloatArray,
    spoken: IntArray,
    first: int,
    after: int,
) -> int:
    """Segments of one speaker as one turn; those without length and text are passed over."""
    i, begun = first, False
    while True:
        while i < after and spoken[i, 0] < 0 and ends[i] == starts[i]:
            i += 1
        if i >= after:
            return at
        opener, last = i, i
        i += 1
        while i < after:
            if spoken[i, 0] >= 0 or ends[i] != starts[i]:
                if voices[i] != voices[opener]:
                    break
                if ends[i] > ends[last]:
                    last = i
            i += 1
        if begun:
            at = put_byte(out, at, 44)
        begun = True
        at = _put_fixed(out, at, 8)
        at = _put_speaker(out, at, text, places[opener])
        at = _put_fixed(out, at, 9)
        at = put(out, at, text, places[opener, START], places[opener, START + 1])
        at = _put_fixed(out, at, 10)
        at = put(out, at, text, spoken[last, 2], spoken[last, 3])
        at = _put_fixed(out, at, 11)
        at = _put_texts(out, at, text, spoken, opener, i)
        at = _put_fixed(out, at, 12)


@kernel
def _note_spoken(text: ByteArray, low: int, high: int, spoken: IntArray) -> None:
    """Where a text is, without its quotes; -1 if it is empty or there is none."""
    spoken[0], spoken[1] = -1, -1
    if low >= 0 and text[low] == 34 and high - low > 2:
        spoken[0], spoken[1] = low + 1, high - 1


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
) -> int:
    """Write a line for each first segment in `kept`; tells how many bytes that takes, also where there is no room.

    Heads are where in `text` the ids are, then the durations; `part_values` where a part's text and end are.
    """
    at = 0
    spoken = np.empty((places.shape[0], 4), dtype=np.int64)
    own_ends = ends.copy()
    for i in range(places.shape[0]):
        _note_spoken(text, places[i, TEXT], places[i, TEXT + 1], spoken[i])
        spoken[i, 2], spoken[i, 3] = places[i, END], places[i, END + 1]
    for number in range(kept.size):
        first = kept[number]
        part = part_of[first]
        after = first + taken[first] + (part >= 0)
        last = after - 1
        if part >= 0:
            _note_spoken(text, part_values[part, 0], part_values[part, 1], spoken[last])
            spoken[last, 2], spoken[last, 3] = part_values[part, 2], part_values[part, 3]
            own_ends[last] = part_ends[part]
        at = _put_fixed(out, at, 0)
        at = put(out, at, text, head_starts[number], head_ends[number])
        at = _put_fixed(out, at, 1)
        if row_places[_AUDIO] < 0:
            at = _put_fixed(out, at, _NULL)
        else:
            at = put(out, at, top, row_places[_AUDIO], row_places[_AUDIO + 1])
        at = _put_fixed(out, at, 2)
        at = put(out, at, text, places[first, START], places[first, START + 1])
        at = _put_fixed(out, at, 3)
        at = put(out, at, text, head_starts[kept.size + number], head_ends[kept.size + number])
        at = _put_fixed(out, at, 4)
        at = put(out, at, top, row_places[_RATE], row_places[_RATE + 1])
        at = _put_fixed(out, at, 5)
        at = _put_speakers(out, at, text, places, voices, first, after)
        at = _put_fixed(out, at, 6)
        at = _put_texts(out, at, text, spoken, first, after)
        at = _put_fixed(out, at, 7)
        at = _put_turns(out, at, text, places, voices, starts, own_ends, spoken, first, after)
        at = _put_fixed(out, at, 13)
        at = put(out, at, source, 0, source.size)
        at = _put_fixed(out, at, 14)
        at = put_number(out, at, row)
        at = _put_fixed(out, at, 15)
        if part >= 0:
            _note_spoken(text, places[last, TEXT], places[last, TEXT + 1], spoken[last])
            spoken[last, 2], spoken[last, 3] = places[last, END], places[last, END + 1]
            own_ends[last] = ends[last]
    return at
