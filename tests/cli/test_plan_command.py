from __future__ import annotations

import json
import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from commands import as_json, playhead, printed, refused
from corpora import lengths_of, prepared, write_speech, write_text
from playhead import Recipe, open_plan
from playhead.feed.ledger import write_ahead
from playhead.plan.plan import Plan


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three recipes over the same files, prepared: fused sub-streams with an evaluation set, fixed, and finite."""
    folder = tmp_path_factory.mktemp("plan")
    calls = {**write_speech(folder, "calls", [[0.5, 1.5, 2.5, 9.0] * 3, [1.0] * 5]), "shuffle": "shards"}
    text = write_text(folder, "text", lengths_of(1, 2, 20))
    dev = {"sources": [write_text(folder, "dev", [[7] * 10])], "batching": {"type": "fixed", "size": 4}}
    groups = [
        {"name": "spoken", "batching": {"type": "bucket", "edges": [1, 3, 10], "budget": 20}, "sources": [calls]},
        {"name": "written", "batching": {"type": "pack", "max_length": 500}, "sources": [text]},
    ]
    write(folder, "fused", sources=groups, lanes=4, fuse={"spoken": 1, "written": 3}, evaluation={"dev": dev})
    write(folder, "fixed", sources=[text], lanes=4, batching={"type": "fixed", "size": 2})
    write(folder, "finite", sources=[text], lanes=4, batching={"type": "fixed", "size": 2}, epochs=2)
    return folder


def write(folder: Path, name: str, **recipe: Any) -> Recipe:
    (folder / f"{name}.json").write_text(json.dumps(recipe))
    loaded = Recipe.load(folder / f"{name}.json")
    prepared(loaded)
    return loaded


def opened(folder: Path, name: str, split: str | None = None) -> Plan:
    return open_plan(Recipe.load(folder / f"{name}.json"), split)


def test_the_plan_is_shown_sub_stream_after_sub_stream(folder: Path) -> None:
    out = printed(folder, "plan", "fused.json")
    spoken, written, end = out.split("\n\n")
    assert spoken.startswith("spoken: 3 buckets of 2 to 20 samples, 4 lanes to a step\nsource ")
    assert written.startswith("written: packs of 500 tokens, 4 lanes to a step\nsource ")
    for about, labels in (
        (
            spoken,
            (
                "a step",
                "a window",
                "buckets",
                "fill",
                "partial buckets",
                "whole steps",
                "slowest lane",
                "shards in use",
            ),
        ),
        (written, ("a step", "a window", "fill", "whole steps", "slowest lane")),
    ):
        lines = about.splitlines()[3:]
        assert [line[:17].strip() for line in lines[: len(labels)]] == list(labels)
        assert lines[len(labels)] == "measured on      4 windows"
        assert lines[len(labels) + 1] == "lengths"
        histogram = lines[len(labels) + 2 : lines.index("mixing")]
        assert histogram
        assert all(line.endswith(" %") for line in histogram)
    assert "buckets          up to 1.00 s: 20 samples; 3.00 s: 6; 10.00 s: 2\n" in spoken
    assert re.search(r"^calls +17 +100.00 % +100.00 % +[\d.]+$", spoken, re.MULTILINE)
    steps, fingerprint = end.splitlines()
    assert steps == "steps go to  spoken 25.00 %, written 75.00 %"
    assert fingerprint == f"fingerprint  {opened(folder, 'fused').fingerprint}"


def test_the_plan_as_json(folder: Path) -> None:
    out = as_json(folder, "plan", "fused.json", "--windows", "2")
    assert set(out) == {"fingerprint", "lanes", "fuse", "warnings", "nodes", "streams"}
    assert out["warnings"] == []
    assert (out["lanes"], out["fuse"]) == (4, {"spoken": 0.25, "written": 0.75})
    spoken, written = out["streams"]
    assert spoken["unit"] == "milliseconds"
    assert spoken["batching"]["type"] == "bucket"
    assert spoken["batching"]["edges"] == [1000, 3000, 10_000]
    assert spoken["lengths"][0]["low"] == 500
    assert spoken["lengths"][-1]["high"] == 9000
    assert sum(each["fraction"] for each in spoken["lengths"]) == pytest.approx(1)
    assert (written["unit"], written["name"], written["windows_seen"]) == ("tokens", "written", 2)
    assert (written["partial_cost"], written["num_windows"]) == (None, None)
    expected = {"name", "num_rows", "samples_share", "length_share", "steps_per_epoch"}
    assert set(written["sources"][0]) == expected


def test_shuffles_are_compared_by_what_they_mix_and_keep_in_use(folder: Path) -> None:
    source = {**write_text(folder, "many", [[5] * 40] * 12), "shuffle": "shards", "shuffle_group": 2}
    write(folder, "compared", sources=[source], lanes=2, batching={"type": "fixed", "size": 2})
    (stream,) = as_json(folder, "plan", "compared.json")["streams"]
    (compared,) = stream["shuffles"]
    assert (compared["name"], compared["unit"], compared["num_units"]) == ("many", "shard", 12)
    found = compared["shuffles"]
    ways = [(each["shuffle"], each["group"], each["chosen"]) for each in found]
    groups = [("shards", 1, False), ("shards", 2, True), ("shards", 4, False), ("shards", 8, False)]
    assert ways == [*groups, ("global", None, False)]
    for name in ("mixing", "bytes_in_use", "units_in_use"):
        assert [each[name] for each in found] == sorted(each[name] for each in found)
    (peak,) = stream["shard_peaks"]
    assert (peak["num_shards"], peak["num_bytes"]) == (found[1]["units_in_use"], found[1]["bytes_in_use"])
    assert found[-1]["bytes_in_use"] == sum(path.stat().st_size for path in folder.glob("many-*.jsonl"))
    lines = printed(folder, "plan", "compared.json").split("mixing\n")[1].splitlines()
    assert lines[0].split() == ["source", "shuffle", "mixing", "score", "in", "use", "at", "a", "time", "bytes"]
    assert re.match(r"many +shards, groups of 1 shard +0\.\d{3} ", lines[1])
    assert re.match(r" +shards, groups of 2 shards \(this recipe\) +0\.\d{3} ", lines[2])
    assert re.match(r" +global +[01]\.\d{3} +12 shards ", lines[5])


def test_what_a_node_reads_is_shown_with_parts_and_without(folder: Path) -> None:
    source = {**write_text(folder, "parted", [[5] * 40] * 8), "shuffle": "shards", "shuffle_group": 2}
    write(folder, "parts", sources=[source], lanes=8, parts=4, batching={"type": "fixed", "size": 2})
    size = sum(path.stat().st_size for path in folder.glob("parted-*.jsonl"))
    nodes = as_json(folder, "plan", "parts.json")["nodes"]
    assert (nodes["num_nodes"], nodes["world_size"], nodes["parts"]) == (4, 4, 4)
    (read,) = nodes["sources"]
    assert (read["num_bytes"], read["without_parts"]) == (size, pytest.approx(size, rel=1e-3))
    assert read["with_parts"] == pytest.approx(size / 4, rel=0.02)
    out = printed(folder, "plan", "parts.json", "--nodes", "2", "--world", "4")
    about, header, row = out[out.index("bytes that a node") :].splitlines()[:3]
    assert about == "bytes that a node reads in an epoch, of 2 nodes with 2 ranks"
    assert header.split() == ["source", "all", "with", "parts:", "4", "without"]
    assert row.split()[0] == "parted"
    assert "bytes that a node" not in printed(folder, "plan", "fixed.json")
    done = playhead(folder, "plan", "parts.json", "--nodes", "3")
    assert done.returncode == 1
    assert "3 ranks cannot share 8 lanes evenly" in done.stderr
    done = playhead(folder, "plan", "parts.json", "--nodes", "2", "--step", "1")
    assert (done.returncode, "leave out --step and --split" in done.stderr) == (2, True)


def test_a_step_is_listed_pick_by_pick(folder: Path) -> None:
    plan = opened(folder, "fused")
    found, _ = plan.step_at(plan.seek(6))
    out = printed(folder, "plan", "fused.json", "--step", "6")
    lines = out.splitlines()
    assert lines[0] == f"step 6, receipt {found.receipt:016x}"
    assert lines[1].split() == ["lane", "source", "epoch", "row", "length", "place"]
    rows = [row for batch in found.micro_batches for row in batch.picks.row.tolist()]
    assert len(lines) == 2 + len(rows)
    shown = [re.fullmatch(r" *(\d*) +(\w+) +(\d+) +(\d+) +([\d.]+(?: s)?) +(/.*), byte [\d,]+ *", s) for s in lines[2:]]
    assert [int(match[4]) for match in shown] == rows
    assert [match[1] for match in shown if match[1]] == ["0", "1", "2", "3"]
    assert all(Path(match[6]).exists() for match in shown)


def test_a_rank_is_shown_its_lanes_alone_as_json(folder: Path) -> None:
    plan = opened(folder, "fused")
    out = as_json(folder, "plan", "fused.json", "--step", "7", "--rank", "1", "--world", "2")
    found, _ = plan.step_at(plan.seek(7))
    assert set(out) == {"step", "receipt", "lanes"}
    assert (out["step"], out["receipt"]) == (7, f"{found.receipt:016x}")
    assert [lane["lane"] for lane in out["lanes"]] == [1, 3]
    for lane in out["lanes"]:
        batch = found.micro_batches[lane["lane"]]
        assert lane["stream"] == plan.streams[batch.stream].name
        assert lane["unit"] == {"spoken": "milliseconds", "written": "tokens"}[lane["stream"]]
        assert (lane["idle"], lane["num_samples"]) == (False, len(batch.picks))
        assert [pick["row"] for pick in lane["picks"]] == batch.picks.row.tolist()
        assert [pick["epoch"] for pick in lane["picks"]] == batch.picks.epoch.tolist()
        assert [pick["length"] for pick in lane["picks"]] == batch.lengths.tolist()


def test_a_far_step_has_a_receipt_once_it_is_in_the_ledger(folder: Path) -> None:
    recipe = Recipe.load(folder / "fixed.json")
    before = as_json(folder, "plan", "fixed.json", "--step", "900")
    assert before["receipt"] is None  # found in closed form
    write_ahead(recipe, open_plan(recipe), 1000)
    after = as_json(folder, "plan", "fixed.json", "--step", "900")
    plan = open_plan(recipe)
    walked = plan.start()
    for _ in range(901):
        walked = plan.advance(walked)
    assert after["receipt"] == f"{walked.receipt:016x}"
    assert after["lanes"] == before["lanes"]


def test_a_step_past_the_end_is_refused_with_the_number_of_steps(folder: Path) -> None:
    num_steps = sum(1 for _ in opened(folder, "finite").steps())
    error = refused(folder, "plan", "finite.json", "--step", str(num_steps))
    assert error == {
        "type": "EndOfStreamError",
        "problem": f"step {num_steps} is past the end of the stream",
        "found": f"{num_steps} steps in all",
        "expected": f"a step from 0 to {num_steps - 1}",
        "fix": None,
    }


def test_an_evaluation_set_has_a_lane_for_each_rank(folder: Path) -> None:
    out = printed(folder, "plan", "fused.json", "--split", "dev", "--world", "3")
    assert out.startswith("dev: micro-batches of 4 samples, 3 lanes to a step\n")
    assert "1.0 steps; the stream ends after 1 window\n" in out
    step = as_json(folder, "plan", "fused.json", "--split", "dev", "--world", "7", "--step", "0")
    assert [lane["num_samples"] for lane in step["lanes"]] == [2, 2, 2, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("words", "kind", "problem"),
    [
        (["--world", "3"], "WorldSizeError", "3 ranks cannot share 4 lanes evenly"),
        (["--split", "test"], "RecipeError", 'unknown evaluation set "test"'),
    ],
)
def test_what_does_not_fit_the_recipe_is_refused(folder: Path, words: list[str], kind: str, problem: str) -> None:
    error = refused(folder, "plan", "fused.json", *words)
    assert (error["type"], error["problem"]) == (kind, problem)


def test_an_unprepared_recipe_is_refused_in_an_error_that_names_the_command(folder: Path, tmp_path: Path) -> None:
    for path in folder.glob("*.js*"):
        shutil.copy(path, tmp_path)
    done = playhead(tmp_path, "plan", "fixed.json")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith('NotPreparedError: sources[0] "text" is not prepared')
    assert "\n  to fix    run `playhead prepare <recipe>`\n" in done.stderr


@pytest.mark.parametrize("words", [["--rank", "1"], ["--step", "-1"]])
def test_wrong_usage_exits_with_2(folder: Path, words: list[str]) -> None:
    assert playhead(folder, "plan", "fixed.json", *words).returncode == 2


ODD = "[bold]odd[/] :smile: " + "and very long " * 12


@pytest.fixture(scope="module")
def odd(folder: Path) -> Path:
    """A source with an odd name beside one too rare to be drawn soon."""
    other = {**write_text(folder, "other", [[5] * 9]), "weight": 1}
    source = {"name": ODD, "path": "text-*.jsonl", "length": "n", "weight": 1e5}
    write(folder, "odd", sources=[source, other], lanes=8, batching={"type": "bucket", "num": 4, "budget": 900})
    return folder


def test_odd_names_are_shown_as_they_are_and_rare_sources_as_not_drawn(odd: Path) -> None:
    out = printed(odd, "plan", "odd.json", "--windows", "1")
    assert f"\n{ODD} " in out
    assert re.search(r"^other .* 9 +0.00 % +0.00 % +not drawn yet$", out, re.MULTILINE)
    assert ODD in printed(odd, "plan", "odd.json", "--step", "0")
    sources = as_json(odd, "plan", "odd.json", "--windows", "1")["streams"][0]["sources"]
    assert [source["steps_per_epoch"] is None for source in sources] == [False, True]


def test_a_narrow_terminal_is_not_overrun(odd: Path) -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": "80", "TERM": "dumb"}
    command = [sys.executable, "-m", "playhead", "plan", "odd.json", "--windows", "1"]
    with subprocess.Popen(command, cwd=odd, env=environment, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        out = b""
        while piece := _read(ours):
            out += piece
    os.close(ours)
    assert process.returncode == 0
    lines = re.sub(r"\x1b\[[0-9;]*m", "", out.decode()).splitlines()
    assert max(map(len, lines)) <= 80
    step = next(i for i, line in enumerate(lines) if line.startswith("a step"))
    assert lines[step + 1].startswith(" " * 17)  # what is too long goes on in its column


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65_536)
    except OSError:  # the other end is closed
        return b""
