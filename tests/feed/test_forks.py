"""Forks of the process that iterates: batches are theirs alone, and the workers stay with the process that has them."""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deliveries import npy, seen
from playhead import Loader, Recipe, WorkerError
from playhead.prepare import prepare
from playhead.torch import DataLoader
from small_data import write_tar

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")

NUM_BATCHES = 30
PATIENCE_SECONDS = 240
MAKERS: dict[str, Callable[..., Any]] = {
    "processes": partial(Loader, workers=2),
    "threads": partial(Loader, workers=2, worker_kind="thread"),
    "torch": partial(DataLoader, num_workers=2, persistent_workers=True, multiprocessing_context="fork"),
}


@pytest.fixture(scope="module")
def heavy(tmp_path_factory: pytest.TempPathFactory) -> tuple[Recipe, list[Any]]:
    """Batches of a megabyte, and what one process delivers of them."""
    folder = tmp_path_factory.mktemp("heavy")
    write_tar(
        folder / "a.tar",
        [(f"{i:03}.npy", npy(np.arange(90_000 + 100 * (i % 7), dtype=np.float32) + i)) for i in range(40)],
    )
    recipe = Recipe.parse(
        {"sources": [{"name": "a", "path": "a.tar"}], "batching": {"type": "fixed", "size": 3}, "seed": 3}, folder
    )
    prepare(recipe, workers=1)
    (folder / "recipe.json").write_text(json.dumps(recipe.to_dict()))
    return recipe, [seen(batch) for batch in islice(Loader(recipe), NUM_BATCHES)]


class Fork:
    """A fork of this process: does something when it is told to, and says whether it was true."""

    def __init__(self, does: Callable[[], bool]) -> None:
        reader, self._go = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            code = 2
            try:
                signal.alarm(PATIENCE_SECONDS)
                os.read(reader, 1)
                code = 0 if does() else 1
            finally:
                os._exit(code)
        os.close(reader)

    def was_true(self) -> bool:
        os.write(self._go, b"!")
        os.close(self._go)
        return os.waitpid(self.pid, 0)[1] == 0


@pytest.mark.parametrize("kind", MAKERS)
def test_what_a_fork_holds_is_not_overwritten_once_the_parent_has_let_go_of_it(heavy: Any, kind: str) -> None:
    recipe, expected = heavy
    with MAKERS[kind](recipe) as loader:
        batches = iter(loader)
        kept = [next(batches) for _ in range(2)]
        fork = Fork(lambda: [seen(batch) for batch in kept] == expected[:2])
        kept.clear()
        assert [seen(batch) for batch in islice(batches, 20)] == expected[2:22]
        assert fork.was_true()


@pytest.mark.parametrize("kind", MAKERS)
def test_what_one_process_writes_into_a_batch_its_fork_does_not_see(heavy: Any, kind: str) -> None:
    recipe, expected = heavy

    def is_as_delivered_and_is_written_to() -> bool:
        found = seen(batch) == expected[0]
        np.asarray(batch["npy"])[:] = -1  # torch would use threads, which a fork may not have
        return found

    with MAKERS[kind](recipe) as loader:
        batch = next(iter(loader))
        first = Fork(is_as_delivered_and_is_written_to)
        second = Fork(is_as_delivered_and_is_written_to)
        assert first.was_true()
        assert seen(batch) == expected[0]
        batch["npy"][:] = 7
        assert second.was_true()
        assert (batch["npy"] == 7).all()


@pytest.mark.parametrize("anew", [True, False])
@pytest.mark.parametrize("kind", MAKERS)
def test_a_fork_that_iterates_goes_on_with_workers_of_its_own_and_the_parent_with_its(
    heavy: Any, kind: str, anew: bool
) -> None:
    recipe, expected = heavy
    with MAKERS[kind](recipe) as loader:
        batches = iter(loader)
        assert [seen(next(batches)) for _ in range(5)] == expected[:5]

        def goes_on() -> bool:
            found = [seen(batch) for batch in islice(loader if anew else batches, 10)]
            loader.close()
            return found == expected[5:15]

        fork = Fork(goes_on)
        first = [seen(batch) for batch in islice(batches, 10)]
        assert fork.was_true()
        assert first + [seen(batch) for batch in islice(batches, 10)] == expected[5:25]


