"""Real processes, really killed: nothing is lost, nothing comes twice, nobody is left behind."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from rank_process import digest

from deliveries import LANES, deliver, npy, numpy_loader, rounds, stream, woven
from playhead import Loader, Recipe
from playhead.prepare import prepare
from small_data import write_tar

HERE = Path(__file__).parent
NUM_BATCHES = 48
PATIENCE_SECONDS = 240


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Recipe, list[str]]:
    """A recipe file, the recipe, and the digests of what it delivers without interruption."""
    folder = tmp_path_factory.mktemp("job")
    recipe = stream(folder, "by weight")
    path = folder / "recipe.json"
    path.write_text(json.dumps(recipe.to_dict()))
    return path, recipe, [digest(batch) for batch, _, _ in deliver(Loader(recipe), NUM_BATCHES)]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., tuple[subprocess.Popen[bytes], Path]]]:
    """Starts ranks, each in a session of its own, and ends all of them."""
    started = []

    def start_one(
        recipe: Path, rank: int = 0, world_size: int = 1, workers: int = 2, method: str = "spawn"
    ) -> tuple[subprocess.Popen[bytes], Path]:
        out = tmp_path / f"rank-{rank}.txt"
        arguments = [recipe, rank, world_size, workers, method, out]
        command = [sys.executable, str(HERE / "rank_process.py"), *map(str, arguments)]
        paths = os.pathsep.join([str(HERE), str(HERE.parent), os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, "PYTHONPATH": paths}
        process = subprocess.Popen(command, env=environment, start_new_session=True, stderr=subprocess.PIPE)
        started.append(process)
        return process, out

    yield start_one
    for process in started:
        for pid in session_of(process):
            os.kill(pid, signal.SIGKILL)
        process.wait()
        process.stderr.close()


def session_of(leader: subprocess.Popen[bytes]) -> list[int]:
    """The living processes of a session: the leader, its workers, and whatever starts those."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                state, _, _, session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(session) == leader.pid and state not in ("Z", "X"):
                found.append(int(entry.name))
    return found


def shared_memory() -> list[Path]:
    """What has a name there, of ours; other tests may be running."""
    names = ("playhead", "psm_", "torch_")
    return sorted(path for path in Path("/dev/shm").iterdir() if path.name.startswith(names))  # noqa: S108


def until(true: Callable[[], bool], process: subprocess.Popen[bytes] | None = None) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not true():
        assert process is None or process.poll() is None, process.stderr.read().decode()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def lines(out: Path) -> list[tuple[str, str]]:
    """The whole lines of a rank's report, each a digest and a state."""
    text = out.read_text() if out.exists() else ""
    return [(line.split("\t")[0], line.split("\t")[1]) for line in text.split("\n")[:-1]]


