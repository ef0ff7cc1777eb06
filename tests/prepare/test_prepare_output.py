"""What `playhead prepare` prints."""

from __future__ import annotations

import json
import pickle
import subprocess
from pathlib import Path

import yaml

from commands import playhead
from playhead.errors import Failure, PrepareError
from small_data import write_jsonl

PACK = {"type": "pack", "max_length": 512}
MAP = "def spell(sample):\n    return {'tokens': [ord(letter) for letter in sample['text']]}\n"


def write_recipe(folder: Path, **fields: object) -> None:
    source = {"name": "s", "path": "*.jsonl", **fields.pop("source", {})}  # type: ignore[dict-item]
    recipe = {"sources": [source], "batching": {"type": "fixed", "size": 2}, **fields}
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe))


def speech(folder: Path) -> None:
    write_jsonl(folder / "a.jsonl", [{"id": f"a{i}", "duration": 0.5 * i, "text": "x" * i} for i in range(10)])


def test_lost_seconds_are_told_in_seconds(tmp_path: Path) -> None:
    speech(tmp_path)
    length = {"field": "duration", "unit": "seconds"}
    write_recipe(tmp_path, source={"length": length, "keep": {"duration": [None, 4]}})
    line = playhead(tmp_path, "prepare", "recipe.yaml").stdout.splitlines()[-1]
    assert line.split() == ["s", "keep", "duration:", "..4", "1", "10.00", "%", "4.50", "s", "20.00", "%"]


def test_a_dry_run_has_no_column_of_what_it_cannot_know(tmp_path: Path) -> None:
    speech(tmp_path)
    write_recipe(tmp_path)
    found = playhead(tmp_path, "prepare", "recipe.yaml", "--dry-run").stdout
    assert found.splitlines()[0].split() == ["source", "shards", "to", "scan", "data", "rows", "index"]


def test_nothing_changed_is_said_only_when_nothing_was_written(tmp_path: Path) -> None:
    speech(tmp_path)
    write_recipe(tmp_path)

    def run(*options: str) -> str:
        done = playhead(tmp_path, "prepare", "recipe.yaml", *options)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "nothing changed" not in run()
    assert "nothing changed" in run()
    with_sidecars = run("--sidecars")
    assert "s: 1 sidecar written" in with_sidecars
    assert "nothing changed" not in with_sidecars
    assert "nothing changed" in run("--sidecars")
    assert "nothing changed" not in run("--steps", "1000")
    assert "nothing changed" in run("--steps", "1000")
    assert json.loads(run("--steps", "20000", "--json"))["changed"]
    again = json.loads(run("--steps", "20000", "--json"))
    assert not again["changed"]
    assert not again["ledger"]["extended"]


def test_ids_that_are_not_there_are_counted_in_words(tmp_path: Path) -> None:
    speech(tmp_path)
    write_recipe(tmp_path, source={"ids": "id", "drop_ids": "bad.txt"})
    (tmp_path / "bad.txt").write_text("a1\nno\n")
    assert "s: 1 id to drop is not in it" in playhead(tmp_path, "prepare", "recipe.yaml").stdout
    (tmp_path / "bad.txt").write_text("a1\nno\nnor this\n")
    assert "s: 2 ids to drop are not in it" in playhead(tmp_path, "prepare", "recipe.yaml").stdout


def test_failures_are_indented_and_in_json_a_list_of_objects(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.jsonl").write_text("x\n")
    write_recipe(tmp_path, source={"length": "n"})
    done = playhead(tmp_path, "prepare", "recipe.yaml")
    assert done.returncode == 1
    first, *rest = done.stderr.splitlines()
    assert first == "PrepareError: preparing could not finish: 2 problems"
    assert sum(line.startswith("  s: ") for line in rest) == 2
    assert sum(line.startswith("    found     ") for line in rest) == 2
    assert rest[-1] == "  to fix    fix these and run it again; what was finished is kept"
    done = playhead(tmp_path, "prepare", "recipe.yaml", "--json")
    error = json.loads(done.stderr)["error"]
    assert error["problem"] == "preparing could not finish: 2 problems"
    assert [failure["place"] for failure in error["failures"]] == [str(tmp_path / f"{name}.jsonl") for name in "ab"]
    assert all(failure["source"] == "s" and "broken JSON" in failure["problem"] for failure in error["failures"])


def test_an_error_with_failures_travels_whole() -> None:
    error = PrepareError("two failed", fix="mend them", failures=(Failure("s", "a", "x\n  found     y"),))
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert str(again) == str(error) == "two failed\n\n  s: x\n    found     y\n\n  to fix    mend them"
    assert again.failures == error.failures


def test_a_map_beside_the_recipe_is_found_by_workers_and_its_edit_is_noticed(tmp_path: Path) -> None:
    folder = tmp_path / "recipes"
    folder.mkdir()
    (folder / "spelling.py").write_text(MAP)
    # Enough rows that processes are started.
    write_jsonl(folder / "a.jsonl", [{"text": "x" * (i % 50)} for i in range(5000)])
    write_recipe(folder, source={"length": {"measure": True}}, map="spelling:spell", batching=PACK)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return playhead(tmp_path, words[0], "recipes/recipe.yaml", *words[1:])

    refused = run("prepare")
    assert refused.returncode == 1
    assert "playhead prepare --measure" in refused.stderr
    done = run("prepare", "--measure", "--workers", "2", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)["sources"][0]
    assert (report["measured_rows"], report["length_sum"]) == (5000, 100 * sum(range(50)))
    assert run("plan").returncode == 0
    assert "nothing changed" in run("prepare").stdout
    (folder / "spelling.py").write_text(MAP.replace("sample['text']", "sample['text'] * 2"))
    for words in (("plan",), ("prepare",)):
        edited = run(*words)
        assert edited.returncode == 1
        assert "playhead prepare --measure" in edited.stderr
    assert (
        json.loads(run("prepare", "--measure", "--workers", "1", "--json").stdout)["sources"][0]["length_sum"]
        == 245_000
    )
    shown = run("prepare", "--measure", "--workers", "1", "--force").stdout
    assert shown.splitlines()[0].split() == [
        "source",
        "shards",
        "scanned",
        "data",
        "rows",
        "measured",
        "selected",
        "index",
    ]


def test_a_map_that_raises_ends_with_1_and_names_where(tmp_path: Path) -> None:
    (tmp_path / "breaking.py").write_text("def divide(sample):\n    return {'tokens': [0] * (1 // sample['n'])}\n")
    write_jsonl(tmp_path / "a.jsonl", [{"n": 1}, {"n": 0}])
    write_recipe(tmp_path, source={"length": {"measure": True}}, map="breaking:divide")
    done = playhead(tmp_path, "prepare", "recipe.yaml", "--measure")
    assert done.returncode == 1
    assert f'source "s", raw row 1 ({tmp_path / "a.jsonl"}, byte 9): the map breaking:divide raised' in done.stderr
    assert f"{tmp_path / 'breaking.py'}, line 2, in divide" in done.stderr
