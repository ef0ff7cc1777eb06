"""Local files: descriptors, changes while a file is open, forks, and what the system refuses."""

from __future__ import annotations

import errno
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from playhead.errors import DataError, StoreError
from playhead.store import LocalFiles, Ranges, Stamp, list_files, open_file, unreadable

THREE = Ranges([0], [3])


def test_files_are_listed_in_the_order_of_patterns_and_by_name_within_one(tmp_path: Path) -> None:
    for name in ("b1", "b0", "a2", "d/e/x1", "c[1]"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    patterns = [str(tmp_path / pattern) for pattern in ("b?", "a*", "**/x[0-9]", "c[1]")]
    found = list_files(LocalFiles(), patterns)
    assert [str(Path(path).relative_to(tmp_path)) for path in found] == ["b0", "b1", "a2", "d/e/x1", "c[1]"]


def test_a_pattern_in_vain_and_a_file_listed_twice_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    with pytest.raises(DataError, match="no file matches"):
        list_files(LocalFiles(), [str(tmp_path / "x*")])
    with pytest.raises(DataError, match="listed twice"):
        list_files(LocalFiles(), [str(tmp_path / "a"), str(tmp_path / "*")])


def test_a_file_is_read_up_to_its_end_and_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(bytes(range(100)))
    file = open_file(LocalFiles(), str(path))
    assert (file.size, file.read(10, 5)) == (100, bytes(range(10, 15)))
    assert file.read(98, 10) == bytes([98, 99])
    assert file.read(200, 10) == b""
    assert list(file.pieces(64)) == [bytes(range(64)), bytes(range(64, 100))]


def test_a_stamp_has_size_and_modification_time(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"abc")
    os.utime(path, ns=(5, 123_456_789))
    assert LocalFiles().stamp(str(path)) == Stamp(3, 123_456_789)


def num_open(folder: Path) -> int:
    found = 0
    for link in Path("/proc/self/fd").iterdir():
        try:
            found += str(link.readlink()).startswith(str(folder))
        except OSError:
            continue
    return found


def test_few_files_stay_open_and_all_are_closed_at_the_end(tmp_path: Path) -> None:
    files: LocalFiles | None = LocalFiles(most_open=3)
    assert files is not None
    for name in "abcdefgh":
        path = tmp_path / name
        path.write_bytes(b"hello")
        assert files.read(str(path), files.stamp(str(path)), THREE) == [b"hel"]
        assert num_open(tmp_path) <= 3
    assert num_open(tmp_path) == 3
    copy = pickle.loads(pickle.dumps(files))  # noqa: S301 - our own
    files.read(str(tmp_path / "a"), None, THREE)
    assert num_open(tmp_path) == 3
    files = None
    assert num_open(tmp_path) == 0
    assert copy._most_open == 3


MANY_FILES = """
import os, random, resource, sys
from concurrent.futures import ThreadPoolExecutor
from playhead.store import LocalFiles, Ranges
before = LocalFiles()  # made when there were more
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
sys.setswitchinterval(1e-6)
folder = sys.argv[1]
paths = [os.path.join(folder, str(i)) for i in range(500)]

def num_wrong(files, seed):
    order, wrong = random.Random(seed), 0
    for i in order.sample(range(500), 500):
        stamp = files.stamp(paths[i]) if order.random() < 0.8 else None
        data = b"%06d" % i
        wrong += files.read(paths[i], stamp, Ranges([0, 2], [2, 6])) != [data[:2], data[2:]]
    return wrong

for files in (before, LocalFiles()):
    with ThreadPoolExecutor(8) as threads:
        print(sum(threads.map(lambda seed: num_wrong(files, seed), range(8))), len(files._open))
"""


def test_eight_threads_read_500_files_with_64_descriptors(tmp_path: Path) -> None:
    for i in range(500):
        (tmp_path / str(i)).write_bytes(b"%06d" % i)
    done = subprocess.run(
        [sys.executable, "-c", MANY_FILES, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    (wrong, num_kept), (wrong_later, num_kept_later) = (map(int, line.split()) for line in done.stdout.splitlines())
    assert (wrong, wrong_later, num_kept_later) == (0, 0, 16)
    assert num_kept <= 32


def grown(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"x")


def written_over(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"other")
    os.utime(path, ns=(5, 5))


def cut_short(path: Path) -> None:
    os.truncate(path, 10)


@pytest.mark.parametrize("into", [True, False])
@pytest.mark.parametrize("change", [grown, written_over, cut_short])
@pytest.mark.parametrize("is_open", [True, False])
def test_a_file_that_is_written_to_is_refused_also_while_it_is_open(
    tmp_path: Path, change: Callable[[Path], None], is_open: bool, into: bool
) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x" * 1000)
    files = LocalFiles()
    before = files.stamp(str(path))
    if is_open:
        assert files.read(str(path), before, THREE) == [b"xxx"]
    change(path)
    for _ in range(2):  # also when it was dropped after the first refusal
        with pytest.raises(StoreError, match=f"{path}: changed since it was indexed") as caught:
            files.read(str(path), before, Ranges([0], [900]), [memoryview(bytearray(900))] if into else None)
        assert f"modification mark {before.mark}" in str(caught.value.expected)
    path.write_bytes(b"x" * 1000)
    os.utime(path, ns=(before.mark, before.mark))
    assert files.read(str(path), before, THREE) == [b"xxx"]  # restored


def test_a_file_replaced_while_it_is_open_is_old_under_the_old_stamp_and_new_under_the_new(tmp_path: Path) -> None:
    path, other = tmp_path / "a", tmp_path / "b"
    path.write_bytes(b"old")
    files = LocalFiles()
    before = files.stamp(str(path))
    assert files.read(str(path), before, THREE) == [b"old"]
    other.write_bytes(b"new")
    os.utime(other, ns=(5, 5))
    other.replace(path)
    assert files.read(str(path), before, THREE) == [b"old"]
    assert files.read(str(path), None, THREE) == [b"new"]
    assert files.read(str(path), files.stamp(str(path)), THREE) == [b"new"]
    with pytest.raises(StoreError, match="changed since it was indexed"):
        files.read(str(path), before, THREE)


def test_without_a_stamp_the_file_that_is_there_is_read_whatever_its_mark(tmp_path: Path) -> None:
    path, other = tmp_path / "a", tmp_path / "b"
    for file, data in ((path, b"old"), (other, b"new")):
        file.write_bytes(data)
        os.utime(file, ns=(5, 5))
    files = LocalFiles()
    assert files.read(str(path), files.stamp(str(path)), THREE) == [b"old"]
    other.replace(path)
    assert files.read(str(path), None, THREE) == [b"new"]


def test_a_file_that_vanished_is_a_store_error_unless_it_is_open(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"hello")
    files = LocalFiles()
    stamp = files.stamp(str(path))
    assert files.read(str(path), stamp, THREE) == [b"hel"]
    path.unlink()
    assert files.read(str(path), stamp, Ranges([1], [5])) == [b"ello"]  # as the system has it
    with pytest.raises(StoreError, match=f"{path}: no such file"):
        LocalFiles().read(str(path), stamp, THREE)
    with pytest.raises(DataError, match=f"{path}: no such file"):
        files.read(str(path), None, THREE)


@pytest.mark.parametrize("name", ["none", "file/inside", "x" * 5000, "nul\0", "\ud800", "link"])
def test_names_of_no_file_are_data_errors(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("link")
    path, files = f"{tmp_path}/{name}", LocalFiles()
    for call in (files.list, files.stamp, lambda path: files.read(path, None, THREE)):
        with pytest.raises(DataError, match="no such file"):
            call(path)
    with pytest.raises(StoreError, match="no such file"):
        files.read(path, Stamp(3, 1), THREE)


def test_directories_pipes_and_devices_are_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, found in (
        (tmp_path, "a directory"),
        (tmp_path / "pipe", "a device, a pipe"),
        (Path("/dev/zero"), "a de"),
    ):
        for call in (LocalFiles().stamp, lambda path: LocalFiles().read(path, None, THREE)):
            with pytest.raises(DataError, match=f"{path}: cannot be read") as caught:
                call(str(path))
            assert str(caught.value.found).startswith(found)


def test_an_input_output_error_is_a_store_error() -> None:
    with pytest.raises(StoreError, match="/proc/self/mem: cannot be read") as caught:  # no memory at address 0
        LocalFiles().read("/proc/self/mem", None, THREE)
    assert "check the disk" in str(caught.value.fix)


@pytest.mark.parametrize(
    ("number", "fix"),
    [
        (errno.EMFILE, "ulimit -n"),
        (errno.ENFILE, "fs.file-max"),
        (errno.EIO, "check the disk or the mount"),
        (errno.ESTALE, "check the network file system"),
        (errno.ENOMEM, "free memory"),
        (errno.EACCES, "check the permissions"),
        (errno.ETIMEDOUT, "check the permissions and the disk"),
        (errno.ENOTCONN, "check the permissions and the disk"),
    ],
)
def test_what_the_system_refuses_is_a_store_error_with_a_fix(number: int, fix: str) -> None:
    problem = unreadable("/a", OSError(number, os.strerror(number)))
    assert isinstance(problem, StoreError)
    assert problem.found == os.strerror(number)
    assert fix in str(problem.fix)


FORBIDDEN = """
import os, sys
from playhead.errors import StoreError
from playhead.store import LocalFiles, Ranges
path, files = sys.argv[1], LocalFiles()
stamp = files.stamp(path)
os.chmod(path, 0)
if os.getuid() == 0:
    os.seteuid(65534)
for known in (stamp, None):
    try:
        files.read(path, known, Ranges([0], [3]))
    except StoreError as error:
        print(error.found)
"""


def test_a_file_that_may_not_be_read_is_a_store_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    path = tmp_path / "a"
    path.write_bytes(b"hello")
    for folder in path.parents:  # others must be able to reach it
        if folder.stat().st_uid == os.getuid() and not folder.stat().st_mode & 0o001:
            folder.chmod(folder.stat().st_mode | 0o011)
    done = subprocess.run([sys.executable, "-c", FORBIDDEN, str(path)], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("Permission denied\n" * 2, "")


FORK = """
import os, sys
from threading import Event, Thread
from playhead.store import LocalFiles, Ranges
path, files = sys.argv[1], LocalFiles()
stamp = files.stamp(path)
assert files.read(path, stamp, Ranges([0], [3])) == [b"hel"]
held, done = Event(), Event()

def hold():
    with files._lock:
        held.set()
        done.wait()

thread = Thread(target=hold)
thread.start()
held.wait()
if child := os.fork():
    done.set()
    thread.join()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), *files.read(path, stamp, Ranges([0], [3])))
else:
    os._exit(files.read(path, stamp, Ranges([0], [3])) != [b"hel"])
"""


def test_files_are_read_in_a_fork_also_when_a_thread_was_opening_one(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"hello")
    command = [sys.executable, "-W", "ignore", "-c", FORK, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=240)
    assert done.stdout == "0 b'hel'\n"
