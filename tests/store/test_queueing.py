"""Requests of all processes of a node wait in one queue to a store, which nobody's death blocks."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from flights import PATIENCE_SECONDS, Meeting
from playhead.errors import RecipeError
from playhead.store import MEMORY, Buffer, LocalFiles, QueuedFiles, Ranges, SchemeFiles, Stamp
from playhead.store.queueing import VARIABLE
from playhead.testing import FaultyFiles, check_files

URL = "s3://bucket/shard.tar"
MEGABYTE = 1 << 20
SPAWN = multiprocessing.get_context("spawn")


class Recording:
    """A storage whose requests leave a file while they are under way, and the number of files they met."""

    def __init__(self, folder: Path, seconds: float = 0.0) -> None:
        self.folder, self.seconds = folder, seconds
        self._numbers = count()

    def __reduce__(self) -> tuple[object, ...]:
        return Recording, (self.folder, self.seconds)

    def list(self, pattern: str) -> Sequence[str]:
        return [pattern]

    def stamp(self, path: str) -> Stamp:  # noqa: ARG002
        return Stamp(1, 1)

    def read(
        self,
        path: str,
        stamp: Stamp | None,  # noqa: ARG002
        ranges: Ranges,
        into: Sequence[memoryview] | None = None,  # noqa: ARG002
    ) -> Sequence[Buffer]:
        mine = self.folder / "inside" / f"{os.getpid()}-{threading.get_ident()}-{next(self._numbers)}"
        mine.touch()
        seen = len(names(self.folder / "inside"))
        (self.folder / "seen" / f"{mine.name}={seen}").touch()
        time.sleep(self.seconds)
        mine.unlink()
        return [path.encode()] * len(ranges.firsts)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("runtime", "inside", "seen"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv(VARIABLE, "3")
    (tmp_path / "go").touch()
    return tmp_path


def ask(folder: Path, num_requests: int, num_bytes: int, seconds: float) -> None:
    """The main function of a process that makes requests one after another, as soon as it may."""
    (folder / f"ready-{os.getpid()}").touch()
    until((folder / "go").exists)
    files = QueuedFiles(Recording(folder, seconds))
    for _ in range(num_requests):
        files.read(URL, None, Ranges([0], [num_bytes]))


@contextmanager
def asking(folder: Path, num_requests: int, num_bytes: int, seconds: float) -> Iterator[BaseProcess]:
    """A process that makes requests, once there is a file called "go"."""
    process = SPAWN.Process(target=ask, args=(folder, num_requests, num_bytes, seconds))
    process.start()
    try:
        yield process
    finally:
        process.kill()
        process.join()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.005)


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def inside(folder: Path) -> list[str]:
    return names(folder / "inside")


def most_at_once(folder: Path) -> int:
    return max(int(name.partition("=")[2]) for name in names(folder / "seen"))


def test_eight_processes_never_have_more_under_way_than_the_bound(folder: Path) -> None:
    (folder / "go").unlink()
    with ExitStack() as stack:
        processes = [stack.enter_context(asking(folder, 8, MEGABYTE, 0.02)) for _ in range(8)]
        until(lambda: all((folder / f"ready-{process.pid}").exists() for process in processes))
        (folder / "go").touch()
        for process in processes:
            process.join(PATIENCE_SECONDS)
            assert process.exitcode == 0
    assert len(names(folder / "seen")) == 8 * 8
    assert most_at_once(folder) <= 3


def test_as_many_threads_as_fit_are_under_way_together(folder: Path) -> None:
    del folder
    meeting = Meeting(3)
    files = QueuedFiles(FaultyFiles(MEMORY, fail=meeting))
    path = MEMORY.write("memory://queued", bytes(MEGABYTE))
    threads = [threading.Thread(target=files.read, args=(path, None, Ranges([0], [MEGABYTE]))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert meeting.num_requests == 6


def test_small_requests_do_not_wait_for_the_few_large_ones_that_fit(folder: Path) -> None:
    with asking(folder, 1, 100 * MEGABYTE, PATIENCE_SECONDS):  # counts as half of the bound
        until(lambda: len(inside(folder)) == 1)
        meeting = Meeting(24)  # a megabyte and a half of 64 KiB each
        files = QueuedFiles(FaultyFiles(Recording(folder), fail=meeting))
        threads = [threading.Thread(target=files.stamp, args=(URL,)) for _ in range(24)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_SECONDS)
    assert meeting.num_requests == 24


def test_a_request_for_many_small_ranges_counts_as_many_requests(folder: Path) -> None:
    files = QueuedFiles(Recording(folder, 0.05))
    ranges = Ranges([*range(100)], [*range(1, 101)])
    threads = [threading.Thread(target=files.read, args=(URL, None, ranges)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert len(names(folder / "seen")) == 6
    assert most_at_once(folder) <= 2  # each counts as half of the bound


@pytest.mark.parametrize("killed", ["a holder", "the first in the queue"])
def test_a_process_killed_at_its_turn_or_in_the_queue_blocks_nobody(folder: Path, killed: str) -> None:
    forever = 10 * PATIENCE_SECONDS
    with ExitStack() as stack:
        holders = [stack.enter_context(asking(folder, 1, 3 * MEGABYTE, forever)) for _ in range(2)]
        until(lambda: len(inside(folder)) == 2)
        first = stack.enter_context(asking(folder, 1, 3 * MEGABYTE, 0.0))
        until(lambda: waits(first.pid))
        last = stack.enter_context(asking(folder, 1, 3 * MEGABYTE, 0.0))
        until(lambda: waits(last.pid))
        assert most_at_once(folder) == 2
        if killed == "a holder":
            os.kill(holders[0].pid or 0, signal.SIGKILL)
        else:
            os.kill(first.pid or 0, signal.SIGKILL)
            first.join()
            os.kill(holders[1].pid or 0, signal.SIGKILL)
        last.join(PATIENCE_SECONDS)
        assert last.exitcode == 0


def waits(pid: int | None) -> bool:
    """Whether a process has opened the file of a queue."""
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):  # closed just now, as that of this loop is
            if link.readlink().name.endswith(".queue"):
                return True
    return False


def test_a_request_inside_a_request_waits_for_no_other_turn(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "1")
    files = QueuedFiles(QueuedFiles(QueuedFiles(Recording(folder))))
    assert files.read(URL, None, Ranges([0], [MEGABYTE])) == [URL.encode()]


def test_waiting_can_be_interrupted_and_gives_its_place_back(folder: Path) -> None:
    class AlarmError(Exception):
        pass

    def ring(_signal: int, _frame: object) -> None:
        raise AlarmError

    def ring_when_waiting() -> None:
        until(lambda: waits(os.getpid()))
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)

    before = signal.signal(signal.SIGALRM, ring)
    try:
        with asking(folder, 1, 3 * MEGABYTE, 600), asking(folder, 1, 3 * MEGABYTE, 600):
            until(lambda: len(inside(folder)) == 2)
            ringing = threading.Thread(target=ring_when_waiting)
            ringing.start()
            with pytest.raises(AlarmError):
                QueuedFiles(Recording(folder)).read(URL, None, Ranges([0], [MEGABYTE]))
            ringing.join()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert QueuedFiles(Recording(folder)).read(URL, None, Ranges([0], [MEGABYTE])) == [URL.encode()]


def test_every_store_has_a_queue_of_its_own(folder: Path) -> None:
    with asking(folder, 1, 3 * MEGABYTE, 600), asking(folder, 1, 3 * MEGABYTE, 600):
        until(lambda: len(inside(folder)) == 2)
        QueuedFiles(Recording(folder)).read("s3://another/shard.tar", None, Ranges([0], [MEGABYTE]))


def test_without_a_directory_of_its_own_there_is_no_bound_and_no_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder / "missing"))
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "nowhere"))
    QueuedFiles(Recording(folder)).read(URL, None, Ranges([0], [MEGABYTE]))
    shared = folder / f"playhead-{os.getuid()}"
    shared.mkdir()
    shared.chmod(0o777)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    QueuedFiles(Recording(folder)).read(URL, None, Ranges([0], [MEGABYTE]))
    assert not names(shared)
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: ["/proc", "/sys"])  # where nothing can be written
    QueuedFiles(Recording(folder)).read(URL, None, Ranges([0], [MEGABYTE]))


def test_the_directory_is_closed_to_others_and_a_bound_of_zero_is_none(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "0")
    QueuedFiles(Recording(folder)).stamp(URL)
    assert not names(folder / "runtime")
    monkeypatch.setenv(VARIABLE, "1")
    QueuedFiles(Recording(folder)).stamp(URL)
    assert stat.S_IMODE((folder / "runtime" / "playhead").stat().st_mode) == 0o700


def test_a_directory_that_is_removed_meanwhile_is_made_again(folder: Path) -> None:
    QueuedFiles(Recording(folder)).stamp(URL)
    shutil.rmtree(folder / "runtime")
    (folder / "runtime").mkdir()
    QueuedFiles(Recording(folder)).stamp(URL)
    assert len(names(folder / "runtime" / "playhead")) == 1


def test_a_bound_that_is_no_number_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "lots")
    with pytest.raises(RecipeError, match=VARIABLE):
        QueuedFiles(Recording(folder)).stamp(URL)


def test_queued_storage_keeps_the_laws_of_files(folder: Path) -> None:
    files = QueuedFiles(SchemeFiles(local=LocalFiles()))

    def write(name: str, data: bytes) -> str:
        path, temporary = folder / name, folder / "new"
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(data)
        temporary.replace(path)
        return str(path)

    check_files(files, write, os.unlink)
