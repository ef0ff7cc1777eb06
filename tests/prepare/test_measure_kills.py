from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from measured_data import measured, recipe_of, shards
from playhead.prepare import prepare, stretches
from small_data import all_lengths, bytes_of, table_of, write_jsonl

HERE = Path(__file__).parent
CODE = """
import sys
from pathlib import Path
from measured_data import recipe_of
from playhead.prepare import prepare, stretches

stretches.MOST_ROWS = 4
if __name__ == "__main__":
    workers = int(sys.argv[3])
    prepare(recipe_of(Path(sys.argv[1]), sys.argv[2]), measure=True, workers=workers, processes=workers > 1)
"""


@pytest.fixture(autouse=True)
def small_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stretches, "MOST_ROWS", 4)


def start(folder: Path, function: str, workers: int, **environment: str) -> subprocess.Popen[str]:
    """`prepare --measure` in a process of its own; one worker works there, in order, more have processes of theirs."""
    script = folder / "measure_it.py"
    script.write_text(CODE)
    paths = os.pathsep.join([str(HERE), str(HERE.parent), os.environ.get("PYTHONPATH", "")])
    settings = {**os.environ, "PYTHONPATH": paths, "CALLS": str(folder / "calls.txt"), **environment}
    command = [sys.executable, str(script), str(folder), function, str(workers)]
    return subprocess.Popen(command, env=settings, stderr=subprocess.PIPE, text=True, start_new_session=True)


def kill_all(process: subprocess.Popen[str]) -> None:
    """SIGKILL for the process and its workers alike."""
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 240
    while not path.exists():
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        assert time.monotonic() < deadline
        time.sleep(0.02)


def rows_in(path: Path) -> list[int]:
    return sorted(map(int, path.read_text().split()))


def test_a_killed_run_goes_on_where_it_was_in_the_middle_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One file of 30 rows, killed in its sixth stretch by one of two workers: four before need not be done again."""
    calls = tmp_path / "calls.txt"
    monkeypatch.setenv("CALLS", str(calls))
    write_jsonl(tmp_path / "one.jsonl", [{"n": n, "id": str(n)} for n in range(30)])
    mark = tmp_path / "mark"
    process = start(tmp_path, "waiting", 2, WAIT_AT="22", WAIT_MARK=str(mark))
    wait_for(mark, process)
    kill_all(process)
    finished = [path.stat().st_size // 4 for path in (tmp_path / "cache").rglob("*.lengths")]
    assert len(finished) >= 4
    calls.unlink()
    recipe = recipe_of(tmp_path, "waiting")
    left = 30 - sum(finished)
    assert left < 30
    assert measured(recipe) == left
    assert len(set(rows_in(calls))) == len(rows_in(calls)) == left
    assert all_lengths(table_of(recipe)) == [n + 1 for n in range(30)]
    resumed = bytes_of(tmp_path / "cache")
    shutil.rmtree(tmp_path / "cache")
    prepare(recipe, measure=True)
    assert bytes_of(tmp_path / "cache") == resumed
    assert not any(name.endswith((".part", ".lengths")) for name in resumed)


def test_a_run_killed_again_and_again_ends_with_the_bytes_of_one_that_was_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALLS", str(tmp_path / "calls.txt"))
    shards(tmp_path)
    for i, row in enumerate((2, 13, 27)):
        mark = tmp_path / f"mark-{i}"
        process = start(tmp_path, "waiting", 1, WAIT_AT=str(row), WAIT_MARK=str(mark))
        wait_for(mark, process)
        kill_all(process)
    recipe = recipe_of(tmp_path, "waiting")
    assert measured(recipe) == 6  # killed for the third time in the eighth of nine stretches
    resumed = bytes_of(tmp_path / "cache")
    shutil.rmtree(tmp_path / "cache")
    prepare(recipe, measure=True)
    assert bytes_of(tmp_path / "cache") == resumed


def test_lengths_left_by_a_kill_are_not_used_for_a_file_that_changed_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALLS", str(tmp_path / "calls.txt"))
    shards(tmp_path)
    mark = tmp_path / "mark"
    process = start(tmp_path, "waiting", 1, WAIT_AT="25", WAIT_MARK=str(mark))
    wait_for(mark, process)
    kill_all(process)
    write_jsonl(tmp_path / "0.jsonl", [{"n": n, "id": str(n)} for n in range(90, 100)])
    recipe = recipe_of(tmp_path, "waiting")
    assert measured(recipe) == 16  # the file that changed, and the last two stretches of the third
    assert all_lengths(table_of(recipe))[:10] == [*range(91, 101)]


def test_workers_go_when_the_process_that_started_them_is_killed(tmp_path: Path) -> None:
    shards(tmp_path)
    mark = tmp_path / "mark"
    process = start(tmp_path, "waiting", 2, WAIT_AT="13", WAIT_MARK=str(mark))
    wait_for(mark, process)
    process.kill()
    process.wait()  # and no more: workers that are left would keep the pipe open
    deadline = time.monotonic() + 120
    while living(process.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    left_behind = living(process.pid)
    for number in left_behind:
        os.kill(number, signal.SIGKILL)
    process.communicate()
    assert not left_behind


def living(session: int) -> list[int]:
    """The processes of a session that have not ended."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, *_, owner = path.read_text().rpartition(")")[2].split()[:4]
            if int(owner) == session and state != "Z":
                found.append(int(path.parent.name))
    return found


def test_a_worker_that_is_killed_is_a_failure_that_names_the_rows_in_flight(tmp_path: Path) -> None:
    shards(tmp_path)
    process = start(tmp_path, "dying", 2, DIE_AT="15")
    _, letter = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "a worker process was killed" in letter
    assert f"{tmp_path / '1.jsonl'}, rows 4 to 7: not done" in letter
    # What the others finished is kept.
    assert measured(recipe_of(tmp_path, "dying")) <= 8
