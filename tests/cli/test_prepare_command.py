from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from commands import as_json, playhead, printed, refused
from corpora import lengths_of, write_speech, write_text
from playhead import Recipe, open_plan
from playhead.feed.ledger import ledger_of
from small_data import bytes_of, write_jsonl, write_tar


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Speech of 12 rows in two tars, text of 20 + 23 rows, and a recipe that leaves some of each out."""
    calls = {
        **write_speech(tmp_path, "calls", [[0.5, 1.5, 2.5, 9.0] * 2, [1.0] * 4]),
        "keep": {"json.duration": [1, 5]},
    }
    text = {**write_text(tmp_path, "text", lengths_of(1, 2, 20)), "keep": {"lang": ["en"]}}
    recipe = {
        "lanes": 2,
        "fuse": {"spoken": 1, "written": 1},
        "sources": [
            {"name": "spoken", "batching": {"type": "budget", "budget": 6}, "sources": [calls]},
            {"name": "written", "batching": {"type": "pack", "max_length": 500}, "sources": [text]},
        ],
    }
    (tmp_path / "recipe.json").write_text(json.dumps(recipe))
    return tmp_path


def test_a_dry_run_says_what_would_be_done_and_writes_nothing(folder: Path) -> None:
    before = bytes_of(folder)
    out = printed(folder, "prepare", "recipe.json", "--dry-run")
    assert bytes_of(folder) == before
    header, calls, text, last = out.splitlines()
    assert header.split() == ["source", "shards", "to", "scan", "data", "rows", "index"]
    assert re.fullmatch(r"calls +2 +2 \(.+ kB\) .*bytes", calls)
    assert re.fullmatch(r"text +2 +2 \(.+ kB\) .*bytes", text)
    assert last == "a dry run: nothing was written; rows are estimates"


def test_preparing_shows_what_was_done_and_again_that_nothing_was(folder: Path) -> None:
    out = printed(folder, "prepare", "recipe.json")
    table, losses = out.split("left out of")
    rows = {line.split()[0]: line.split() for line in table.splitlines()[1:]}
    assert (rows["calls"][1], rows["calls"][2], rows["calls"][-4:-2]) == ("2", "2", ["12", "8"])
    assert (rows["text"][1], rows["text"][2], rows["text"][-4:-2]) == ("2", "2", ["43", "21"])
    # Two of 0.5 and two of 9 seconds are 19 of 31 seconds: lengths are shown in the source's unit.
    assert re.search(r"calls +keep json.duration: 1..5 +4 +33.33 % +19.00 s +61.29 %", losses)
    assert re.search(r"text +keep lang: one of en +22 +51.16 % ", losses)
    assert len({len(line.rstrip()) for line in table.splitlines()}) == 1  # columns are aligned

    again = as_json(folder, "prepare", "recipe.json")
    assert again["changed"] is False
    calls, text = again["sources"]
    assert (calls["name"], calls["path"], calls["unit"]) == ("calls", "sources[0].sources[0]", "milliseconds")
    assert (calls["num_rows"], calls["selected_rows"], calls["length_sum"]) == (12, 8, 31_000)
    assert calls["losses"] == [{"rule": "keep json.duration: 1..5", "num_rows": 4, "length": 19_000}]
    assert (text["unit"], text["scanned_shards"], text["reused_shards"]) == ("tokens", 0, 2)

    before = bytes_of(folder)
    forced = as_json(folder, "prepare", "recipe.json", "--force", "--workers", "2", "--memory", "16")
    assert forced["changed"] is True
    assert [source["scanned_shards"] for source in forced["sources"]] == [2, 2]
    assert bytes_of(folder) == before


def test_steps_are_planned_ahead_into_the_ledger(folder: Path) -> None:
    out = as_json(folder, "prepare", "recipe.json", "--steps", "700")
    recipe = Recipe.load(folder / "recipe.json")
    plan = open_plan(recipe)
    cursor = plan.seek(700)
    assert out["ledger"] == {"steps": 700, "receipt": f"{cursor.receipt:016x}", "ended": False, "extended": True}
    assert len(ledger_of(recipe, plan).records()) >= 3
    again = printed(folder, "prepare", "recipe.json", "--steps", "700")
    assert again.splitlines()[-2:] == [
        f"planned ahead to step 700, receipt {cursor.receipt:016x}",
        "nothing changed",
    ]


def test_planning_ahead_says_where_the_stream_ends(tmp_path: Path) -> None:
    write_text(tmp_path, "a", [[5] * 10])
    (tmp_path / "r.yaml").write_text(
        "epochs: 3\nbatching: {type: fixed, size: 4}\nsources: [{name: a, path: a-*.jsonl, length: n}]\n"
    )
    out = printed(tmp_path, "prepare", "r.yaml", "--steps", "100")
    assert re.search(r"^planned ahead to step 9, where the stream ends, receipt [0-9a-f]{16}$", out, re.MULTILINE)


def test_failures_are_listed_and_the_rest_is_kept(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "good.jsonl", [{"n": 3}] * 5)
    write_jsonl(tmp_path / "bad-0.jsonl", [{"n": 3}] * 5)
    (tmp_path / "bad-1.jsonl").write_text('{"n": 3}\n{"n": \n')
    (tmp_path / "bad-2.jsonl").write_text('{"n": -4}\n')
    (tmp_path / "r.yaml").write_text(
        "batching: {type: fixed, size: 2}\n"
        "sources:\n"
        "  - {name: gone, path: gone.jsonl, length: n}\n"
        "  - {name: bad, path: 'bad-*.jsonl', length: n}\n"
        "  - {name: good, path: good.jsonl, length: n}\n"
    )
    done = playhead(tmp_path, "prepare", "r.yaml")
    assert (done.returncode, done.stdout) == (1, "")
    blocks = done.stderr.split("\n\n")
    assert blocks[0] == "PrepareError: preparing could not finish: 3 problems"
    assert blocks[1].startswith(f"  gone: {tmp_path}/gone.jsonl: no such file\n    to fix    ")
    assert blocks[2].startswith(f"  bad: {tmp_path}/bad-1.jsonl, line 2, byte 9: broken JSON\n    found     ")
    assert blocks[3].startswith(f'  bad: {tmp_path}/bad-2.jsonl, line 1, byte 0: field "n" is not a length\n')
    assert blocks[4] == "  to fix    fix these and run it again; what was finished is kept\n"

    error = refused(tmp_path, "prepare", "r.yaml")
    assert error["type"] == "PrepareError"
    assert "3 problems" in error["problem"]

    (tmp_path / "bad-1.jsonl").unlink()
    (tmp_path / "bad-2.jsonl").unlink()
    write_jsonl(tmp_path / "gone.jsonl", [{"n": 1}])
    mended = as_json(tmp_path, "prepare", "r.yaml")
    scanned = {source["name"]: source["scanned_shards"] for source in mended["sources"]}
    assert scanned == {"gone": 1, "bad": 0, "good": 0}


@pytest.mark.parametrize("words", [[], ["--workers", "0", "r.yaml"]])
def test_wrong_usage_exits_with_2(tmp_path: Path, words: list[str]) -> None:
    done = playhead(tmp_path, "prepare", *words)
    assert done.returncode == 2
    assert "playhead prepare [OPTIONS]" in done.stderr


def test_a_recipe_that_is_not_there_is_an_error_of_the_recipe(tmp_path: Path) -> None:
    error = refused(tmp_path, "prepare", "nowhere.yaml")
    assert error["type"] == "RecipeError"
    assert "nowhere.yaml" in error["problem"]


def test_the_table_says_which_sources_are_evaluation_sets(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_jsonl(tmp_path / f"{name}.jsonl", [{"n": 1}])
    (tmp_path / "recipe.yaml").write_text(
        "sources: [{name: a, path: a.jsonl}]\nbatching: {type: fixed, size: 1}\n"
        "evaluation: {dev: {sources: [{name: b, path: b.jsonl}], batching: {type: fixed, size: 1}}}\n"
    )
    header, first, second, *_ = (line.split() for line in printed(tmp_path, "prepare", "recipe.yaml").splitlines())
    assert header[:3] == ["source", "evaluation", "shards"]
    assert (first[:2], second[:3]) == (["a", "1"], ["b", "dev", "1"])
    assert [found["evaluation"] for found in as_json(tmp_path, "prepare", "recipe.yaml")["sources"]] == [None, "dev"]


def test_members_of_tars_that_belong_to_no_sample_are_counted_and_said(tmp_path: Path) -> None:
    members = [("README", b"x"), ("0.txt", b"a"), (".hidden", b"x"), ("1.txt", b"b"), ("dir/LICENSE", b"x")]
    write_tar(tmp_path / "a.tar", members)
    write_tar(tmp_path / "b.tar", [("2.txt", b"a")])
    (tmp_path / "recipe.yaml").write_text("sources: [{name: a, path: '*.tar'}]\nbatching: {type: fixed, size: 1}\n")
    said = "a: 3 members of its tars belong to no sample (no stem or no extension in the name)"
    assert said in printed(tmp_path, "prepare", "recipe.yaml")
    assert said in printed(tmp_path, "prepare", "recipe.yaml")
    write_tar(tmp_path / "b.tar", [("2.txt", b"a"), ("Makefile", b"x")])
    (found,) = as_json(tmp_path, "prepare", "recipe.yaml")["sources"]
    assert (found["num_rows"], found["num_skipped"], found["scanned_shards"]) == (3, 4, 1)


def test_rows_that_are_left_out_and_shards_without_rows_are_said(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "0.json", [{"audio_filepath": "a.wav", "duration": 1}, {"_skipme": "noisy"}])
    for i in range(1, 6):
        (tmp_path / f"{i}.json").write_text("")
    (tmp_path / "recipe.yaml").write_text(
        "sources: [{name: a, path: '*.json', format: nemo}]\nbatching: {type: fixed, size: 1}\n"
    )
    said = printed(tmp_path, "prepare", "recipe.yaml")
    assert "a: 1 row left out (`_skipme`, or without a member)" in said
    assert "a: 5 of 6 shards have no rows: " in said
    assert "and 2 more" in said
    (found,) = as_json(tmp_path, "prepare", "recipe.yaml")["sources"]
    assert found["empty_shards"] == [str(tmp_path / f"{i}.json") for i in range(1, 6)]


def test_more_parts_than_shards_are_refused_at_once(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", [{"n": 1}, {"n": 2}])
    (tmp_path / "recipe.yaml").write_text(
        "lanes: 2\nparts: 2\nsources: [{name: a, path: a.jsonl}]\nbatching: {type: fixed, size: 1}\n"
    )
    error = refused(tmp_path, "prepare", "recipe.yaml")
    assert error["problem"] == 'sources[0] "a": cannot be cut into 2 parts of whole shards'
    assert error["fix"] == "lower `parts`, or write the source into more shards"
