"""The contract suite on our formats, on toys for each kind of track, and on broken formats, which it must catch."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from playhead.formats.contract import Chunk, RowReader, ScanLimits
from playhead.formats.registry import register
from playhead.formats.rows import Fetch, Rows, Sample, Shard
from playhead.formats.spec import Spec
from playhead.index.table import open_table
from playhead.prepare import prepare
from playhead.recipe.tree import leaves
from playhead.recipe.values import Recipe, Source
from playhead.store import CountingFiles, Files, LocalFiles, all_files
from playhead.testing import check_format
from toy_format import Toy
from track_formats import Blocks, BlocksReader, Members, block_file, lines_and_bytes

ROWS: list[dict[str, Any]] = [{"id": f"r{i}", "tokens": [i] * (i % 4 + 1), "n": i % 4 + 1} for i in range(23)]
BLOCKS = [["a", "bb", "ccc"], ["dddd"], ["e", "ff"], ["g", "h", "i", "jj"]]
MEMBERS = [("x", 5, 3), ("y", 0, 5), ("z", 5, 3), ("w", 8, 4), ("v", 6, 2)]


def blocks_recipe(directory: Path) -> Recipe:
    values = {"sources": [{"name": "b", "path": "*.blocks"}], "batching": {"type": "fixed", "size": 2}}
    return Recipe.parse({**values, "sequence": None}, base_dir=directory)


def jsonl(rows: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def tar(samples: list[dict[str, Any]]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for sample in samples:
            for extension, data in sample.items():
                if extension != "__key__":
                    about = tarfile.TarInfo(f"{sample['__key__']}.{extension}")
                    about.size = len(data)
                    archive.addfile(about, io.BytesIO(data))
    return file.getvalue()


def test_jsonl_keeps_the_contract() -> None:
    files = {"a.jsonl": jsonl(ROWS[:9]), "b.jsonl": jsonl(ROWS[9:])}
    check_format({"path": "*.jsonl", "length": "n", "ids": "id"}, files, ROWS)


def test_webdataset_keeps_the_contract() -> None:
    samples = [{"__key__": f"s{i}", "txt": b"x" * i, "json": b'{"n": 3}'} for i in range(7)]
    check_format({"path": "*.tar", "length": "json.n"}, {"a.tar": tar(samples[:4]), "b.tar": tar(samples[4:])}, samples)


def test_a_format_of_two_tracks_keeps_the_contract() -> None:
    assert Toy
    samples = [{"id": "a", "blob": b"xyz"}, {"id": "b", "blob": b"uv"}]
    check_format({"path": "*.toc", "length": {"unit": "bytes"}}, {"a.toc": b"a 3\nb 2\n", "a.blob": b"xyzuv"}, samples)


def test_rows_in_another_order_than_their_members_and_several_of_one_keep_the_contract() -> None:
    assert Members
    data = b"01234567abcd"
    samples = [{"id": name, "data": data[first : first + size]} for name, first, size in MEMBERS]
    check_format({"path": "*.members", "ids": "id"}, lines_and_bytes(MEMBERS, data), samples)


def test_rows_in_blocks_keep_the_contract() -> None:
    assert Blocks
    files = {"a.blocks": block_file(BLOCKS[:2]), "b.blocks": block_file(BLOCKS[2:])}
    samples = [{"text": text} for block in BLOCKS for text in block]
    check_format({"path": "*.blocks", "length": {"unit": "bytes"}}, files, samples)


def test_a_reader_keeps_its_last_block_and_places_name_the_row_in_the_block(tmp_path: Path) -> None:
    (tmp_path / "a.blocks").write_bytes(block_file(BLOCKS))
    recipe = blocks_recipe(tmp_path)
    prepare(recipe)
    table = open_table(leaves(recipe)[0], recipe)
    reader = BlocksReader()
    rows = table.locate(np.array([4, 5, 0, 1, 2]), Fetch(all_files(), table.index.stamps))
    assert [sample["text"] for sample in reader.read(rows)] == ["e", "ff", "a", "bb", "ccc"]
    assert reader.num_unpacked == 2
    files = CountingFiles(LocalFiles())
    rows = table.locate(np.array([0, 1, 2, 0, 9, 9]), Fetch(files, table.index.stamps))
    assert [sample["text"] for sample in reader.read(rows)] == ["a", "bb", "ccc", "a", "jj", "jj"]
    assert files.counts["ranges"] == 1  # the block of the last rows; that of the others was kept
    assert len(rows.payloads("packed")) == 6
    assert files.counts["ranges"] == 1 + 2  # each block once, however many rows it has
    assert table.place(5).endswith(", row 1 of the block")
    (found,) = table.where(5).files_of(0)
    assert found["row_in_block"] == 1


def test_a_shard_of_blocks_is_taken_over_from_an_older_index(tmp_path: Path) -> None:
    recipe = blocks_recipe(tmp_path)
    (tmp_path / "b.blocks").write_bytes(block_file(BLOCKS[1:]))
    prepare(recipe)
    (tmp_path / "a.blocks").write_bytes(block_file(BLOCKS[:1]))
    (report,) = prepare(recipe).sources
    assert (report.scanned_shards, report.reused_shards) == (1, 1)
    table = open_table(leaves(recipe)[0], recipe)
    rows = table.locate(np.arange(10), Fetch(all_files(), table.index.stamps))
    assert [sample["text"] for sample in BlocksReader().read(rows)] == [text for block in BLOCKS for text in block]


def test_joined_reads_of_near_rows_are_one_request(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(jsonl(ROWS))
    recipe = Recipe.parse(
        {"sources": [{"name": "a", "path": "a.jsonl", "length": "n"}], "batching": {"type": "fixed", "size": 2}},
        base_dir=tmp_path,
    )
    prepare(recipe)
    table = open_table(leaves(recipe)[0], recipe)
    files = CountingFiles(all_files())
    table.locate(np.arange(20), Fetch(files, table.index.stamps)).payloads("jsonl")
    assert files.counts["read"] == 1
    assert files.counts["stamp"] == 0


class _Lossy(Toy):
    """Leaves out the last row of a scan."""

    def scan(self, shard: Shard, spec: Spec, files: Files, limits: ScanLimits) -> Iterator[Chunk]:
        *most, _, last = super().scan(shard, spec, files, limits)
        return iter([*most, last])


class _Shifted(Toy):
    """Reads the rows backwards."""

    def open(self, source: Source, files: Files) -> RowReader:
        inner = super().open(source, files)

        class Reader:
            def read(self, rows: Rows) -> Iterable[Sample]:
                return list(inner.read(rows))[::-1]

        return Reader()


class _Careless(Toy):
    """Opens a path itself."""

    def open(self, source: Source, files: Files) -> RowReader:  # noqa: ARG002
        class Reader:
            def read(self, rows: Rows) -> Iterable[Sample]:
                for shard, number in zip(rows.shards, rows.numbers.tolist(), strict=True):
                    with open(shard.path("toc"), "rb") as file:  # noqa: PTH123 - past `Files`, as none should
                        line = file.read().split(b"\n")[number]
                    yield {"id": line.decode().split()[0], "blob": b""}

        return Reader()


@pytest.mark.parametrize(
    ("kind", "law"), [(_Lossy, "the scan finds"), (_Shifted, "row"), (_Careless, "has changed since")]
)
def test_the_suite_catches_a_broken_format(kind: type[Toy], law: str) -> None:
    register("broken", default_id="id")(kind)
    blobs = [b"", b"", b""] if kind is _Careless else [b"xyz", b"uv", b"w"]
    lines = "".join(f"{name} {len(blob)}\n" for name, blob in zip("abc", blobs, strict=True))
    samples = [{"id": name, "blob": blob} for name, blob in zip("abc", blobs, strict=True)]
    with pytest.raises(AssertionError, match=law):
        check_format(
            {"format": "broken", "path": "*.toc"}, {"a.toc": lines.encode(), "a.blob": b"".join(blobs)}, samples
        )
