"""The proof in the demo: two ranks are killed, four resume, and the delivered batches do not differ."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace
from rich.console import Console

from playhead.cli.screen import grid
from playhead.fingerprint import digest
from playhead.recipe.values import Recipe
from playhead.store import fresh_directory
from playhead.verify.job import LoaderOptions, Phase, RankJob
from playhead.verify.launch import LaunchOptions, started
from playhead.verify.record import BatchLine, read_record

KILL_AFTER = 20
GO_ON_FOR = 20
_SHOWN = 16
_RUN = "run"

Delivered = dict[tuple[int, int], BatchLine]


@dataclass(frozen=True)
class DemoOutcome:
    """Deliveries of a run up to a step: its batches by (step, lane), how many were delivered twice, its last state."""

    batches: Delivered
    num_twice: int
    state: bytes


def show_crash(screen: Console, recipe: Path, folder: Path) -> bool:
    """Kill two ranks, resume on four, compare with an uninterrupted run; returns whether all was equal."""
    fresh_directory(folder)
    before = _job(recipe, folder / "two-ranks", 2, LoaderOptions(workers=2))
    common = _killed(screen, before)
    states = [_state_after(before, rank, common) for rank in range(2)]
    equal_states = states[0].read_bytes() == states[1].read_bytes()
    size = f"{states[0].stat().st_size:,} bytes, " + ("equal byte for byte" if equal_states else "NOT EQUAL")
    screen.print(f"both saved a state after {common:,} steps: {size}")
    until = common + GO_ON_FOR
    screen.print(f"4 ranks with 3 worker threads each resume from it to step {until:,}")
    after = _job(recipe, folder / "four-ranks", 4, LoaderOptions(3, "thread"), states[0], until)
    alone = _job(recipe, folder / "one-rank", 1, LoaderOptions(), until=until)
    with started(after, LaunchOptions()) as four, started(alone, LaunchOptions()) as one:
        four.finish()
        one.finish()
    calm = _outcome([(alone, range(until))], until)
    rough = _outcome([(before, range(common)), (after, range(common, until))], until)
    return _show_comparison(screen, calm, rough) and equal_states


def _killed(screen: Console, job: RankJob) -> int:
    """Start the ranks, kill them in the middle of their work; returns the last step after which all had saved."""
    with started(job, LaunchOptions()) as ranks:
        ranks.watch(lambda: all(_steps_saved(job, rank)[-1:] >= [KILL_AFTER] for rank in range(job.world_size)))
        pids = [ranks.pid(rank) for rank in range(job.world_size)]
        screen.print(f"2 ranks with 2 worker processes each: processes {', '.join(map(str, pids))}")
        for rank in range(job.world_size):
            ranks.kill(rank)
            last = read_record(job.record(_RUN, rank), rank).batches[-1]
            screen.print(f"SIGKILL to rank {rank}, which had just taken step {last.step:,}, lane {last.lane}")
    return max(set.intersection(*(set(_steps_saved(job, rank)) for rank in range(job.world_size))))


def _job(
    recipe: Path,
    folder: Path,
    world_size: int,
    options: LoaderOptions,
    state: Path | None = None,
    until: int | None = None,
) -> RankJob:
    """Ranks that save after every step."""
    phase = Phase(_RUN, options, Recipe.load(recipe).cache_dir, until=until, save_every=1, essential=True)
    phase = phase if state is None else replace(phase, state=str(state.absolute()))
    return RankJob(str(recipe.absolute()), str(folder.absolute()), world_size, world_size, (phase,))


def _state_after(job: RankJob, rank: int, num_steps: int) -> Path:
    return job.state(_RUN, rank, f"after-{num_steps:06}")


def _steps_saved(job: RankJob, rank: int) -> list[int]:
    names = _state_after(job, rank, 0).parent.glob(f"rank-{rank}-after-*.json")
    return sorted(int(path.stem.rpartition("-")[2]) for path in names)


def _outcome(pieces: Iterable[tuple[RankJob, range]], until: int) -> DemoOutcome:
    """The deliveries of several runs joined: from each, the batches of its own steps."""
    batches: Delivered = {}
    count = 0
    for job, steps in pieces:
        for rank in range(job.world_size):
            own = [batch for batch in read_record(job.record(_RUN, rank), rank).batches if batch.step in steps]
            count += len(own)
            batches |= {(batch.step, batch.lane): batch for batch in own}
    state = _state_after(job, 0, until).read_bytes()
    return DemoOutcome(dict(sorted(batches.items())), count - len(batches), state)


def _show_comparison(screen: Console, calm: DemoOutcome, rough: DemoOutcome) -> bool:
    table = grid("<compared", ">uninterrupted, 1 rank", ">killed, resumed on 4 ranks", "<equal")
    equal = True
    for label, left, right in zip(_LABELS, _facts(calm), _facts(rough), strict=True):
        same = left == right
        equal = equal and same
        table.add_row(label, left[:_SHOWN], right[:_SHOWN], "yes" if same else "NO")
    screen.print(table)
    if equal:
        screen.print("nothing lost, nothing twice, every array the same to the last bit", style="green")
    else:
        screen.print("the runs differ", style="bold red")
    return equal


_LABELS = (
    "micro-batches",
    "delivered twice",
    "samples",
    "sample lists, digest",
    "payloads, digest",
    "receipt",
    "last state, digest",
)


def _facts(outcome: DemoOutcome) -> list[str]:
    lines = outcome.batches
    return [
        f"{len(lines):,}",
        f"{outcome.num_twice:,}",
        f"{sum(len(line.rows) for line in lines.values()):,}",
        digest([[*key, line.picks, line.ids] for key, line in lines.items()]),
        digest([[*key, line.payload] for key, line in lines.items()]),
        json.loads(outcome.state)["receipt"],
        digest(outcome.state.decode()),
    ]
