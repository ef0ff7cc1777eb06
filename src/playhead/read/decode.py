"""Members of a sample decoded by their extension: json, text, npy, audio, images; everything else stays bytes."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from functools import lru_cache
from math import prod
from typing import Any

import msgspec
import numpy as np

from playhead.errors import SampleError
from playhead.formats.media import Media, MediaKind
from playhead.formats.rows import Sample
from playhead.read.stored import Dtype, StoredArray
from playhead.store import Buffer, Extent

_START_BYTES = 128  # the size of most npy headers
_LONGEST_HEADER = 1 << 12
_VERSIONS = {b"\x93NUMPY\x01\x00": 2, b"\x93NUMPY\x02\x00": 4}  # and the number of bytes of the header length
_PLAIN_KINDS = "biufc"
_MOST_AXES = 32
_MEDIA: dict[str, MediaKind] = {
    **dict.fromkeys(["wav", "flac", "mp3", "ogg", "oga", "opus", "aiff", "aif", "aifc", "w64", "caf", "au"], "audio"),
    **dict.fromkeys(["jpg", "jpeg", "png", "webp", "gif", "bmp", "tif", "tiff"], "image"),
}


def decoded(sample: Sample) -> Sample:
    """The sample with its bytes decoded; a broken member raises SampleError with its name.

    An array is a StoredArray, if its header describes it completely.
    """
    if not any(type(value) is bytes or type(value) is Extent for value in sample.values()):
        return sample
    return {
        name: _decode(name, value) if type(value) is bytes or type(value) is Extent else value
        for name, value in sample.items()
    }


def decoded_until(samples: list[Sample]) -> tuple[list[Sample], SampleError | None]:
    """The samples decoded, up to the first that fails, and its error."""
    done: list[Sample] = []
    try:
        done.extend(map(decoded, samples))
    except SampleError as error:
        return done, error
    return done, None


def with_media(samples: list[Sample]) -> list[Sample]:
    """The samples with their members of audio and images as media, to be decoded with the others."""
    return [
        {name: _medium(name, value) if _is_media(name, value) else value for name, value in sample.items()}
        if any(_is_media(name, value) for name, value in sample.items())
        else sample
        for sample in samples
    ]


def _is_media(name: str, value: Any) -> bool:
    return (type(value) is bytes or type(value) is Extent) and name.rpartition(".")[2] in _MEDIA


def _medium(name: str, data: bytes | Extent) -> Media:
    return Media(_MEDIA[name.rpartition(".")[2]], data, f'member "{name}"')


def _decode(name: str, data: bytes | Extent) -> Any:
    extension = name.rpartition(".")[2]
    stored = stored_array(data) if extension == "npy" else None
    if stored is not None:
        return stored
    whole = data if isinstance(data, bytes) else data.read()
    decoder = _DECODERS.get(extension)
    if decoder is None:
        return whole
    try:
        return decoder(whole)
    except Exception as error:  # numpy may raise many types of errors for broken bytes
        deep = isinstance(error, RecursionError)
        raise SampleError(
            f'member "{name}" cannot be decoded',
            found="it is nested too deeply" if deep else f"{type(error).__name__}: {error}",
            fix="fix the file, set `decode: false` to get the bytes, or let bad samples be replaced "
            "(`on_error: substitute`)",
        ) from error


def _json(data: bytes) -> Any:
    """Parsed as in indexing: NaN and Infinity, which Python writes, and broken UTF-8 are accepted."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return json.loads(data.decode("utf-8", "replace"))


def _array(data: bytes) -> Any:
    return np.load(io.BytesIO(data), allow_pickle=False)


def stored_array(data: bytes | Extent) -> StoredArray | None:
    """A complete member of plain numbers in C order; None if numpy must load or refuse it.

    Law: it reads what `np.load` returns.
    """
    size = data.size if isinstance(data, Extent) else len(data)
    start = _beginning(data, min(size, _START_BYTES))
    count = _VERSIONS.get(start[:8])
    if count is None:
        return None
    begin = 8 + count + int.from_bytes(start[8 : 8 + count], "little")
    if begin > min(size, _LONGEST_HEADER):
        return None
    found = _header(start[:begin] if begin <= len(start) else _beginning(data, begin))
    if found is None:
        return None
    shape, dtype, num_bytes = found
    end = begin + num_bytes
    if end > size:
        return None
    numbers: Buffer | Extent = data.cut(begin, end) if isinstance(data, Extent) else memoryview(data)[begin:end]
    if isinstance(numbers, Extent) and len(numbers.head) == numbers.size:
        numbers = numbers.head
    return StoredArray(numbers, dtype, shape)


def _beginning(data: bytes | Extent, size: int) -> bytes:
    return bytes(data.part(0, size)) if isinstance(data, Extent) else data[:size]


@lru_cache(maxsize=64)
def _header(header: bytes) -> tuple[tuple[int, ...], Dtype, int] | None:
    """The shape, dtype and size in bytes of an array; None if its bytes are not enough to make it.

    Cached, because similar members have the same header.
    """
    file = io.BytesIO(header)
    try:
        major, _ = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if major == 1 else np.lib.format.read_array_header_2_0
        shape, fortran_order, dtype = read(file)
    except Exception:  # noqa: BLE001 - broken bytes make numpy raise nearly anything, and it will once more
        return None
    plain = dtype.kind in _PLAIN_KINDS and all(type(size) is int and size > 0 for size in shape)
    if not plain or fortran_order or not 1 <= len(shape) <= _MOST_AXES:
        return None
    return shape, dtype, prod(shape) * dtype.itemsize


def _text(data: bytes) -> str:
    return data.decode("utf-8")


_DECODERS: dict[str, Callable[[bytes], Any]] = {
    "json": _json,
    "txt": _text,
    "text": _text,
    "npy": _array,
}
