from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from commands import as_json, playhead, printed, started, wait_until
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


def test_steps_are_fetched_with_all_they_need(folder: Path) -> None:
    words = ("fetch", "recipe.json", "--steps", "3", "--to", "near")
    planned = as_json(folder, *words, "--dry-run")
    assert not (folder / "near").exists()
    out = printed(folder, *words).splitlines()
    assert out[0] == "steps 0 to 2"
    assert [line.rsplit(maxsplit=5)[0].strip() for line in out[2:4]] == ["files of shards", "prepared indexes"]
    found = as_json(folder, *words)
    assert (found["steps"], found["problems"]) == ("steps 0 to 2", [])
    assert [file["path"] for file in found["files"]] == [file["path"] for file in planned["files"]]
    expected = [batch["id"] for batch in Loader(Recipe.load(folder / "recipe.json"))][:3]
    for path in folder.glob("part-*.jsonl"):
        path.unlink()
    assert printed(folder, "run", "near/recipe.yaml", "--steps", "3")
    with Loader(Recipe.load(folder / "near" / "recipe.yaml")) as loader:
        assert [batch["id"] for batch, _ in zip(loader, expected, strict=False)] == expected


def test_without_options_everything_is_fetched(folder: Path) -> None:
    out = printed(folder, "fetch", "recipe.json", "--to", "near").splitlines()
    assert out[0] == "all steps"
    assert [line.split()[:4] for line in out[2:3]] == [["files", "of", "shards", "2"]]
    expected = [batch["id"] for batch in Loader(Recipe.load(folder / "recipe.json"))]
    for path in folder.glob("part-*.jsonl"):
        path.unlink()
    with Loader(Recipe.load(folder / "near" / "recipe.yaml")) as loader:
        assert [batch["id"] for batch in loader] == expected


def test_steps_are_fetched_from_a_saved_state_for_a_node(folder: Path) -> None:
    values = json.loads((folder / "recipe.json").read_text())
    (folder / "recipe.json").write_text(json.dumps({**values, "lanes": 2}))
    printed(folder, "run", "recipe.json", "--steps", "1", "--state", "state.json")
    words = ("fetch", "recipe.json", "--steps", "1", "--state", "state.json", "--to", "near")
    found = as_json(folder, *words, "--world", "2", "--nodes", "2", "--node", "1")
    assert found["steps"] == "steps 1 to 1 of rank 1 of 2"
    out = printed(
        folder, "run", "near/recipe.yaml", "--steps", "1", "--state", "state.json", "--rank", "1", "--world", "2"
    )
    assert out


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (
            ("fetch", "recipe.json", "--manifests", "--to", "s3://bucket/near"),
            1,
            "copies are made in a local directory",
        ),
        (("fetch", "recipe.json", "--manifests"), 2, "Missing option '--to'"),
        (("fetch", "recipe.json", "--manifests", "--to", "near", "--rank", "0"), 2, "needs --steps"),
        (("fetch", "recipe.json", "--steps", "1", "--to", "near", "--rank", "0"), 2, "needs --world"),
        (("fetch", "recipe.json", "--steps", "1", "--to", "near", "--node", "0"), 2, "needs --nodes, --node and"),
        (
            ("fetch", "recipe.json", "--steps", "1", "--to", "near", "--from-step", "1", "--state", "a.json"),
            2,
            "leave out --from-step",
        ),
        (("fetch", "recipe.json", "--steps", "1", "--from-step", "900", "--to", "near"), 1, "past the end"),
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


def test_a_killed_command_goes_on_in_the_middle_of_a_file(tmp_path: Path) -> None:
    piece = 8 << 20
    rows = b"".join(json.dumps({"id": str(i), "text": "x" * (1 << 20)}).encode() + b"\n" for i in range(33))
    with serving({"/data/a.jsonl": rows}) as server:
        source = {"name": "text", "path": f"{server.address}/data/a.jsonl"}
        recipe = {"sources": [source], "batching": {"type": "fixed", "size": 2}, "sequence": None, "collate": "list"}
        (tmp_path / "recipe.json").write_text(json.dumps(recipe))
        printed(tmp_path, "prepare", "recipe.json")
        words = ("fetch", "recipe.json", "--steps", "2", "--to", "near")
        server.most_bytes = server.sent_bytes + 2 * piece
        with subprocess.Popen([sys.executable, "-m", "playhead", *words], cwd=tmp_path) as process:
            wait_until(lambda: [path.stat().st_size for path in tmp_path.rglob("*.partial")] == [2 * piece])
            process.kill()
        assert [path.name for path in tmp_path.iterdir() if "lock" in path.name] == []
        server.go_on()
        server.requests.clear()
        found = as_json(tmp_path, *words)
    assert [file["outcome"] for file in found["files"] if file["kind"] == "shard"] == ["copied"]
    firsts = [int(request.rpartition("bytes=")[2].split("-")[0]) for request in server.requests if "bytes=" in request]
    assert min(firsts) == 2 * piece
    assert next(tmp_path.rglob("files/http/*/data/a.jsonl")).read_bytes() == rows
    assert [*tmp_path.rglob("*.lock")] == []
    assert printed(tmp_path, "run", "near/recipe.yaml", "--steps", "2")


def test_nothing_but_the_directory_itself_need_be_writable(folder: Path) -> None:
    local = folder / "mounts" / "local"
    local.mkdir(parents=True)
    local.parent.chmod(0o555)
    try:
        done = started(folder, "fetch", "recipe.json", "--steps", "2", "--to", "mounts/local", as_anybody=True)
    finally:
        local.parent.chmod(0o755)
    assert (done.returncode, done.stderr) == (0, "")
    assert {path.name for path in local.iterdir()} == {"cache", "copies.json", "files", "recipe.yaml"}


def test_what_was_fetched_for_some_steps_is_checked_and_benched_as_far_as_it_goes(folder: Path) -> None:
    for i in range(6):
        write_jsonl(folder / f"more-{i}.jsonl", [{"id": f"{i}-{j}", "n": 2, "tokens": [i, j]} for j in range(9)])
    source = {"name": "text", "path": "more-{0..5}.jsonl", "length": "n", "shuffle": "shards", "shuffle_group": 1}
    (folder / "recipe.yaml").write_text(json.dumps({"sources": [source], "batching": {"type": "fixed", "size": 3}}))
    printed(folder, "prepare", "recipe.yaml")
    refused = playhead(folder, "fetch", "recipe.yaml", "--steps", "2", "--to", ".")
    assert refused.returncode == 2
    assert "would replace the recipe itself" in refused.stderr
    printed(folder, "fetch", "recipe.yaml", "--steps", "3", "--to", "near")
    (one,) = (folder / "near" / "files").rglob("*.jsonl")
    found = as_json(folder, "check", "near/recipe.yaml")
    assert [problem["code"] for problem in found["findings"] if problem["severity"] == "error"] == []
    assert as_json(folder, "bench", "near/recipe.yaml", "--steps", "2", "--workers", "0")["figures"]["num_batches"] > 0
    one.write_text("{}\n")
    found = json.loads(playhead(folder, "check", "near/recipe.yaml", "--json").stdout)
    assert "PH011" in [problem["code"] for problem in found["findings"]]
