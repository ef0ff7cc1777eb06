from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from playhead.errors import PrepareError
from playhead.store import replacing, swap_directory


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


def test_a_full_disk_is_an_error_that_names_the_file(tmp_path: Path) -> None:
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
