"""Kernels that read a row: each segment is copied once, and where its parts are is noted."""

from __future__ import annotations

from playhead.curate.exact_json import ByteArray
from playhead.curate.scan_values import (
    copy_key,
    copy_number,
    copy_string,
    copy_value,
    copy_word,
    same_bytes,
    skip_space,
)
from playhead.curate.search import FloatArray
from playhead.types import IntArray, kernel

# Names of fields by number; those that are dropped come after.
SEGMENT_FIELDS = ("start", "end", "speaker", "text", "metrics", "words")
ROW_FIELDS = ("segments", "audio_sample_rate", "audio_filepath", "swift_audio_filepath")
_START, _END, _SPEAKER, _TEXT, _METRICS, _WORDS = range(6)
_SEGMENTS, _RATE, _AUDIO, _SWIFT = range(4)

# What is noted of a segment: where its text is, and in it that of a value; of words, where they are in the line.
NUM_PLACES = 14
ITEM, START, END, SPEAKER, TEXT, WORDS, KINDS = 0, 2, 4, 6, 8, 10, 12


@kernel
def name_of(src: ByteArray, low: int, high: int, names: ByteArray, bounds: IntArray) -> int:
    """The number of a name in a table, or -1."""
    for i in range(bounds.size - 1):
        if same_bytes(src, low, high, names, bounds[i], bounds[i + 1]):
            return i
    return -1


@kernel
def _copy_metrics(
    src: ByteArray, i: int, out: ByteArray, at: int, trusted: bool, stack: IntArray, keys: IntArray, band: ByteArray
) -> tuple[int, int, float, int]:
    """To after an object, and the number in its `bandwidth`; kind 3 if it has none."""
    value, kind, number = 0.0, 3, 0
    if src[i] != 123:
        return -1, at, value, kind
    out[at] = 123
    i, at = skip_space(src, i + 1), at + 1
    if i < src.size and src[i] == 125:
        out[at] = 125
        return i + 1, at + 1, value, kind
    while True:
        i, at = copy_key(src, i, out, at, keys[1], number)
        if i < 0 or i >= src.size:
            return -1, at, value, kind
        if same_bytes(src, keys[1, number, 0], keys[1, number, 1], band, 0, band.size):
            i, at, value, kind = copy_number(src, i, out, at, trusted)
        else:
            i, at = copy_value(src, i, out, at, trusted, stack, keys[2:])
        number += 1
        if i < 0:
            return -1, at, value, kind
        i = skip_space(src, i)
        if i >= src.size:
            return -1, at, value, kind
        if src[i] == 125:
            out[at] = 125
            return i + 1, at + 1, value, kind
        if src[i] != 44:
            return -1, at, value, kind
        out[at], out[at + 1] = 44, 32
        i, at = i + 1, at + 2


@kernel
def _copy_segment(
    src: ByteArray,
    i: int,
    out: ByteArray,
    at: int,
    trusted: bool,
    stack: IntArray,
    keys: IntArray,
    names: ByteArray,
    bounds: IntArray,
    band: ByteArray,
    places: IntArray,
    numbers: FloatArray,
) -> tuple[int, int]:
    """To after a segment, without its dropped fields. `numbers` are start, end and bandwidth; kinds go to `places`."""
    places[:] = -1
    numbers[2] = 0.0
    places[KINDS] = 0
    if i >= src.size or src[i] != 123:
        return -1, at
    places[ITEM] = at
    out[at] = 123
    i, at, num_keys, num_kept = skip_space(src, i + 1), at + 1, 0, 0
    if i < src.size and src[i] == 125:
        return -1, at  # a segment without start and end is a fault
    start_kind, end_kind, band_kind = 3, 3, 0
    while True:
        before = at
        if num_kept:
            out[at], out[at + 1] = 44, 32
            at += 2
        i, at = copy_key(src, i, out, at, keys[0], num_keys)
        if i < 0 or i >= src.size:
            return -1, at
        name = name_of(src, keys[0, num_keys, 0], keys[0, num_keys, 1], names, bounds)
        num_keys += 1
        low, begin = at, i
        if name in (_START, _END):
            i, at, value, kind = copy_number(src, i, out, at, trusted)
            numbers[name] = value
            if name == _START:
                start_kind = kind
            else:
                end_kind = kind
        elif name in (_SPEAKER, _TEXT):
            if src[i] == 34:
                i, at = copy_string(src, i, out, at)
            elif src[i] == 110:
                i, at = copy_word(src, i, out, at)
            else:
                return -1, at
        elif name == _METRICS:
            i, at, value, kind = _copy_metrics(src, i, out, at, trusted, stack, keys, band)
            numbers[2], band_kind = value, 0 if kind == 3 else kind
        else:
            i, at = copy_value(src, i, out, at, trusted, stack, keys[1:])
        if i < 0:
            return -1, at
        if name >= _WORDS:
            if name == _WORDS:
                places[WORDS], places[WORDS + 1] = begin, i
            at = before
        else:
            num_kept += 1
            if 0 <= name <= _TEXT:
                places[START + 2 * name], places[START + 2 * name + 1] = low, at
        i = skip_space(src, i)
        if i >= src.size:
            return -1, at
        if src[i] == 125:
            break
        if src[i] != 44:
            return -1, at
        i += 1
    if start_kind == 3 or end_kind == 3:
        return -1, at
    out[at] = 125
    places[ITEM + 1] = at + 1
    places[KINDS] = start_kind + 4 * end_kind + 16 * band_kind
    return i + 1, at + 1


