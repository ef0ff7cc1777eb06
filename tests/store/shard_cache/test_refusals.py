"""Directories that cannot be those of a shard cache: what is said of them, and that nothing in them is touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from playhead.errors import DataError, RecipeError
from playhead.inspect.cache import cache_at
from playhead.store.shard_cache.directory import MARKER, open_directory

OLD = "if it is an old cache, delete it: it holds nothing but copies; otherwise name another directory"


def lose_the_marker(root: Path) -> None:
    (root / MARKER).unlink()


def damage_the_marker(root: Path) -> None:
    (root / MARKER).write_text("{")


def change_the_version(root: Path) -> None:
    (root / MARKER).write_text('{"version": 7}')


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lose_the_marker, f"what looks like a shard cache, without its {MARKER}"),
        (damage_the_marker, f"a {MARKER} that is damaged"),
        (change_the_version, "a shard cache of version 7"),
    ],
)
def test_an_old_cache_is_said_to_be_one_that_may_be_deleted(tmp_path: Path, change: object, found: str) -> None:
    root = tmp_path / "copies"
    open_directory(str(root))
    change(root)
    (root / "counters" / "total").write_text("of old")
    for use, error in ((open_directory, RecipeError), (cache_at, DataError)):
        with pytest.raises(error) as caught:
            use(str(root))
        assert (caught.value.found, caught.value.fix) == (found, OLD)
    assert (root / "counters" / "total").read_text() == "of old"


@pytest.mark.parametrize("names", [["thesis", "a", "b", "c"], ["units"], ["units", "filler.lock", "thesis"]])
def test_nobody_is_told_to_delete_what_is_not_a_cache(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "chapter").write_text("the only copy")
    for use, error in ((open_directory, RecipeError), (cache_at, DataError)):
        with pytest.raises(error) as caught:
            use(str(tmp_path))
        assert caught.value.found == f"among others {', '.join(sorted(names)[:3])}"
        assert caught.value.fix == "name another directory"


def test_a_file_on_the_way_to_the_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RecipeError) as caught:
        open_directory(str(tmp_path / "file" / "copies"))
    assert "is not a directory" in caught.value.found
    assert caught.value.fix == "name another directory, or move away what is there"
