"""JSON Lines: one object a line, in `.jsonl` or `.json`. Blank lines are not rows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from playhead.errors import DataError
from playhead.formats import sidecar
from playhead.formats.collect import Collected, Collector
from playhead.formats.contract import Chunk, Rows, Sample, ScanLimits, Shard
from playhead.formats.fields import fast_decoder
from playhead.formats.lengths import MISSING
from playhead.formats.lines import Lines, read_lines
from playhead.formats.registry import check_options, register
from playhead.formats.spec import Spec
from playhead.recipe.values import Source
from playhead.store import File, list_files, open_file
from playhead.types import UIntArray

TRACK = "jsonl"
_DECODER = msgspec.json.Decoder(dict[str, Any])


@register("jsonl", extensions=(".jsonl", ".json"), raw_members=False)
class Jsonl:
    """Files of JSON objects, one a line."""

    def discover(self, source: Source) -> Sequence[Shard]:
        check_options(source, ())
        patterns = [source.path] if isinstance(source.path, str) else source.path
        return [Shard(((TRACK, path),)) for path in list_files(patterns)]

    def scan(self, shard: Shard, spec: Spec, limits: ScanLimits) -> Iterator[Chunk]:
        with open_file(shard.name) as file:
            known = None if spec.reads_content else sidecar.load(file, limits)
            if known is not None:
                yield _from_sidecar(file, known)
                return
            decode = fast_decoder(spec)
            collector = Collector(spec)
            for lines in read_lines(file, limits):
                collected = decode(lines) if decode else None
                if collected is None:
                    collected = _line_by_line(file, lines, collector)
                offsets = (lines.starts + lines.base).astype(np.uint64)
                # The last chunk's end is the sentinel: the size of the file.
                end = lines.base + len(lines.data)
                yield collected.chunk(offsets.size, {TRACK: offsets}, {TRACK: end})

    def read(self, rows: Rows, options: Mapping[str, Any]) -> Iterable[Sample]:  # noqa: ARG002
        decode, payloads = _DECODER.decode, rows.payloads(TRACK)
        try:
            return list(map(decode, payloads))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return [_object(raw.rstrip(), rows.place(i), "strict") for i, raw in enumerate(payloads)]

    def sidecars(self, shard: Shard, limits: ScanLimits) -> Iterable[tuple[str, Iterable[UIntArray]]]:
        yield shard.name, _line_starts(shard.name, limits)


class _Row:
    """One line, seen by a Collector."""

    def __init__(self, raw: bytes, file: File, line: int, offset: int) -> None:
        self.where = f"{file.path}, line {line:,}, byte {offset:,}"
        self._raw = raw
        self._value = _object(raw, self.where)

    def get(self, field: str) -> Any:
        value: Any = self._value
        for part in field.split("."):
            if not isinstance(value, dict) or part not in value:
                return MISSING
            value = value[part]
        return value

    def size(self, field: str | None) -> int:
        if field is None:
            return len(self._raw)
        value = self.get(field)
        if not isinstance(value, str):
            raise DataError(f'{self.where}: field "{field}" has no size in bytes', found=repr(value)[:80])
        return len(value.encode("utf-8", "surrogatepass"))

    def sample(self) -> dict[str, Any]:
        return self._value


def _line_by_line(file: File, lines: Lines, collector: Collector) -> Collected:
    """The slow, obvious way, which says which line is at fault and how."""
    line, counted = lines.first_line, 0
    for start, end in zip(lines.starts.tolist(), lines.ends.tolist(), strict=True):
        line += lines.data.count(b"\n", counted, start)
        counted = start
        collector.add(_Row(lines.data[start:end], file, line, lines.base + start))
    return collector.take()


def _object(raw: bytes, where: str, broken_text: str = "replace") -> dict[str, Any]:
    """One line as an object. NaN and Infinity, which Python writes, pass; so does broken UTF-8 in a field that an
    index does not ask for, but it is never delivered (`broken_text` is then "strict").
    """
    try:
        value = _value(raw, broken_text)
    except RecursionError:
        raise DataError(
            f"{where}: the row is nested too deeply",
            found=f"brackets within brackets, hundreds deep; the line starts with {raw[:40]!r}",
            fix="remove the line, or write what it holds in a flatter way",
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DataError(
            f"{where}: broken JSON",
            found=f"{error}; the line starts with {raw[:40]!r}",
            expected="one JSON object",
            fix="fix or remove the line, then run it again",
        ) from error
    if not isinstance(value, dict):
        raise DataError(f"{where}: not an object", found=repr(value)[:80], expected="one JSON object a line")
    return value


def _value(raw: bytes, broken_text: str) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        try:
            return json.loads(raw.decode("utf-8", broken_text))
        except ValueError:
            raise error from None


def _from_sidecar(file: File, starts: UIntArray) -> Chunk:
    """Rows from a sidecar, which counts blank lines too."""
    first = sidecar.bytes_at(file, starts)
    keep = np.ones(starts.size, dtype=np.bool_)
    ends = np.append(starts[1:], np.uint64(file.size))
    for i in np.flatnonzero(np.isin(first, np.frombuffer(b" \t\r\n", dtype=np.uint8))).tolist():
        keep[i] = bool(file.read(int(starts[i]), int(ends[i] - starts[i])).strip(b" \t\r\n"))
    offsets = starts[keep]
    return Chunk(offsets.size, {TRACK: offsets}, {TRACK: file.size})


def _line_starts(path: str, limits: ScanLimits) -> Iterator[UIntArray]:
    """The first byte of every line, blank ones too, and the size of the file."""
    with open_file(path) as file:
        base = 0
        yield np.zeros(1 if file.size else 0, dtype=np.uint64)
        while data := file.read(base, limits.chunk_bytes):
            after = np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == 10) + (base + 1)
            base += len(data)
            yield after[after < file.size].astype(np.uint64)
        yield np.array([file.size], dtype=np.uint64)