def test_after_a_kill_of_every_rank_other_world_sizes_go_on_with_nothing_lost_and_nothing_twice(
    job: tuple[Path, Recipe, list[str]], start: Callable[..., tuple[subprocess.Popen[bytes], Path]]
) -> None:
    path, recipe, whole = job
    ranks = [start(path, 0, 2, workers=1), start(path, 1, 2, workers=2)]
    for process, out in ranks:
        until(lambda out=out: len(lines(out)) >= 5, process)
    for process, _ in ranks:
        process.kill()
    for process, _ in ranks:
        until(lambda process=process: session_of(process) == [])
    reports = [lines(out) for _, out in ranks]
    # Ranks that met in the 5th round last saved the state after it; whichever of them saved it.
    assert reports[0][4][1] == reports[1][4][1]
    state = reports[0][4][1]
    before = [report[i][0] for i in range(5) for report in reports]
    assert before == whole[:10]
    # Ten lanes are two steps and a half: half a step remains for one rank or two.
    for world_size, how in ((1, {"workers": 0}), (2, {"workers": 2, "worker_kind": "thread"})):
        after = woven(rounds(numpy_loader(recipe, **how), world_size, state, 12 // world_size))
        assert before + [digest(batch) for batch in after] == whole[:22]
    # At the end of a step any number of ranks goes on.
    state = reports[0][3][1]
    after = woven(rounds(numpy_loader(recipe, workers=1), LANES, state, 2))
    assert before[:8] + [digest(batch) for batch in after] == whole[:16]


@pytest.mark.parametrize(("method", "number"), [("spawn", signal.SIGINT), ("forkserver", signal.SIGKILL)])
def test_no_process_outlives_its_owner(
    job: tuple[Path, Recipe, list[str]],
    start: Callable[..., tuple[subprocess.Popen[bytes], Path]],
    method: str,
    number: signal.Signals,
) -> None:
    path, _, whole = job
    process, out = start(path, workers=2, method=method)
    until(lambda: len(lines(out)) >= 3, process)
    assert len(session_of(process)) >= 3
    if number == signal.SIGINT:
        os.killpg(process.pid, number)  # as a terminal does it: to everyone
    else:
        process.send_signal(number)
    until(lambda: session_of(process) == [])
    words = process.stderr.read()
    assert process.wait() == -number
    assert b"playhead-worker" not in words  # workers leave it to their owner to speak
    delivered = [found for found, _ in lines(out)]
    assert delivered[:NUM_BATCHES] == whole[: len(delivered)]


@pytest.fixture(scope="module")
def heavy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recipe file of batches that travel in shared memory."""
    folder = tmp_path_factory.mktemp("heavy")
    write_tar(folder / "a.tar", [(f"{i:03}.npy", npy(np.arange(9_000 + 500 * (i % 9)) + i)) for i in range(40)])
    sources = [{"name": "a", "path": str(folder / "a.tar")}]
    recipe = Recipe.parse({"sources": sources, "batching": {"type": "fixed", "size": 3}}, folder)
    prepare(recipe, workers=1)
    path = folder / "recipe.json"
    path.write_text(json.dumps(recipe.to_dict()))
    return path


KINDS = [("torch", "fork"), ("numpy", "spawn"), ("numpy", "forkserver"), ("torch", "spawn"), ("torch", "forkserver")]


def start_heavy(recipe: Path, kind: tuple[str, str], out: Path, **environment: str) -> subprocess.Popen[bytes]:
    paths = os.pathsep.join([str(HERE), str(HERE.parent), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, HERE / "heavy_process.py", recipe, *kind, out]
    return subprocess.Popen(command, env={**os.environ, **environment, "PYTHONPATH": paths}, start_new_session=True)


def delivers(out: Path) -> bool:
    return out.exists() and out.read_text().count("\n") > 1


def workers_in(out: Path) -> list[int]:
    return [*map(int, out.read_text().split("\n")[0].split())]


@pytest.mark.parametrize("num_kills", [2, pytest.param(50, marks=pytest.mark.full)])
def test_owners_and_workers_killed_at_any_moment_leave_no_process_and_no_shared_memory(
    heavy: Path, tmp_path: Path, num_kills: int
) -> None:
    chance = random.Random(num_kills)  # noqa: S311
    before = shared_memory()
    for kill in range(num_kills):
        out = tmp_path / f"{kill}.txt"
        process = start_heavy(heavy, KINDS[kill % len(KINDS)], out)
        try:
            if chance.random() < 0.2:  # while its workers start, at the latest
                until(lambda process=process: len(session_of(process)) > 1, process)
                victim = process.pid
            else:
                until(lambda out=out: delivers(out), process)
                victim = chance.choice([process.pid, *workers_in(out)])
            time.sleep(chance.random() / 5)
            os.kill(victim, signal.SIGKILL)
            assert process.wait(PATIENCE_SECONDS) == (-signal.SIGKILL if victim == process.pid else 3)
            until(lambda process=process: session_of(process) == [])
        finally:
            for pid in session_of(process):
                os.kill(pid, signal.SIGKILL)
    assert shared_memory() == before


@pytest.mark.parametrize("kind", KINDS[:3])
def test_workers_end_with_their_owner_though_a_fork_of_it_lives_on(
    heavy: Path, tmp_path: Path, kind: tuple[str, str]
) -> None:
    out = tmp_path / "out.txt"
    process = start_heavy(heavy, kind, out, FORKS="1")
    try:
        until(lambda: delivers(out), process)
        workers = {*workers_in(out)}
        process.kill()
        process.wait()
        until(lambda: workers.isdisjoint(session_of(process)))
        assert session_of(process) != []  # the fork
    finally:
        for pid in session_of(process):
            os.kill(pid, signal.SIGKILL)


def test_ctrl_c_while_workers_start_is_heard_of_from_their_owner_alone(
    job: tuple[Path, Recipe, list[str]], start: Callable[..., tuple[subprocess.Popen[bytes], Path]]
) -> None:
    process, _ = start(job[0], workers=2)
    until(lambda: len(session_of(process)) > 2, process)  # the first of them, beside what multiprocessing starts
    os.killpg(process.pid, signal.SIGINT)
    until(lambda: session_of(process) == [])
    assert process.stderr.read().count(b"Traceback") <= 1
