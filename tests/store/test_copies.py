"""Files read from local copies, under their own names and with their own stamps."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

from playhead.errors import DataError, StoreError
from playhead.store import CopiedFiles, LocalFiles, Ranges, RemoteFiles, Stamp, open_file, requests_cost
from playhead.store.copies import Copies, NoCopyError, copy_path, save_copies
from playhead.testing import check_files

FAR = "s3://bucket/data/a.jsonl"


def test_files_without_a_copy_are_those_of_the_storage(tmp_path: Path) -> None:
    save_copies(str(tmp_path / "near"), Copies({FAR: Stamp(3, 7)}, {"s3://bucket/data/*": [FAR]}))

    def write(name: str, data: bytes) -> str:
        path, temporary = tmp_path / "data" / name, tmp_path / "new"
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(data)
        temporary.replace(path)
        return str(path)

    check_files(CopiedFiles(LocalFiles(most_open=4), str(tmp_path / "near")), write, os.unlink)


def test_a_copy_has_the_name_and_the_stamp_of_its_file_and_is_on_disk(tmp_path: Path) -> None:
    root = str(tmp_path)
    save_copies(root, Copies({FAR: Stamp(6, 7)}, {"s3://bucket/data/*": [FAR]}))
    copy = copy_path(root, FAR)
    copy.parent.mkdir(parents=True)
    copy.write_bytes(b"abcdef")
    first = CopiedFiles(RemoteFiles(), root)
    for files in (first, pickle.loads(pickle.dumps(first))):  # noqa: S301 - our own
        assert files.list("s3://bucket/data/*") == [FAR]
        assert open_file(files, FAR).stamp == Stamp(6, 7)
        assert open_file(files, FAR).read(2, 3) == b"cde"
        assert not requests_cost(files, FAR)
        assert requests_cost(files, "s3://bucket/data/b.jsonl")
        with pytest.raises(StoreError, match="changed since it was indexed"):
            files.read(FAR, Stamp(6, 8), Ranges([0], [1]))
    copy.write_bytes(b"ABCDEF")
    os.utime(copy, ns=(0, 0))
    with pytest.raises(StoreError):
        files.read(FAR, Stamp(6, 7), Ranges([0], [1]))


def test_where_nothing_but_copies_is_read_files_are_listed_and_stamped_as_far_as_they_are_known(tmp_path: Path) -> None:
    root = str(tmp_path)
    other, gone = "s3://bucket/data/b.jsonl", "s3://bucket/data/c.jsonl"
    copy_path(root, FAR).parent.mkdir(parents=True)
    copy_path(root, FAR).write_bytes(b"abc")
    save_copies(root, Copies({FAR: Stamp(3, 7)}, steps=["steps 0 to 1"], absent=[gone], indexed={other: Stamp(5, 8)}))
    files = CopiedFiles(RemoteFiles(), root)
    assert files.list(FAR) == [FAR]
    assert files.stamp(other) == Stamp(5, 8)
    with pytest.raises(NoCopyError, match=r"b\.jsonl: has no copy"):
        files.read(other, Stamp(5, 8), Ranges([0], [1]))
    for ask in (files.list, files.stamp):
        with pytest.raises(DataError, match=r"c\.jsonl: no such file"):
            ask(gone)
    with pytest.raises(NoCopyError, match="what matches this pattern is not known"):
        files.list("s3://bucket/data/*")
    (tmp_path / "indexes").mkdir()
    (tmp_path / "indexes" / "a.idx").write_bytes(b"12345678")
    with pytest.raises(NoCopyError):
        files.stamp(f"{root}/../{tmp_path.name}-other/a.idx")
    assert CopiedFiles(LocalFiles(), root).stamp(f"{root}/indexes/a.idx").size == 8
