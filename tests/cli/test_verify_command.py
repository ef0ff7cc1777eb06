"""`playhead verify`: the twelve questions asked of a recipe with real processes, and what is made of the answers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from commands import playhead, strict_json
from verified import two_sources, write_recipe

TESTS = Path(__file__).parent.parent
QUESTIONS = [f"Q{number}" for number in range(1, 13)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("verify")
    write_recipe(found, two_sources(found))
    return found


@pytest.fixture(autouse=True)
def _find_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [str(TESTS), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))


def verified(folder: Path, *words: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """The command, and its report."""
    done = playhead(folder, "verify", "recipe.json", "--launcher", "own", "--json", "report.json", *words)
    return done, strict_json((folder / "report.json").read_text())


def refused(folder: Path, *words: str) -> dict[str, Any]:
    """The error of the command as JSON."""
    done = playhead(folder, "verify", "recipe.json", "--json", "report.json", *words)
    assert (done.returncode, done.stdout) == (1, "")
    return strict_json(done.stderr)["error"]


def outcomes(report: dict[str, Any]) -> dict[str, str]:
    return {found["question"]: found["tag"] or found["outcome"] for found in report["questions"]}


@pytest.mark.full
def test_a_sound_recipe_passes_all_twelve(folder: Path) -> None:
    words = ("--workers", "1", "--steps", "16", "--kills", "2", "--html", "report.html")
    done, report = verified(folder, *words)
    assert outcomes(report) == dict.fromkeys(QUESTIONS, "passed")
    assert (done.returncode, done.stderr) == (0, "")
    assert "12 of 12 passed" in done.stdout
    assert "s to the first batch" in done.stdout
    evidence = {found["question"]: " ".join(found["evidence"]) for found in report["questions"]}
    assert "SIGKILL in the middle of a save" in evidence["Q7"]
    assert "died with signal SIGKILL" in evidence["Q8"]
    assert "tensors" in evidence["Q12"]
    assert "forkserver" in evidence["Q12"]
    assert report["passed"]
    assert report["step_seconds"]["p95"] >= report["step_seconds"]["p50"] > 0
    page = (folder / "report.html").read_text()
    assert page.count('class="verdict passed"') == 12
    records = Path(report["records"])
    assert strict_json((records / "report.json").read_text()) == report
    baseline = (records / "baseline-and-pass" / "baseline" / "rank-1.jsonl").read_text().splitlines()
    assert json.loads(baseline[0])["lane"] == 1
    assert not (folder / ".playhead" / "ledgers").exists()  # runs keep to themselves what they write


@pytest.mark.full
def test_torchrun_starts_the_ranks_where_it_is_asked_to(folder: Path) -> None:
    words = ("--launcher", "torchrun", "--only", "Q10", "--workers", "0", "--steps", "3")
    done = playhead(folder, "verify", "recipe.json", *words, "--records", "by-torchrun")
    assert done.returncode == 0, done.stderr
    assert "1 of 1 passed" in done.stdout
    job = json.loads((folder / "by-torchrun" / "baseline" / "job.json").read_text())
    assert job["num_processes"] == 2
    assert (folder / "by-torchrun" / "baseline" / "process-1.pid").exists()


@pytest.mark.full
def test_a_state_written_before_its_batch_loses_samples_in_a_crash(folder: Path) -> None:
    words = ("--only", "Q7", "--workers", "0", "--steps", "8", "--kills", "1")
    done, report = verified(folder, *words, "--loader", "broken_loaders:writes_the_state_first")
    assert outcomes(report) == {"Q7": "crash loss"}
    assert done.returncode == 1
    assert "crash loss: samples were lost in a crash" in done.stdout
    assert "usual cause" in done.stdout


@pytest.mark.full
def test_a_worker_whose_death_is_hidden_is_found(folder: Path) -> None:
    words = ("--only", "q8", "--workers", "1", "--steps", "16")
    done, report = verified(folder, *words, "--loader", "broken_loaders:hides_dead_workers")
    assert outcomes(report) == {"Q8": "crash loss"}
    assert done.returncode == 1
    assert "it ends" in report["questions"][0]["evidence"][0]


def test_a_recipe_that_is_not_prepared_is_told_so(tmp_path: Path) -> None:
    recipe = two_sources(tmp_path)
    (tmp_path / "recipe.json").write_text(json.dumps(recipe.to_dict()))
    assert refused(tmp_path)["type"] == "NotPreparedError"


def test_a_map_that_fails_is_an_error_of_the_recipe_and_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "bad_maps.py").write_text("def bad(sample):\n    raise ValueError('no good')\n")
    write_recipe(tmp_path, two_sources(tmp_path, map="bad_maps:bad"))
    done = playhead(tmp_path, "verify", "recipe.json", "--workers", "0", "--only", "Q10", "--launcher", "own")
    assert (done.returncode, done.stdout) == (1, "")
    assert "SampleError: rank" in done.stderr
    assert "bad_maps:bad raised ValueError: no good" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--only", "Q4,Q13"), "Q13: one of Q1 to Q12"),
        (("--only", ","), "one of Q1 to Q12"),
        (("--save-at", "9", "--steps", "9"), "9 is not before the last of 9 steps"),
        (("--steps", "1"), "--steps"),
        (("--launcher", "slurm"), "--launcher"),
    ],
)
def test_wrong_usage_exits_with_2(folder: Path, words: tuple[str, ...], problem: str) -> None:
    done = playhead(folder, "verify", "recipe.json", *words)
    assert done.returncode == 2
    assert problem in done.stderr


def test_a_number_of_ranks_that_does_not_fit_is_refused(folder: Path) -> None:
    assert refused(folder, "--world", "3")["type"] == "WorldSizeError"


def test_records_never_replace_anything_else(folder: Path) -> None:
    (folder / "mine").mkdir(exist_ok=True)
    (folder / "mine" / "thesis.txt").write_text("years of work")
    error = refused(folder, "--records", "mine")
    assert error["problem"] == "--records mine: there is something in it already"
    assert (folder / "mine" / "thesis.txt").exists()


@pytest.mark.full
def test_ctrl_c_leaves_no_process(folder: Path) -> None:
    records = folder / "stopped"
    words = [sys.executable, "-m", "playhead", "verify", "recipe.json", "--records", str(records), "--launcher", "own"]
    started = subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 240
    while not list(records.glob("*/process-1.pid")):
        assert started.poll() is None, started.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    started.send_signal(signal.SIGINT)
    out, err = started.communicate(timeout=240)
    assert (started.returncode, out) == (130, "")
    assert "stopped by SIGINT; no process is left" in err
    commands = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert [words for words in commands if os.fsencode(records) in words] == []
