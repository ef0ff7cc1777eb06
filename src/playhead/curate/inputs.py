"""Which files are read, and where in them each row is: rows are counted once, by a scan for newlines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from msgspec import Struct

from playhead.errors import DataError, RecipeError
from playhead.formats.contract import ScanLimits
from playhead.formats.lines import read_lines
from playhead.store import Stamp, is_url, list_files, open_file, stamp
from playhead.store.globbing import has_magic
from playhead.store.remote import list_remote

SUFFIXES = (".jsonl", ".json")
MEANS = ScanLimits(chunk_bytes=1 << 19, longest_row_bytes=1 << 30, indexes_root=None)

_REMOTE_BYTES = 1 << 23  # a request for a little costs as much as one for more
_ROWS_TO_A_MARK = 256
_KEPT_BYTES = 1 << 23


class Input(Struct, frozen=True):
    """A file, and what it was when the run began."""

    path: str
    stamp: Stamp


class Span(Struct, frozen=True):
    """Consecutive rows of a file. Reading begins at a mark: `byte`, on `line`, `skip` rows before the first."""

    input: Input
    first_row: int
    num_rows: int
    byte: int
    line: int
    skip: int


class Survey(Struct, frozen=True):
    """A file's number of rows, and the byte and line of every 256th."""

    input: Input
    num_rows: int
    marks: tuple[tuple[int, int], ...]

    def span(self, first: int, num_rows: int) -> Span:
        byte, line = self.marks[first // _ROWS_TO_A_MARK] if num_rows else (0, 1)
        return Span(self.input, first, num_rows, byte, line, first % _ROWS_TO_A_MARK)


def find_inputs(words: Sequence[str], out: Path) -> list[Input]:
    """The files that paths, directories and patterns name, in that order. Law: none twice, none inside `out`.

    A directory may hold `out`: what is in that is not among its manifests, or a second run would find the first one's.
    """
    patterns = [pattern for word in words for pattern in _within(word, out.resolve())]
    paths = list_files(patterns)
    inside = [path for path in paths if not is_url(path) and Path(path).resolve().is_relative_to(out.resolve())]
    if inside:
        raise RecipeError(
            f"{inside[0]}: lies in the directory to write to",
            found=f"--out {out}",
            expected="inputs and outputs in directories apart",
            fix="choose another --out",
        )
    return [Input(path, stamp(path)) for path in paths]


def _within(word: str, out: Path) -> list[str]:
    """The manifests in a directory, local or under a prefix of a store; what is no directory stands for itself."""
    path = Path(word)
    if is_url(word) and not has_magic(word) and path.suffix not in SUFFIXES:
        found = [url for url in list_remote(word) if url.endswith(SUFFIXES)]
    elif path.is_dir():
        holds_out = path.resolve() in out.parents
        named = (file for file in path.rglob("*") if file.suffix in SUFFIXES and file.is_file())
        found = sorted(str(file) for file in named if not (holds_out and file.resolve().is_relative_to(out)))
    else:
        return [word]
    if not found:
        raise DataError(
            f"{word}: holds no manifest", expected="files that end in .jsonl or .json", fix="correct the path"
        )
    return found


def _means(path: str) -> ScanLimits:
    return replace(MEANS, chunk_bytes=_REMOTE_BYTES) if is_url(path) else MEANS


def survey(given: Input) -> Survey:
    num_rows = 0
    marks: list[tuple[int, int]] = []
    with open_file(given.path) as file:
        for lines in read_lines(file, _means(given.path)):
            line, counted = lines.first_line, 0
            for row in range(-num_rows % _ROWS_TO_A_MARK, lines.starts.size, _ROWS_TO_A_MARK):
                start = int(lines.starts[row])
                line += lines.data.count(b"\n", counted, start)
                counted = start
                marks.append((lines.base + start, line))
            num_rows += lines.starts.size
    return Survey(given, num_rows, tuple(marks))


def deal(surveys: Sequence[Survey], repeat: int, rows_per_shard: int) -> Iterator[tuple[Span, ...]]:
    """The spans of each shard: all rows in order, the whole input again for every repetition.

    Law: every shard but the last has `rows_per_shard` rows. A file without rows is a span of none, and no shard of
    its own unless there are no rows at all.
    """
    spans: list[Span] = []
    room = rows_per_shard
    for given in _repeated(surveys, repeat):
        first = 0
        while first < given.num_rows or first == 0:
            if room == 0 and given.num_rows:
                yield tuple(spans)
                room, spans = rows_per_shard, []
            count = min(room, given.num_rows - first)
            spans.append(given.span(first, count))
            first, room = first + max(count, 1), room - count
    if spans:
        yield tuple(spans)


def _repeated(surveys: Sequence[Survey], repeat: int) -> Iterable[Survey]:
    for _ in range(repeat):
        yield from surveys


class Reader:
    """Reads span after span. The rows of small files are kept, for spans that come again in every repetition."""

    def __init__(self) -> None:
        self._kept: dict[Span, list[tuple[int, bytes]]] = {}
        self._room = _KEPT_BYTES

    def rows(self, span: Span) -> Iterable[tuple[int, bytes]]:
        """Each row as its line number and its bytes."""
        if span in self._kept:
            _check_unchanged(span.input)
            return self._kept[span]
        size = span.input.stamp.size
        if size > min(self._room, MEANS.chunk_bytes):
            return _read_rows(span)
        self._room -= size
        self._kept[span] = list(_read_rows(span))
        return self._kept[span]


def _check_unchanged(given: Input) -> None:
    if stamp(given.path) != given.stamp:
        raise _changed(given)


def _changed(given: Input) -> DataError:
    return DataError(
        f"{given.path}: has changed since the run began",
        fix="run it again when it is complete, with --force",
    )


def _read_rows(span: Span) -> Iterator[tuple[int, bytes]]:
    _check_unchanged(span.input)
    skip, left = span.skip, span.num_rows
    with open_file(span.input.path) as file:
        for lines in read_lines(file, _means(span.input.path), span.byte, span.line):
            wanted = slice(skip, skip + left)
            starts, ends = lines.starts[wanted].tolist(), lines.ends[wanted].tolist()
            line, counted, data = lines.first_line, 0, lines.data
            for start, end in zip(starts, ends, strict=True):
                line += data.count(b"\n", counted, start)
                counted = start
                yield line, data[start:end]
            skip, left = max(0, skip - lines.starts.size), left - len(starts)
            if left == 0:
                break
    if left:
        raise _changed(span.input)
    _check_unchanged(span.input)


def total_rows(surveys: Sequence[Survey]) -> int:
    return int(np.sum([each.num_rows for each in surveys], dtype=np.int64))
