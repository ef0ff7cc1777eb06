"""Ranks as processes: started by torchrun or by us, watched, killed, waited for. None outlives the run."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from playhead.errors import PlayheadError, WorkerError
from playhead.store import writing_to
from playhead.verify.failures import last_lines, read_failure
from playhead.verify.job import RankJob

Launcher = Literal["torchrun", "own"]

_MODULE = "playhead.verify.rank"
_LOOK_SECONDS = 0.005
_PATIENCE_SECONDS = 10.0
_STEP = b'"kind":"step"'


@dataclass(frozen=True)
class LaunchOptions:
    """Who starts the processes, and after how many seconds without anything new they are given up."""

    launcher: Launcher = "own"
    timeout_seconds: float = 120.0


@contextmanager
def started(job: RankJob, options: LaunchOptions, only: tuple[int, ...] | None = None) -> Iterator[Ranks]:
    """The processes of a job, or some of them. However the block ends, none of them and none of their workers is left.

    They also end by themselves when this process does, even if it is killed.
    """
    with writing_to(job.folder):
        Path(job.folder).mkdir(parents=True, exist_ok=True)
        job.write()
    numbers = tuple(range(job.num_processes)) if only is None else only
    with _lifeline(job.lifeline):
        ranks = Ranks(job, numbers, options)
        try:
            ranks.start()
            yield ranks
        finally:
            ranks.end()


class Ranks:
    """The processes of a job."""

    def __init__(self, job: RankJob, numbers: tuple[int, ...], options: LaunchOptions) -> None:
        self._job, self._numbers, self._options = job, numbers, options
        self._by_torchrun = options.launcher == "torchrun" and len(numbers) == job.num_processes == job.world_size > 1
        self._processes: list[subprocess.Popen[bytes]] = []
        ranks = range(job.world_size)
        self._tails = [[_Tail(job.record(phase.name, rank)) for phase in job.phases] for rank in ranks]

    def start(self) -> None:
        job = self._job
        if self._by_torchrun:
            words = ["torch.distributed.run", "--standalone", "--nproc-per-node", str(job.num_processes), "-m", _MODULE]
            settings = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
            self._processes.append(self._popen([*words, str(job.path)], settings))
            return
        for number in self._numbers:
            place = {"RANK": str(number), "WORLD_SIZE": str(job.num_processes)}
            local = {"LOCAL_RANK": str(number), "LOCAL_WORLD_SIZE": str(job.num_processes)}
            self._processes.append(self._popen([_MODULE, str(job.path)], place | local))

    def _popen(self, words: list[str], settings: dict[str, str]) -> subprocess.Popen[bytes]:
        with (Path(self._job.folder) / "launcher.txt").open("ab") as output:
            return subprocess.Popen(  # noqa: S603  # our own module
                [sys.executable, "-m", *words],
                env=os.environ | settings,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    @property
    def num_steps(self) -> int:
        """The steps that all ranks together have finished."""
        return sum(self._steps_by_rank())

    @property
    def num_steps_of_all(self) -> int:
        """The steps that every rank has finished."""
        return min(self._steps_by_rank())

    def _steps_by_rank(self) -> list[int]:
        return [sum(tail.num_steps() for tail in tails) for tails in self._tails]

    @property
    def are_running(self) -> bool:
        return any(process.poll() is None for process in self._processes)

    @property
    def are_all_running(self) -> bool:
        return all(process.poll() is None for process in self._processes)

    def watch(self, until: Callable[[], bool], *, may_die: bool = False) -> bool:
        """Wait until something is true, or the ranks have ended; returns whether it is true.

        A rank that fails, unless it may, and ranks of which nothing new is seen for long are errors.
        """
        seen, since = -1, time.monotonic()
        while not (there := until()) and self.are_running:
            if not may_die:
                self._raise_failure()
            size = sum(tail.size() for tails in self._tails for tail in tails)
            if size != seen:
                seen, since = size, time.monotonic()
            elif time.monotonic() - since > self._options.timeout_seconds:
                raise self._stuck()
            time.sleep(_LOOK_SECONDS)
        return there

    def finish(self, look: Callable[[int], None] = lambda _: None) -> None:
        """Wait until every rank has done its job; `look` is called now and then with the number of steps done."""

        def shown() -> bool:
            look(self.num_steps)
            return False

        self.watch(shown)
        self._raise_failure()

    def kill(self, number: int) -> bool:
        """SIGKILL to one of them; returns whether it was there to be killed."""
        pid = self.pid(number)
        if pid is None:
            return False
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            return True
        return False

    def end(self) -> None:
        """End what is left. A rank leads a process group, so its workers are found even when it is dead."""
        pids = [pid for number in self._numbers if (pid := self.pid(number)) is not None]
        for pid in {*pids, *(process.pid for process in self._processes)}:
            if self._by_torchrun and pid == self._processes[0].pid:
                continue
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
        for process in self._processes:
            if self._by_torchrun and process.poll() is None:
                process.terminate()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_PATIENCE_SECONDS)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def pid(self, number: int) -> int | None:
        """The process id of a rank that is running; None where it has not begun, or is gone."""
        try:
            pid = int(self._job.pid(number).read_text())
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except (OSError, ValueError):
            return None
        return pid if os.fsencode(self._job.path) in command else None

    def _raise_failure(self) -> None:
        """Raise what a process that ended by itself, with an error, has to say."""
        codes = [process.poll() for process in self._processes]
        if not any(codes):
            return
        job = self._job
        for phase in job.phases:
            if phase.essential and (failure := failure_of(job, phase.name)) is not None:
                raise failure
        at = next(i for i, code in enumerate(codes) if code)
        number, code = self._numbers[at], codes[at]
        who = "torchrun" if self._by_torchrun else f"rank {number} of {job.world_size}"
        output = job.output(number) if not self._by_torchrun else Path(job.folder) / "launcher.txt"
        assert code is not None
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"code {code}"
        raise WorkerError(
            f"{who} ended with {how} in the run {_names(job)}",
            found=last_lines(output),
            fix=f"what was written down is in {job.folder}",
        )

    def _stuck(self) -> WorkerError:
        return WorkerError(
            f"the ranks have delivered nothing for {self._options.timeout_seconds:g} s in the run {_names(self._job)}",
            found=last_lines(self._job.output(self._numbers[0])),
            fix="look for what the map, the loader or the storage waits for, or raise --timeout",
        )


def failure_of(job: RankJob, phase: str) -> PlayheadError | None:
    """The first error that a rank wrote down in a phase, with what the rank printed."""
    for rank in range(job.world_size):
        failure = read_failure(job.error(phase, rank))
        if failure is not None:
            output = job.output(rank % job.num_processes)
            if output.exists() and output.stat().st_size:
                failure.found = "\n".join(filter(None, (failure.found, last_lines(output))))
            return failure.at(f"rank {rank} of {job.world_size}, run {phase}")
    return None


def _names(job: RankJob) -> str:
    return " + ".join(phase.name for phase in job.phases)


@contextmanager
def _lifeline(path: Path) -> Iterator[None]:
    """Hold the lock that ranks wait for: they end when it is released, by us or by our death."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


class _Tail:
    """A record that grows."""

    def __init__(self, path: Path) -> None:
        self._path, self._read, self._steps = path, 0, 0

    def size(self) -> int:
        try:
            return self._path.stat().st_size
        except OSError:
            return 0

    def num_steps(self) -> int:
        if self.size() > self._read:
            with self._path.open("rb") as file:
                file.seek(self._read)
                whole, end, _ = file.read().rpartition(b"\n")
            self._read += len(whole) + len(end)
            self._steps += whole.count(_STEP)
        return self._steps
