"""`playhead run`: delivers, counts, saves on every way out, and goes on exactly where it was."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from commands import living_in_group, playhead, printed, wait_until
from corpora import lengths_of, recipe_in, write_speech, write_text
from playhead.cli.meter import Meter
from playhead.feed.loader import Loader
from playhead.prepare import prepare
from playhead.recipe.values import Recipe

PACE = """
import time
def slow(sample):
    time.sleep(0.002)
    return sample
def broken(sample):
    raise ValueError("no good")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recipes over the same small data: packs have their lengths in `n`, so no map is needed elsewhere."""
    found = tmp_path_factory.mktemp("run")
    a, b = (write_text(found, name, lengths_of(seed, 2, 40)) for seed, name in ((1, "a"), (2, "b")))
    speech = write_speech(found, "calls", [[0.5 + 0.1 * i for i in range(25)]])
    (found / "pace.py").write_text(PACE)
    fixed: dict[str, Any] = {
        "batching": {"type": "fixed", "size": 2},
        "lanes": 4,
        "fields": ["id", "n"],
        "sequence": None,
    }
    groups = [
        {"name": "spoken", "batching": {"type": "budget", "budget": 5}, "sources": [speech]},
        {"name": "written", "batching": {"type": "fixed", "size": 3}, "sources": [a]},
    ]
    recipes = {
        "endless": recipe_in(found, a, b, **fixed),
        "slow": recipe_in(found, a, b, **fixed, map="pace:slow"),
        "broken": recipe_in(found, a, b, **fixed, map="pace:broken"),
        "other": recipe_in(found, a, b, **{**fixed, "lanes": 2}),
        "passes": recipe_in(found, a, **fixed, epochs=1),
        "fused": recipe_in(found, *groups, lanes=4, sequence=None, fuse={"spoken": 1, "written": 2}),
        "with-dev": recipe_in(found, a, **fixed, evaluation={"dev": {"sources": [b], "batching": fixed["batching"]}}),
    }
    for name, recipe in recipes.items():
        (found / f"{name}.json").write_text(json.dumps(recipe.to_dict()))
        prepare(recipe, workers=1)
    return found


def words_of(*words: object) -> list[str]:
    return [sys.executable, "-m", "playhead", "run", *map(str, words)]


def run(recipe: Path, *words: object) -> subprocess.CompletedProcess[str]:
    return playhead(recipe.parent, "run", str(recipe), *map(str, words))


def summary(recipe: Path, *words: object) -> dict[str, Any]:
    done = run(recipe, *words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def walked(recipe: Path, num_steps: int) -> dict[str, Any]:
    """The state after some steps, from a loader of our own."""
    with Loader(Recipe.load(recipe)) as loader:
        for batch in loader:
            if batch.is_last_in_step and batch.step + 1 == num_steps:
                return loader.state_dict()
    raise AssertionError("the stream ended early")


def test_the_summary_counts_what_was_delivered(folder: Path) -> None:
    found = summary(folder / "endless.json", "--steps", 10)
    assert (found["steps"], found["batches"], found["samples"]) == (10, 40, 80)
    assert (found["first_step"], found["next_step"], found["lanes_done"]) == (0, 10, 0)
    assert found["receipt"] == walked(folder / "endless.json", 10)["receipt"]
    assert found["reason"] == "steps"
    assert found["totals"]["all"]["samples"] == 80
    assert found["totals"]["a"]["samples"] + found["totals"]["b"]["samples"] == 80
    assert found["length"] == {"tokens": found["totals"]["all"]["length"]}
    assert found["rates"]["steps"] > 0


def test_lengths_of_different_units_are_counted_apart(folder: Path) -> None:
    found = summary(folder / "fused.json", "--steps", 9)
    assert found["length"]["milliseconds"] == found["totals"]["calls"]["length"]
    assert found["length"]["tokens"] == found["totals"]["a"]["length"]
    assert found["totals"]["calls"]["unit"] == "milliseconds"


@pytest.mark.parametrize("workers", [["--workers", 2], ["--workers", 2, "--threads"]])
def test_workers_deliver_the_same(folder: Path, workers: list[object]) -> None:
    alone = summary(folder / "endless.json", "--steps", 6)
    found = summary(folder / "endless.json", "--steps", 6, *workers)
    assert [found[key] for key in ("receipt", "samples", "totals")] == [
        alone[key] for key in ("receipt", "samples", "totals")
    ]


def test_ranks_share_the_samples_and_agree_on_totals_and_receipt(folder: Path) -> None:
    found = [summary(folder / "endless.json", "--steps", 5, "--rank", rank, "--world", 2) for rank in range(2)]
    assert [one["batches"] for one in found] == [10, 10]
    assert found[0]["totals"] == found[1]["totals"]
    assert found[0]["receipt"] == found[1]["receipt"]
    assert sum(one["samples"] for one in found) == found[0]["totals"]["all"]["samples"]


def test_a_finite_stream_ends_by_itself_and_a_finished_run_is_not_run_again(folder: Path, tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    first = summary(folder / "passes.json", "--state", state)
    assert (first["reason"], first["samples"]) == ("end", 83)
    saved = state.read_bytes()
    for _ in range(2):
        again = summary(folder / "passes.json", "--state", state, "--workers", 1)
        assert (again["reason"], again["samples"], again["batches"]) == ("finished", 0, 0)
        assert [again[key] for key in ("first_step", "next_step")] == [first["next_step"]] * 2
        assert (again["totals"], again["receipt"]) == (first["totals"], first["receipt"])
        assert state.read_bytes() == saved
    shown = printed(folder, "run", "passes.json", "--state", str(state))
    assert "0 steps, 0 micro-batches, 0 samples" in shown
    assert "according to its state, the run was already finished" in shown


def test_an_evaluation_set_is_run_with_split(folder: Path) -> None:
    found = summary(folder / "with-dev.json", "--split", "dev")
    assert (found["reason"], found["samples"], set(found["totals"])) == ("end", 83, {"all", "b"})


def test_a_state_file_is_gone_on_from_and_equals_a_run_without_a_break(folder: Path, tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    whole = walked(folder / "endless.json", 9)
    first = summary(folder / "endless.json", "--state", state, "--steps", 4)
    assert first["state"] == str(state)
    second = summary(folder / "endless.json", "--state", state, "--steps", 5, "--workers", 1, "--threads")
    assert second["first_step"] == 4
    assert json.loads(state.read_bytes()) == whole
    assert [path.name for path in tmp_path.iterdir()] == ["state.json"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("workers", [0, 1])
def test_a_signal_saves_the_state_and_leaves_no_process(
    folder: Path, tmp_path: Path, number: signal.Signals, workers: int
) -> None:
    state = tmp_path / "state.json"
    words = words_of(folder / "slow.json", "--state", state, "--save-every", 1, "--workers", workers, "--json")
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        wait_until(lambda: state.exists() and json.loads(state.read_bytes())["step"] >= 3)
        process.send_signal(number)
        out, errors = process.communicate(timeout=240)
    found = json.loads(out)
    assert process.returncode == 128 + number
    assert errors == ""
    assert found["reason"] == number.name
    saved = json.loads(state.read_bytes())
    assert [saved[key] for key in ("step", "lanes_done", "receipt")] == [
        found[key] for key in ("next_step", "lanes_done", "receipt")
    ]
    assert found["batches"] == saved["step"] * 4 + saved["lanes_done"]
    assert sum(total["samples"] for name, total in found["totals"].items() if name != "all") == found["samples"]
    wait_until(lambda: living_in_group(process.pid) == [])


def test_after_sigkill_the_state_is_the_last_one_saved_and_whole(folder: Path, tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    with subprocess.Popen(
        words_of(folder / "slow.json", "--state", state, "--save-every", 2), stdout=subprocess.DEVNULL
    ) as process:
        wait_until(lambda: state.exists() and json.loads(state.read_bytes())["step"] >= 4)
        process.kill()
    saved = json.loads(state.read_bytes())
    assert saved["step"] % 2 == 0
    assert saved == walked(folder / "slow.json", saved["step"])


def test_an_error_in_mid_run_still_saves_where_delivery_stood(folder: Path, tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    summary(folder / "endless.json", "--state", state, "--steps", 2)
    before = state.read_bytes()
    done = run(folder / "broken.json", "--state", state)
    assert done.returncode == 1
    assert "note:" in done.stderr  # the map is another one
    assert "the map pace:broken raised ValueError: no good" in done.stderr
    assert json.loads(state.read_bytes())["step"] == json.loads(before)["step"]


BAD_STATES = {
    "cut short": (lambda good: good[: len(good) // 2], "not valid JSON, or truncated"),
    "empty": (lambda _: b"", "not valid JSON, or truncated"),
    "no text": (lambda _: b"\xff\xfe\x00", "not valid JSON, or truncated"),
    "something else": (lambda _: b'{"model": 1}', "not a complete Playhead state"),
    "edited": (lambda good: good.replace(b'"lanes_done": 0', b'"lanes_done": 2'), "its checksum does not match"),
    "another version": (lambda good: good.replace(b'"version": 2', b'"version": 99'), "another version of Playhead"),
}


@pytest.mark.parametrize(("spoil", "words"), BAD_STATES.values(), ids=BAD_STATES.keys())
def test_a_broken_state_file_is_named_and_left_as_it_is(folder: Path, tmp_path: Path, spoil: Any, words: str) -> None:
    state = tmp_path / "state.json"
    summary(folder / "endless.json", "--state", state, "--steps", 2)
    state.write_bytes(spoil(state.read_bytes()))
    before = state.read_bytes()
    done = run(folder / "endless.json", "--state", state, "--steps", 2)
    assert done.returncode == 1
    assert done.stderr.startswith(f"StateError: {state}: ")
    assert words in done.stderr
    assert state.read_bytes() == before


def test_a_state_of_another_recipe_is_refused_with_what_changed(folder: Path, tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    summary(folder / "other.json", "--state", state, "--steps", 2)
    done = run(folder / "endless.json", "--state", state)
    assert done.returncode == 1
    assert re.match(rf"StateError: {state}: .*another stream: lanes", done.stderr)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--rank", 1], "needs --world"),
        (["--world", 2], "needs --rank"),
        (["--steps", 0], "--steps"),
        (["--save-every", 5], "--state"),
        (["--threads"], "--workers"),
    ],
)
def test_options_that_make_no_sense_are_wrong_usage(folder: Path, options: list[object], words: str) -> None:
    done = run(folder / "endless.json", *options)
    assert done.returncode == 2
    assert words in re.sub(r"\x1b\[[0-9;]*m", "", done.stderr)


def test_in_a_pipe_nothing_but_the_summary_is_printed(folder: Path) -> None:
    done = run(folder / "endless.json", "--steps", 3)
    assert done.stderr == ""
    assert done.stdout.startswith("delivered ")
    assert "\x1b" not in done.stdout


def test_on_a_terminal_the_rate_is_live_and_gone_at_the_end(folder: Path) -> None:
    shown = on_a_terminal(words_of(folder / "slow.json", "--steps", 60))
    assert re.search(r"step \d+.*steps/s", shown)
    assert "█" in shown  # the shares of the sources
    assert "delivered" in shown.rpartition("█")[2]


def test_the_meter_counts_from_the_first_batch_and_stops_with_the_clock(folder: Path) -> None:
    now = [0.0]
    meter = Meter(("tokens",), clock=lambda: now[0])
    with Loader(Recipe.load(folder / "endless.json")) as loader:
        for batch in loader:
            now[0] += 1.0
            meter.count(batch)
            if batch.step == 2:
                break
    meter.stop()
    now[0] += 100.0
    assert (meter.seconds, meter.seconds_to_first) == (9.0, 1.0)
    assert meter.mean().samples == 2.0  # two samples a batch, a batch a second
    assert meter.mean().steps == pytest.approx(2 / 8)


def on_a_terminal(words: list[str]) -> str:
    """What a command shows on a terminal of 80 columns."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        words, stdout=theirs, stderr=theirs, stdin=theirs, env={**os.environ, "COLUMNS": "80", "TERM": "xterm"}
    ) as process:
        os.close(theirs)
        shown = b""
        deadline = time.monotonic() + 240
        while time.monotonic() < deadline:
            if select.select([ours], [], [], 0.2)[0]:
                try:
                    shown += os.read(ours, 1 << 16)
                except OSError:
                    break
    os.close(ours)
    assert process.returncode == 0
    return shown.decode()
