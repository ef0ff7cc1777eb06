"""Ranks killed again and again, each time started from the last checkpoint that all of them had saved."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from playhead.errors import PlayheadError
from playhead.verify.difference import Placed
from playhead.verify.job import RankJob
from playhead.verify.launch import LaunchOptions, Ranks, failure_of, started
from playhead.verify.record import RankRecord, read_record


@dataclass(frozen=True)
class Life:
    """From a start to a kill: how it ended, what was delivered, and how much of it counts: what came before the
    checkpoint that the next life starts from.
    """

    job: RankJob
    records: tuple[RankRecord, ...]
    ending: str
    resumed_from: str | None
    counted: tuple[int, ...]


@dataclass(frozen=True)
class Crashed:
    """A run that was killed and resumed: its lives, and the error that ended it for good, if one did."""

    lives: tuple[Life, ...]
    seconds: float
    error: PlayheadError | None = None

    @property
    def num_kills(self) -> int:
        return sum(life.ending.startswith("SIGKILL") for life in self.lives)

    @property
    def num_wasted(self) -> int:
        """The micro-batches after the last checkpoint before a kill: they are delivered again."""
        return sum(
            len(record.batches) - count
            for life in self.lives
            for record, count in zip(life.records, life.counted, strict=True)
        )

    def of_rank(self, rank: int) -> list[Placed]:
        """What counts for a rank, over all lives."""
        return [
            Placed(rank, batch) for life in self.lives for batch in life.records[rank].batches[: life.counted[rank]]
        ]


def crash(job: RankJob, options: LaunchOptions, kills: int, seed: int, look: Callable[[int], None]) -> Crashed:
    """Kill a run so many times: at random moments from outside, and in the middle of a save; then let it finish."""
    chance = random.Random(seed)  # noqa: S311  # moments, no secrets
    begin = time.perf_counter()
    lives: list[Life] = []
    state: Path | None = None
    error = None
    for number in range(kills + 1):
        (phase,) = job.phases
        last = number == kills
        dies = None if last or number % 3 != 1 else 1 + chance.randrange(2)
        name = f"life-{number}"
        phase = replace(phase, name=name, state=None if state is None else str(state), dies_in_save=dies)
        if last:
            phase = replace(phase, pace_seconds=0.0)
        life_job = replace(job, folder=f"{job.folder}/{name}", phases=(phase,))
        left = kills - number
        try:
            with started(life_job, options) as ranks:
                ending = _end_of_life(ranks, life_job, number, left, chance, look)
        except PlayheadError as found:
            error, ending = found, "an error"
        error = error or failure_of(life_job, name)
        records = tuple(read_record(life_job.record(name, rank), rank) for rank in range(job.world_size))
        found_state = None if last or error else _last_checkpoint(life_job, name)
        counted = _counted(records, found_state, last=last or ending == "its end")
        lives.append(Life(life_job, records, ending, None if state is None else state.stem, counted))
        state = state if found_state is None else life_job.state(name, 0, found_state)
        if error is not None or ending == "its end":
            break
    return Crashed(tuple(lives), time.perf_counter() - begin, error)


def _end_of_life(
    ranks: Ranks, job: RankJob, number: int, left: int, chance: random.Random, look: Callable[[int], None]
) -> str:
    """Wait for the moment, and kill; returns how it ended."""
    (phase,) = job.phases
    if left == 0:
        ranks.finish(look)
        return "its end"
    if phase.dies_in_save is not None:
        ranks.watch(lambda: not ranks.are_all_running, may_die=True)
        return "SIGKILL in the middle of a save"
    first = 0 if phase.state is None else int(Path(phase.state).stem.rpartition("-")[2])
    most = max(phase.save_every, ((phase.until or 0) - first) // (left + 1))
    target = chance.randint(phase.save_every, most)
    if not ranks.watch(lambda: ranks.num_steps_of_all >= target):
        ranks.finish()
        return "its end"
    time.sleep(chance.uniform(0.0, 2 * phase.pace_seconds))
    if number % 3 == 2:
        victim = chance.randrange(job.num_processes)
        ranks.kill(victim)
        time.sleep(chance.uniform(0.0, 2 * phase.pace_seconds))  # the others go on until somebody notices
        return f"SIGKILL to rank {victim}, then to the others"
    for process in range(job.num_processes):
        ranks.kill(process)
    return "SIGKILL to every rank"


def _last_checkpoint(job: RankJob, phase: str) -> str | None:
    """The last state that every rank has saved whole."""
    saved = [
        {
            path.stem.removeprefix(f"rank-{rank}-")
            for path in job.record(phase, rank).parent.glob(f"rank-{rank}-after-*.json")
        }
        for rank in range(job.world_size)
    ]
    return max(set.intersection(*saved), default=None)


def _counted(records: tuple[RankRecord, ...], checkpoint: str | None, *, last: bool) -> tuple[int, ...]:
    """How many batches of each rank count: those before the checkpoint, by the order in which they were written down.

    A rank that was killed right after a save has not written it down: everything it was delivered came before.
    """
    if last:
        return tuple(len(record.batches) for record in records)
    if checkpoint is None:
        return (0,) * len(records)
    return tuple(
        record.saves[checkpoint].num_batches if checkpoint in record.saves else len(record.batches)
        for record in records
    )
