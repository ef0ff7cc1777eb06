from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from playhead.errors import DataError, PrepareError
from playhead.store import Spans, list_files, open_file, read_spans, replacing, stamp, swap_directory


def test_files_are_listed_in_the_order_of_patterns_and_by_name_within_one(tmp_path: Path) -> None:
    for name in ("b1", "b0", "a2", "d/e/x1", "c[1]"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = list_files([str(tmp_path / pattern) for pattern in ("b?", "a*", "**/x[0-9]", "c[1]")])
    assert [str(Path(path).relative_to(tmp_path)) for path in found] == ["b0", "b1", "a2", "d/e/x1", "c[1]"]


def test_a_pattern_in_vain_and_a_file_listed_twice_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    with pytest.raises(DataError, match="no file matches"):
        list_files([str(tmp_path / "x*")])
    with pytest.raises(DataError, match="listed twice"):
        list_files([str(tmp_path / "a"), str(tmp_path / "*")])


def test_ranges_are_read_without_a_shared_position(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(bytes(range(100)))
    with open_file(str(path)) as file:
        assert file.read(10, 5) == bytes(range(10, 15))
        assert file.read(0, 2) == bytes([0, 1])
        assert file.read(98, 10) == bytes([98, 99])
        assert file.read(200, 10) == b""
    assert read_spans([str(path)], Spans([50], [51])) == [bytes([50])]


def test_a_stamp_tells_size_and_modification(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"abc")
    os.utime(path, ns=(5, 123_456_789))
    assert (stamp(str(path)).size, stamp(str(path)).mark) == (3, 123_456_789)
    with pytest.raises(DataError, match="no such file"):
        stamp(str(tmp_path / "b"))


def test_a_file_that_fails_half_way_is_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("old")

    def fail() -> None:
        with replacing(path) as file:
            file.write(b"half")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_is_a_letter_that_names_the_file(tmp_path: Path) -> None:
    code = (
        "import resource, sys\nfrom playhead.store import replacing\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "with replacing(sys.argv[1]) as file: file.write(b'x' * 100_000)\n"
    )
    target = tmp_path / "a"
    done = subprocess.run([sys.executable, "-c", code, str(target)], capture_output=True, text=True, check=False)
    assert f"PrepareError: {target}: cannot be written" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(PrepareError, match=r"nowhere/a: cannot be written"), replacing(tmp_path / "nowhere" / "a"):
        pass


def test_a_directory_takes_the_place_of_another(tmp_path: Path) -> None:
    new, target = tmp_path / "new", tmp_path / "target"
    for round_number in range(2):
        new.mkdir()
        (new / f"file{round_number}").touch()
        swap_directory(new, target)
        assert [path.name for path in target.iterdir()] == [f"file{round_number}"]
        assert [path.name for path in tmp_path.iterdir()] == ["target"]
