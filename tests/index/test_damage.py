"""A damaged index: `prepare` notices and makes it again; whoever reads it before that gets an error that names it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

from commands import as_json, playhead, printed
from playhead import Loader, NotPreparedError, PlayheadError, Recipe
from playhead.index import integrity
from playhead.index.layout import VERSION
from playhead.prepare import PrepareReport, prepare
from small_data import bytes_of, table_of, write_jsonl

NUM_ROWS = 700
INDEX_ARRAYS = ["lengths", "outputs", "keys", "tracks/jsonl/offsets", "columns/c"]
SELECTION_ARRAYS = ["bitmap", "before", "shards", "histogram", "outputs"]
BATCHINGS = {
    "fixed": {"type": "fixed", "size": 4},
    "bucket": {"type": "bucket", "num": [3, 2], "size": 4},
    "pack": {"type": "pack", "max_length": 64},
    "budget": {"type": "budget", "budget": 128},
}

# Every array in turn with some bytes changed; whatever happens must be a PlayheadError, or not be noticed here.
USE_DAMAGED = """
import sys
import numpy as np
from pathlib import Path
from playhead import Loader, PlayheadError, Recipe
from playhead.index.table import open_table
from playhead.recipe.tree import leaves

recipe = Recipe.load(sys.argv[1])
noise = np.random.default_rng(0)
for path in map(Path, sys.argv[2:]):
    whole = path.read_bytes()
    refused = 0
    for trial in range(12):
        data = bytearray(whole)
        places = noise.integers(0 if trial < 4 else 128, len(data), int(noise.choice([1, 8, 400])))
        for place in places.tolist():
            data[place] = (data[place] + 1 + int(noise.integers(255))) % 256
        path.write_bytes(data)
        try:
            table = open_table(leaves(recipe)[0], recipe)
            for row in range(0, 700, 50):
                table.find(str(row))
            for batch, _ in zip(Loader(recipe), range(30)):
                pass
        except PlayheadError:
            refused += 1
    path.write_bytes(whole)
    print(path.name, refused, flush=True)
