"""The loop of `playhead run`: batches taken and counted, the state saved."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.live import Live

from playhead.cli.meter import Meter
from playhead.cli.run_view import RunSummary, UnitOf, live_view
from playhead.cli.screen import console
from playhead.cli.state_file import restore_from, save_to
from playhead.cli.stopping import Stopped, StopSignals, stoppable
from playhead.feed.batch import Batch
from playhead.feed.loader import Loader
from playhead.feed.totals import MOST_SOURCES
from playhead.recipe.values import Recipe
from playhead.resolve.resolve import leaves_by_stream


@dataclass(frozen=True)
class Limits:
    """When to stop and when to save: the number of steps, the state file, and the steps between saves."""

    steps: int | None = None
    state: Path | None = None
    save_every: int = 100


@dataclass
class _DeliveryRun:
    """A running loop. `last` is the last batch that was taken: the state saved is the one after it."""

    loader: Loader
    limits: Limits
    meter: Meter
    last: Batch | None = field(default=None)

    def take_all(self, signals: StopSignals) -> str:
        """Take batches until there is a reason to stop; returns it."""
        for batch in self.loader:
            with signals.deferred():
                self.last = batch
                self.meter.count(batch)
            if not batch.is_last_in_step:
                continue
            if self.limits.state is not None and self.meter.steps % self.limits.save_every == 0:
                self.save()
            if self.meter.steps == self.limits.steps:
                return "steps"
        return "end" if self.last is not None else "finished"

    def state(self) -> dict[str, Any]:
        return self.loader.state_dict(after=self.last)

    def save(self) -> None:
        path = self.limits.state
        if path is not None and (self.last is not None or not path.exists()):
            save_to(path, self.state())


def deliver(loader: Loader, recipe: Recipe, split: str | None, limits: Limits) -> RunSummary:
    """Run until the end, the limit, or a signal. Law: whatever ends it, the state saved is that of the last batch."""
    streams = leaves_by_stream(recipe, split)
    unit_of = {leaf.source.name: leaf.unit for leaves in streams for leaf in leaves}
    if limits.state is not None and limits.state.exists():
        restore_from(limits.state, loader)
    run = _DeliveryRun(loader, limits, Meter(tuple(leaves[0].unit for leaves in streams)))
    first_step = run.state()["step"]
    exit_code = 0
    with stoppable() as signals:
        try:
            with _shown(run, unit_of, counted=sum(map(len, streams)) <= MOST_SOURCES):
                reason = run.take_all(signals)
        except Stopped as stopped:
            reason, exit_code = stopped.name, stopped.exit_code
        finally:
            run.meter.stop()
            run.save()
    state = run.state()
    loader.load_state_dict(state)  # a signal may have arrived between preparing and taking a batch
    who = (loader.rank, loader.world_size)
    return RunSummary(
        reason, *who, first_step, run.meter, state, loader.totals(), unit_of, limits.state, exit_code=exit_code
    )


@contextmanager
def _shown(run: _DeliveryRun, unit_of: UnitOf, *, counted: bool) -> Iterator[None]:
    """The live view on a terminal; nothing in a pipe.

    If there are too many sources to count them during the run, their totals are not shown: they would have to be
    computed from the plan while the loop uses it.
    """
    screen = console(stderr=True)
    if not screen.is_terminal:
        yield
        return

    def view() -> Group:
        totals = run.loader.totals() if counted else None
        return live_view(run.last, run.meter, totals, unit_of)

    with Live(get_renderable=view, console=screen, transient=True):
        yield
