"""The view of compressed files keeps the laws of storage, over local files and objects, in threads and forks."""

from __future__ import annotations

import gzip
import io
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import pyzstd

from playhead.errors import DataError, StoreError
from playhead.store import Buffer, CompressedFiles, Files, LocalFiles, MemoryFiles, Ranges, Stamp, compression_of
from playhead.testing import check_files

RANDOM = np.random.default_rng(4)
DATA = RANDOM.choice(np.frombuffer(b"abcdefgh \n", np.uint8), 300_000).tobytes()


def seekable_zstd(data: bytes) -> bytes:
    out = io.BytesIO()
    with pyzstd.SeekableZstdFile(out, "w", max_frame_content_size=1 << 12) as file:
        file.write(data)
    return out.getvalue()


PACKERS: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.compress, ".zst": seekable_zstd}


@dataclass(frozen=True)
class Renamed:
    """A storage of compressed files under names that do not say so: the suite chooses names."""

    files: Files
    ending: str

    def list(self, pattern: str) -> Sequence[str]:
        return [path.removesuffix(self.ending) for path in self.files.list(f"{pattern}{self.ending}")]

    def stamp(self, path: str) -> Stamp:
        return self.files.stamp(f"{path}{self.ending}")

    def read(
        self, path: str, stamp: Stamp | None, ranges: Ranges, into: Sequence[memoryview] | None = None
    ) -> Sequence[Buffer]:
        return self.files.read(f"{path}{self.ending}", stamp, ranges, into)


@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_the_view_keeps_the_laws_of_storage(tmp_path: Path, ending: str) -> None:
    def write(name: str, data: bytes) -> str:
        path = tmp_path / f"{name}{ending}"
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f"{path.name}.new")
        beside.write_bytes(PACKERS[ending](data))
        beside.rename(path)
        return str(tmp_path / name)

    files = CompressedFiles(LocalFiles(), str(tmp_path / "points"), "write")
    check_files(Renamed(files, ending), write, lambda path: os.unlink(f"{path}{ending}"))  # noqa: PTH108


@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_any_ranges_of_any_storage_are_those_of_the_decompressed_bytes(ending: str) -> None:
    memory = MemoryFiles()
    path = memory.write(f"memory://a.txt{ending}", PACKERS[ending](DATA))
    files = CompressedFiles(memory)
    assert files.stamp(path).size == len(DATA)
    bounds = np.sort(RANDOM.integers(0, len(DATA) + 1, (40, 2))).tolist()
    ranges = Ranges([first for first, _ in bounds], [end for _, end in bounds])
    assert files.read(path, files.stamp(path), ranges) == [DATA[first:end] for first, end in bounds]
    with pytest.raises(StoreError, match="is shorter than expected"):
        files.read(path, files.stamp(path), Ranges([len(DATA) - 1], [len(DATA) + 1]))


def test_many_more_files_than_are_kept_open_are_read(tmp_path: Path) -> None:
    files = CompressedFiles(LocalFiles(), str(tmp_path / "points"), "write")
    paths = []
    for i in range(20):
        paths.append(str(tmp_path / f"{i}.jsonl.gz"))
        Path(paths[-1]).write_bytes(gzip.compress(f"{i}\n".encode() * 100))
    stamps = {path: files.stamp(path) for path in paths}
    for _ in range(2):
        for i, path in enumerate(paths):
            (found,) = files.read(path, stamps[path], Ranges([0], [4]))
            assert bytes(found).startswith(f"{i}\n".encode())


def test_a_fork_reads_files_that_its_parent_has_open(tmp_path: Path) -> None:
    path = str(tmp_path / "a.jsonl.gz")
    Path(path).write_bytes(gzip.compress(DATA))
    files = CompressedFiles(LocalFiles(), str(tmp_path / "points"), "write")
    stamp = files.stamp(path)
    files.read(path, stamp, Ranges([5], [9]))
    child = os.fork()
    if child == 0:
        same = files.read(path, stamp, Ranges([200_000], [200_500])) == [DATA[200_000:200_500]]
        os._exit(0 if same else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert files.read(path, stamp, Ranges([7], [9])) == [DATA[7:9]]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a.jsonl.gz", ".gz"),
        ("a.txt.zst", ".zst"),
        ("corpus.en.gz", ".gz"),
        ("a.tar.gz", None),
        ("a.tar.zst", None),
        ("a.jsonl", None),
        ("gz", None),
    ],
)
def test_the_name_says_what_is_seen_decompressed(path: str, expected: str | None) -> None:
    assert compression_of(path) == expected


def test_a_missing_file_is_a_data_error() -> None:
    with pytest.raises(DataError, match="no such file"):
        CompressedFiles(LocalFiles()).stamp("/nowhere/a.jsonl.gz")
