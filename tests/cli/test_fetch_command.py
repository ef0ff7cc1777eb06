from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from commands import as_json, playhead, printed
from loopback import serving
from playhead import Loader, Recipe
from playhead.store.copies import load_copies
from small_data import bytes_of, write_jsonl


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Lines in two files, one of which has a sidecar, and a recipe."""
    for i in range(2):
        write_jsonl(tmp_path / f"part-{i}.jsonl", [{"id": f"{i}-{j}", "n": 2, "tokens": [i, j]} for j in range(5)])
    source = {"name": "text", "path": "part-*.jsonl", "length": "n"}
    recipe = {"sources": [source], "batching": {"type": "fixed", "size": 2}, "epochs": 1}
    (tmp_path / "recipe.json").write_text(json.dumps(recipe))
    printed(tmp_path, "prepare", "recipe.json", "--sidecars")
    (tmp_path / "part-1.jsonl.idx").unlink()
    return tmp_path


FETCH = ("fetch", "recipe.json", "--manifests", "--indexes", "--to", "near")


def test_fetching_shows_what_was_copied_and_what_was_there(folder: Path) -> None:
    first, again = [printed(folder, *FETCH).splitlines() for _ in range(2)]
    assert first[0].split() == ["files", "copied", "size", "present"]
    assert [line.split()[:3] for line in first[1:3]] == [["manifests", "2", "2"], ["sidecars", "2", "1"]]
    assert [line.split()[-1] for line in again[1:3]] == ["2", "1"]
    assert first[3].startswith(f"1 file without a sidecar: {folder}/part-1.jsonl; `playhead prepare --sidecars`")
    assert first[-1] == f"the recipe that uses them: {folder}/near/recipe.yaml"
    expected = [batch["id"] for batch in Loader(Recipe.load(folder / "recipe.json"))]
    assert [batch["id"] for batch in Loader(Recipe.load(folder / "near" / "recipe.yaml"))] == expected


def test_a_dry_run_writes_nothing_and_json_names_every_file(folder: Path) -> None:
    before = bytes_of(folder)
    assert printed(folder, *FETCH, "--dry-run").endswith("a dry run: nothing was written\n")
    assert bytes_of(folder) == before
    found = as_json(folder, *FETCH)
    assert [(Path(file["path"]).name, file["kind"], file["outcome"]) for file in found["files"]] == [
        ("part-0.jsonl", "manifest", "copied"),
        ("part-1.jsonl", "manifest", "copied"),
        ("part-0.jsonl", "index", "copied"),
        ("part-1.jsonl", "index", "missing"),
    ]
    assert found["files"][0]["copy"] == f"{folder}/near/files/local{folder}/part-0.jsonl"


def test_a_recipe_that_names_functions_says_where_they_are_looked_for(folder: Path) -> None:
    values = json.loads((folder / "recipe.json").read_text())
    (folder / "recipe.json").write_text(json.dumps({**values, "map": "maps:same"}))
    (folder / "maps.py").write_text("def same(sample):\n    return sample\n")
    assert f"they are looked for beside {folder}/near/recipe.yaml" in printed(folder, *FETCH)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("fetch", "recipe.json", "--to", "near"), 2, "choose --manifests, --indexes or both"),
        (
            ("fetch", "recipe.json", "--manifests", "--to", "s3://bucket/near"),
            1,
            "copies are made in a local directory",
        ),
        (("fetch", "recipe.json", "--manifests"), 2, "Missing option '--to'"),
    ],
)
def test_wrong_usage_is_refused(folder: Path, words: tuple[str, ...], code: int, message: str) -> None:
    done = playhead(folder, *words)
    assert (done.returncode, message in done.stderr) == (code, True)


def test_an_interrupted_command_keeps_what_it_copied_and_goes_on(tmp_path: Path) -> None:
    rows = b'{"id": "a", "n": 2}\n'
    with serving({f"/data/{i:02}.jsonl": rows * (i + 1) for i in range(30)}) as server:
        source = {"name": "text", "path": f"{server.address}/data/{{00..29}}.jsonl"}
        recipe = {"sources": [source], "batching": {"type": "fixed", "size": 2}}
        (tmp_path / "recipe.json").write_text(json.dumps(recipe))
        command = [sys.executable, "-m", "playhead", "fetch", "recipe.json", "--manifests", "--to", "near"]
        server.silent_seconds = 0.1
        with subprocess.Popen([*command, "--workers", "1"], cwd=tmp_path, stderr=subprocess.PIPE) as process:
            deadline = time.monotonic() + 60
            while not [*tmp_path.rglob("files/http/*/data/03.jsonl")]:
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.01)
            process.send_signal(signal.SIGTERM)
            assert process.wait() == 128 + signal.SIGTERM
            assert b"run it again to resume" in process.stderr.read()
        server.silent_seconds = 0.0
        kept = load_copies(str(tmp_path / "near")).files
        assert 4 <= len(kept) < 30
        assert not (tmp_path / "near" / "recipe.yaml").exists()
        assert [*tmp_path.rglob("*.tmp")] == []
        found = as_json(tmp_path, "fetch", "recipe.json", "--manifests", "--to", "near")
    assert [file["outcome"] for file in found["files"]].count("present") == len(kept)
    assert len(load_copies(str(tmp_path / "near")).files) == 30
