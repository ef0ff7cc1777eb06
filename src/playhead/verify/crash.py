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

_ENDED = "its end"


@dataclass(frozen=True)
class Life:
    """From a start to a kill: how it ended, what was delivered, and how much of it counts: what came before the
    checkpoint that the next life starts from. It began after `resumed_from` steps; None: at the start.
    """

    job: RankJob
    records: tuple[RankRecord, ...]
    ending: str
    resumed_from: int | None
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
    """Kill a run several times: at random moments from outside, and in the middle of a save; then let it finish."""
    chance = random.Random(seed)  # noqa: S311  # moments, no secrets
    begin = time.perf_counter()
    lives: list[Life] = []
    state: Path | None = None
    error = None
    for number in range(kills + 1):
        life_job = _life_job(job, number, kills, state, chance)
        try:
            with started(life_job, options) as ranks:
                ending = _end_of_life(ranks, life_job, number, kills, chance, look)
        except PlayheadError as found:
            error, ending = found, "an error"
        life, state = _lived(life_job, ending, state)
        lives.append(life)
        error = error or failure_of(life_job, life_job.phases[0].name)
        if error is not None or ending == _ENDED:
            break
    return Crashed(tuple(lives), time.perf_counter() - begin, error)


def _life_job(job: RankJob, number: int, kills: int, state: Path | None, chance: random.Random) -> RankJob:
    """The same job from a state, in a folder of its own. Every third life ends in a save; the last is left alone."""
    (phase,) = job.phases
    phase = replace(phase, name=f"life-{number}", state=None if state is None else str(state))
    if number == kills:
        phase = replace(phase, pace_seconds=0.0)
    elif number % 3 == 1:
        phase = replace(phase, dies_in_save=chance.randrange(3))
    return replace(job, folder=f"{job.folder}/{phase.name}", phases=(phase,))


def _end_of_life(
    ranks: Ranks, job: RankJob, number: int, kills: int, chance: random.Random, look: Callable[[int], None]
) -> str:
    """Wait for the moment, and kill; returns how it ended."""
    (phase,) = job.phases
    if number == kills:
        ranks.finish(look)
        return _ENDED
    if phase.dies_in_save is not None:
        ranks.watch(lambda: not ranks.are_all_running, may_die=True)
        return _ENDED if _has_ended(job) else "SIGKILL in the middle of a save"
    first = 0 if phase.state is None else _num_steps(phase.state)
    most = max(phase.save_every, ((phase.until or 0) - first) // (kills - number + 1))
    target = chance.randint(phase.save_every, most)
    if not ranks.watch(lambda: ranks.num_steps_of_all >= target):
        ranks.finish()
        return _ENDED
    time.sleep(chance.uniform(0.0, 2 * phase.pace_seconds))
    if number % 3 == 2:
        victim = chance.randrange(job.num_processes)
        ranks.kill(victim)
        time.sleep(chance.uniform(0.0, 2 * phase.pace_seconds))  # the other ranks run on until the failure is noticed
        return f"SIGKILL to rank {victim}, then to the others"
    for process in range(job.num_processes):
        ranks.kill(process)
    return "SIGKILL to every rank"


def _lived(job: RankJob, ending: str, state: Path | None) -> tuple[Life, Path | None]:
    """What a life was, and the state that the next one starts from: the one before, where it left no other."""
    name = job.phases[0].name
    records = _records(job)
    checkpoint = None if ending == _ENDED else _last_checkpoint(job, name)
    counted = _counted(records, checkpoint, whole=ending == _ENDED)
    life = Life(job, records, ending, None if state is None else _num_steps(state), counted)
    return life, state if checkpoint is None else job.state(name, 0, checkpoint)


def _records(job: RankJob) -> tuple[RankRecord, ...]:
    name = job.phases[0].name
    return tuple(read_record(job.record(name, rank), rank) for rank in range(job.world_size))


def _has_ended(job: RankJob) -> bool:
    return all(record.end is not None for record in _records(job))


def _num_steps(state: Path | str) -> int:
    """The number of steps that a saved state is after, by its name."""
    return int(Path(state).stem.rpartition("-")[2])


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


def _counted(records: tuple[RankRecord, ...], checkpoint: str | None, *, whole: bool) -> tuple[int, ...]:
    """How many batches of each rank count: those before the checkpoint, by the order in which they were written down.

    A rank that was killed right after a save has not written it down: everything it was delivered came before.
    """
    if whole:
        return tuple(len(record.batches) for record in records)
    if checkpoint is None:
        return (0,) * len(records)
    return tuple(
        record.saves[checkpoint].num_batches if checkpoint in record.saves else len(record.batches)
        for record in records
    )
