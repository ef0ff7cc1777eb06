"""`playhead cache`: what a shard cache holds, its copies checked, and removed."""

from __future__ import annotations

import json
import os
import shutil
from itertools import islice
from pathlib import Path

import pytest

from cached_runs import by_shards, delivered, recipe_of, size_of, write_shards
from commands import as_json, playhead, printed, refused, started
from playhead import Loader, Recipe


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shards")
    write_shards(folder, num_shards=4)
    return folder


@pytest.fixture
def recipe(data: Path, tmp_path: Path) -> Recipe:
    found = recipe_of(data, tmp_path, data, {}, **by_shards())
    (tmp_path / "recipe.yaml").write_text(json.dumps(found.to_dict()))
    return found


def test_stat_says_what_the_cache_holds_and_has_done(recipe: Recipe, data: Path, tmp_path: Path) -> None:
    delivered(recipe)
    for where in ("recipe.yaml", recipe.shard_cache.dir):
        found = json.loads(playhead(tmp_path, "cache", "stat", where, "--json").stdout)
        assert found["num_units"] == found["num_files"] == 4
        assert found["counts"]["copied_bytes"] == size_of(data)
        assert found["hit_rate"] == found["counts"]["hits"] / (found["counts"]["hits"] + found["counts"]["misses"])
        assert not found["filler_runs"]
    words = playhead(tmp_path, "cache", "stat", "recipe.yaml").stdout
    assert "4 units of 4 files" in words
    assert "nobody" in words


def test_verify_removes_damaged_copies_and_exits_with_1(recipe: Recipe, data: Path, tmp_path: Path) -> None:
    delivered(recipe)
    done = playhead(tmp_path, "cache", "verify", "recipe.yaml")
    assert (done.returncode, done.stdout.count("damaged")) == (0, 0)
    unit = next(path for path in Path(recipe.shard_cache.dir, "units").rglob("*") if "-" in path.name)
    with unit.open("r+b") as file:
        file.seek(500)
        file.write(b"\0")
    done = playhead(tmp_path, "cache", "verify", "recipe.yaml", "--json")
    found = json.loads(done.stdout)
    assert done.returncode == 1
    assert len(found["damaged"]) == 1
    assert str(data) in found["damaged"][0]
    assert not unit.exists()
    assert playhead(tmp_path, "cache", "verify", "recipe.yaml").returncode == 0


def test_clear_removes_all_copies_and_nothing_else(recipe: Recipe, data: Path, tmp_path: Path) -> None:
    delivered(recipe)
    (Path(recipe.shard_cache.dir) / "notes.txt").write_text("of the user")
    found = json.loads(playhead(tmp_path, "cache", "clear", "recipe.yaml", "--json").stdout)
    assert found["num_units"] == 4
    left = json.loads(playhead(tmp_path, "cache", "stat", "recipe.yaml", "--json").stdout)
    assert (left["num_units"], left["num_unchecked"], left["counts"]["copied_units"]) == (0, 0, 0)
    assert (Path(recipe.shard_cache.dir) / "notes.txt").read_text() == "of the user"
    assert delivered(recipe)[0]


@pytest.mark.parametrize("command", ["stat", "verify", "clear"])
def test_what_the_cache_did_not_write_is_passed_over_whatever_its_name(
    recipe: Recipe, tmp_path: Path, command: str
) -> None:
    delivered(recipe)
    root = Path(recipe.shard_cache.dir)
    folder = next(path.parent for path in (root / "units").rglob("origin.json"))
    strange = [folder / "0-5", folder / "0-6.part", root / "ranks" / "0-1-0123abcd", root / "counters" / "1-0123abcd"]
    for path in strange:
        path.mkdir()
        (path / "thesis").write_text("the only copy")
    (folder / "0-7").symlink_to(strange[0] / "thesis")
    os.mkfifo(folder / "0-8")
    found = json.loads(playhead(tmp_path, "cache", command, "recipe.yaml", "--json").stdout)
    assert found["num_units"] == 4
    assert [path for path in strange if (path / "thesis").read_text() != "the only copy"] == []
    assert (folder / "0-7").is_symlink()
    assert (folder / "0-8").is_fifo()


