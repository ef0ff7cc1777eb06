"""Ranks of the demo as processes: started, watched, killed, waited for. None outlives the demo."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

import msgspec

from playhead.cli.demo_rank import RankJob
from playhead.errors import WorkerError

_PATIENCE_SECONDS = 60.0
_LOOK_SECONDS = 0.005
_LAST_LINES = 12

Rank = subprocess.Popen[bytes]


@contextmanager
def running(jobs: Sequence[RankJob]) -> Iterator[list[Rank]]:
    """The processes of some ranks. When the block ends, none of them and none of their workers is left."""
    ranks: list[Rank] = []
    try:
        for job in jobs:
            ranks.append(_start(job))  # noqa: PERF401  # those started must be known when the next fails
        yield ranks
    finally:
        for rank in ranks:
            # A rank leads its own process group, so its workers are found even when it is dead.
            with suppress(ProcessLookupError):
                os.killpg(rank.pid, signal.SIGKILL)
            rank.wait()


def kill(rank: Rank) -> None:
    os.kill(rank.pid, signal.SIGKILL)
    rank.wait()


def watch(ranks: Sequence[Rank], jobs: Sequence[RankJob], is_there: Callable[[], bool]) -> None:
    """Wait for a condition; a rank that exits before, or takes too long, is an error with its last output."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not is_there():
        for rank, job in zip(ranks, jobs, strict=True):
            if rank.poll() is not None:
                raise _failed(job, f"ended with code {rank.returncode}, too early")
            if time.monotonic() > deadline:
                raise _failed(job, f"did not get far enough in {_PATIENCE_SECONDS:.0f} s")
        time.sleep(_LOOK_SECONDS)


def finish(ranks: Sequence[Rank], jobs: Sequence[RankJob]) -> None:
    """Wait until every rank has done its job."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    for rank, job in zip(ranks, jobs, strict=True):
        try:
            code = rank.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise _failed(job, f"was not done after {_PATIENCE_SECONDS:.0f} s") from None
        if code:
            raise _failed(job, f"ended with code {code}")


def _start(job: RankJob) -> Rank:
    words = [sys.executable, "-m", "playhead.cli.demo_rank", msgspec.json.encode(job).decode()]
    with job.errors.open("wb") as errors:
        return subprocess.Popen(  # noqa: S603  # our own module
            words, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors, start_new_session=True
        )


def _failed(job: RankJob, how: str) -> WorkerError:
    lines = job.errors.read_text(errors="replace").strip().splitlines()
    output = "\n".join(["its last output was", *lines[-_LAST_LINES:]]) if lines else "no output from it"
    return WorkerError(f"rank {job.rank} of {job.world_size} of the demo {how}", found=output)
