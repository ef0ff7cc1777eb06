"""One rank's run through the stream: what the numpy and the torch loader share.

It knows the plan, where delivery stands, and how to make the next tasks. It delivers nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from playhead.deal import check_world, identify
from playhead.errors import EndOfStreamError
from playhead.feed.batch import Batch
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
        check_world(self.rank, self.world_size, self.plan.lanes)
        self._leaves = leaves_by_stream(recipe, split)
        self._tables = tables
        rows = {leaf.source.name: tables[leaf.path].num_rows for leaves in self._leaves for leaf in leaves}
        self.quarantine = Quarantine(recipe, self.plan.fingerprint, self.rank, rows)
        self.blueprint = Blueprint(recipe, split, *functions, self.quarantine.known)
        self._payload = self.blueprint.fingerprint()
        units = tuple(leaves[0].unit for leaves in self._leaves)
        self._maker = TaskMaker(self.plan, recipe, units, self.rank, self.world_size)
        self.position = self._start()
        self.restored = 0  # how often a state was loaded: an iterator that sees it change starts anew

    def tasks(self) -> Iterator[Task]:
        """The tasks from where delivery stands to the end of the round; the next round follows one that is over."""
        if self.plan.parts_at(self.position.cursor) == ():
            if self._split is None:
                raise EndOfStreamError(
                    "the stream has ended",
                    found=f"{self.position.cursor.step:,} steps were delivered",
                    fix="start anew without a state, or let the recipe say `epochs` (a new iteration is then the next "
                    "pass) or `exhaustion: repeat`",
                )
            self.position = self._start()
        return self._maker.tasks(self.position)

    def delivered(self, task: Task) -> None:
        self.position = task.after

    def state_dict(self, after: Batch | None = None) -> dict[str, Any]:
        """The state after the last batch delivered, or after a given one."""
        return save(self.position if after is None else after.task.after, self.plan, self._payload)

    def load_state_dict(self, state: Any) -> None:
        self.position = restore(state, self.plan, self._payload, self.world_size)
        self.restored += 1

    def totals(self) -> dict[str, Totals]:
        """Samples, length and padding delivered so far, under "all" and, where they are counted, by source."""
        counts = self.position.totals
        found = {"all": Totals(*(int(n) for n in counts.sum(axis=0)))}
        names = [name for stream in self.plan.streams for name in stream.source_names]
        if len(counts) == len(names):
            for name, row in zip(names, counts, strict=True):
                so_far = found.get(name, Totals(0, 0, 0))
                samples, length, padding = (int(n) for n in row)
                found[name] = Totals(so_far.samples + samples, so_far.length + length, so_far.padding + padding)
        return found

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
        found = []
        for source, row in list(zip(work.picks.source.tolist(), work.picks.row.tolist(), strict=True))[:8]:
            leaf = self._leaves[work.stream][source]
            found.append(f"{leaf.source.name} row {row:,} ({self._tables[leaf.path].place(row)})")
        more = f", and {len(work.picks) - 8:,} more" if len(work.picks) > 8 else ""
        return f"step {work.step:,}, lane {work.lane}: {', '.join(found)}{more}"

    def _start(self) -> Position:
        return Position(self.plan.start(), 0, Sum(nothing_yet(self.plan)))