def test_stat_needs_no_right_to_write(recipe: Recipe, tmp_path: Path) -> None:
    delivered(recipe)
    root = Path(recipe.shard_cache.dir)
    for path in (*root.rglob("*"), root):
        path.chmod(0o500 if path.is_dir() else 0o400)
    done = started(tmp_path, "cache", "stat", str(root), "--json", as_anybody=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["num_units"] == 4
    error = refused(tmp_path, "cache", "clear", str(root), as_anybody=True)
    assert error["found"] == "Permission denied"
    assert error["fix"].startswith("name a directory that you may write, or change the permissions")


@pytest.mark.parametrize("name", ["ranks", "jobs", "counters", "units", "register.lock", "filler.lock", "status"])
def test_stat_and_clear_do_with_what_is_left_of_a_cache(recipe: Recipe, tmp_path: Path, name: str) -> None:
    delivered(recipe)
    part = Path(recipe.shard_cache.dir) / name
    shutil.rmtree(part) if part.is_dir() else part.unlink()
    found = as_json(tmp_path, "cache", "stat", "recipe.yaml")
    assert found["missing"] == [name]
    assert found["num_units"] == (0 if name == "units" else 4)
    assert f"{name}: removed since" in printed(tmp_path, "cache", "stat", "recipe.yaml")
    assert as_json(tmp_path, "cache", "clear", "recipe.yaml")["num_units"] == found["num_units"]
    assert delivered(recipe)[0]
    assert as_json(tmp_path, "cache", "stat", "recipe.yaml")["missing"] == []


@pytest.mark.parametrize("command", ["stat", "verify", "clear"])
def test_a_path_where_nothing_is_may_be_that_of_a_recipe_or_a_directory(command: str, tmp_path: Path) -> None:
    error = refused(tmp_path, "cache", command, "nowhere")
    assert error["problem"] == "nowhere: is not there"
    assert error["expected"] == "a recipe with a `shard_cache`, or the directory of a cache"


def test_a_directory_without_a_cache_says_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert refused(tmp_path, "cache", "stat", "empty")["found"] == "an empty directory"
    (tmp_path / "recipe.json").write_text(
        json.dumps(
            {
                "sources": [{"name": "a", "path": "a.jsonl"}],
                "batching": {"type": "fixed", "size": 1},
                "shard_cache": {"dir": "recipe.json", "max_bytes": 1},
            }
        )
    )
    assert refused(tmp_path, "cache", "stat", "recipe.json")["found"] == "a file"


def test_clear_is_refused_while_the_cache_is_in_use(recipe: Recipe, tmp_path: Path) -> None:
    with Loader(recipe) as loader:
        next(islice(loader, 1))
        done = started(tmp_path, "cache", "clear", "recipe.yaml")
        assert done.returncode == 1
        assert "the cache is in use" in done.stderr
        assert "rank 0" in done.stderr
    assert started(tmp_path, "cache", "clear", "recipe.yaml").returncode == 0


@pytest.mark.parametrize("command", ["stat", "verify", "clear"])
def test_what_is_no_cache_is_refused_by_name(command: str, tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter").write_text("one")
    done = playhead(tmp_path, "cache", command, "thesis")
    assert done.returncode == 1
    assert "is not the directory of a shard cache" in done.stderr
    assert (tmp_path / "thesis" / "chapter").exists()
    (tmp_path / "plain.yaml").write_text("{sources: [{name: a, path: a.jsonl}], batching: {type: fixed, size: 1}}")
    done = playhead(tmp_path, "cache", command, "plain.yaml")
    assert done.returncode == 1
    assert "has no shard cache" in done.stderr