@kernel
def scan_row(
    src: ByteArray,
    trusted: bool,
    out: ByteArray,
    top: ByteArray,
    row_names: ByteArray,
    row_bounds: IntArray,
    names: ByteArray,
    bounds: IntArray,
    band: ByteArray,
    added: int,
    stack: IntArray,
    keys: IntArray,
    places: IntArray,
    numbers: FloatArray,
    row_places: IntArray,
) -> tuple[int, int, int, float]:
    """Read a row: segments go to `out`, what is kept of the rest to `top`.

    Returns the number of segments, or -1, or -2 where there is no room for so many; the bytes of `out` and of `top`;
    and the sample rate, negative if it is unusual or missing. `row_places` are in `top`. Names up to `added` are of
    fields that the stages add: a row that has one already is for somebody slower.
    """
    row_places[:] = -1
    count, at, rate = -1, 0, -1.0
    i, size, num_keys, num_kept = skip_space(src, 0), 1, 0, 0
    if i >= src.size or src[i] != 123:
        return -1, 0, 0, rate
    top[0] = 123
    i = i + 1
    row_keys = keys[-1]
    while True:
        before = size
        if num_kept:
            top[size], top[size + 1] = 44, 32
            size += 2
        i, size = copy_key(src, i, top, size, row_keys, num_keys)
        if i < 0 or i >= src.size:
            return -1, at, size, rate
        name = name_of(src, row_keys[num_keys, 0], row_keys[num_keys, 1], row_names, row_bounds)
        num_keys += 1
        low = size
        if name == _SEGMENTS:
            i, at, count = _copy_segments(src, i, out, trusted, stack, keys, names, bounds, band, places, numbers)
        elif name == _RATE:
            i, size, rate, kind = copy_number(src, i, top, size, trusted)
            rate = rate if kind < 2 else -1.0
        elif _SWIFT < name < added:
            return -1, at, size, rate
        else:
            i, size = copy_value(src, i, top, size, trusted, stack, keys)
        if i < 0:
            return count if count == -2 else -1, at, size, rate
        if name == _SEGMENTS or name >= added:
            size = before
        else:
            num_kept += 1
            if name > 0:
                row_places[2 * name], row_places[2 * name + 1] = low, size
        i = skip_space(src, i)
        if i >= src.size:
            return -1, at, size, rate
        if src[i] == 125:
            break
        if src[i] != 44:
            return -1, at, size, rate
        i += 1
    top[size] = 125
    if skip_space(src, i + 1) != src.size:
        return -1, at, size, rate
    return count, at, size + 1, rate


@kernel
def _copy_segments(
    src: ByteArray,
    i: int,
    out: ByteArray,
    trusted: bool,
    stack: IntArray,
    keys: IntArray,
    names: ByteArray,
    bounds: IntArray,
    band: ByteArray,
    places: IntArray,
    numbers: FloatArray,
) -> tuple[int, int, int]:
    """To after the list of segments: the bytes and the number of them; -2 where there is no room."""
    at, count = 0, 0
    if src[i] != 91:
        return -1, at, -1
    i = skip_space(src, i + 1)
    if i < src.size and src[i] == 93:
        return i + 1, at, 0
    while True:
        if count == places.shape[0]:
            return -1, at, -2
        if count:
            out[at], out[at + 1] = 44, 32
            at += 2
        i = skip_space(src, i)
        i, at = _copy_segment(src, i, out, at, trusted, stack, keys, names, bounds, band, places[count], numbers[count])
        if i < 0:
            return -1, at, -1
        count += 1
        i = skip_space(src, i)
        if i >= src.size:
            return -1, at, -1
        if src[i] == 93:
            return i + 1, at, count
        if src[i] != 44:
            return -1, at, -1
        i += 1
