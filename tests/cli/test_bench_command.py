from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench_worlds import rows, until
from commands import as_json, living_in_group, playhead, printed, refused, started, wait_until
from playhead import Recipe
from playhead.cli.bench_view import run_bench
from playhead.inspect.bench.recording import BenchLimits
from playhead.inspect.bench.report import BenchJob
from playhead.inspect.bench.sweep import Sweep, SweepPoint
from playhead.inspect.bench.values import LoaderSettings
from playhead.prepare import prepare
from small_data import write_jsonl

SLOW = """\
import shutil
import time


def remove(sample):
    shutil.rmtree("reports", ignore_errors=True)
    return sample


def wait(sample):
    time.sleep(0.01)
    with open("calls", "a") as file:
        file.write(".")
    return sample
"""
RECIPE: dict[str, Any] = {
    "sources": [{"name": "s", "path": "part.jsonl", "length": "n"}],
    "batching": {"type": "fixed", "size": 4},
    "lanes": 2,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bench")
    write_jsonl(folder / "part.jsonl", rows(400))
    write_jsonl(folder / "dev.jsonl", rows(50))
    (folder / "slow_maps.py").write_text(SLOW)
    dev = {"sources": [{"name": "dev", "path": "dev.jsonl"}], "batching": {"type": "fixed", "size": 2}}
    for name, more in (
        ("plain", {"evaluation": {"dev": dev}}),
        ("slow", {"map": "slow_maps:wait"}),
        ("removing", {"map": "slow_maps:remove"}),
    ):
        (folder / f"{name}.json").write_text(json.dumps({**RECIPE, **more}))
        prepare(Recipe.load(folder / f"{name}.json"), workers=1)
    (folder / "unprepared.json").write_text(json.dumps({**RECIPE, "cache_dir": "elsewhere"}))
    return folder


def test_the_first_line_is_the_verdict_and_tables_follow(folder: Path) -> None:
    lines = printed(folder, "bench", "slow.json", "--steps", "20", "--worker-kind", "thread").splitlines()
    assert lines[0].startswith("limited by user map: ")
    assert "raise workers from 2 to" in lines[0]
    text = "\n".join(lines)
    for label in ("run  ", "delivered  ", "rate  ", "consumer  ", "queue  ", "cores  ", "storage  ", "memory  "):
        assert f"\n{label}" in text
    (head,) = [line for line in lines if line.startswith("worker")]
    assert head.split()[:8] == ["worker", "process", "batches", "open", "read", "decode", "map", "collate"]
    assert [line.split()[0] for line in lines[lines.index(head) + 1 :][:3]] == ["0", "1", "all"]


def test_json_holds_the_verdict_the_figures_and_every_worker(folder: Path) -> None:
    found = as_json(folder, "bench", "slow.json", "--steps", "10", "--workers", "0")
    assert found["bottleneck"]["limit"] == "user map"
    assert found["verdict"].startswith("limited by user map: ")
    assert found["figures"]["stages"].keys() == {"storage", "decode", "map", "collate", "other"}
    assert [row["worker"] for row in found["workers"]] == [0, None]
    assert found["figures"]["memory"]["resident_bytes"] > 0
    assert (found["rank"], found["world_size"], found["lanes"], found["stopped"]) == (0, 1, 2, None)


def test_a_rank_of_several_is_benched_alone_with_a_simulated_trainer(folder: Path) -> None:
    words = ("--rank", "1", "--world", "2", "--step-seconds", "0.2", "--steps", "6", "--workers", "1")
    words = (*words, "--worker-kind", "thread", "--lookahead", "4")
    found = until(
        lambda: as_json(folder, "bench", "plain.json", *words),
        lambda found: found["bottleneck"]["limit"] == "the consumer",
    )
    assert (found["rank"], found["world_size"]) == (1, 2)
    assert found["figures"]["is_trained"]
    assert found["bottleneck"]["limit"] == "the consumer"
    settings = {"workers": 1, "lookahead": 4, "threads": None, "decode_threads": 0, "worker_kind": "thread"}
    assert found["figures"]["settings"] == settings


def test_the_mock_reads_no_file_and_says_what_it_leaves_out(folder: Path, tmp_path: Path) -> None:
    text = printed(folder, "bench", "slow.json", "--mock", "--steps", "20", "--workers", "0")
    assert text.startswith("the ceiling without reading: ")
    assert "other fields, maps and collate functions are left out" in text
    assert (
        as_json(folder, "bench", "slow.json", "--mock", "--steps", "5", "--workers", "0")["figures"]["num_bytes"] == 0
    )


def test_an_evaluation_set_is_benched_and_the_storage_measured(folder: Path) -> None:
    text = printed(folder, "bench", "plain.json", "--split", "dev", "--workers", "0", "--seconds", "0.2", "--storage")
    assert "storage by itself" in text
    assert "sequential" in text
    assert "read             1 shard, " in text


def test_a_sweep_recommends_settings_and_draws_them(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    words = ("--sweep", "--seconds", "0.2", "--worker-kind", "thread", "--html", str(page))
    text = printed(folder, "bench", "slow.json", *words)
    assert "sweep: use " in text
    assert "█" in text
    assert "limited by" in text
    assert "<h2>Sweep</h2>" in page.read_text()


def test_the_run_after_a_sweep_knows_what_the_sweep_has_settled(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    best = LoaderSettings(workers=0)
    found = Sweep((SweepPoint("workers", 0, 9.0, 0.9, "user map"),), best, settled=("workers",))
    monkeypatch.setattr("playhead.cli.bench_view.sweep", lambda *_: found)
    job = BenchJob(Recipe.load(folder / "slow.json"), BenchLimits(seconds=0.5))
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    report = run_bench(job, LoaderSettings(), with_sweep=True, with_storage=False).report
    assert report is not None
    assert (report.figures.settings, report.figures.settled) == (best, ("workers",))
    assert "raise workers" not in report.bottleneck.change


def test_the_report_is_written_also_where_only_the_first_line_is_read(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    words = ("bench", "slow.json", "--steps", "10", "--workers", "0", "--html", str(page))
    reader, closed = os.pipe()
    os.close(reader)  # as `| head -1` does
    subprocess.run([sys.executable, "-m", "playhead", *words], cwd=folder, stdout=closed, check=False)
    os.close(closed)
    assert "limited by user map" in page.read_text()


def test_a_run_too_short_for_a_verdict_says_so_and_prints_its_figures(folder: Path) -> None:
    words = ("bench", "plain.json", "--steps", "2", "--workers", "2", "--worker-kind", "thread")
    lines = printed(folder, *words).splitlines()
    assert lines[0].startswith("too little was measured for a verdict: ")
    assert any(line.startswith("delivered  ") for line in lines)
    assert "1 batches" not in "".join(lines)
    assert as_json(folder, *words)["bottleneck"]["limit"] == "unknown"


def test_wrong_usage_is_told(folder: Path) -> None:
    assert playhead(folder, "bench", "plain.json", "--mock", "--storage").returncode == 2
    assert playhead(folder, "bench", "plain.json", "--rank", "1").returncode == 2
    assert playhead(folder, "bench", "plain.json", "--steps", "0").returncode == 2


def test_a_recipe_that_is_not_prepared_is_refused(folder: Path) -> None:
    assert "playhead prepare" in refused(folder, "bench", "unprepared.json")["fix"]


def test_ctrl_c_prints_what_was_measured_and_leaves_no_process(folder: Path) -> None:
    calls = folder / "calls"
    calls.unlink(missing_ok=True)
    words = [sys.executable, "-m", "playhead", "bench", "slow.json", "--seconds", "600", "--json"]
    with subprocess.Popen(
        words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        wait_until(lambda: calls.exists() and calls.stat().st_size > 300)
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=240)
    assert process.returncode == 130
    assert errors == ""
    found = json.loads(out)
    assert found["stopped"] == "SIGINT"
    assert found["bottleneck"]["limit"] == "user map"
    wait_until(lambda: living_in_group(process.pid) == [])


def test_a_terminal_of_80_columns_sees_progress_and_then_the_verdict_and_whole_tables(folder: Path) -> None:
    owner, terminal = pty.openpty()
    words = [sys.executable, "-m", "playhead", "bench", "slow.json", "--seconds", "1", "--workers", "0", "--storage"]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    with subprocess.Popen(words, cwd=folder, stdout=terminal, stderr=terminal, env=environment):
        os.close(terminal)
        seen = b""
        try:
            while found := os.read(owner, 1 << 16):
                seen += found
        except OSError:  # the other end is closed
            pass
    os.close(owner)
    assert b"run: " in seen
    assert b"limited by user map" in seen
    assert "…".encode() not in seen  # nothing is cut off
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode())
    (head,) = [line for line in shown.splitlines() if line.startswith("worker")]
    assert head.split() == [
        *("worker", "batches", "open", "read", "decode", "map", "collate"),
        *("other", "idle", "ahead", "waited", "MB/s"),
    ]


def test_a_report_with_no_directory_is_refused_before_the_run(folder: Path) -> None:
    done = playhead(folder, "bench", "plain.json", "--html", "nowhere/report.html")
    assert (done.returncode, done.stdout) == (2, "")
    assert "not a directory" in done.stderr
    for name in ("", ".", "/dev/null"):
        done = playhead(folder, "bench", "plain.json", "--html", name)
        assert (done.returncode, done.stdout) == (2, "")


def test_a_report_in_a_directory_that_may_not_be_written_to_is_refused_before_the_run(
    folder: Path, tmp_path: Path
) -> None:
    tmp_path.chmod(0o555)
    done = started(folder, "bench", "plain.json", "--html", str(tmp_path / "report.html"), as_anybody=True)
    tmp_path.chmod(0o755)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--html" in done.stderr
    assert "cannot be written to" in done.stderr
    assert [*tmp_path.iterdir()] == []


def test_results_are_printed_even_where_the_report_cannot_be_written_in_the_end(folder: Path) -> None:
    (folder / "reports").mkdir()
    words = ("bench", "removing.json", "--steps", "20", "--workers", "0", "--html", "reports/report.html")
    done = playhead(folder, *words)
    assert done.returncode == 1
    assert "seconds by stage" in done.stdout
    assert "the report could not be written" in done.stderr
    assert "`--html`" in done.stderr
    assert "cache_dir" not in done.stderr
