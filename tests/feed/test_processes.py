"""Workers as processes: their number and kind never matter, a dead one is named, none is left behind."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Collection
from itertools import islice
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loader_maps
from deliveries import Seen, deliver, numpy_loader, rounds, seen, stream, woven
from playhead import Loader, Recipe, RecipeError, SampleError, WorkerError

NUM_BATCHES = 24


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Recipe, list[Seen], list[str]]:
    recipe = stream(tmp_path_factory.mktemp("mixed"), "zip")
    found = [*deliver(Loader(recipe), NUM_BATCHES)]
    return recipe, [batch for batch, _, _ in found], [state for _, state, _ in found]


def workers_of(loader: Loader) -> list[int]:
    return [worker.process.pid for worker in loader._pool._workers]


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except FileNotFoundError:
        return False


def gone(pids: Collection[int], seconds: float = 240) -> bool:
    """Whether all are gone, waited for a while."""
    deadline = time.monotonic() + seconds
    while any(map(is_running, pids)) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not any(map(is_running, pids))


@pytest.mark.parametrize(
    ("workers", "method", "lookahead", "world_size"), [(1, "spawn", 1, 1), (2, "forkserver", 2, 2), (3, "spawn", 3, 1)]
)
def test_the_number_and_kind_of_processes_do_not_matter(
    mixed: Any, workers: int, method: str, lookahead: int, world_size: int
) -> None:
    recipe, batches, states = mixed
    make = numpy_loader(recipe, workers=workers, start_method=method, lookahead=lookahead)
    dealt = rounds(make, world_size, states[1], 12 // world_size)
    assert woven(dealt) == batches[2:14]
    assert dealt[-1][-1][1] == states[13]


def test_workers_outlive_a_round_and_end_with_their_loader(tmp_path: Path) -> None:
    recipe = stream(tmp_path, "passes", epochs=1)
    expected = [batch for batch, _, _ in deliver(Loader(recipe))]
    with Loader(recipe, workers=2) as loader:
        assert [batch for batch, _, _ in deliver(loader)] == expected
        pids = workers_of(loader)
        loader.next_round()
        second = [batch for batch, _, _ in deliver(loader)]
        assert len(second) == len(expected)
        assert workers_of(loader) == pids
        loader.next_round()
        iterator = iter(loader)
        assert next(iterator).step == second[-1].step + 1
    assert gone(pids)


def test_a_batch_says_which_worker_made_it(tmp_path: Path) -> None:
    recipe = stream(tmp_path, "passes", epochs=1)
    with Loader(recipe, workers=2) as loader:
        made_by = [batch.worker for batch in loader]
        assert sorted(set(made_by)) == sorted(workers_of(loader))
    with Loader(recipe) as loader:
        assert {batch.worker for batch in loader} == {os.getpid()}


def test_workers_give_way_to_the_training_loop(tmp_path: Path) -> None:
    with Loader(stream(tmp_path, "passes", epochs=1), workers=2) as loader:
        workers = {batch.worker for batch in loader}
        assert [os.sched_getscheduler(pid) for pid in workers] == [os.SCHED_BATCH] * 2
    assert os.sched_getscheduler(0) == os.SCHED_OTHER


@pytest.mark.parametrize("handler", ["raises", "counts"])
def test_ctrl_c_halfway_through_the_start_of_a_worker_is_handled_when_it_has_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, handler: str
) -> None:
    """Threads that do not block the signal receive it, whatever the main thread blocks."""
    started: list[Any] = []
    heard: list[int] = []
    start = SpawnProcess.start

    def ring() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        signal.raise_signal(signal.SIGINT)

    def interrupted(self: Any) -> None:
        thread = threading.Thread(target=ring)
        thread.start()
        thread.join()
        for _ in range(1000):  # the handler of the main thread would be called between two of these
            time.sleep(0)
        start(self)
        started.append(self)

    monkeypatch.setattr(SpawnProcess, "start", interrupted)
    handlers = {"raises": signal.default_int_handler, "counts": lambda number, _frame: heard.append(number)}
    before = signal.signal(signal.SIGINT, handlers[handler])  # jobs in the background of a shell ignore it
    try:
        with Loader(stream(tmp_path, "passes", epochs=1), workers=2) as loader:
            if handler == "raises":
                with pytest.raises(KeyboardInterrupt):
                    next(iter(loader))
                assert len(started) == 1
            else:
                next(iter(loader))
                assert heard == [signal.SIGINT] * len(started) == [signal.SIGINT] * 2
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_killed_worker_is_an_error_that_names_what_it_was_making_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = stream(tmp_path, "fixed", map="loader_maps:kills_its_process", window_size=24)
    monkeypatch.setenv("KILL_MARK", str(tmp_path / "unused"))
    monkeypatch.setenv("KILL_AT", "nothing")
    whole = [*deliver(Loader(recipe), NUM_BATCHES)]
    victim = whole[9][0].picks[1]
    shards = sorted(tmp_path.glob(f"{victim[0]}-*.jsonl"))
    wanted = [json.loads(line)["id"] for path in shards for line in path.read_text().splitlines()][victim[2]]
    monkeypatch.setenv("KILL_MARK", str(tmp_path / "mark"))
    monkeypatch.setenv("KILL_AT", wanted)
    loader = Loader(recipe, workers=2)
    delivered: list[Seen] = []
    with pytest.raises(WorkerError) as caught:
        delivered.extend(map(seen, loader))
    assert delivered == [batch for batch, _, _ in whole[: len(delivered)]]
    letter = str(caught.value)
    assert "died with signal SIGKILL" in letter
    shard = wanted.rsplit("-", 1)[0]
    number = int(shard.rsplit("-", 1)[1])
    assert f"{victim[0]} row {victim[2]} ({tmp_path}/{victim[0]}-{number:03}.jsonl, byte " in letter
    rest = [batch for batch, _, _ in deliver(loader, NUM_BATCHES - len(delivered))]  # new workers, same loader
    assert delivered + rest == [batch for batch, _, _ in whole]
    loader.close()


def test_a_worker_killed_from_outside_is_noticed_wherever_delivery_stands(tmp_path: Path) -> None:
    recipe = stream(tmp_path, "fixed", map="loader_maps:slow")
    loader = Loader(recipe, workers=2)
    iterator = iter(loader)
    next(iterator)
    pids = workers_of(loader)
    os.kill(pids[1], signal.SIGKILL)
    with pytest.raises(WorkerError, match=rf"worker 1 \(process {pids[1]}\) died with signal SIGKILL"):
        for _ in islice(iterator, 100):
            pass
    assert gone(pids)


@pytest.mark.parametrize("kind", ["process", "thread"])
def test_a_map_that_raises_in_a_worker_is_named_with_row_file_function_and_line(tmp_path: Path, kind: str) -> None:
    recipe = stream(tmp_path, "fixed", map="loader_maps:broken_in_places")
    loader = Loader(recipe, workers=1, worker_kind=kind)
    with pytest.raises(SampleError) as caught:
        for _ in loader:
            pass
    error = caught.value
    assert error.problem.startswith('source "')
    assert f"({tmp_path}/" in error.problem
    assert "the map loader_maps:broken_in_places raised ValueError: no good: " in error.problem
    line = (
        Path(loader_maps.__file__)
        .read_text()
        .splitlines()
        .index("        raise ValueError(f\"no good: {sample['id']}\")")
    )
    assert error.found == f"in {loader_maps.__file__}, line {line + 1}, in broken_in_places"
    assert not (loader._pool._workers if kind == "process" else loader._pool._executor)  # nothing is left behind


def test_what_cannot_be_sent_back_is_an_error_that_says_so(tmp_path: Path) -> None:
    recipe = stream(tmp_path, "fixed", map="loader_maps:unsendable")
    with pytest.raises(SampleError, match="the batch cannot be sent from its worker process"):
        next(iter(Loader(recipe, workers=1)))
    assert len(next(iter(Loader(recipe, workers=1, worker_kind="thread")))["handle"]) == 3


@pytest.mark.parametrize("which", ["map", "collate"])
def test_a_function_that_cannot_travel_is_refused_before_workers_start(mixed: Any, which: str) -> None:
    recipe, _, _ = mixed
    loader = Loader(recipe, workers=1, **{which: lambda sample: sample})
    with pytest.raises(RecipeError, match=f"{which}: test_processes:.*<lambda> cannot be sent to worker processes"):
        next(iter(loader))
    assert not loader._pool._workers


@pytest.mark.parametrize(
    ("how", "problem"),
    [
        ({"worker_kind": "threads"}, "unknown worker_kind or start_method"),
        ({"start_method": "fork"}, "unknown worker_kind or start_method"),
        ({"workers": -1}, "workers: invalid value"),
        ({"workers": 1.5}, "workers: invalid value"),
        ({"workers": "2"}, "workers: invalid value"),
        ({"workers": True}, "workers: invalid value"),
        ({"workers": 1, "lookahead": 0}, "lookahead: invalid value"),
    ],
)
def test_workers_that_cannot_be_are_refused(mixed: Any, how: dict[str, Any], problem: str) -> None:
    with pytest.raises(RecipeError, match=problem):
        Loader(mixed[0], **how)


def test_a_module_that_only_the_owner_can_import_is_told_as_such(mixed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # As with a function typed into an interactive session: it pickles, and cannot be found elsewhere.
    monkeypatch.setattr(loader_maps, "typed_in", _typed_in, raising=False)
    monkeypatch.setattr(_typed_in, "__module__", "loader_maps")
    monkeypatch.setattr(_typed_in, "__qualname__", "typed_in")
    with pytest.raises(WorkerError, match=r"AttributeError.*typed_in"):
        next(iter(Loader(mixed[0], workers=1, map=_typed_in)))


def _typed_in(sample: dict[str, Any]) -> dict[str, Any]:
    return sample


@pytest.mark.parametrize("loader", ["Loader(recipe, workers=2)", "DataLoader(recipe, num_workers=2, **SPAWN)"])
def test_a_script_without_a_main_guard_is_told_so(mixed: Any, tmp_path: Path, loader: str) -> None:
    path = tmp_path / "recipe.json"
    path.write_text(json.dumps(mixed[0].to_dict()))
    lines = [
        "import playhead",
        "from playhead import Loader",
        "from playhead.torch import DataLoader" if "DataLoader" in loader else "",
        'SPAWN = {"multiprocessing_context": "spawn"}',
        f'recipe = playhead.Recipe.load("{path}")',
        f"for batch in {loader}: break",
    ]
    script = tmp_path / "train.py"
    script.write_text("\n".join(lines))
    environment = {**os.environ, "PYTHONPATH": str(Path(loader_maps.__file__).parent)}
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    error = done.stderr[done.stderr.index("playhead.errors.WorkerError") :]
    assert error.startswith("playhead.errors.WorkerError: a worker process ran the script that starts workers")
    assert 'under `if __name__ == "__main__":`' in error
    assert "bootstrapping" not in done.stderr


def _in_a_daemon(recipe: Recipe, found: Any) -> None:
    try:
        next(iter(Loader(recipe, workers=1)))
    except WorkerError as error:
        found.put(str(error))


def test_a_daemonic_process_which_can_have_no_workers_is_told_so(mixed: Any) -> None:
    context = multiprocessing.get_context("fork")
    found = context.SimpleQueue()
    process = context.Process(target=_in_a_daemon, args=(mixed[0], found), daemon=True)
    process.start()
    process.join()
    assert not found.empty()
    message = found.get()
    assert "a daemonic process may not have children" in message
    assert "or worker threads" in message


def test_the_number_of_workers_may_be_one_of_numpy(mixed: Any) -> None:
    loader = Loader(mixed[0], workers=np.int64(1), lookahead=np.uint8(1), worker_kind="thread")
    assert seen(next(iter(loader))) == mixed[1][0]
    loader.close()
