"""The runs that the questions need: which, in which order, and what each delivered. Every one is made once."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from msgspec.structs import replace

from playhead.deal import worlds_that_fit
from playhead.errors import PlayheadError
from playhead.recipe.values import Recipe
from playhead.verify.crash import Crashed, crash
from playhead.verify.difference import Placed, by_place
from playhead.verify.job import LoaderOptions, Phase, RankJob, SavePlace
from playhead.verify.launch import LaunchOptions, failure_of, started
from playhead.verify.recipes import private_cache
from playhead.verify.record import BatchLine, RankRecord, read_record
from playhead.verify.settings import PassPart, VerifySettings, save_places

BASELINE, PASS, AGAIN, WORKER = "baseline", "pass", "again", "worker-killed"
NEEDS = {
    "Q1": (PASS,),
    "Q2": (PASS,),
    "Q3": (PASS,),
    "Q4": (BASELINE, "resumed"),
    "Q5": (BASELINE, AGAIN),
    "Q6": (BASELINE, "elastic"),
    "Q7": (BASELINE, "crash"),
    "Q8": (BASELINE, WORKER),
    "Q9": (BASELINE,),
    "Q10": (BASELINE,),
    "Q11": (BASELINE,),
    "Q12": (BASELINE, "kind"),
}
_MOST_PROCESSES = 16
_KIND_STEPS = 12
_PACE_SECONDS = 0.02  # of a step in which a rank may be killed

Look = Callable[[int], None]
Launch = Callable[[RankJob, tuple[int, ...] | None, Look], None]
Progress = Callable[[str, int, int], None]  # a run, the steps done of all its ranks, and all steps


@dataclass(frozen=True)
class Run:
    """A run: what it was to do, what each rank was delivered, and the error that ended it, if one did."""

    job: RankJob
    phase: Phase
    ranks: tuple[RankRecord, ...]
    seconds: float
    error: PlayheadError | None = None

    @property
    def name(self) -> str:
        return self.phase.name

    @property
    def world_size(self) -> int:
        return self.job.world_size

    @cached_property
    def stream(self) -> list[Placed]:
        """The micro-batches of all ranks by step and lane."""
        return by_place([Placed(rank.rank, batch) for rank in self.ranks for batch in rank.batches])

    def of_rank(self, rank: int) -> Sequence[BatchLine]:
        return next(record.batches for record in self.ranks if record.rank == rank)

    def __str__(self) -> str:
        ranks = "1 rank" if self.world_size == 1 else f"{self.world_size} ranks"
        if self.job.num_processes < self.world_size:
            ranks += f" in {self.job.num_processes} processes"
        return f"{ranks}, {self.phase.options}"


@dataclass
class Runs:
    """Makes runs and keeps what they delivered, by name."""

    settings: VerifySettings
    recipe: Recipe
    lanes: int
    steps: int
    part: PassPart
    progress: Progress = lambda *_: None
    launch: Launch | None = None
    done: dict[str, Run] = field(default_factory=dict)
    crashed: Crashed | None = None
    not_made: dict[str, str] = field(default_factory=dict)  # kinds of workers and loaders, and why

    def __post_init__(self) -> None:
        self._cache = private_cache(self.recipe, self.settings.records / "cache")
        self._places = save_places(self.settings, self.steps, self.lanes)
        self._own = LaunchOptions("own", self.settings.launch.timeout_seconds)
        self._quick = self.settings.options  # workers that start soon, for runs that need not be as the user said
        if "start_method" in self.settings.varied:
            self._quick = replace(self._quick, start_method="forkserver")
        if not self.settings.payload and "worker_kind" in self.settings.varied:
            self._quick = replace(self._quick, worker_kind="thread")

    def make(self) -> None:
        """Every run that the questions asked need. An error in the first ends it all; others are kept as found."""
        needed = {name for question in self.settings.questions for name in NEEDS[question]}
        first = [phase for phase in (self._baseline(), self._one_pass()) if phase.name in needed]
        self._run(f"{'-and-'.join(phase.name for phase in first)}", first, self.settings.world_size)
        fresh = [self._again()] if AGAIN in needed else []
        fresh += self._resumed() if "resumed" in needed else []
        if fresh:
            self._run("again-and-resumed" if len(fresh) > 1 else fresh[0].name, fresh, self.settings.world_size)
        if "elastic" in needed:
            self._elastic()
        if "crash" in needed:
            self._crash()
        alone = [*(self._kinds() if "kind" in needed else []), *(self._worker_killed() if WORKER in needed else [])]
        if alone:
            self._run("kinds", alone, self.settings.world_size, only=(0,))

    def with_prefix(self, prefix: str) -> list[Run]:
        return [run for name, run in self.done.items() if name.startswith(prefix)]

    def make_again(self, run: Run, step: int, lane: int, name: str) -> Path:
        """The folder with the payload of a micro-batch, from a run of the same kind that is made once more."""
        rank = lane % run.world_size
        phase = replace(run.phase, name=name, saves=(), save_every=0, until=step + 1, capture=(step, lane))
        phase = replace(phase, pace_seconds=0.0, dies_in_save=None, kills_worker_at=None, essential=False)
        job = self._job(f"captured/{name}", (phase,), run.world_size, num_processes=run.world_size)
        self._launch(job, (rank,), name)
        return job.captured(name, rank)

    def _job(
        self, folder: str, phases: tuple[Phase, ...], world_size: int, num_processes: int | None = None
    ) -> RankJob:
        settings = self.settings
        return RankJob(
            str(settings.recipe_path.absolute()),
            str((settings.records / folder).absolute()),
            world_size,
            num_processes or min(world_size, max(settings.world_size, min(_MOST_PROCESSES, 2 * (os.cpu_count() or 1)))),
            phases,
            settings.payload,
            settings.id_field,
            settings.loader,
        )

    def _launch(self, job: RankJob, only: tuple[int, ...] | None, title: str) -> None:
        num_ranks = job.world_size if only is None else len(only)
        total = num_ranks * sum((phase.until or self.part.steps) - phase.first for phase in job.phases)

        def look(steps: int) -> None:
            self.progress(title, steps, total)

        look(0)
        if self.launch is not None:
            self.launch(job, only, look)
            return
        options = self.settings.launch if only is None else self._own
        with started(job, options, only) as ranks:
            ranks.finish(look)

    def _run(self, title: str, phases: list[Phase], world_size: int, only: tuple[int, ...] | None = None) -> None:
        """Run phases one after another in the same processes, and read what they wrote."""
        if not phases:
            return
        job = self._job(title, tuple(phases), world_size)
        begin = time.perf_counter()
        error: PlayheadError | None = None
        try:
            self._launch(job, only, title)
        except PlayheadError as found:
            if phases[0].essential:
                raise
            error = found
        seconds = time.perf_counter() - begin
        ranks = range(world_size) if only is None else only
        for number, phase in enumerate(phases):
            records = tuple(read_record(job.record(phase.name, rank), rank) for rank in ranks)
            ended = [record.end for record in records]
            own = max((end.seconds for end in ended if end is not None), default=0.0)
            failure = failure_of(job, phase.name) or (None if all(ended) else error)
            if failure is not None and phase.essential:
                raise failure
            seconds -= own
            # The first of them also bears the start of the processes.
            self.done[phase.name] = Run(job, phase, records, own, failure)
            if number == len(phases) - 1:
                head = self.done[phases[0].name]
                self.done[phases[0].name] = Run(
                    job, head.phase, head.ranks, head.seconds + max(0.0, seconds), head.error
                )

    def _baseline(self) -> Phase:
        options, places = self.settings.options, self._places
        return Phase(BASELINE, options, self._cache, until=self.steps, saves=places, essential=True)

    def _one_pass(self) -> Phase:
        essential = not any(BASELINE in NEEDS[question] for question in self.settings.questions)
        until = None if self.part.is_whole else self.part.steps
        return Phase(PASS, self.settings.options, self._cache, one_pass=True, until=until, essential=essential)

    def _again(self) -> Phase:
        cache = private_cache(self.recipe, self.settings.records / "cache-again")
        return Phase(AGAIN, self.settings.options, cache, until=self.steps)

    def _resumed(self) -> list[Phase]:
        phases = []
        for place in self._places:
            phase = Phase(f"resumed-{place.name}", self._quick, self._cache, until=self.steps)
            phases.append(replace(phase, state=self._saved(place), first=place.step))
        return phases

    def _saved(self, place: SavePlace) -> str:
        return str(self.done[BASELINE].job.state(BASELINE, 0, place.name))

    def _elastic(self) -> None:
        """From a state of the first run through every other number of ranks, and back to the first."""
        place, worlds = elastic_path(self.settings.world_size, self.lanes, self._places)
        state = None if place is None else self._saved(place)
        first = 0 if place is None else place.step + (place.num_batches == 0)
        begin, num_hops = first, min(len(worlds), self.steps - first)
        for hop, world_size in enumerate(worlds[:num_hops]):
            until = begin + (self.steps - begin) * (hop + 1) // num_hops
            options = self._other_workers(hop, world_size, is_last=hop == len(worlds) - 1)
            name = f"elastic-{hop}-on-{world_size}"
            phase = Phase(name, options, self._cache, state=state, first=first, until=until)
            phase = replace(phase, saves=(SavePlace("end", until - 1),))
            self._run(name, [phase], world_size)
            state, first = str(self.done[name].job.state(name, 0, "end")), until
            if self.done[name].error is not None:
                return

    def _other_workers(self, hop: int, world_size: int, *, is_last: bool) -> LoaderOptions:
        """Other numbers and kinds of workers than before; processes only where they are few, for they start slowly."""
        given = self._quick
        if is_last:
            return given
        more = given.workers + 1
        if "workers" not in self.settings.varied:
            return given
        if "worker_kind" not in self.settings.varied or given.worker_kind == "thread":
            return replace(given, workers=more if hop % 2 == 0 else 0)
        if world_size == 1:
            return replace(given, workers=more)
        return replace(given, workers=more, worker_kind="thread") if hop % 2 == 0 else replace(given, workers=0)

    def _crash(self) -> None:
        every = max(1, self.steps // 16)
        phase = Phase("crash", self._quick, self._cache, until=self.steps, save_every=every, together=True)
        phase = replace(phase, pace_seconds=_PACE_SECONDS)
        job = self._job("crash", (phase,), self.settings.world_size)

        def look(steps: int) -> None:
            self.progress("crash", steps, self.steps * self.settings.world_size)

        self.crashed = crash(job, self.settings.launch, self.settings.kills, self.settings.seed, look)

    def _worker_killed(self) -> list[Phase]:
        options = self.settings.options
        if options.worker_kind == "thread":
            return []
        workers = max(2, options.workers) if "workers" in self.settings.varied else options.workers
        at = max(0, min(self.steps // 4, 5) - 1)
        until = min(self.steps, at + 1 + _KIND_STEPS)
        return [
            Phase(WORKER, replace(options, workers=workers), self._cache, until=until, kills_worker_at=at),
        ]

    def _kinds(self) -> list[Phase]:
        """The first steps by other kinds of workers and loaders."""
        given, phases = self.settings.options, []
        wanted = {
            "processes started by forkserver": replace(given, worker_kind="process", start_method="forkserver"),
            "processes started by spawn": replace(given, worker_kind="process", start_method="spawn"),
            "threads": replace(given, worker_kind="thread"),
            "no workers": replace(given, workers=0),
            "tensors": replace(given, worker_kind="process", arrays="torch"),
        }
        for title, options in wanted.items():
            if options.workers == 0 and title != "no workers":
                options = replace(options, workers=2)  # noqa: PLW2901 - kinds of workers need some
            reason = self._why_not(title, options)
            if reason is not None:
                self.not_made[title] = reason
            elif options != given:
                name = f"kind-{title.replace(' ', '-')}"
                phases.append(Phase(name, options, self._cache, until=min(self.steps, _KIND_STEPS)))
        return phases

    def _why_not(self, title: str, options: LoaderOptions) -> str | None:
        settings = self.settings
        changed = [
            name for name in options.__struct_fields__ if getattr(options, name) != getattr(settings.options, name)
        ]
        missing = [name for name in changed if name not in settings.varied]
        if missing:
            return f"the function of --loader takes no {', '.join(missing)}"
        if settings.options.worker_kind == "thread" and options.worker_kind == "process" and options.workers:
            return "--threads"
        if title == "tensors" and not settings.payload:
            return "--no-payload"
        if title == "tensors" and not torch_is_installed():
            return "torch is not installed"
        return None


def torch_is_installed() -> bool:
    from importlib.util import find_spec

    return find_spec("torch") is not None


def elastic_path(world_size: int, lanes: int, places: Sequence[SavePlace]) -> tuple[SavePlace | None, list[int]]:
    """Where to start, and the numbers of ranks to go through: every other one that divides the lanes, and back.

    It starts inside a step where another number of ranks can take over there.
    """
    others = [world for world in worlds_that_fit(lanes) if world != world_size]
    for place in sorted(places, key=lambda place: place.name != "inside"):
        done = place.num_batches * world_size
        fitting = [world for world in others if world in worlds_that_fit(lanes, done)]
        if fitting or not done:
            first = fitting[-1:]
            rest = [world for world in others if world not in first]
            return place, [*first, *rest, world_size] if others else [world_size, world_size]
    return None, [*others, world_size] if others else [world_size, world_size]
