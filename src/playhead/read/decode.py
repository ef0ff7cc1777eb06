"""Members of a sample decoded by their extension: json, text, npy; everything else stays bytes."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from playhead.errors import SampleError
from playhead.formats.rows import Sample


def decoded(sample: Sample) -> Sample:
    """The sample with its bytes decoded; a member that breaks raises SampleError with its name."""
    if not any(type(value) is bytes for value in sample.values()):
        return sample
    return {name: _decode(name, value) if type(value) is bytes else value for name, value in sample.items()}


def decoded_until(samples: list[Sample]) -> tuple[list[Sample], SampleError | None]:
    """The samples decoded, up to the first that breaks, and how that one does."""
    done: list[Sample] = []
    try:
        done.extend(map(decoded, samples))
    except SampleError as error:
        return done, error
    return done, None


def _decode(name: str, data: bytes) -> Any:
    decoder = _DECODERS.get(name.rpartition(".")[2])
    if decoder is None:
        return data
    try:
        return decoder(data)
    except Exception as error:  # broken bytes make numpy raise nearly anything
        deep = isinstance(error, RecursionError)
        raise SampleError(
            f'member "{name}" cannot be decoded',
            found="it is nested too deeply" if deep else f"{type(error).__name__}: {error}",
            fix="fix the file, say `decode: false` to get the bytes, or let bad samples be replaced "
            "(`on_error: substitute`)",
        ) from error


def _json(data: bytes) -> Any:
    """As indexing reads it: NaN and Infinity, which Python writes, and broken UTF-8 are let pass."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return json.loads(data.decode("utf-8", "replace"))


def _array(data: bytes) -> Any:
    return np.load(io.BytesIO(data), allow_pickle=False)


def _text(data: bytes) -> str:
    return data.decode("utf-8")


_DECODERS: dict[str, Callable[[bytes], Any]] = {
    "json": _json,
    "txt": _text,
    "text": _text,
    "npy": _array,
}