"""


def damage(path: Path, place: int = -3) -> None:
    """Change a byte, and leave no trace in size or modification time, as a failing disk does."""
    mark = path.stat()
    data = bytearray(path.read_bytes())
    data[place] ^= 0x55
    path.write_bytes(data)
    os.utime(path, ns=(mark.st_atime_ns, mark.st_mtime_ns))


def indexed(folder: Path, kind: str = "fixed") -> Recipe:
    for i in range(2):
        rows = [
            {"n": 1 + j % 60, "m": 1 + j % 7, "c": j % 11, "id": str(j + 350 * i), "tokens": [j] * (1 + j % 60)}
            for j in range(NUM_ROWS // 2)
        ]
        write_jsonl(folder / f"{i}.jsonl", rows)
    source = {"name": "s", "path": "*.jsonl", "length": "n", "output_length": "m", "ids": "id", "keep": {"c": [1, 10]}}
    recipe = Recipe.parse({"sources": [source], "batching": BATCHINGS[kind]}, folder)
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe.to_dict()))
    prepare(recipe, workers=1)
    return recipe


def arrays(folder: Path) -> list[Path]:
    return sorted(folder.glob(".playhead/s-*/**/*.npy"))


def told(report: PrepareReport) -> tuple[str, ...]:
    return report.sources[0].damaged


@pytest.mark.parametrize("name", [*INDEX_ARRAYS, *(f"selection-*/{name}" for name in SELECTION_ARRAYS)])
def test_prepare_notices_a_changed_byte_and_makes_the_same_bytes_again(tmp_path: Path, name: str) -> None:
    recipe = indexed(tmp_path)
    before = bytes_of(tmp_path / ".playhead")
    assert told(prepare(recipe)) == ()
    (path,) = tmp_path.glob(f".playhead/s-*/{name}.npy")
    damage(path)
    report = prepare(recipe)
    assert told(report) == (str(path.relative_to(table_of(recipe).index.directory)),)
    assert report.changed
    assert bytes_of(tmp_path / ".playhead") == before
    assert told(prepare(recipe)) == ()


def test_the_command_says_which_array_was_damaged(tmp_path: Path) -> None:
    recipe = indexed(tmp_path)
    directory = table_of(recipe).index.directory
    damage(directory / "lengths.npy")
    output = printed(tmp_path, "prepare", "recipe.yaml")
    assert "s: the index was damaged (lengths.npy), and was made again" in output
    assert "nothing changed" not in output
    damage(directory / "lengths.npy")
    assert as_json(tmp_path, "prepare", "recipe.yaml")["sources"][0]["damaged"] == ["lengths.npy"]
    damage(directory / "lengths.npy")
    output = printed(tmp_path, "prepare", "recipe.yaml", "--dry-run")
    assert "s: the index is damaged (lengths.npy), and would be made again" in output


def test_large_arrays_are_looked_at_with_verify_and_before_they_are_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = indexed(tmp_path)
    directory = table_of(recipe).index.directory
    monkeypatch.setattr(integrity, "LARGE_BYTES", 1_000)
    damage(directory / "lengths.npy")
    assert not prepare(recipe).changed
    report = prepare(recipe, verify=True)
    assert told(report) == ("lengths.npy",)
    assert table_of(recipe).length_sum == report.sources[0].selected_length
    assert not prepare(recipe, verify=True).changed
    damage(directory / "lengths.npy")
    write_jsonl(tmp_path / "2.jsonl", [{"n": 1, "m": 1, "c": 1, "id": "x", "tokens": [1]}])
    report = prepare(recipe)
    assert told(report) == ("lengths.npy",)
    assert report.sources[0].scanned_shards == 3


@pytest.mark.parametrize("kind", BATCHINGS)
def test_reading_a_damaged_index_never_ends_in_anything_but_a_clear_error(tmp_path: Path, kind: str) -> None:
    indexed(tmp_path, kind)
    paths = arrays(tmp_path)
    assert len(paths) == len(INDEX_ARRAYS) + len(SELECTION_ARRAYS)
    command = [sys.executable, "-c", USE_DAMAGED, str(tmp_path / "recipe.yaml"), *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    refused = dict(line.split() for line in done.stdout.splitlines())
    assert len(done.stdout.splitlines()) == len(paths)
    assert int(refused["offsets.npy"]) > 6
    assert int(refused["before.npy"]) > 6


@pytest.mark.parametrize("value", [10**6, 1 << 40, (1 << 63) + 5, (1 << 64) - 1])
@pytest.mark.parametrize("on_error", ["raise", "substitute"])
def test_an_impossible_offset_is_an_error_that_names_the_index(tmp_path: Path, value: int, on_error: str) -> None:
    indexed(tmp_path)
    recipe = Recipe.parse(
        {**Recipe.load(tmp_path / "recipe.yaml").to_dict(), "on_error": on_error, "max_bad": 1.0}, tmp_path
    )
    path = table_of(recipe).index.directory / "tracks/jsonl/offsets.npy"
    offsets = np.load(path)
    offsets[100] = value
    np.save(path, offsets)
    with pytest.raises(NotPreparedError, match="damaged") as caught:
        list(zip(Loader(recipe), range(200), strict=False))
    assert str(path) in caught.value.problem
    assert "playhead prepare --verify" in str(caught.value)
    assert list(tmp_path.glob(".playhead/quarantine/*/*")) == []


def test_an_index_of_an_older_version_is_made_again(tmp_path: Path) -> None:
    recipe = indexed(tmp_path)
    meta = table_of(recipe).index.directory / "meta.json"
    meta.write_text(meta.read_text().replace(f'"version": {VERSION}', f'"version": {VERSION - 1}'))
    with pytest.raises(PlayheadError, match="playhead prepare"):
        table_of(recipe)
    assert prepare(recipe).changed
    assert playhead(tmp_path, "plan", "recipe.yaml").returncode == 0
