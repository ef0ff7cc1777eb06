"""Every storage of ours keeps the laws of `Files`, and storage that breaks one is caught."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import pytest

from loopback import Loopback, serving
from playhead.errors import DataError, StoreError
from playhead.store import (
    MEMORY,
    Buffer,
    CountingFiles,
    Files,
    JoiningFiles,
    LocalFiles,
    MemoryFiles,
    Ranges,
    RemoteFiles,
    SchemeFiles,
    Stamp,
)
from playhead.testing import Fault, FaultyFiles, check_files


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loopback]:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    with serving({}) as served:
        for name, value in served.environment().items():
            monkeypatch.setenv(name, value)
        yield served


def check_local(files: Files, folder: Path) -> None:
    def write(name: str, data: bytes) -> str:
        path, temporary = folder / name, folder / "new"
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(data)
        temporary.replace(path)
        return str(path)

    check_files(files, write, os.unlink)


def check_memory(files: Files, memory: MemoryFiles) -> None:
    check_files(files, lambda name, data: memory.write(f"memory://{name}", data), memory.remove, copy_reads=False)


def check_remote(files: Files, server: Loopback, address: str, can_list: bool = True) -> None:
    def write(name: str, data: bytes) -> str:
        server.objects[f"/bucket/{name}"] = data
        return f"{address}/{name}"

    check_files(files, write, lambda path: server.objects.pop(f"/bucket{path[len(address) :]}"), can_list=can_list)


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda files: files,
        JoiningFiles,
        lambda files: JoiningFiles(files, near_bytes=3, most_bytes=100),
        lambda files: JoiningFiles(files, near_bytes=0, most_bytes=0),
        CountingFiles,
        lambda files: FaultyFiles(files, latency_seconds=1e-4),
        lambda files: JoiningFiles(CountingFiles(FaultyFiles(files))),
    ],
)
class TestWrappers:
    def test_over_local_files(self, tmp_path: Path, wrapped: Callable[[Files], Files]) -> None:
        check_local(wrapped(LocalFiles(most_open=4)), tmp_path)

    def test_over_memory(self, wrapped: Callable[[Files], Files]) -> None:
        memory = MemoryFiles()
        check_memory(wrapped(memory), memory)


@pytest.mark.parametrize("wrapped", [SchemeFiles, lambda: JoiningFiles(SchemeFiles(), near_bytes=3, most_bytes=100)])
class TestSchemes:
    def test_of_local_files(self, tmp_path: Path, wrapped: Callable[[], Files]) -> None:
        check_local(wrapped(), tmp_path)

    def test_of_memory(self, wrapped: Callable[[], Files]) -> None:
        check_memory(wrapped(), MEMORY)

    def test_of_buckets(self, server: Loopback, wrapped: Callable[[], Files]) -> None:
        check_remote(wrapped(), server, "s3://bucket")

    def test_of_web_servers(self, server: Loopback, wrapped: Callable[[], Files]) -> None:
        check_remote(wrapped(), server, f"{server.address}/bucket", can_list=False)


def test_objects(server: Loopback) -> None:
    check_remote(RemoteFiles(), server, "s3://bucket")


@dataclass
class Broken:
    """Memory that keeps every law; each class below breaks one."""

    memory: MemoryFiles

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (MemoryFiles(),)

    def list(self, pattern: str) -> Sequence[str]:
        return self.memory.list(pattern)

    def stamp(self, path: str) -> Stamp:
        return self.memory.stamp(path)

    def read(
        self, path: str, stamp: Stamp | None, ranges: Ranges, into: Sequence[memoryview] | None = None
    ) -> Sequence[Buffer]:
        return self.memory.read(path, stamp, ranges, into)


class Sorts(Broken):
    def read(self, path, stamp, ranges, into=None):
        if into is None:
            ranges = (
                Ranges(*map(list, zip(*sorted(zip(*ranges, strict=True)), strict=True))) if ranges.firsts else ranges
            )
        return self.memory.read(path, stamp, ranges, into)


class RefusesEmptyFiles(Broken):
    def read(self, path, stamp, ranges, into=None):
        if self.memory.stamp(path).size == 0:
            raise StoreError(f"{path}: is empty")
        return self.memory.read(path, stamp, ranges, into)


class UsesOneBuffer(Broken):
    def read(self, path, stamp, ranges, into=None):
        found = self.memory.read(path, stamp, ranges, into)
        data = b"".join(found)
        if not hasattr(self, "buffer"):
            self.buffer = memoryview(bytearray(1 << 20))
        self.buffer[: len(data)] = data
        views, first = [], 0
        for part in found:
            views.append(self.buffer[first : first + len(part)])
            first += len(part)
        return views if into is None else into


class EndsEarly(Broken):
    def read(self, path, stamp, ranges, into=None):
        size = self.memory.stamp(path).size if into is None else 1 << 60
        ends = [max(first, min(end, size)) for first, end in zip(*ranges, strict=True)]
        return self.memory.read(path, stamp, Ranges(ranges.firsts, ends), into)


class WritesBeyond(Broken):
    def read(self, path, stamp, ranges, into=None):
        found = self.memory.read(path, stamp, ranges, into)
        for buffer in into or []:
            memoryview(buffer.obj)[-1:] = b"!"
        return found


class FillsOnlyOne(Broken):
    def read(self, path, stamp, ranges, into=None):
        found = self.memory.read(path, stamp, ranges)
        for buffer, part in list(zip(into or [], found, strict=False))[:1]:
            buffer[:] = part
        return found


class TakesAnyBuffer(Broken):
    def read(self, path, stamp, ranges, into=None):
        found = self.memory.read(path, stamp, ranges)
        for buffer, part in zip(into or [], found, strict=False):
            size = min(len(buffer), len(part))
            buffer[:size] = part[:size]
        return found if into is None else into


class WritesBeforeItChecks(Broken):
    def read(self, path, stamp, ranges, into=None):
        found = self.memory.read(path, stamp, ranges)
        if into is None:
            return found
        for buffer, part in zip(into, found, strict=True):
            buffer[:] = part
        return into


class TakesAnyRange(Broken):
    def read(self, path, stamp, ranges, into=None):
        if any(not 0 <= first <= end for first, end in zip(*ranges, strict=True)):
            return [b""] * len(ranges.firsts)
        return self.memory.read(path, stamp, ranges, into)


class MarksNothing(Broken):
    def stamp(self, path):
        return Stamp(self.memory.stamp(path).size, 0)

    def read(self, path, stamp, ranges, into=None):
        if stamp is not None and stamp != self.stamp(path):
            raise StoreError(f"{path}: changed")
        return self.memory.read(path, None, ranges, into)


class IgnoresStamps(Broken):
    def read(self, path, stamp, ranges, into=None):  # noqa: ARG002 - that is the fault
        return self.memory.read(path, None, ranges, into)


class KeepsOldFiles(Broken):
    def read(self, path, stamp, ranges, into=None):
        kept = self.__dict__.setdefault("kept", {})
        if stamp is None and path in kept:
            whole = kept[path]
            return [whole[first:end] for first, end in zip(*ranges, strict=True)]
        found = self.memory.read(path, stamp, ranges, into)
        whole = self.memory.read(path, None, Ranges([0], [self.memory.stamp(path).size]))[0]
        kept.setdefault(path, whole)
        return found


class RefusesNewStamps(Broken):
    def read(self, path, stamp, ranges, into=None):
        if stamp is not None and self.__dict__.setdefault("seen", {}).setdefault(path, stamp) != stamp:
            raise StoreError(f"{path}: changed")
        return self.memory.read(path, stamp, ranges, into)


class ChecksOnce(Broken):
    def read(self, path, stamp, ranges, into=None):
        self.memory.read(path, stamp, ranges, into)
        if into is not None or "/mixed" not in path:
            return self.memory.read(path, stamp, ranges, into)
        found = []
        for first, end in zip(*ranges, strict=True):
            found += self.memory.read(path, None, Ranges([first], [end]))
            time.sleep(1e-3)
        return found


class MissingIsAStoreError(Broken):
    def stamp(self, path):
        try:
            return self.memory.stamp(path)
        except DataError as error:
            raise StoreError(error.problem) from error


class MissingIsAKeyError(Broken):
    def read(self, path, stamp, ranges, into=None):
        try:
            return self.memory.read(path, stamp, ranges, into)
        except DataError as error:
            raise KeyError(path) from error


class VanishedIsADataError(Broken):
    def read(self, path, stamp, ranges, into=None):
        self.memory.stamp(path)
        return self.memory.read(path, stamp, ranges, into)


class NamesNoPath(Broken):
    def stamp(self, path):
        try:
            return self.memory.stamp(path)
        except DataError as error:
            raise DataError("no such file") from error


class ListsUnsorted(Broken):
    def list(self, pattern):
        return list(self.memory.list(pattern))[::-1]


class ListsAcrossParts(Broken):
    def list(self, pattern):
        found = self.memory.list(pattern)
        return sorted(path for path in self.memory._files if fnmatch(path, pattern)) if "*" in pattern else found


class SharesAPosition(Broken):
    def read(self, path, stamp, ranges, into=None):
        if "/threads/" in path:
            self.path = path
            time.sleep(1e-5)
            stamp = stamp and self.memory.stamp(self.path)
            return self.memory.read(self.path, stamp, ranges, into)
        return self.memory.read(path, stamp, ranges, into)


class CannotBeCopied(Broken):
    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (threading.Lock(),)


class OpensInTheCopy(Broken):
    def __reduce__(self) -> tuple[object, ...]:
        return _opened, ()


def _opened() -> OpensInTheCopy:
    copy = OpensInTheCopy(MemoryFiles())
    copy.file = Path(__file__).open("rb")  # noqa: SIM115 - that is the fault
    return copy


@pytest.mark.parametrize(
    ("broken", "law"),
    [
        (Sorts, "ranges are read in the order given"),
        (RefusesEmptyFiles, "empty files and empty ranges are read"),
        (UsesOneBuffer, "what was read stays as it is"),
        (EndsEarly, "a range past the end is a StoreError"),
        (WritesBeyond, "the buffers are filled, and nothing beside them"),
        (FillsOnlyOne, "the buffers are filled, and nothing beside them"),
        (TakesAnyBuffer, "a buffer of another size than its range is a ValueError"),
        (WritesBeforeItChecks, "and nothing is written"),
        (TakesAnyRange, "a range that ends before it begins"),
        (MarksNothing, "a stamp has the size, and is another after every write"),
        (IgnoresStamps, "no byte of a changed file is read under the old stamp"),
        (KeepsOldFiles, "without a stamp a file is read as it is now"),
        (RefusesNewStamps, "a changed file is read under its new stamp"),
        (ChecksOnce, "old and new bytes are never mixed"),
        (MissingIsAStoreError, "a file that does not exist is a DataError"),
        (MissingIsAKeyError, "a file that does not exist is a DataError"),
        (VanishedIsADataError, "unless it was stamped"),
        (NamesNoPath, "an error names the path"),
        (ListsUnsorted, "a pattern lists the files it names, sorted"),
        (ListsAcrossParts, "a pattern lists the files it names, sorted"),
        (SharesAPosition, "threads may share one storage"),
        (CannotBeCopied, "copies hold nothing open: broken by TypeError"),
        (OpensInTheCopy, "a copy that was not used"),
    ],
)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
def test_storage_that_breaks_a_law_is_caught(broken: type[Broken], law: str) -> None:
    memory = MemoryFiles()
    with pytest.raises(AssertionError, match=law):
        check_memory(broken(memory), memory)


def test_storage_that_reads_in_no_copy_is_caught() -> None:
    memory = MemoryFiles()
    with pytest.raises(AssertionError, match="a pickled copy reads the same"):
        check_files(memory, lambda name, data: memory.write(f"memory://{name}", data))


def test_faults_are_store_errors_on_the_requests_chosen(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"hello")
    faults: dict[int, Fault] = {0: "changed", 2: "error", 4: "short", 5: "changed", 6: "error"}
    asked = []

    def fail(number: int, method: str, path: str) -> Fault | None:
        asked.append((method, path))
        return faults.get(number)

    files = FaultyFiles(LocalFiles(), fail=fail)
    other, stamp, ranges = files.stamp(str(path)), files.stamp(str(path)), Ranges([0, 2], [2, 5])
    assert (other.size, stamp) == (5, LocalFiles().stamp(str(path)))
    assert other != stamp
    with pytest.raises(StoreError, match=f"{path}: cannot be read"):
        files.read(str(path), stamp, ranges)
    assert files.read(str(path), stamp, ranges) == [b"he", b"llo"]
    with pytest.raises(StoreError, match=f"{path}: is shorter than expected"):
        files.read(str(path), stamp, ranges)
    with pytest.raises(StoreError, match=f"{path}: changed"):
        files.read(str(path), stamp, ranges)
    with pytest.raises(StoreError, match=f"{path}: cannot be read"):
        files.list(str(path))
    assert files.list(str(path)) == [str(path)]
    assert asked == [(method, str(path)) for method in ["stamp"] * 2 + ["read"] * 4 + ["list"] * 2]
