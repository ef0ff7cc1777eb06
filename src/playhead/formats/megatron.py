"""Megatron datasets, `.bin` and `.idx`: a row is a document, or a chunk of tokens.

`path` names the `.bin`, the `.idx` or, as Megatron does, what both names begin with.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from msgspec import Struct

from playhead.errors import DataError, RecipeError
from playhead.formats.collect import ROW_ID, Collector
from playhead.formats.contract import Chunk, RowReader, ScanLimits
from playhead.formats.lengths import MISSING, whole_numbers
from playhead.formats.megatron_idx import Idx, bin_path, idx_path, open_idx, token_type
from playhead.formats.registry import options_of, register
from playhead.formats.rows import Fetch, Rows, Sample, Shard
from playhead.formats.schema import LENGTHS, Track
from playhead.formats.spec import Spec
from playhead.recipe.units import LARGEST_LENGTH
from playhead.recipe.values import Count, Length, Source
from playhead.store import File, Files, list_files, open_file
from playhead.types import Array, IntArray

TRACK, INDEX = "bin", "idx"
NUM_TOKENS, DOCUMENT, TOKENS = "num_tokens", "document", "tokens"
_OFFSETS = Track(TRACK).array("offsets")
_BY_TOKENS = Length(field=NUM_TOKENS)
_BYTES_A_DOCUMENT = 64  # memory of the arrays of a scan for each


class MegatronOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """`chunk` limits rows to this many tokens: pieces of a document or, with `across`, of all documents concatenated.

    The last piece, of a document or of all, may be shorter.
    """

    chunk: Count | None = None
    across: bool = False


@register(
    "megatron",
    extensions=(".bin", ".idx"),
    default_id=ROW_ID,
    raw_members=False,
    options=MegatronOptions,
    default_length=_BY_TOKENS,
)
class Megatron:
    """Documents of tokens, one after another in a file, and an index of them beside it."""

    def discover(self, source: Source, files: Files) -> Sequence[Shard]:
        options = options_of(MegatronOptions, source.options)
        if options.across and options.chunk is None:
            raise RecipeError(
                f'source "{source.name}": `across` requires `chunk`',
                fix="add their size, for example `options: {chunk: 4096, across: true}`, or remove `across`",
            )
        patterns = [bin_path(_prefix(pattern)) for pattern in source.path]
        return [Shard(((TRACK, path), (INDEX, idx_path(_prefix(path))))) for path in list_files(files, patterns)]

    def scan(self, shard: Shard, spec: Spec, files: Files, limits: ScanLimits) -> Iterator[Chunk]:
        idx = open_idx(files, _prefix(shard.name))
        row = _RowOfTokens(open_file(files, shard.name), idx.dtype, Collector(spec, shard.name))
        columns = _plain_columns if _needs_lengths_alone(spec) else row.columns
        size = idx.dtype.itemsize
        end = 0
        for firsts, ends, documents in _rows(idx, options_of(MegatronOptions, spec.options), limits):
            offsets = (firsts * size).astype(np.uint64)
            yield Chunk(len(firsts), {_OFFSETS: offsets, **columns(spec, firsts, ends, documents)})
            end = int(ends[-1])
        nothing = np.empty(0, np.int64)
        yield Chunk(0, {_OFFSETS: np.array([end * size], np.uint64), **columns(spec, nothing, nothing, nothing)})

    def open(self, source: Source, files: Files) -> RowReader:  # noqa: ARG002
        return _MegatronReader()


class _MegatronReader:
    has_media = False

    def __init__(self) -> None:
        self._dtypes: dict[str, np.dtype[np.generic]] = {}

    def read(self, rows: Rows) -> Iterable[Sample]:
        """The tokens of each row, as a separate writable array."""
        assert rows.fetch is not None
        dtypes = [self._dtype(rows.fetch, path) for path in rows.paths(TRACK)]
        payloads = zip(rows.payloads(TRACK), dtypes, strict=True)
        return [{TOKENS: np.frombuffer(data, dtype).copy()} for data, dtype in payloads]

    def _dtype(self, fetch: Fetch, path: str) -> np.dtype[np.generic]:
        if path not in self._dtypes:
            index = idx_path(_prefix(path))
            self._dtypes[path] = token_type(File(fetch.files, index, fetch.stamps[index]))
        return self._dtypes[path]


def _prefix(path: str) -> str:
    return path.removesuffix(".bin").removesuffix(".idx") if path.endswith((".bin", ".idx")) else path


def _rows(idx: Idx, options: MegatronOptions, limits: ScanLimits) -> Iterator[tuple[IntArray, IntArray, IntArray]]:
    """The rows, some at a time: the first token of each, the token after its last, and its document."""
    at_once = max(1, limits.chunk_bytes // _BYTES_A_DOCUMENT)
    if options.chunk is not None and options.across:
        for low in range(0, idx.num_tokens, options.chunk * at_once):
            firsts = np.arange(low, min(low + options.chunk * at_once, idx.num_tokens), options.chunk)
            yield firsts, np.minimum(firsts + options.chunk, idx.num_tokens), np.full(len(firsts), -1)
        return
    for number, bounds in _documents(idx, at_once):
        documents = np.arange(number, number + len(bounds) - 1)
        if options.chunk is None:
            yield bounds[:-1], bounds[1:], documents
        else:
            yield from _chunks_of(bounds, documents, options.chunk, at_once)


def _documents(idx: Idx, at_once: int) -> Iterator[tuple[int, IntArray]]:
    """Runs of documents: the number of the first, and the token at which each begins and the last ends."""
    begin = 0
    for first in range(0, idx.num_document_marks - 1, at_once):
        marks = idx.document_marks(first, min(first + at_once, idx.num_document_marks - 1) + 1)
        begins_late = first == 0 and marks[0] != 0
        if begins_late or (np.diff(marks) < 0).any() or marks[-1] > idx.num_sequences:
            raise _impossible(idx, "its document marks do not rise from 0 to the number of sequences")
        bounds = np.full(len(marks), begin)
        for low in range(int(marks[0]), int(marks[-1]), at_once):
            lengths = idx.lengths(low, min(low + at_once, int(marks[-1])))
            ends = begin + np.cumsum(lengths, dtype=np.int64)
            pointers = idx.pointers(low, low + len(lengths))
            if not np.array_equal(pointers, (ends - lengths) * idx.dtype.itemsize):
                raise _impossible(idx, "its sequences do not follow one another in the `.bin`")
            inside = (marks > low) & (marks <= low + len(lengths))
            bounds[inside] = ends[marks[inside] - low - 1]
            bounds[marks > low + len(lengths)] = ends[-1]
            begin = int(ends[-1])
        yield first, bounds


def _chunks_of(
    bounds: IntArray, documents: IntArray, chunk: int, at_once: int
) -> Iterator[tuple[IntArray, IntArray, IntArray]]:
    """The chunks of some documents, of which one may have very many."""
    counts = -(-np.diff(bounds) // chunk)
    first_of = np.concatenate([[0], np.cumsum(counts)])
    for low in range(0, int(first_of[-1]), at_once):
        numbers = np.arange(low, min(low + at_once, int(first_of[-1])))
        at = np.searchsorted(first_of, numbers, side="right") - 1
        firsts = bounds[at] + (numbers - first_of[at]) * chunk
        yield firsts, np.minimum(firsts + chunk, bounds[at + 1]), documents[at]


def _impossible(idx: Idx, problem: str) -> DataError:
    return DataError(
        f"{idx.file.path}: {problem}",
        expected="an index as megatron-core's IndexedDatasetBuilder writes it",
        fix="copy it again, or write the dataset again",
    )


def _needs_lengths_alone(spec: Spec) -> bool:
    return not (spec.output_length or spec.ids or spec.columns or spec.matches) and spec.length in (None, _BY_TOKENS)


def _plain_columns(spec: Spec, firsts: IntArray, ends: IntArray, _documents: IntArray) -> dict[str, Array]:
    if spec.length is None:
        return {}
    lengths = whole_numbers((ends - firsts).astype(np.float64), "tokens")
    if lengths is None:
        raise DataError(
            "a document is too long",
            found=f"{(ends - firsts).max():,} tokens",
            expected=f"at most {LARGEST_LENGTH:,}",
            fix="split documents into rows with `options: {chunk: 4096}`",
        )
    return {LENGTHS: lengths}


@dataclass
class _RowOfTokens:
    """A row for a Collector: its fields are `num_tokens` and `document`, its number in the file."""

    file: File
    dtype: np.dtype[np.generic]
    collector: Collector
    first: int = 0
    end: int = 0
    document: int = -1

    def columns(self, _spec: Spec, firsts: IntArray, ends: IntArray, documents: IntArray) -> dict[str, Array]:
        """The arrays of the spec for the next rows: the slow path, which supports every spec."""
        for self.first, self.end, self.document in zip(firsts.tolist(), ends.tolist(), documents.tolist(), strict=True):
            try:
                self.collector.add(self)
            except DataError as error:
                error.at(f"{self.file.path}, token {self.first:,}")
                raise
        return self.collector.take()

    def get(self, field: str) -> Any:
        if field == NUM_TOKENS:
            return self.end - self.first
        return self.document if field == DOCUMENT and self.document >= 0 else MISSING

    def size(self, field: str | None) -> int:
        if field is not None:
            raise DataError(f'field "{field}" has no size in bytes', expected="`unit: bytes` without a field")
        return (self.end - self.first) * self.dtype.itemsize

    def sample(self) -> Sample:
        size = self.dtype.itemsize
        return {TOKENS: np.frombuffer(self.file.read(self.first * size, self.size(None)), self.dtype)}
