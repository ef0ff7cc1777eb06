"""A row's JSON: read as Python's `json` reads it, by msgspec wherever that can."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from playhead.curate.faults import Row, RowError

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


def write_row(row: Row) -> bytes:
    """A line that Python's `json` reads as the same row: msgspec would write null for a NaN."""
    try:
        return _encode(row).encode("utf-8") + b"\n"
    except UnicodeEncodeError as error:
        raise RowError("", "text with half a surrogate pair", found=str(error)) from error
