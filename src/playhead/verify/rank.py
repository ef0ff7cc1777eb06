"""One rank as a process of its own: takes batches, writes down what it was delivered, saves states.

Started as `python -m playhead.verify.rank JOB`, where JOB is the file of a `RankJob`; RANK says which process it is.
"""

from __future__ import annotations

import fcntl
import json
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from playhead.errors import PlayheadError, RecipeError, StateError
from playhead.feed.batch import Batch
from playhead.fingerprint import digest
from playhead.recipe.values import Recipe
from playhead.store import replacing
from playhead.verify.failures import write_failure
from playhead.verify.job import Phase, RankJob
from playhead.verify.loaders import make_loader
from playhead.verify.payload import parts_of, write_parts
from playhead.verify.recipes import one_pass
from playhead.verify.record import EndLine, FaultLine, RecordWriter, SaveLine, StepLine, line_of

_ORPHANED = 70  # an exit code of our own
_PRELOADED = ["playhead.feed.produce", "playhead.verify.rank"]  # so that processes from a fork server start at once
_LOOK_SECONDS = 0.005
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def main(path: str) -> None:
    job = RankJob.read(Path(path))
    process = int(os.environ["RANK"])
    _print_to(job.output(process))
    job.pid(process).write_text(str(os.getpid()))
    threading.Thread(target=_end_with_starter, args=(job.lifeline,), daemon=True).start()
    multiprocessing.set_forkserver_preload(_PRELOADED)
    if not play(job, process):
        sys.exit(1)


def play(job: RankJob, process: int) -> bool:
    """Run every phase as the ranks of a process; returns whether all that is essential was done."""
    for phase in job.phases:
        for rank in range(process, job.world_size, job.num_processes):
            try:
                deliver(job, phase, rank)
            except Exception as error:  # noqa: BLE001  # it is reported by the process that started us
                write_failure(job.error(phase.name, rank), error)
                if not isinstance(error, PlayheadError):
                    traceback.print_exc()
                if phase.essential:
                    return False
    return True


def deliver(job: RankJob, phase: Phase, rank: int) -> None:
    """One run of a loader, written down."""
    if job.num_processes < job.world_size:  # this process is one rank after another
        os.environ["RANK"], os.environ["WORLD_SIZE"] = str(rank), str(job.world_size)
    path = job.record(phase.name, rank)
    path.parent.mkdir(parents=True, exist_ok=True)
    recipe = replace(Recipe.load(job.recipe), cache_dir=phase.cache_dir)
    with RecordWriter(path) as record:
        _Delivery(job, phase, rank, one_pass(recipe) if phase.one_pass else recipe, record).run()