@pytest.mark.parametrize("kind", MAKERS)
def test_a_fork_that_lets_go_of_the_loader_is_silent_and_takes_nothing_from_the_parent(
    heavy: Any, kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    recipe, expected = heavy
    loader = MAKERS[kind](recipe)
    batches = iter(loader)
    next(batches)

    def lets_go() -> bool:
        nonlocal loader, batches
        sys.unraisablehook = sys.__unraisablehook__  # that of pytest says nothing here
        del loader, batches
        gc.collect()
        return True

    assert Fork(lets_go).was_true()
    assert [seen(batch) for batch in islice(batches, 20)] == expected[1:21]
    assert capfd.readouterr().err == ""
    loader.close()


EXITS = """
import os, sys
from playhead import Loader, Recipe
if __name__ == "__main__":
    loader = Loader(Recipe.load(sys.argv[1]), workers=2, start_method=sys.argv[2])
    batches = iter(loader)
    next(batches)
    if (child := os.fork()) == 0:
        sys.exit(0)
    os.waitpid(child, 0)
    print(sum(1 for _, batch in zip(range(20), batches)))
    loader.close()
"""


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_fork_that_ends_as_programs_do_takes_no_worker_with_it(heavy: Any, tmp_path: Path, method: str) -> None:
    script = tmp_path / "exits.py"
    script.write_text(EXITS)
    path = Path(heavy[0].sources[0].path[0]).with_name("recipe.json")
    command = [sys.executable, script, path, method]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("20\n", "")


def buffers_open_in(pid: int) -> int:
    found = 0
    for place in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found += "memfd:playhead" in str(place.readlink())
        except FileNotFoundError:
            continue
    return found


def test_buffers_that_forks_have_for_themselves_are_replaced_and_forgotten_by_all(heavy: Any) -> None:
    recipe, expected = heavy
    with Loader(recipe, workers=2) as loader:
        batches = iter(loader)
        for number in range(25):
            batch = next(batches)
            assert Fork(lambda batch=batch, number=number: seen(batch) == expected[number]).was_true()
        assert next(loader._pool._buffers._numbers) > 25
        assert len(loader._pool._buffers) <= 5
        # A worker has each open and mapped; the last ones may not have been forgotten yet.
        assert all(buffers_open_in(worker.process.pid) <= 2 * 8 for worker in loader._pool._workers)
        assert buffers_open_in(os.getpid()) <= 2 * 8


def opened_in(pid: int | str) -> dict[int, tuple[int, int]]:
    """The devices and inodes of what a process has open, by descriptor."""
    stats = {place.name: place.stat() for place in Path(f"/proc/{pid}/fd").iterdir() if place.exists()}
    return {int(name): (found.st_dev, found.st_ino) for name, found in stats.items()}


def test_forked_workers_keep_nothing_open_that_is_the_owners(heavy: Any) -> None:
    recipe, _ = heavy
    with Loader(recipe, workers=2) as first, MAKERS["torch"](recipe) as second:
        next(iter(first))
        next(iter(second))
        pools = first._pool, second._pool._pool
        ends = [worker._pipe.fileno() for pool in pools for worker in pool._workers]
        mine = opened_in("self")
        owners = {mine[end] for end in [*ends, *first._pool._buffers._descriptors.values()]}
        for worker in second._pool._pool._workers:
            assert owners.isdisjoint(opened_in(worker.process.pid).values())


def test_of_two_loaders_with_forked_workers_either_may_be_closed_first_and_none_is_made_to_end(
    heavy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, expected = heavy
    first, second = MAKERS["torch"](recipe), MAKERS["torch"](recipe)
    assert seen(next(iter(first))) == seen(next(iter(second))) == expected[0]

    def unwanted(process: Any) -> None:
        raise AssertionError(f"{process} did not end by itself")

    monkeypatch.setattr(multiprocessing.process.BaseProcess, "terminate", unwanted)
    first.close()
    assert [seen(batch) for batch in islice(second, 5)] == expected[1:6]
    second.close()


def test_a_handler_of_sigterm_is_the_owners_and_not_its_workers(heavy: Any, tmp_path: Path) -> None:
    log = tmp_path / "log"
    before = signal.signal(signal.SIGTERM, lambda *_: log.write_text(f"{os.getpid()}"))
    try:
        with MAKERS["torch"](heavy[0]) as loader:
            batches = iter(loader)
            next(batches)
            os.kill(loader._pool._pool._workers[0].process.pid, signal.SIGTERM)
            with pytest.raises(WorkerError, match="died with signal SIGTERM"):
                deque(islice(batches, 100), maxlen=0)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert not log.exists()


def test_forked_workers_take_functions_that_cannot_be_sent(heavy: Any) -> None:
    recipe, _ = heavy
    called: list[int] = []
    functions = {
        "map": lambda sample: {"size": sample["npy"].size},
        "collate": lambda samples: {"sizes": [sample["size"] for sample in samples], "called": called},
        "worker_init_fn": lambda number: called.append(number + 0),
    }
    with DataLoader(recipe, num_workers=2, multiprocessing_context="fork", **functions) as loader:
        first, second = islice(loader, 2)
        assert all(size >= 90_000 for size in first["sizes"])
        assert (first["called"], second["called"], called) == ([0], [1], [])
