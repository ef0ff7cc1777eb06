"""Rows of a manifest: read as Python's `json` reads them, and checked; errors name the field."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec

from playhead.errors import DataError
from playhead.recipe.words import describe

CurateRow = dict[str, Any]

REQUIRED = ("segments", "audio_sample_rate", "audio_filepath")  # as NeMo Curator's stage requires
_EXPECTED = {
    "segments": "a list of segments",
    "audio_sample_rate": "a number of hertz",
    "audio_filepath": "the path or URL of the recording",
}
_LARGEST = 10**300


class RowError(DataError):
    """A row that cannot be cut into windows. `field` says where in the row, `reason` is one of a few phrases."""

    def __init__(self, field: str, reason: str, *, found: str | None = None, expected: str | None = None) -> None:
        self.field = field
        self.reason = reason
        super().__init__(f"{field}: {reason}" if field else reason, found=found, expected=expected)

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (vars(self).copy(),)


def _rebuild(values: dict[str, Any]) -> RowError:
    error = RowError.__new__(RowError)
    vars(error).update(values)
    error.args = (error.message(),)
    return error


def check_row(row: Any, required: tuple[str, ...] = REQUIRED) -> None:
    """Raise the first error of a row. Words are checked only where a segment is cut, by `check_words`."""
    if not isinstance(row, dict):
        raise RowError("", "not an object", found=describe(row), expected="one JSON object a line")
    segments = _value(row, "segments", [], required)
    if not isinstance(segments, list):
        raise RowError("segments", "not a list", found=describe(segments), expected=_EXPECTED["segments"])
    before: float = -math.inf
    for i, segment in enumerate(segments):
        _check_segment(segment, f"segments[{i}]")
        if segment["start"] < before:
            raise RowError(
                f"segments[{i}].start",
                "segments are not sorted by start",
                found=f"{segment['start']} after {before}",
                expected="segments in order of their starts",
            )
        before = segment["start"]
    _number(_value(row, "audio_sample_rate", 0, required), "audio_sample_rate")
    _check_path(_value(row, "audio_filepath", None, required))


def _value(row: CurateRow, name: str, default: Any, required: tuple[str, ...]) -> Any:
    if name in required and name not in row:
        raise RowError(name, "missing", expected=_EXPECTED[name])
    return row.get(name, default)


def _check_path(path: Any) -> None:
    if not isinstance(path, str):
        raise RowError("audio_filepath", "not text", found=describe(path), expected=_EXPECTED["audio_filepath"])
    if not path:
        raise RowError("audio_filepath", "empty", expected=_EXPECTED["audio_filepath"])


def _check_segment(segment: Any, place: str) -> None:
    if not isinstance(segment, dict):
        raise RowError(place, "not an object", found=describe(segment), expected="a segment: `start`, `end`, ...")
    for name in ("start", "end"):
        if name not in segment:
            raise RowError(f"{place}.{name}", "missing", expected="a number of seconds")
        _number(segment[name], f"{place}.{name}")
    if segment["start"] < 0:
        found = describe(segment["start"])
        raise RowError(f"{place}.start", "before the recording", found=found, expected="0 or more seconds")
    if segment["end"] < segment["start"]:
        found = f"from {segment['start']} to {segment['end']}"
        raise RowError(f"{place}.end", "the end is before the start", found=found)
    speaker = segment.get("speaker")
    if speaker is not None and (not isinstance(speaker, (str, int, float)) or isinstance(speaker, bool)):
        raise RowError(f"{place}.speaker", "not a name", found=describe(speaker), expected="text, or nothing")
    metrics = segment.get("metrics", {})
    if not isinstance(metrics, dict):
        raise RowError(f"{place}.metrics", "not an object", found=describe(metrics), expected="`bandwidth`, or nothing")
    _number(metrics.get("bandwidth", 0), f"{place}.metrics.bandwidth")
    text = segment.get("text")
    if text is not None and not isinstance(text, str):
        raise RowError(f"{place}.text", "not text", found=describe(text), expected="text, or nothing")


def check_words(segment: CurateRow, place: str) -> list[CurateRow]:
    """Check the words of a segment that will be cut."""
    words = segment.get("words", [])
    if not isinstance(words, list):
        raise RowError(f"{place}.words", "not a list", found=describe(words), expected="a list of words")
    for i, word in enumerate(words):
        where = f"{place}.words[{i}]"
        if not isinstance(word, dict):
            raise RowError(where, "not an object", found=describe(word), expected="a word: `word`, `start`, `end`")
        if "end" not in word:
            raise RowError(f"{where}.end", "missing", expected="a number of seconds")
        _number(word["end"], f"{where}.end")
        text = word.get("word")
        if text and not isinstance(text, str):
            raise RowError(f"{where}.word", "not text", found=describe(text), expected="text, or nothing")
    return words


def _number(value: Any, field: str) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise RowError(field, "not a number", found=describe(value), expected="a number")
    if isinstance(value, float) and not math.isfinite(value):
        raise RowError(field, "not a finite number", found=describe(value), expected="a number")
    if abs(value) > _LARGEST:
        raise RowError(field, "too large", found="a number above 1e300", expected="a number up to 1e300")


decode = msgspec.json.Decoder().decode
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def read_row(line: bytes) -> Any:
    """Law: equal to `json.loads`. Raises a RowError where that raises an error, and for text that is not UTF-8."""
    try:
        return decode(line)
    except (msgspec.DecodeError, ValueError, RecursionError):
        pass
    try:
        return json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise RowError("", "not UTF-8", found=str(error), expected="JSON in UTF-8") from error
    except (ValueError, RecursionError) as error:
        raise RowError("", "broken JSON", found=f"{error}; it starts with {line[:40]!r}", expected="JSON") from error


def write_row(row: CurateRow) -> bytes:
    """A line that Python's `json` reads as the same row: msgspec would write null for a NaN."""
    try:
        return _encode(row).encode("utf-8") + b"\n"
    except UnicodeEncodeError as error:
        raise RowError("", "text with half a surrogate pair", found=str(error)) from error
