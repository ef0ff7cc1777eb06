"""Ranks as processes: what goes wrong with them is told, and none of them is left, whoever dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from playhead.errors import PlayheadError, SampleError, WorkerError
from playhead.verify.job import LoaderOptions, Phase, RankJob
from playhead.verify.launch import LaunchOptions, failure_of, started
from playhead.verify.record import read_record
from verified import two_sources, write_recipe

TESTS = Path(__file__).parent.parent
PATIENCE_SECONDS = 240


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ranks")
    return write_recipe(folder, two_sources(folder))


@pytest.fixture(autouse=True)
def _find_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks find the maps and loaders of tests."""
    paths = [str(TESTS), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))


def job_of(recipe: Path, folder: Path, world_size: int = 1, **fields: Any) -> RankJob:
    options = fields.pop("options", LoaderOptions())
    loader = fields.pop("loader", None)
    phase = Phase("only", options, str(recipe.parent / ".playhead"), **{"essential": True, **fields})
    return RankJob(str(recipe), str(folder), world_size, world_size, (phase,), loader=loader)


def processes_of(folder: Path) -> list[int]:
    """The living processes that were started for a folder, and all others of their sessions."""
    leaders = {pid for pid, words in _commands() if os.fsencode(folder) in words}
    return [pid for pid, _ in _commands() if pid in leaders or _session(pid) in leaders]


def _commands() -> list[tuple[int, bytes]]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append((int(path.parent.name), path.read_bytes()))
        except OSError:
            continue
    return [(pid, words) for pid, words in found if pid != os.getpid()]


def _session(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[3])
    except OSError:
        return 0


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


def test_ranks_deliver_what_they_are_told_to_and_end(recipe: Path, tmp_path: Path) -> None:
    job = job_of(recipe, tmp_path / "run", 2, until=3)
    with started(job, LaunchOptions()) as ranks:
        ranks.finish()
    records = [read_record(job.record("only", rank), rank) for rank in range(2)]
    assert [[(batch.step, batch.lane) for batch in record.batches] for record in records] == [
        [(step, lane) for step in range(3) for lane in (rank, rank + 2)] for rank in range(2)
    ]
    assert [record.end is not None for record in records] == [True, True]
    assert processes_of(tmp_path) == []


@pytest.mark.full
def test_a_function_that_takes_no_rank_is_told_by_the_environment(recipe: Path, tmp_path: Path) -> None:
    job = job_of(recipe, tmp_path / "run", 2, until=1, loader="broken_loaders:plain")
    with started(job, LaunchOptions()) as ranks:
        ranks.finish()
    assert [batch.lane for batch in read_record(job.record("only", 1), 1).batches] == [1, 3]


def test_an_error_of_the_recipe_comes_back_as_it_was_raised(tmp_path: Path) -> None:
    (tmp_path / "failing_maps.py").write_text(
        "def fail(sample):\n    print('hello')\n    raise ValueError('no good')\n"
    )
    recipe = write_recipe(tmp_path, two_sources(tmp_path, map="failing_maps:fail"))
    job = job_of(recipe, tmp_path / "run", 2)
    with pytest.raises(SampleError) as caught, started(job, LaunchOptions()) as ranks:
        ranks.finish()
    assert caught.value.problem.startswith("rank ")
    assert "of 2, run only: " in caught.value.problem
    assert "failing_maps:fail raised ValueError: no good" in caught.value.problem
    assert caught.value.found.endswith("its last output was\nhello")
    assert "Traceback" not in str(caught.value)


@pytest.mark.full
def test_what_a_loader_of_the_users_raises_names_file_and_line(recipe: Path, tmp_path: Path) -> None:
    for name, words in {
        "no_such_function": "the module broken_loaders has no function no_such_function",
        "gives_no_loader": "what it returned is not a loader",
        "gives_plain_batches": "the loader delivered something that does not say where it stands",
    }.items():
        job = job_of(recipe, tmp_path / name, loader=f"broken_loaders:{name}")
        with pytest.raises(PlayheadError, match=words), started(job, LaunchOptions()) as ranks:
            ranks.finish()
    state = tmp_path / "state.json"
    state.write_text("{}")
    job = job_of(recipe, tmp_path / "run", loader="broken_loaders:refuses_states", state=str(state), essential=False)
    with started(job, LaunchOptions()) as ranks:
        ranks.finish()
    error = failure_of(job, "only")
    assert "the loader raised ValueError: a state of 0 entries" in error.problem
    assert "broken_loaders.py, line" in error.found


@pytest.mark.full
def test_a_killed_rank_is_told_with_its_signal(recipe: Path, tmp_path: Path) -> None:
    job = job_of(recipe, tmp_path / "run", pace_seconds=0.05)
    with started(job, LaunchOptions()) as ranks:
        assert ranks.watch(lambda: ranks.num_steps > 1)
        assert ranks.kill(0)
        with pytest.raises(WorkerError, match="rank 0 of 1 ended with signal SIGKILL in the run only"):
            ranks.finish()


def test_ranks_that_deliver_nothing_are_given_up(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, two_sources(tmp_path, map="loader_maps:hangs"))
    job = job_of(recipe, tmp_path / "run", 2)
    problem = pytest.raises(WorkerError, match=r"the ranks have delivered nothing for 0\.5 s in the run only")
    with problem, started(job, LaunchOptions(timeout_seconds=0.5)) as ranks:
        ranks.finish()
    until(lambda: processes_of(tmp_path) == [])


@pytest.mark.parametrize("launcher", ["own", "torchrun"])
@pytest.mark.full
def test_no_process_is_left_when_a_run_is_broken_off(recipe: Path, tmp_path: Path, launcher: Any) -> None:
    job = job_of(recipe, tmp_path / "run", 2, options=LoaderOptions(1), pace_seconds=0.05)
    with started(job, LaunchOptions(launcher)) as ranks:
        assert ranks.watch(lambda: ranks.num_steps > 2)
        assert len(processes_of(tmp_path)) >= 4
    until(lambda: processes_of(tmp_path) == [])


STARTER = """
import sys, time
from pathlib import Path
from playhead.verify.job import RankJob
from playhead.verify.launch import LaunchOptions, started
if __name__ == "__main__":
    with started(RankJob.read(Path(sys.argv[1])), LaunchOptions(sys.argv[2])) as ranks:
        ranks.finish()
"""


@pytest.mark.parametrize("launcher", ["own", pytest.param("torchrun", marks=pytest.mark.full)])
def test_no_process_is_left_when_the_one_that_started_them_is_killed(
    recipe: Path, tmp_path: Path, launcher: str
) -> None:
    job = job_of(recipe, tmp_path / "run", 2, options=LoaderOptions(1), pace_seconds=0.05)
    (tmp_path / "run").mkdir()
    job.write()
    (tmp_path / "starter.py").write_text(STARTER)
    starter = subprocess.Popen([sys.executable, str(tmp_path / "starter.py"), str(job.path), launcher])
    try:
        until(lambda: len(read_record(job.record("only", 1), 1).batches) > 4)
    finally:
        starter.send_signal(signal.SIGKILL)
        starter.wait()
    until(lambda: processes_of(tmp_path) == [])