class _Delivery:
    """A run under way."""

    def __init__(self, job: RankJob, phase: Phase, rank: int, recipe: Recipe, record: RecordWriter) -> None:
        self._job, self._phase, self._rank, self._recipe, self._record = job, phase, rank, recipe, record
        self._begin = time.perf_counter()
        self._seconds_to_first: float | None = None
        self._num_batches = self._num_saves = self._num_in_step = 0
        self._step = -1
        self._waited = 0.0
        self._killed: tuple[int, float] | None = None  # a worker, and when
        self._loader = self._new_loader(None if phase.state is None else _read_state(Path(phase.state)))

    def run(self) -> None:
        try:
            finished = self._take_all()
        finally:
            _close(self._loader)
        self._record.write(EndLine(finished, time.perf_counter() - self._begin, self._seconds_to_first))

    def _take_all(self) -> bool:
        """Take batches until the step to stop at; returns whether the stream ended before."""
        for batch in self._batches():
            self._take(batch)
            if batch.is_last_in_step:
                self._end_step(batch)
                if batch.step + 1 == self._phase.until:
                    return bool(getattr(self._loader, "finished", False))
        return True

    def _new_loader(self, state: Any) -> Any:
        loader = make_loader(self._job, self._recipe, self._rank, self._phase.options)
        if state is not None:
            loader.load_state_dict(state)
        return loader

    def _batches(self) -> Iterator[Batch]:
        """The batches of the loader; after the death of a worker that we killed, those of a new one from its state."""
        batches = iter(self._loader)
        while True:
            asked = time.perf_counter()
            try:
                batch = next(batches)
            except StopIteration:
                return
            except Exception as error:
                if self._killed is None:
                    raise
                batches = self._batches_after(error)
                continue
            now = time.perf_counter()
            self._waited += now - asked
            if self._seconds_to_first is None:
                self._seconds_to_first = now - self._begin
                if self._phase.together:
                    self._wait_for_ranks()
            yield _checked(batch)

    def _wait_for_ranks(self) -> None:
        job, name = self._job, self._phase.name
        job.ready(name, self._rank).touch()
        while not all(job.ready(name, rank).exists() for rank in range(job.world_size)):
            time.sleep(_LOOK_SECONDS)

    def _batches_after(self, error: Exception) -> Iterator[Batch]:
        assert self._killed is not None
        worker, when = self._killed
        self._killed = None
        problem = error.problem if isinstance(error, PlayheadError) else f"{type(error).__name__}: {error}"
        self._record.write(FaultLine(worker, problem, time.perf_counter() - when))
        state = json.loads(json.dumps(self._loader.state_dict()))
        _close(self._loader)
        self._loader = self._new_loader(state)
        return iter(self._loader)

    def _take(self, batch: Batch) -> None:
        if batch.step != self._step:
            self._step, self._num_in_step = batch.step, 0
        self._num_in_step += 1
        self._num_batches += 1
        self._record.write(line_of(batch, self._job.id_field, payload=self._job.payload))
        if self._phase.capture == (batch.step, batch.lane):
            write_parts(self._job.captured(self._phase.name, self._rank), parts_of(batch))
        for place in self._phase.saves:
            is_here = batch.is_last_in_step if place.num_batches == 0 else place.num_batches == self._num_in_step
            if place.step == batch.step and is_here:
                self._save(place.name)

    def _end_step(self, batch: Batch) -> None:
        phase = self._phase
        state = self._loader.state_dict()
        receipt = state.get("receipt")
        self._record.write(StepLine(batch.step, self._waited, memory_in_use(), digest(state), receipt))
        self._waited = 0.0
        if phase.save_every and (batch.step + 1) % phase.save_every == 0:
            self._save(f"after-{batch.step + 1:06}")
        if phase.kills_worker_at == batch.step:
            self._kill_a_worker()
        if phase.pace_seconds:
            time.sleep(phase.pace_seconds)

    def _save(self, name: str) -> None:
        state = self._loader.state_dict()
        data = json.dumps(state).encode()
        with replacing(self._job.state(self._phase.name, self._rank, name)) as file:
            if self._num_saves == self._phase.dies_in_save:
                file.write(data[: len(data) // 2])
                file.flush()
                os.kill(os.getpid(), signal.SIGKILL)
            file.write(data)
        self._num_saves += 1
        self._record.write(SaveLine(name, self._num_batches, digest(state)))

    def _kill_a_worker(self) -> None:
        """Kill the first worker process there is, in whatever it does."""
        workers = multiprocessing.active_children()
        if workers:
            victim = min(worker.pid or 0 for worker in workers)
            self._record.write(FaultLine(victim))
            os.kill(victim, signal.SIGKILL)
            self._killed = victim, time.perf_counter()


def memory_in_use() -> int:
    """The bytes in memory of this process and its workers."""
    pids = [os.getpid(), *(worker.pid for worker in multiprocessing.active_children())]
    total = 0
    for pid in pids:
        with suppress(OSError):  # it has just ended
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
    return total


def _checked(batch: Any) -> Batch:
    if not isinstance(batch, Batch):
        raise RecipeError(
            "the loader delivered something that does not say where it stands in the run",
            found=f"a {type(batch).__name__}",
            expected="a playhead.Batch, as Playhead's loaders deliver it",
            fix="let the function of --loader return the loader itself; what is done to its batches comes after it",
        )
    return batch


def _read_state(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise StateError(f"{path}: not a whole state", found=str(error)) from error


def _close(loader: Any) -> None:
    if hasattr(loader, "close"):
        loader.close()


def _print_to(path: Path) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    os.close(descriptor)


def _end_with_starter(lifeline: Path) -> None:
    """End this process when the one that started the run lets its lock go, which the system does for a dead one."""
    with lifeline.open() as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        os._exit(_ORPHANED)


if __name__ == "__main__":
    main(sys.argv[1])
