"""`playhead demo`: the whole story with real kills, and what becomes of it when something is wrong."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest
from lhotse import CutSet
from rich.console import Console

from commands import playhead
from playhead.cli import demo_crash, demo_data, demo_story
from playhead.cli.demo_data import make_data
from playhead.feed.state import Saved, _checksum
from playhead.formats.registry import format_of
from playhead.prepare import prepare
from playhead.recipe.tree import leaves
from playhead.recipe.values import Recipe
from playhead.verify.job import RankJob
from playhead.verify.record import read_record


def demo(folder: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "playhead", "demo", str(folder)]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=240)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], Path]:
    folder = tmp_path_factory.mktemp("demo") / "data"
    return demo(folder), folder


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = make_data(tmp_path_factory.mktemp("ranks"))
    prepare(Recipe.load(found), workers=1)
    return found


def test_the_demo_finds_everything_equal(told: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    done, _ = told
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.count("SIGKILL to rank") == 2
    compared = done.stdout[done.stdout.index("\ncompared ") :].splitlines()[2:9]
    assert [line.split()[-1] for line in compared] == ["yes"] * 7
    assert compared[1].split()[-3:-1] == ["0", "0"]
    assert "the same samples in the same steps, whatever the number of ranks" in done.stdout
    assert "10,000,000" in done.stdout


def test_the_ranks_were_really_killed_and_the_others_went_on(
    told: tuple[subprocess.CompletedProcess[str], Path],
) -> None:
    _, folder = told
    runs = folder / "runs"
    assert sorted(path.name for path in runs.iterdir()) == ["four-ranks", "one-rank", "two-ranks"]
    last = read_record(runs / "one-rank" / "run" / "rank-0.jsonl", 0).batches[-1]
    resumed = [read_record(runs / "four-ranks" / "run" / f"rank-{rank}.jsonl", rank).batches[0] for rank in range(4)]
    assert [batch.step for batch in resumed] == [last.step + 1 - demo_crash.GO_ON_FOR] * 4
    assert [batch.lane for batch in resumed] == [0, 1, 2, 3]


def test_no_process_of_the_demo_is_left(told: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    _, folder = told
    assert mentioning(str(folder)) == []


@pytest.mark.full
def test_a_difference_is_found_and_told(recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Break the law on purpose: the resumed ranks are sent to another place than where the killed ones were."""
    honest = demo_crash._job

    def one_step_off(recipe: Path, folder: Path, world_size: int, *fields: Any, **more: Any) -> RankJob:
        if world_size == 4:
            path = fields[1]
            state = json.loads(path.read_bytes())
            state["places"][1][1] += 1
            state["checksum"] = _checksum(msgspec.convert(state, Saved))  # else it would be refused as edited
            path.write_text(json.dumps(state))
        return honest(recipe, folder, world_size, *fields, **more)

    monkeypatch.setattr(demo_crash, "_job", one_step_off)
    monkeypatch.setattr(demo_crash, "KILL_AFTER", 4)
    monkeypatch.setattr(demo_crash, "GO_ON_FOR", 3)
    shown = io.StringIO()
    assert not demo_crash.show_crash(Console(file=shown, width=100), recipe, tmp_path / "runs")
    assert "NO" in shown.getvalue()
    assert "the runs differ" in shown.getvalue()


def test_the_demo_exits_with_1_if_anything_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_story, "show_crash", lambda *_: False)
    done = playhead(tmp_path, "demo")
    assert (done.returncode, done.stderr) == (1, "")


def mentioning(text: str) -> list[str]:
    """The command lines of living processes that name something, ours aside."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode(errors="replace")
        except OSError:
            continue
        if text in words and int(path.parent.name) != os.getpid():
            found.append(words)
    return found


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_lhotse_and_pyarrow_read_what_the_demo_writes(recipe: Path) -> None:
    cuts = list(CutSet.from_shar(in_dir=recipe.parent / "talks"))
    assert len(cuts) == 100
    assert all(cut.load_audio().shape == (1, round(cut.duration * cut.sampling_rate)) for cut in cuts)
    assert pq.read_table(recipe.parent / "chats.parquet").num_rows == 3000
    formats = {leaf.source.name: format_of(leaf.source, leaf.path).name for leaf in leaves(Recipe.load(recipe))}
    assert formats == {
        "calls": "webdataset",
        "talks": "lhotse_shar",
        "books": "jsonl",
        "chats": "parquet",
        "dev": "jsonl",
    }


@pytest.mark.full
def test_without_pyarrow_the_demo_has_json_lines_instead_of_parquet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo_data, "find_spec", lambda _: None)
    found = Recipe.load(make_data(tmp_path))
    assert [leaf.source.path for leaf in leaves(found) if leaf.source.name == "chats"] == [[f"{tmp_path}/chats.jsonl"]]
    prepare(found, workers=1)
