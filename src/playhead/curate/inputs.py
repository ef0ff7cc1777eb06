"""Which files are read, and where in them each row is: rows are counted once, by a scan for newlines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from glob import escape, has_magic
from pathlib import Path

import numpy as np
from msgspec import Struct

from playhead.errors import DataError, RecipeError, StoreError
from playhead.formats.contract import ScanLimits
from playhead.formats.lines import read_lines
from playhead.store import File, Files, Stamp, is_url, list_files

SUFFIXES = (".jsonl", ".json")
LIMITS = ScanLimits(chunk_bytes=1 << 19, longest_row_bytes=1 << 30, indexes_root=None)

_ROWS_TO_A_MARK = 256
_KEPT_BYTES = 1 << 23


class CurateInput(Struct, frozen=True):
    """A file, and its stamp when the run began."""

    path: str
    stamp: Stamp


class RowSpan(Struct, frozen=True):
    """Consecutive rows of a file. Reading begins at a mark: `byte`, on `line`, `skip` rows before the first."""

    input: CurateInput
    first_row: int
    num_rows: int
    byte: int
    line: int
    skip: int


class InputSurvey(Struct, frozen=True):
    """A file's number of rows, and the byte and line of every 256th."""

    input: CurateInput
    num_rows: int
    marks: tuple[tuple[int, int], ...]

    def span(self, first: int, num_rows: int) -> RowSpan:
        byte, line = self.marks[first // _ROWS_TO_A_MARK] if num_rows else (0, 1)
        return RowSpan(self.input, first, num_rows, byte, line, first % _ROWS_TO_A_MARK)


def find_inputs(files: Files, words: Sequence[str], out: str | Path) -> list[CurateInput]:
    """The files that paths, directories and patterns name, in that order. Law: none twice, none inside `out`.

    A directory may contain `out`, whose files are skipped: otherwise a second run would read those of the first.
    """
    place = out if is_url(str(out)) else Path(out).resolve()
    patterns = [pattern for word in words for pattern in _within(files, word, place)]
    paths = list_files(files, patterns)
    inside = [path for path in paths if _is_in(path, place)]
    if inside:
        raise RecipeError(
            f"{inside[0]}: is inside the output directory",
            found=f"--out {out}",
            expected="inputs and outputs in separate directories",
            fix="choose another --out",
        )
    return [CurateInput(path, files.stamp(path)) for path in paths]


def _within(files: Files, word: str, out: str | Path) -> list[str]:
    """The manifests in a directory, or under a prefix of a store; any other path stands for itself."""
    is_prefix = is_url(word) and not has_magic(word) and not word.endswith(SUFFIXES)
    if not is_prefix and not Path(word).is_dir():
        return [word]
    everywhere = f"{escape(word.rstrip('/'))}/**/*"
    found = sorted(path for suffix in SUFFIXES for path in files.list(everywhere + suffix))
    if _contains(word, out):
        found = [path for path in found if not _is_in(path, out)]
    if not found:
        raise DataError(
            f"{word}: holds no manifest", expected="files that end in .jsonl or .json", fix="correct the path"
        )
    return found


def _contains(word: str, out: str | Path) -> bool:
    """Whether a directory, or a prefix of a store, has `out` in it."""
    if isinstance(out, str):
        return is_url(word) and out.startswith(f"{word.rstrip('/')}/")
    return not is_url(word) and Path(word).resolve() in out.parents


def _is_in(path: str, out: str | Path) -> bool:
    if isinstance(out, str):
        return path.startswith(f"{out.rstrip('/')}/")
    return not is_url(path) and Path(path).resolve().is_relative_to(out)


def survey(files: Files, given: CurateInput) -> InputSurvey:
    num_rows = 0
    marks: list[tuple[int, int]] = []
    for lines in read_lines(File(files, given.path, given.stamp), LIMITS):
        line, counted = lines.first_line, 0
        for row in range(-num_rows % _ROWS_TO_A_MARK, lines.starts.size, _ROWS_TO_A_MARK):
            start = int(lines.starts[row])
            line += lines.data.count(b"\n", counted, start)
            counted = start
            marks.append((lines.base + start, line))
        num_rows += lines.starts.size
    return InputSurvey(given, num_rows, tuple(marks))


def spans_of_shards(surveys: Sequence[InputSurvey], repeat: int, rows_per_shard: int) -> Iterator[tuple[RowSpan, ...]]:
    """The spans of each shard: all rows in order, the whole input again for every repetition.

    Law: every shard but the last has `rows_per_shard` rows. A file without rows is a span of none, and no shard of
    its own unless there are no rows at all.
    """
    spans: list[RowSpan] = []
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


def _repeated(surveys: Sequence[InputSurvey], repeat: int) -> Iterable[InputSurvey]:
    for _ in range(repeat):
        yield from surveys


class SpanReader:
    """Reads spans in order. The rows of small files are cached, for spans that recur in every repetition."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._kept: dict[RowSpan, list[tuple[int, bytes]]] = {}
        self._room = _KEPT_BYTES

    def rows(self, span: RowSpan) -> Iterable[tuple[int, bytes]]:
        """Each row as its line number and its bytes. A file that changed since the run began is a StoreError."""
        if self._files.stamp(span.input.path) != span.input.stamp:
            raise StoreError(
                f"{span.input.path}: has changed since the run began",
                fix="run it again when it is complete, with --force",
            )
        if span in self._kept:
            return self._kept[span]
        size = span.input.stamp.size
        if size > min(self._room, LIMITS.chunk_bytes):
            return self._read(span)
        self._room -= size
        self._kept[span] = list(self._read(span))
        return self._kept[span]

    def _read(self, span: RowSpan) -> Iterator[tuple[int, bytes]]:
        skip, left = span.skip, span.num_rows
        file = File(self._files, span.input.path, span.input.stamp)
        for lines in read_lines(file, LIMITS, span.byte, span.line):
            wanted = slice(skip, skip + left)
            starts, ends = lines.starts[wanted].tolist(), lines.ends[wanted].tolist()
            line, counted, data = lines.first_line, 0, lines.data
            for start, end in zip(starts, ends, strict=True):
                line += data.count(b"\n", counted, start)
                counted = start
                yield line, data[start:end]
            skip, left = max(0, skip - lines.starts.size), left - len(starts)
            if left == 0:
                return


def total_rows(surveys: Sequence[InputSurvey]) -> int:
    return int(np.sum([each.num_rows for each in surveys], dtype=np.int64))
