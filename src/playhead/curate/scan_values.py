"""Kernels that read JSON and copy it as Python's `json` would write it.

They know the usual: strings without rare escapes, numbers of up to 15 digits in the form that Python writes. Anything
else, broken JSON among it, is answered with -1, and somebody slower has to look. A *trusted* text was written by
Python's `json`, or as by it: then every number is in its form.

Law: where a kernel does not answer -1, it has read valid JSON, and copied what `json.dumps(json.loads(text),
ensure_ascii=False)` gives.
"""

from __future__ import annotations

import numpy as np

from playhead.curate.exact_json import ByteArray
from playhead.types import IntArray, kernel

MOST_DEPTH = 24
MOST_KEYS = 48

_POWERS = np.array([10.0**i for i in range(23)])
_QUOTE, _BACKSLASH, _COMMA, _COLON, _MINUS, _DOT, _ZERO = 34, 92, 44, 58, 45, 46, 48


@kernel
def skip_space(src: ByteArray, i: int) -> int:
    while i < src.size and (src[i] == 32 or src[i] == 9 or src[i] == 13 or src[i] == 10):
        i += 1
    return i


@kernel
def copy_string(src: ByteArray, i: int, out: ByteArray, at: int) -> tuple[int, int]:
    """From a quote to after its fellow."""
    if i >= src.size or src[i] != _QUOTE:
        return -1, at
    rest = src[i:]  # views, so that a loop over them needs no check of its bounds
    size, skip = 0, False
    for k in range(1, rest.size):
        byte = rest[k]
        if skip:
            # \" \\ \b \f \n \r \t are written as they are read; of \u some are.
            if byte not in (34, 92, 98, 102, 110, 114, 116):
                return -1, at
            skip = False
        elif byte == _QUOTE:
            size = k + 1
            break
        elif byte == _BACKSLASH:
            skip = True
        elif byte < 32:
            return -1, at
    if size == 0:
        return -1, at
    target, source = out[at : at + size], rest[:size]
    for k in range(size):
        target[k] = source[k]
    return i + size, at + size


@kernel
def copy_number(src: ByteArray, i: int, out: ByteArray, at: int, trusted: bool) -> tuple[int, int, float, int]:
    """To after a number. Also its value, and its kind: 0 whole, 1 a float, 2 one whose value is not known here."""
    begin, first, digits, fraction = i, at, 0, -1
    value, places = 0.0, 0
    negative = src[i] == _MINUS
    if negative:
        i += 1
    leading = i
    while i < src.size:
        byte = src[i]
        if 48 <= byte <= 57:
            if digits or byte != _ZERO:
                digits += 1
            if digits <= 15:
                value = value * 10.0 + (byte - 48)
            if fraction >= 0:
                places += 1
        elif byte == _DOT and fraction < 0 and i > leading:
            fraction = i
        else:
            break
        i += 1
    usual = i > leading and not (src[leading] == _ZERO and i > leading + 1 and fraction != leading + 1)
    if i < src.size and (src[i] in (43, 45, 46) or 65 <= src[i] <= 90 or 97 <= src[i] <= 122):
        usual = False
        while i < src.size and (src[i] in (43, 45, 46) or 48 <= src[i] <= 57 or 65 <= src[i] <= 122):
            i += 1
    if fraction >= 0:
        usual = usual and places > 0 and places <= 22 and (places == 1 or src[i - 1] != _ZERO)
        if usual:
            value = value / _POWERS[places]
            usual = value >= 1e-4 or digits == 0
    elif negative and digits == 0:
        usual = False
    usual = usual and digits <= 15
    if not usual and (not trusted or i == begin):
        return -1, at, 0.0, 2
    for j in range(i - begin):
        out[first + j] = src[begin + j]
    kind = 2 if not usual else (0 if fraction < 0 else 1)
    return i, first + i - begin, -value if negative else value, kind


@kernel
def copy_word(src: ByteArray, i: int, out: ByteArray, at: int) -> tuple[int, int]:
    """To after true, false or null."""
    size = 5 if src[i] == 102 else 4
    if i + size > src.size:
        return -1, at
    good = False
    if src[i] == 116:
        good = src[i + 1] == 114 and src[i + 2] == 117 and src[i + 3] == 101
    elif src[i] == 102:
        good = src[i + 1] == 97 and src[i + 2] == 108 and src[i + 3] == 115 and src[i + 4] == 101
    elif src[i] == 110:
        good = src[i + 1] == 117 and src[i + 2] == 108 and src[i + 3] == 108
    if not good:
        return -1, at
    for j in range(size):
        out[at + j] = src[i + j]
    return i + size, at + size


@kernel
def same_bytes(one: ByteArray, low: int, high: int, other: ByteArray, low2: int, high2: int) -> bool:
    if high - low != high2 - low2:
        return False
    i = 0
    while i < high - low and one[low + i] == other[low2 + i]:
        i += 1
    return i == high - low


@kernel
def copy_key(src: ByteArray, i: int, out: ByteArray, at: int, keys: IntArray, num_keys: int) -> tuple[int, int]:
    """A key, its colon and the space around it. One that the object has had is for somebody slower."""
    i = skip_space(src, i)
    low = i + 1
    i, at = copy_string(src, i, out, at)
    if i < 0 or num_keys >= MOST_KEYS:
        return -1, at
    high = i - 1
    for k in range(num_keys):
        if same_bytes(src, keys[k, 0], keys[k, 1], src, low, high):
            return -1, at
    keys[num_keys, 0], keys[num_keys, 1] = low, high
    i = skip_space(src, i)
    if i >= src.size or src[i] != _COLON:
        return -1, at
    out[at], out[at + 1] = _COLON, 32
    return skip_space(src, i + 1), at + 2


@kernel
def copy_value(
    src: ByteArray, i: int, out: ByteArray, at: int, trusted: bool, stack: IntArray, keys: IntArray
) -> tuple[int, int]:
    """To after any value. `stack` and `keys` are room for what is open: its bracket and number of keys, its keys."""
    depth = 0
    while True:
        i = skip_space(src, i)
        if i >= src.size:
            return -1, at
        byte = src[i]
        if byte == _QUOTE:
            i, at = copy_string(src, i, out, at)
        elif byte in (91, 123):
            closing = byte + 2
            out[at] = byte
            i, at = skip_space(src, i + 1), at + 1
            if i < src.size and src[i] == closing:
                out[at] = closing
                i, at = i + 1, at + 1
            elif depth + 1 >= MOST_DEPTH:
                return -1, at
            else:
                depth += 1
                stack[depth, 0], stack[depth, 1] = closing, 0
                if closing == 125:
                    i, at = copy_key(src, i, out, at, keys[depth], 0)
                    stack[depth, 1] = 1
                if i < 0:
                    return -1, at
                continue
        elif byte in (116, 102, 110):
            i, at = copy_word(src, i, out, at)
        else:
            i, at, _, _ = copy_number(src, i, out, at, trusted)
        if i < 0:
            return -1, at
        while depth:
            i = skip_space(src, i)
            if i >= src.size:
                return -1, at
            byte = src[i]
            if byte == stack[depth, 0]:
                out[at] = byte
                i, at, depth = i + 1, at + 1, depth - 1
                continue
            if byte != _COMMA:
                return -1, at
            out[at], out[at + 1] = _COMMA, 32
            i, at = i + 1, at + 2
            if stack[depth, 0] == 125:
                i, at = copy_key(src, i, out, at, keys[depth], stack[depth, 1])
                stack[depth, 1] += 1
                if i < 0:
                    return -1, at
            break
        if depth == 0:
            return i, at
