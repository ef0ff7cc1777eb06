"""File descriptors: thousands of sources under a low limit, and a clear error where there are none left."""

from __future__ import annotations

import gc
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

from deliveries import LANES, stream
from few_descriptors import few_left
from playhead import Loader, NotPreparedError, PlayheadError, Recipe, StoreError
from playhead.index.arrays import map_array, save_array
from playhead.index.layout import layout_of
from playhead.prepare import prepare
from playhead.recipe.tree import leaves
from playhead.store import LocalFiles, Ranges
from small_data import table_of, write_jsonl

NUM_SOURCES = 2_000
FEW = 256

OPEN_ALL = """
import os, resource, sys
from playhead import Loader, Recipe
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
loader = Loader(Recipe.load(sys.argv[1]))
held = len(os.listdir("/proc/self/fd"))
sources = {name for batch, _ in zip(loader, range(40)) for name in map(str, batch["name"])}
print(held, len(sources))
"""


def many_sources(folder: Path, num_sources: int) -> Recipe:
    """One file, prepared once, under many names: an index is found by its source's name."""
    write_jsonl(folder / "a.jsonl", [{"tokens": [1, 2], "n": 2, "name": f"row {i}"} for i in range(10_000)])
    source = {"path": "a.jsonl", "length": "n"}
    recipe = Recipe.parse(
        {
            "sources": [{"name": f"s{i:04}", **source} for i in range(num_sources)],
            "batching": {"type": "fixed", "size": 64},
        },
        folder,
    )
    one, *others = (layout_of(leaf, recipe).directory for leaf in leaves(recipe))
    prepare(Recipe.parse({**recipe.to_dict(), "sources": [recipe.to_dict()["sources"][0]]}, folder), workers=1)
    for directory in others:
        directory.symlink_to(one)
    return recipe


@pytest.mark.full
def test_thousands_of_sources_open_and_deliver_under_a_limit_of_256(tmp_path: Path) -> None:
    recipe = many_sources(tmp_path, NUM_SOURCES)
    assert (table_of(recipe).index.directory / "tracks/jsonl/offsets.npy").stat().st_size > 1 << 16
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe.to_dict()))
    done = subprocess.run(
        [sys.executable, "-c", OPEN_ALL, str(tmp_path / "recipe.yaml")], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    held, num_names = map(int, done.stdout.split())
    assert held < 32
    assert num_names > 1_000


@pytest.mark.parametrize("num_rows", [0, 3, 100_000])
def test_an_array_is_what_was_saved_and_its_mapping_ends_with_it(tmp_path: Path, num_rows: int) -> None:
    path = tmp_path / "array.npy"
    values = np.random.default_rng(0).integers(0, 1 << 60, (num_rows, 2)).astype(np.uint64)
    save_array(path, values)
    found = map_array(path, np.uint64)
    assert np.array_equal(found, values)
    assert found.dtype == np.uint64
    assert not found.flags.writeable
    part = found[num_rows // 2 :]
    del found
    assert np.array_equal(part, values[num_rows // 2 :])
    assert (str(path) in Path("/proc/self/maps").read_text()) == (num_rows == 100_000)
    del part
    assert str(path) not in Path("/proc/self/maps").read_text()


def num_open() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_index_files_that_cannot_be_opened_for_want_of_descriptors_say_so(tmp_path: Path) -> None:
    recipe = stream(tmp_path, "fixed")
    with few_left(), pytest.raises(StoreError, match="ulimit -n") as caught:
        table_of(recipe)
    assert "meta.json" in caught.value.problem
    path = table_of(recipe).index.directory / "lengths.npy"
    with few_left(), pytest.raises(StoreError, match="ulimit -n") as caught:
        map_array(path, np.uint32)
    assert str(path) in caught.value.problem
    path.unlink()
    with pytest.raises(NotPreparedError, match="prepare"):
        map_array(path, np.uint32)


def test_preparing_for_want_of_descriptors_says_so(tmp_path: Path) -> None:
    recipe = stream(tmp_path, "fixed")
    with few_left(), pytest.raises(PlayheadError, match="ulimit -n"):
        prepare(recipe, workers=1)


@pytest.mark.parametrize("on_error", ["raise", "substitute"])
@pytest.mark.parametrize("kind", ["fixed", "tar"])
def test_data_files_for_want_of_descriptors_are_an_error_and_never_substituted(
    tmp_path: Path, kind: str, on_error: str
) -> None:
    recipe = stream(tmp_path, kind, on_error=on_error, max_bad=1.0)
    batches = iter(Loader(recipe))
    for _ in range(LANES * 2):
        next(batches)
    fresh = iter(Loader(recipe))
    with few_left(), pytest.raises(StoreError, match="ulimit -n") as caught:
        fresh.__next__()
    assert str(tmp_path) in caught.value.problem
    assert list(tmp_path.glob(".playhead/quarantine/*/*")) == []


def read_all(files: LocalFiles, paths: list[str]) -> list[bytes]:
    return [bytes(files.read(path, files.stamp(path), Ranges([0], [1]))[0]) for path in paths]


def test_files_kept_open_are_closed_when_descriptors_run_out(tmp_path: Path) -> None:
    paths = []
    for i in range(20):
        path = tmp_path / str(i)
        path.write_bytes(bytes([i]))
        paths.append(str(path))
    files = LocalFiles()
    read_all(files, paths[:10])
    with few_left():
        assert read_all(files, paths[10:]) == [bytes([i]) for i in range(10, 20)]


def test_files_kept_open_leave_most_descriptors_to_others(tmp_path: Path) -> None:
    for i in range(100):
        (tmp_path / str(i)).write_bytes(b"x")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (FEW, limits[1]))
    try:
        gc.collect()  # what earlier tests left open must not be closed in between
        before = num_open()
        files = LocalFiles()
        read_all(files, [str(tmp_path / str(i)) for i in range(100)])
        assert num_open() - before == FEW // 4
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
