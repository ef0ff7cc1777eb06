"""The contract suite on our formats, on toys for each kind of track, and on broken formats, which it must catch."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from glob import glob
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from playhead.errors import DataError
from playhead.formats.contract import Chunk, RowReader, ScanLimits
from playhead.formats.registry import register
from playhead.formats.rows import Fetch, Rows, Sample, Shard
from playhead.formats.schema import LENGTHS
from playhead.formats.spec import Spec
from playhead.index.table import open_table
from playhead.prepare import prepare
from playhead.recipe.tree import leaves
from playhead.recipe.values import Recipe, Source
from playhead.store import CountingFiles, Files, LocalFiles, Ranges, all_files, open_file
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
    check_format({"path": "*.jsonl", "length": "n", "ids": "id"}, files, ROWS, lengths=[row["n"] for row in ROWS])


def test_webdataset_keeps_the_contract() -> None:
    samples = [{"__key__": f"s{i}", "txt": b"x" * i, "json": b'{"n": 3}'} for i in range(7)]
    check_format({"path": "*.tar", "length": "json.n"}, {"a.tar": tar(samples[:4]), "b.tar": tar(samples[4:])}, samples)


def test_a_format_of_two_tracks_keeps_the_contract() -> None:
    assert Toy
    samples = [{"id": "a", "blob": b"xyz"}, {"id": "b", "blob": b"uv"}]
    files = {"a.toc": b"a 3\nb 2\n", "a.blob": b"xyzuv"}
    check_format({"path": "*.toc", "length": {"unit": "bytes"}}, files, samples, lengths=[3, 2])


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
        chunks = list(super().scan(shard, spec, files, limits))
        return iter([*chunks[:-2], chunks[-1]])


class _Long(Toy):
    """Finds lengths that are too large."""

    def scan(self, shard: Shard, spec: Spec, files: Files, limits: ScanLimits) -> Iterator[Chunk]:
        for chunk in super().scan(shard, spec, files, limits):
            yield Chunk(chunk.num_rows, {**chunk.arrays, LENGTHS: chunk.arrays[LENGTHS] + np.uint32(1)})


class _Vague(Toy):
    """Says which file is broken, and not where."""

    def scan(self, shard: Shard, spec: Spec, files: Files, limits: ScanLimits) -> Iterator[Chunk]:
        try:
            yield from super().scan(shard, spec, files, limits)
        except DataError as error:
            raise DataError(f"{shard.name}: broken") from error


class _VagueWithin(_Vague):
    """Says where a file is cut short, but not where it is broken."""

    def scan(self, shard: Shard, spec: Spec, files: Files, limits: ScanLimits) -> Iterator[Chunk]:
        data = open_file(files, shard.name)
        scan = super().scan if data.read(0, data.size).endswith(b"\n") else partial(Toy.scan, self)
        return scan(shard, spec, files, limits)


class _Crashing(Toy):
    """Raises an error of its own on an empty file."""

    def scan(self, shard: Shard, spec: Spec, files: Files, limits: ScanLimits) -> Iterator[Chunk]:
        if open_file(files, shard.name).size == 0:
            raise RuntimeError("nothing there")
        return super().scan(shard, spec, files, limits)


class _Globbing(Toy):
    """Finds its shards past the storage."""

    def discover(self, source: Source, files: Files) -> Sequence[Shard]:
        paths = [path for pattern in source.path for path in glob(pattern)]  # noqa: PTH207 - as none should
        return super().discover(msgspec.structs.replace(source, path=sorted(paths)), files)


class _Reading(Toy):
    """Reads as `reads` says, of what its reader keeps, the right reader, the rows and the storage."""

    def open(self, source: Source, files: Files) -> RowReader:
        inner, kept, reads = super().open(source, files), list[Sample](), self.reads

        class Reader:
            def read(self, rows: Rows) -> Iterable[Sample]:
                return reads(kept, inner, rows, files)

        return Reader()

    def reads(self, kept: list[Sample], inner: RowReader, rows: Rows, files: Files) -> Iterable[Sample]:
        raise NotImplementedError


class _Backwards(_Reading):
    def reads(self, _kept: list[Sample], inner: RowReader, rows: Rows, _files: Files) -> Iterable[Sample]:
        return list(inner.read(rows))[::-1]


class _Stale(_Reading):
    """Gives what it gave before."""

    def reads(self, kept: list[Sample], inner: RowReader, rows: Rows, _files: Files) -> Iterable[Sample]:
        found = list(inner.read(rows))
        kept.extend(found[len(kept) :])
        return kept[: len(found)]


class _Overwriting(_Reading):
    """Uses the samples that it gave before for others."""

    def reads(self, kept: list[Sample], inner: RowReader, rows: Rows, _files: Files) -> Iterable[Sample]:
        found = list(inner.read(rows))
        kept.extend({} for _ in range(len(found) - len(kept)))
        for old, new in zip(kept, found, strict=False):
            old.update(new)
        return kept[: len(found)]


class _Opening(_Reading):
    """Opens a path itself."""

    def reads(self, _kept: list[Sample], inner: RowReader, rows: Rows, _files: Files) -> Iterable[Sample]:
        for path in rows.paths("toc"):
            Path(path).read_bytes()
        return inner.read(rows)


class _Unstamped(_Reading):
    """Reads a file whatever it is now."""

    def reads(self, _kept: list[Sample], _inner: RowReader, rows: Rows, files: Files) -> Iterable[Sample]:
        toc, blob = (
            [bytes(files.read(path, None, Ranges([first], [end]))[0]) for path, first, end in rows.blocks(track)]
            for track in ("toc", "blob")
        )
        return [{"id": line.decode().split()[0], "blob": data} for line, data in zip(toc, blob, strict=True)]


class _AllOrNothing(_Reading):
    """Reads no row of a file of which one is broken."""

    def reads(self, _kept: list[Sample], inner: RowReader, rows: Rows, files: Files) -> Iterable[Sample]:
        for path in rows.paths("blob"):
            if b"\xff" in open_file(files, path).read(0, 100):
                raise DataError(f"{path}: broken")
        return inner.read(rows)


@pytest.mark.parametrize(
    ("kind", "law"),
    [
        (_Lossy, "the scan finds 2 rows"),
        (_Long, r"the scan finds the lengths \[4, 5, 2\], not \[3, 4, 1\]"),
        (_Vague, "a.toc cut to .* does not say where"),
        (_VagueWithin, "a.toc with row 0 broken: the error does not say where"),
        (_Crashing, "a.toc cut to 0 bytes: no error of Playhead, but RuntimeError"),
        (_Globbing, "reached through the storage alone: .* no shards found"),
        (_Backwards, "read in order, row 0 is"),
        (_Stale, "read backwards, row 2 is"),
        (_Overwriting, "read backwards, row 2 is"),
        (_Opening, "reached through the storage alone"),
        (_Unstamped, "has changed since it was indexed"),
        (_AllOrNothing, "a.blob with row 0 broken: row 1 can no longer be read"),
    ],
)
def test_the_suite_catches_a_broken_format(kind: type[Toy], law: str) -> None:
    register("broken", default_id="id")(kind)
    source = {"format": "broken", "path": "*.toc", "length": {"unit": "bytes"}}
    samples = [{"id": name, "blob": blob} for name, blob in zip("abc", [b"xyz", b"uvwt", b"w"], strict=True)]
    with pytest.raises(AssertionError, match=law):
        check_format(source, {"a.toc": b"a 3\nb 4\nc 1\n", "a.blob": b"xyzuvwtw"}, samples, lengths=[3, 4, 1])
