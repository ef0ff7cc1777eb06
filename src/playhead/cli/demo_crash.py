"""The proof in the demo: two ranks are killed, four resume, and the delivered batches do not differ."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from playhead.cli import demo_ranks
from playhead.cli.demo_rank import RankJob
from playhead.cli.screen import grid
from playhead.fingerprint import digest
from playhead.store import fresh_directory

KILL_AFTER = 20
GO_ON_FOR = 20
_SHOWN = 16

Delivered = dict[tuple[int, int], dict[str, Any]]


@dataclass(frozen=True)
class DemoOutcome:
    """Deliveries of a run up to a step: its batches by (step, lane), how many were delivered twice, its last state."""

    batches: Delivered
    num_twice: int
    state: bytes


def show_crash(screen: Console, recipe: Path, folder: Path) -> bool:
    """Kill two ranks, resume on four, compare with an uninterrupted run; returns whether all was equal."""
    fresh_directory(folder)
    before = _jobs(recipe, folder / "two-ranks", 2, workers=2, worker_kind="process")
    common = _killed(screen, before)
    state = before[0].state_after(common)
    equal_states = state.read_bytes() == before[1].state_after(common).read_bytes()
    size = f"{state.stat().st_size:,} bytes, " + ("equal byte for byte" if equal_states else "NOT EQUAL")
    screen.print(f"both saved a state after {common:,} steps: {size}")
    until = common + GO_ON_FOR
    screen.print(f"4 ranks with 3 worker threads each resume from it to step {until:,}")
    threads = {"workers": 3, "worker_kind": "thread"}
    after = _jobs(recipe, folder / "four-ranks", 4, **threads, state=str(state), until=until)
    alone = _jobs(recipe, folder / "one-rank", 1, workers=0, worker_kind="thread", until=until)
    with demo_ranks.running([*after, *alone]) as ranks:
        demo_ranks.finish(ranks, [*after, *alone])
    calm = _outcome([(alone, range(until))], until)
    rough = _outcome([(before, range(common)), (after, range(common, until))], until)
    return _show_comparison(screen, calm, rough) and equal_states


def _killed(screen: Console, jobs: Sequence[RankJob]) -> int:
    """Start the ranks, kill them in the middle of their work; returns the last step after which all had saved."""
    with demo_ranks.running(jobs) as ranks:
        pids = ", ".join(str(rank.pid) for rank in ranks)
        screen.print(f"2 ranks with 2 worker processes each: processes {pids}")
        demo_ranks.watch(ranks, jobs, lambda: all(_steps_saved(job)[-1:] >= [KILL_AFTER] for job in jobs))
        for rank, job in zip(ranks, jobs, strict=True):
            demo_ranks.kill(rank)
            last = _read(job)[-1]
            screen.print(f"SIGKILL to rank {job.rank}, which had just taken step {last['step']:,}, lane {last['lane']}")
    return max(set.intersection(*(set(_steps_saved(job)) for job in jobs)))


def _jobs(recipe: Path, folder: Path, world_size: int, **fields: Any) -> list[RankJob]:
    fresh_directory(folder)
    where = (str(recipe), str(folder))
    return [RankJob(*where, rank, world_size, parent=os.getpid(), **fields) for rank in range(world_size)]


def _steps_saved(job: RankJob) -> list[int]:
    names = Path(job.folder).glob(f"rank-{job.rank}-after-*.json")
    return sorted(int(path.stem.rpartition("-")[2]) for path in names)


def _read(job: RankJob) -> list[dict[str, Any]]:
    """The records of a rank; a last line truncated by the kill is left out."""
    whole, _, _ = job.log.read_text().rpartition("\n")
    return [json.loads(line) for line in whole.splitlines()]


def _outcome(pieces: Iterable[tuple[Sequence[RankJob], range]], until: int) -> DemoOutcome:
    """The deliveries of several runs joined: from each, the batches of its own steps."""
    batches: Delivered = {}
    count = 0
    for jobs, steps in pieces:
        for job in jobs:
            own = [line for line in _read(job) if line["step"] in steps]
            count += len(own)
            batches |= {(line["step"], line["lane"]): line for line in own}
    return DemoOutcome(dict(sorted(batches.items())), count - len(batches), jobs[0].state_after(until).read_bytes())


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
        f"{sum(len(line['ids']) for line in lines.values()):,}",
        digest([[*key, line["ids"]] for key, line in lines.items()]),
        digest([[*key, line["payload"]] for key, line in lines.items()]),
        json.loads(outcome.state)["receipt"],
        digest(outcome.state.decode()),
    ]
