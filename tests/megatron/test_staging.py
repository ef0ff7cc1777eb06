"""Files that appear together: forced to the disk before they take their names, in an order that holds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from playhead.errors import PrepareError
from playhead.megatron import staging
from playhead.megatron.staging import staged

NAMES = ("array", "description", "manifest")


class Disk:
    """Watches what is forced to the disk, renamed and removed, in order; a sync with the size of the file then."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.events: list[tuple[str, str, int]] = []
        real = {name: getattr(os, name) for name in ("fsync", "fdatasync", "replace", "unlink")}

        def sync(kind: str):
            def watched(descriptor: int) -> None:
                path = Path(f"/proc/self/fd/{descriptor}").readlink()
                self.events.append(("sync", self.name(path), os.fstat(descriptor).st_size))
                real[kind](descriptor)

            return watched

        def replace(old: object, new: object) -> None:
            self.events.append(("rename", self.name(new), 0))
            real["replace"](old, new)

        def unlink(path: object) -> None:
            if Path(str(path)).exists():
                self.events.append(("remove", self.name(path), 0))
            real["unlink"](path)

        monkeypatch.setattr(os, "replace", replace)
        monkeypatch.setattr(os, "unlink", unlink)
        for kind in ("fsync", "fdatasync"):
            monkeypatch.setattr(os, kind, sync(kind))

    @staticmethod
    def name(path: object) -> str:
        base = Path(str(path)).name
        return base.split(".")[1] if base.endswith(".tmp") else base

    def steps(self) -> list[tuple[str, str]]:
        return [event[:2] for event in self.events]


def write_all(folder: Path, data: bytes) -> None:
    with staged(folder, (folder / "description", folder / "manifest")) as create:
        for name in NAMES:
            create(folder / name).write(data)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "cache").mkdir()
    return tmp_path / "cache"


def test_every_file_is_on_the_disk_in_full_before_it_takes_its_name(folder: Path, monkeypatch) -> None:
    disk = Disk(monkeypatch)
    write_all(folder, b"x" * 1000)
    renames = [i for i, event in enumerate(disk.events) if event[0] == "rename"]
    assert [disk.events[i][1] for i in renames] == list(NAMES)
    assert set(disk.events[: renames[0]]) == {("sync", name, 1000) for name in NAMES}
    assert disk.steps()[-1] == ("sync", "cache")


def test_where_files_are_replaced_each_step_is_on_the_disk_before_the_next(folder: Path, monkeypatch) -> None:
    write_all(folder, b"old")
    disk = Disk(monkeypatch)
    write_all(folder, b"new")
    assert disk.steps()[len(NAMES) :] == [
        ("remove", "description"),
        ("remove", "manifest"),
        ("sync", "cache"),
        ("rename", "array"),
        ("sync", "cache"),
        ("rename", "description"),
        ("rename", "manifest"),
        ("sync", "cache"),
    ]
    assert [(folder / name).read_bytes() for name in NAMES] == [b"new"] * 3


def test_a_large_file_is_sent_to_the_disk_while_it_is_written(folder: Path, monkeypatch) -> None:
    monkeypatch.setattr(staging, "EARLY_BYTES", 100_000)
    disk = Disk(monkeypatch)
    with staged(folder, ()) as create:
        file = create(folder / "array")
        for _ in range(50):
            file.write(memoryview(bytes(50_000)))
    sizes = [size for kind, name, size in disk.events if (kind, name) == ("sync", "array")]
    assert len(sizes) > 1
    assert sizes[-1] == 2_500_000


@pytest.mark.parametrize("failing", ["fsync", "fdatasync"])
def test_a_disk_that_fails_leaves_everything_as_it_was(folder: Path, monkeypatch, failing: str) -> None:
    write_all(folder, b"old")
    monkeypatch.setattr(staging, "EARLY_BYTES", 100)
    told: list[int] = []

    def fail_once(descriptor: int) -> None:
        told.append(descriptor)
        if len(told) == 1:  # as Linux does: the next call succeeds
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, failing, fail_once)
    with pytest.raises(PrepareError, match="cannot be written"):
        write_all(folder, b"n" * 1000)
    assert told
    assert sorted(path.name for path in folder.iterdir()) == sorted(NAMES)
    assert [(folder / name).read_bytes() for name in NAMES] == [b"old"] * 3
