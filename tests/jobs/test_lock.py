from __future__ import annotations

import os
from pathlib import Path

import pytest

from playhead.errors import PrepareError
from playhead.jobs.lock import only_one


@pytest.mark.parametrize("inside", [False, True])
def test_a_directory_is_locked_once_and_nothing_remains_of_the_lock(tmp_path: Path, inside: bool) -> None:
    place = tmp_path / "new" / "near"
    with only_one(place, inside=inside):
        (lock,) = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert lock.is_relative_to(place) == inside
        with pytest.raises(PrepareError, match=f"near: is being prepared by process {os.getpid()} on "):
            only_one(place, inside=inside).__enter__()
        assert lock.exists()
    assert [*tmp_path.iterdir()] == []


def test_a_directory_with_something_in_it_stays(tmp_path: Path) -> None:
    with only_one(tmp_path / "near", inside=True):
        (tmp_path / "near" / "copies.json").touch()
    assert [path.name for path in tmp_path.rglob("*")] == ["near", "copies.json"]


def test_the_root_of_a_file_system_has_a_place_for_a_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Path] = []

    def refuse(path: Path, *_: object) -> int:
        opened.append(path)
        raise PrepareError("not here")

    monkeypatch.setattr("playhead.jobs.lock._locked", refuse)
    with pytest.raises(PrepareError, match="not here"):
        only_one(Path("/"), inside=True).__enter__()
    assert [path.parent for path in opened] == [Path("/")]
