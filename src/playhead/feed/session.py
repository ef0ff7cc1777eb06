"""One rank's run through the stream: what the numpy and the torch loader share.

It knows the plan, where delivery stands, and how to make the next tasks. It delivers nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from msgspec.structs import replace

from playhead.deal import check_world, identify
from playhead.errors import EndOfStreamError, PlayheadError
from playhead.feed.batch import Batch
from playhead.feed.derived import by_source
from playhead.feed.describe import Streams, describe
from playhead.feed.ledger import Recorder
from playhead.feed.open import map_tables, plan_tables
from playhead.feed.produce import Blueprint
from playhead.feed.quarantine import Quarantine
from playhead.feed.state import Position, restore, save
from playhead.feed.tasks import Task, TaskMaker, Work
from playhead.feed.totals import Sum, Totals, nothing_yet
from playhead.plan.plan import Plan
from playhead.plan.resolve import leaves_by_stream
from playhead.plan.rules import Fixed
from playhead.plan.segments import round_end
from playhead.recipe.values import Recipe


class Session:
    """Where one rank stands in the stream of a recipe, or of one of its evaluation sets."""

    def __init__(
        self,
        recipe: Recipe,
        split: str | None,
        rank: int | None,
        world_size: int | None,
        functions: tuple[Callable[..., Any] | None, Callable[..., Any] | None],
    ) -> None:
        self.rank, self.world_size, _ = identify(rank, world_size)
        self._split = split
        tables = map_tables(recipe, split)
        self.plan: Plan = plan_tables(recipe, tables, split, self.world_size)
        check_world(self.rank, self.world_size, self.plan.lanes, split)
        streams = leaves_by_stream(recipe, split)
        self._streams: Streams = [[(leaf, tables[leaf.path]) for leaf in leaves] for leaves in streams]
        rows = {leaf.source.name: table.num_rows for found in self._streams for leaf, table in found}
        self.quarantine = Quarantine(recipe, self.plan.fingerprint, self.rank, rows)
        self._replaces = "substitute" in (recipe.on_error, recipe.on_length_mismatch)
        self.blueprint = Blueprint(recipe, split, *functions)
        self._payload = self.blueprint.fingerprint()
        units = tuple(leaves[0].unit for leaves in streams)
        self._maker = TaskMaker(self.plan, recipe, units, self.rank, self.world_size)
        self.position = self._start()
        self._recorder = Recorder(recipe, self.plan) if self.rank == 0 and split is None else None
        self.restored = 0  # how often a state was loaded: an iterator that sees it change starts anew
        self._resumes = False  # whether a state was loaded and nothing asked for since

    def tasks(self) -> Iterator[Task]:
        """The tasks from where delivery stands to the end of the round; the next round follows one that is over.

        An evaluation set starts anew every time, but for the first after a state was loaded.
        """
        resumes, self._resumes = self._resumes, False
        if self._split is not None and not resumes:
            self.position = self._start()
        if self.plan.parts_at(self.position.cursor) == ():
            if self._split is None:
                raise EndOfStreamError(
                    "the stream has ended",
                    found=f"{self.position.cursor.step:,} steps were delivered",
                    fix="start anew without a state, or let the recipe say `epochs` (a new iteration is then the next "
                    "pass) or `exhaustion: repeat`",
                )
            self.position = self._start()
        found = self._maker.tasks(self.position)
        return map(self._with_known, found) if self._replaces else found

    def delivered(self, task: Task) -> None:
        if self._recorder is not None:
            self._recorder.moved(self.position.cursor, task.after.cursor)
        self.position = task.after

    def state_dict(self, after: Batch | None = None) -> dict[str, Any]:
        """The state after the last batch delivered, or after a given one."""
        return save(self.position if after is None else after.task.after, self.plan, self._payload)

    def load_state_dict(self, state: Any) -> None:
        self.position = restore(state, self.plan, self._payload, self.world_size)
        self.restored += 1
        self._resumes = True

    def totals(self) -> dict[str, Totals]:
        """Samples, length and padding delivered so far, under "all" and by source."""
        counts = self.position.totals
        names = [name for stream in self.plan.streams for name in stream.source_names]
        rows: list[tuple[str, int, int, int | None]]
        if len(counts) == len(names):
            rows = [(name, *row) for name, row in zip(names, counts.tolist(), strict=True)]
        else:
            rows = [(*found, None) for found in by_source(self.plan, self.position)]
        totals: dict[str, Totals] = {}
        for name, samples, length, padding in rows:  # a source has a row for each of its parts
            known = totals.get(name, Totals(0, 0, 0))
            more = None if padding is None or known.padding is None else known.padding + padding
            totals[name] = Totals(known.samples + samples, known.length + length, more)
        return totals | {"all": Totals(*counts.sum(axis=0).tolist())}

    def num_batches(self) -> int:
        """The batches of a whole round on this rank; TypeError where only planning it all would tell."""
        stream = self.plan.streams[0]
        segment = stream.segments[0]
        end = round_end(stream, 0)
        if end is None or len(self.plan.streams) > 1 or not isinstance(segment.rule, Fixed) or segment.excluded:
            raise TypeError("the number of batches is known only for a finite stream of fixed batches")
        passes = stream.epochs or 1
        draws = segment.pieces[0].blend.pass_draws or segment.pieces[-1].stop_draw
        assert draws is not None
        steps = sum(
            -(-min(segment.window_size, draws - first) // (segment.rule.size * segment.lanes))
            for first in range(0, draws, segment.window_size)
        )
        return passes * steps * segment.lanes // self.world_size

    def source_names(self, stream: int) -> tuple[str, ...]:
        return self.plan.streams[stream].source_names

    def describe(self, work: Work) -> str:
        """A piece of work for people: its samples and where they are."""
        return describe(work, self._streams)

    def _with_known(self, task: Task) -> Task:
        """The task with what stood in for its bad samples the last time, so that a replay is identical."""
        known = self.quarantine.known(task.work.picks, self.source_names(task.work.stream))
        return task if known is None else replace(task, work=replace(task.work, known=known))

    def _start(self) -> Position:
        return Position(self.plan.start(), 0, Sum(nothing_yet(self.plan)))


def overtaken() -> PlayheadError:
    """Batches dealt to two iterations in turn would be in neither's order."""
    return PlayheadError(
        "this iteration is over: a later one of the same loader goes on from where it was",
        fix="keep to one iteration at a time, or make a second loader",
    )
