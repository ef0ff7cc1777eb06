"""Rows of Megatron datasets against megatron-core's own builder and reader."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from format_worlds import check_worlds, recipe_of
from playhead import Loader
from playhead.errors import DataError, PlayheadError, PrepareError, RecipeError
from playhead.formats.megatron_idx import HEADER
from playhead.formats.registry import format_of
from playhead.index.layout import layout_of
from playhead.index.opened import Index, open_index
from playhead.prepare import prepare
from playhead.recipe.tree import leaves
from playhead.recipe.values import Length, Recipe, Source
from playhead.testing import check_format

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of packages that megatron-core would like to have
    from megatron.core.datasets.indexed_dataset import IndexedDataset, IndexedDatasetBuilder

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # of numpy.array(tensor)

LENGTHS = [5, 1, 0, 12, 7, 3, 30, 2]


def write(prefix: Path, documents: Sequence[Sequence[int]], dtype: Any = np.int32) -> None:
    """Documents of these lengths of sequences, written by megatron-core."""
    builder = IndexedDatasetBuilder(f"{prefix}.bin", dtype=dtype)
    token = 0
    for lengths in documents:
        sequence = np.arange(token, token + sum(lengths)) % 200
        builder.add_document(torch.from_numpy(sequence), list(lengths))
        token += sum(lengths)
    builder.finalize(f"{prefix}.idx")


def documents_of(prefix: Path) -> list[Any]:
    """The documents, by megatron-core's reader."""
    dataset = IndexedDataset(str(prefix), mmap=False)
    marks = dataset.document_indices
    empty = np.empty(0, dataset.index.dtype)
    return [np.concatenate([empty, *(dataset[i] for i in range(low, high))]) for low, high in pairwise(marks)]


def index_of(recipe: Recipe) -> Index:
    index = open_index(layout_of(leaves(recipe)[0], recipe).directory)
    assert index is not None
    return index


def in_order(folder: Path, options: dict[str, Any], path: str = "a.bin", **source: Any) -> list[Any]:
    """Every row, in file order."""
    given = {"path": path, "format": "megatron", "shuffle": "none", "options": options, **source}
    recipe = recipe_of(folder, given, lanes=1, collate="list")
    return [sample["tokens"] for batch in Loader(recipe) for sample in batch["samples"]]


def same(found: Sequence[Any], expected: Sequence[Any]) -> None:
    assert [tokens.tolist() for tokens in found] == [tokens.tolist() for tokens in expected]
    assert {tokens.dtype for tokens in found} == {tokens.dtype for tokens in expected}


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int16, np.int32, np.int64, np.uint16, np.float32, np.float64])
def test_rows_are_the_documents_that_megatron_core_reads(tmp_path: Path, dtype: Any) -> None:
    write(tmp_path / "a", [[size] for size in LENGTHS] + [[3, 4, 2], [1, 1]], dtype)
    same(in_order(tmp_path, {}), documents_of(tmp_path / "a"))


def test_documents_of_many_sequences_are_read_whole_whatever_the_memory(tmp_path: Path) -> None:
    lengths = np.random.default_rng(3).integers(0, 4, 30_000).tolist()
    write(tmp_path / "a", [lengths[low : low + 7] for low in range(0, 20_000, 7)] + [lengths[20_000:]], np.uint16)
    recipe = recipe_of(tmp_path, {"path": "a"} | {"format": "megatron"})
    expected = [len(tokens) for tokens in documents_of(tmp_path / "a")]
    assert index_of(recipe).lengths.tolist() == expected  # type: ignore[union-attr]
    prepare(recipe, force=True, memory_mb=8)
    assert index_of(recipe).lengths.tolist() == expected  # type: ignore[union-attr]


@pytest.mark.parametrize("chunk", [1, 4, 5, 100])
def test_a_chunk_never_crosses_documents(tmp_path: Path, chunk: int) -> None:
    write(tmp_path / "a", [[size] for size in LENGTHS])
    documents = documents_of(tmp_path / "a")
    expected = [tokens[low : low + chunk] for tokens in documents for low in range(0, len(tokens), chunk)]
    same(in_order(tmp_path, {"chunk": chunk}), expected)


