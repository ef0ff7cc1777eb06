"""One rank's run through the stream: what the numpy and the torch loader share.

It knows the plan, where delivery stands, and how to make the next tasks. It delivers nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import count
from typing import Any

from msgspec.structs import replace

from playhead.deal import Identity, check_world, identify
from playhead.errors import PlayheadError, StateError, WorldSizeError
from playhead.feed.batch import Batch
from playhead.feed.derived import by_source
from playhead.feed.describe import Streams, describe
from playhead.feed.ledger import Recorder
from playhead.feed.lightning_alone import refuse_lightnings_copy, refuse_lightnings_epoch
from playhead.feed.produce import Blueprint
from playhead.feed.quarantine import Quarantine
from playhead.feed.state import Position, check_takeover, read_state, restore, save
from playhead.feed.tasks import Task, TaskMaker, Work
from playhead.feed.totals import Sum, Totals, nothing_yet
from playhead.plan.plan import Plan
from playhead.plan.rules import Fixed
from playhead.plan.segments import round_end
from playhead.read import Incident
from playhead.recipe.tree import evaluation_branch
from playhead.recipe.values import SUM_NAME, Recipe
from playhead.resolve.open import map_tables, plan_tables
from playhead.resolve.resolve import lanes_of, leaves_by_stream

_NUMBERS = count()


class Session:
    """Where one rank stands in the stream of a recipe, or of one of its evaluation sets.

    Who this process is among the ranks is asked when it is needed, for a loader may be made before the process group
    is. Law: every answer is the same as the first, or an error names both.
    """

    def __init__(
        self,
        recipe: Recipe,
        split: str | None,
        rank: int | None,
        world_size: int | None,
        functions: tuple[Callable[..., Any] | None, Callable[..., Any] | None],
    ) -> None:
        self._number = next(_NUMBERS)
        self._recipe, self.split = recipe, split
        self._given = rank, world_size
        self._identity: Identity | None = None
        self._tables = map_tables(recipe, split)
        self._leaves = leaves_by_stream(recipe, split)
        self._replaces = "substitute" in (recipe.on_error, recipe.on_length_mismatch)
        self.blueprint = Blueprint(recipe, split, *functions)
        self._payload = self.blueprint.fingerprint()
        self._position: Position | None = None
        self._state: Any = None  # loaded before the world size was known, where the plan depends on it
        self.restored = 0  # how often a state was loaded: an iterator that sees it change starts anew
        self._resumes = False  # whether a state was loaded and nothing asked for since
        if rank is not None or world_size is not None:
            self.identity()
        if not self._plan_needs_world:
            _ = self.plan  # what is wrong with the recipe is said now

    def identity(self) -> Identity:
        """Who we are: checked against the lanes at first, and against the first answer ever after."""
        found = identify(*self._given)
        if self._identity is None:
            self._check_identity(found)
            self._identity = found
        elif found[:2] != self._identity[:2]:
            raise WorldSizeError(
                "this process is another rank than when the loader was first asked",
                found=f"now {found}",
                expected=f"{self._identity}, as before",
                fix="call init_process_group before `rank`, `world_size`, `len()` or the first iteration of a loader, "
                "or give rank and world_size",
            )
        return self._identity

    @cached_property
    def plan(self) -> Plan:
        world_size = self.identity().world_size if self._plan_needs_world else 1
        return plan_tables(self._recipe, self._tables, self.split, world_size)

    @property
    def position(self) -> Position:
        """Where delivery stands."""
        if self._state is not None:
            self._position, self._state = restore(self._state, self.plan, self._payload), None
        if self._position is None:
            self._position = self._start()
        return self._position

    @property
    def finished(self) -> bool:
        """Whether the round is over: there is nothing more to deliver until `next_round`."""
        return self.plan.round_of(self.position.cursor) > self.position.round

    def next_round(self) -> None:
        """Begin the next round of a finite stream, the one under way being over."""
        if not self.finished:
            endless = round_end(self.plan.streams[0], 0) is None
            raise PlayheadError(
                "there is no next round: the stream is endless" if endless else "the round under way is not over",
                found=f"the loader stands at step {self.position.cursor.step:,} of round {self.position.round}",
                fix="call next_round() only where `loader.finished` is true",
            )
        self._position = replace(self.position, round=self.position.round + 1)

    def is_over(self) -> bool:
        """Whether an iteration that begins now has nothing to deliver."""
        over = self.split is None and self.finished
        if over:
            refuse_lightnings_epoch()
        return over

    def tasks(self) -> Iterator[Task]:
        """The tasks from where delivery stands to the end of the round: none once it is over.

        An evaluation set starts anew every time, but for the first after a state was loaded.
        """
        self.identity()
        resumes, self._resumes = self._resumes, False
        if self.split is not None and (not resumes or self.finished):
            self._position = self._start()
        found = self._maker.tasks(self.position)
        return map(self._with_known, found) if self._replaces else found

    def delivered(self, task: Task, incidents: list[Incident]) -> None:
        if self.position.lanes_done == 0:
            self.identity()
        self._quarantine.record(incidents)
        if self._recorder is not None:
            self._recorder.moved(self.position.cursor, task.after.cursor)
        self._position = task.after

    def state_dict(self, after: Batch | None = None) -> dict[str, Any]:
        """The state after the last batch delivered, or after a given one."""
        if after is None and self.split is None:
            refuse_lightnings_copy()
        if after is not None and not isinstance(after, Batch):
            raise StateError(
                "the state is asked for after something that is not a batch",
                found=f"a {type(after).__name__}",
                expected="a Batch, as the loader delivered it: a dictionary made of it does not know where it stands",
                fix="keep the batch itself, and call state_dict(after=batch)",
            )
        if after is not None and after.task.session != self._number:
            raise StateError(
                "the batch was delivered by another loader",
                expected="a batch of this loader: the state after it would be of the other's stream",
                fix="call state_dict(after=batch) of the loader that delivered the batch",
            )
        return save(self.position if after is None else after.task.after, self.plan, self._payload)

    def load_state_dict(self, state: Any) -> None:
        if self._plan_needs_world and self._identity is None:
            read_state(state)
            self._state = state
        else:
            position = restore(state, self.plan, self._payload)
            if self._identity is not None:
                check_takeover(position, self.plan.lanes, self._identity.world_size)
            self._position, self._state = position, None
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
        return totals | {SUM_NAME: Totals(*counts.sum(axis=0).tolist())}

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
        return passes * steps * segment.lanes // self.identity().world_size

    def source_names(self, stream: int) -> tuple[str, ...]:
        return self.plan.streams[stream].source_names

    def describe(self, work: Work) -> str:
        """A piece of work for people: its samples and where they are."""
        return describe(work, self._streams)

    @property
    def _plan_needs_world(self) -> bool:
        """Whether the plan is known only with the world size: that of an evaluation set without `lanes`."""
        return self.split is not None and evaluation_branch(self._recipe, self.split).lanes is None

    def _check_identity(self, found: Identity) -> None:
        """Refuse ranks that do not fit the lanes, or cannot go on from the state that was loaded."""
        lanes = found.world_size if self._plan_needs_world else self.plan.lanes
        if self.split is None:
            lanes_of(self._recipe, found.world_size)
        check_world(found.rank, found.world_size, lanes, self.split)
        if self._position is not None:
            check_takeover(self._position, lanes, found.world_size)

    @cached_property
    def _streams(self) -> Streams:
        return [[(leaf, self._tables[leaf.path]) for leaf in leaves] for leaves in self._leaves]

    @cached_property
    def _quarantine(self) -> Quarantine:
        rows = {leaf.source.name: table.num_rows for found in self._streams for leaf, table in found}
        return Quarantine(self._recipe, self.plan.fingerprint, self.identity().rank, rows)

    @cached_property
    def _recorder(self) -> Recorder | None:
        return Recorder(self._recipe, self.plan) if self.identity().rank == 0 and self.split is None else None

    @cached_property
    def _maker(self) -> TaskMaker:
        units = tuple(leaves[0].unit for leaves in self._leaves)
        return TaskMaker(self.plan, self._recipe, units, self.identity(), self._number)

    def _with_known(self, task: Task) -> Task:
        """The task with what stood in for its bad samples the last time, so that a replay is identical."""
        known = self._quarantine.known(task.work.picks, self.source_names(task.work.stream))
        return task if known is None else replace(task, work=replace(task.work, known=known))

    def _start(self) -> Position:
        return Position(self.plan.start(), 0, Sum(nothing_yet(self.plan)))


def overtaken() -> PlayheadError:
    """Batches dealt to two iterations in turn would be in neither's order."""
    return PlayheadError(
        "this iteration is over: a later one of the same loader goes on from where it was",
        fix="keep to one iteration at a time, or make a second loader",
    )