@pytest.mark.parametrize("chunk", [1, 4, 7, 60, 100])
def test_chunks_across_documents_are_those_of_the_concatenated_stream(tmp_path: Path, chunk: int) -> None:
    write(tmp_path / "a", [[size] for size in LENGTHS])
    stream = np.concatenate(documents_of(tmp_path / "a"))
    expected = [stream[low : low + chunk] for low in range(0, len(stream), chunk)]
    same(in_order(tmp_path, {"chunk": chunk, "across": True}), expected)


def test_many_chunks_of_one_document_are_found_whatever_the_memory(tmp_path: Path) -> None:
    write(tmp_path / "a", [[200_000], [3], [150_001]], np.uint8)
    expected = [7] * (200_000 // 7) + [200_000 % 7, 3] + [7] * (150_001 // 7) + [150_001 % 7]
    for memory in (8, 256):
        recipe = recipe_of(tmp_path, {"path": "a.bin", "options": {"chunk": 7}})
        prepare(recipe, force=True, memory_mb=memory)
        assert index_of(recipe).lengths.tolist() == expected  # type: ignore[union-attr]


@pytest.mark.parametrize("options", [{}, {"chunk": 4}, {"chunk": 6, "across": True}])
def test_the_format_keeps_the_contract(tmp_path: Path, options: dict[str, Any]) -> None:
    write(tmp_path / "a", [[5], [1, 2], [0], [9]], np.uint16)
    write(tmp_path / "b", [[3], [8]], np.int32)
    names = ["a.bin", "a.idx", "b.bin", "b.idx"]
    files = {name: (tmp_path / name).read_bytes() for name in names}
    samples = []
    for name in ("a", "b"):
        documents = documents_of(tmp_path / name)
        chunk = options.get("chunk", 100)
        texts = [np.concatenate(documents)] if "across" in options else documents
        for tokens in texts:
            pieces = [tokens[low : low + chunk] for low in range(0, len(tokens), chunk)]
            samples += [{"tokens": piece} for piece in pieces or ([] if options else [tokens])]
    check_format({"format": "megatron", "path": "*.bin", "options": options}, files, samples)


@pytest.mark.parametrize("path", ["a.bin", "a.idx", "a", "*.bin", "*.idx", "?"])
def test_the_bin_the_idx_and_the_prefix_name_the_same_dataset(tmp_path: Path, path: str) -> None:
    write(tmp_path / "a", [[size] for size in LENGTHS])
    same(in_order(tmp_path, {}, path), documents_of(tmp_path / "a"))


def test_the_format_and_the_length_follow_from_the_name(tmp_path: Path) -> None:
    write(tmp_path / "a", [[size] for size in LENGTHS])
    values = {"sources": [{"name": "s", "path": "a.bin"}], "batching": {"type": "pack", "max_length": 40}}
    recipe = Recipe.parse({**values, "epochs": 1}, base_dir=tmp_path)
    assert leaves(recipe)[0].source.length == Length(field="num_tokens")
    assert Recipe.parse(recipe.to_dict()) == recipe
    prepare(recipe)
    batches = list(Loader(recipe))
    tokens = sum(int((batch["segment_ids"] > 0).sum()) for batch in batches)
    assert tokens == sum(LENGTHS)


def test_a_length_that_is_said_goes_before_the_default(tmp_path: Path) -> None:
    write(tmp_path / "a", [[size] for size in LENGTHS], np.uint16)
    recipe = recipe_of(tmp_path, {"path": "a.bin", "length": {"unit": "bytes"}}, sequence=None)
    assert index_of(recipe).lengths.tolist() == [2 * size for size in LENGTHS]  # type: ignore[union-attr]


def test_rows_can_be_kept_by_their_number_of_tokens_and_measured_by_a_function(tmp_path: Path) -> None:
    write(tmp_path / "a", [[size] for size in LENGTHS], np.uint16)
    kept = in_order(tmp_path, {}, keep={"num_tokens": [3, 12], "document": [1, None]})
    assert [len(tokens) for tokens in kept] == [12, 7, 3]
    (tmp_path / "megatron_lengths.py").write_text("def last(sample):\n    return int(sample['tokens'][-1])\n")
    length = {"function": "megatron_lengths:last"}
    recipe = recipe_of(tmp_path, {"path": "a.bin", "length": length, "options": {"chunk": 9}}, sequence=None)
    documents = documents_of(tmp_path / "a")
    expected = [int(tokens[low : low + 9][-1]) for tokens in documents for low in range(0, len(tokens), 9)]
    assert index_of(recipe).lengths.tolist() == expected  # type: ignore[union-attr]


def test_tokens_may_be_written_to(tmp_path: Path) -> None:
    write(tmp_path / "a", [[4], [4]])
    first, second = in_order(tmp_path, {})
    first[:] = -1
    assert second.tolist() == [4, 5, 6, 7]


def test_ranks_are_disjoint_and_complete_and_resume_on_another_world_size(tmp_path: Path) -> None:
    write(tmp_path / "a", [[1 + i % 9] for i in range(120)], np.uint16)
    write(tmp_path / "b", [[1 + i % 5] for i in range(57)], np.uint16)
    check_worlds(recipe_of(tmp_path, {"path": "?.bin", "options": {"chunk": 6}}), 177 + 39)


def broken(folder: Path, name: str, change: Any) -> str:
    write(folder / "a", [[3], [4, 2], [6]])
    path = folder / name
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(PlayheadError) as caught:
        recipe_of(folder, {"path": "a.bin"})
    assert isinstance(caught.value, PrepareError)
    return str(caught.value)


def _swapped_marks(data: bytes) -> bytes:
    at = HEADER.size + 12 * 4
    marks = np.frombuffer(data[at:], "<i8").copy()
    marks[[1, 2]] = marks[[2, 1]]
    return data[:at] + marks.tobytes()


def _moved_pointer(data: bytes) -> bytes:
    at = HEADER.size + 4 * 4
    pointers = np.frombuffer(data[at : at + 8 * 4], "<i8").copy()
    pointers[2] += 4
    return data[:at] + pointers.tobytes() + data[at + 8 * 4 :]


@pytest.mark.parametrize(
    ("name", "change", "problem"),
    [
        ("a.bin", lambda data: data[:-4], "a.bin: does not have the size that its index implies"),
        ("a.idx", lambda data: data[:-8], "a.idx: "),
        ("a.idx", lambda data: b"PK" + data[2:], "a.idx: is not a Megatron index"),
        ("a.idx", lambda data: data[:17] + b"\x09" + data[18:], "a.idx: token type 9"),
        ("a.idx", _swapped_marks, "a.idx: its document marks do not rise"),
        ("a.idx", _moved_pointer, "a.idx: its sequences do not follow one another"),
    ],
)
def test_a_broken_dataset_is_refused_with_the_file(tmp_path: Path, name: str, change: Any, problem: str) -> None:
    assert problem in broken(tmp_path, name, change)


def test_a_missing_index_is_named(tmp_path: Path) -> None:
    write(tmp_path / "a", [[3]])
    (tmp_path / "a.idx").unlink()
    with pytest.raises(PrepareError, match=r"a\.idx: no such file"):
        recipe_of(tmp_path, {"path": "a.bin"})


def test_a_dataset_named_twice_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "a", [[3]])
    with pytest.raises((PrepareError, DataError), match="is listed twice"):
        recipe_of(tmp_path, {"path": ["a.bin", "a.idx"], "format": "megatron"})


def test_options_that_mean_nothing_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "a", [[3]])
    with pytest.raises(PrepareError, match="`across` requires `chunk`"):
        recipe_of(tmp_path, {"path": "a.bin", "options": {"across": True}})
    with pytest.raises(RecipeError, match=r"sources\[0\].options.chunk"):
        format_of(Source(name="s", path=["a.bin"], options={"chunk": 0}), "sources[0]")
