"""The stream of a recipe, or of one of its evaluation sets, as one rank sees it: the plan, rank and world size."""

from __future__ import annotations

from functools import cached_property

from playhead.deal import Identity, check_world, identify, lanes_per_rank
from playhead.errors import WorldSizeError
from playhead.feed.describe import Streams, describe
from playhead.feed.tasks import Work
from playhead.plan.plan import Plan
from playhead.plan.rules import FixedRule
from playhead.plan.segments import round_end
from playhead.read.cache_filler.streams import num_bytes_of
from playhead.recipe.tree import evaluation_branch
from playhead.recipe.values import Recipe, Unit
from playhead.resolve.open import map_tables, plan_tables
from playhead.resolve.resolve import lanes_of, leaves_by_stream
from playhead.store import Files


class RankStream:
    """The plan of a stream, its sources, and the rank that follows it.

    The rank of this process is detected when it is needed: a loader may be made before the process group.
    Law: the rank never changes; a later detection that differs is an error.
    """

    def __init__(
        self,
        recipe: Recipe,
        split: str | None,
        rank: int | None,
        world_size: int | None,
        files: Files | None = None,
    ) -> None:
        self.recipe, self.split, self.files = recipe, split, files
        self._given = rank, world_size
        self._identity: Identity | None = None
        self._tables = map_tables(recipe, split, files)
        self._leaves = leaves_by_stream(recipe, split)
        self._plan_needs_world = split is not None and evaluation_branch(recipe, split).lanes is None
        if rank is not None or world_size is not None:
            self.identity()
        if self.can_plan:
            _ = self.plan  # report recipe errors early

    @property
    def is_identified(self) -> bool:
        """Whether rank and world size have been determined."""
        return self._identity is not None

    @property
    def can_plan(self) -> bool:
        """Whether the plan can be made: for an evaluation set without `lanes` it needs the world size."""
        return self.is_identified or not self._plan_needs_world

    def identity(self) -> Identity:
        """Rank and world size: checked against the lanes at first, and against the first result from then on."""
        if self._identity is not None and self._identity.origin == "given":
            return self._identity
        found = identify(*self._given)
        if self._identity is None:
            if self.split is None:
                lanes_of(self.recipe, found.world_size)
            lanes = found.world_size if self._plan_needs_world else self.plan.lanes
            check_world(found.rank, found.world_size, lanes, self.split)
            self._identity = found
        elif found[:2] != self._identity[:2]:
            raise WorldSizeError(
                "the rank changed after the loader first read it",
                found=f"now {found}",
                expected=f"{self._identity}, as before",
                fix="call init_process_group before `rank`, `world_size`, `len()` or the first iteration of a loader, "
                "or give rank and world_size",
            )
        return self._identity

    @cached_property
    def plan(self) -> Plan:
        world_size = self.identity().world_size if self._plan_needs_world else 1
        return plan_tables(self.recipe, self._tables, self.split, world_size)

    @cached_property
    def sources(self) -> Streams:
        """The sources of each sub-stream, with their tables."""
        return [[(leaf, self._tables[leaf.path]) for leaf in leaves] for leaves in self._leaves]

    @property
    def units(self) -> tuple[Unit, ...]:
        """The units of the lengths of each sub-stream."""
        return tuple(leaves[0].unit for leaves in self._leaves)

    @property
    def num_bytes(self) -> int:
        """The size of all files of the sources together."""
        return num_bytes_of(self._tables.values())

    def describe(self, work: Work) -> str:
        """A human-readable description of work: its samples and where they are."""
        return describe(work, self.sources)

    def num_batches(self) -> int:
        """The number of batches of a whole round on this rank; TypeError where only full planning could count them."""
        stream = self.plan.streams[0]
        segment = stream.segments[0]
        end = round_end(stream, 0)
        if end is None or len(self.plan.streams) > 1 or not isinstance(segment.rule, FixedRule) or segment.excluded:
            raise TypeError("the number of batches is known only for a finite stream of fixed batches")
        passes = stream.epochs or 1
        draws = segment.pieces[0].blend.pass_draws or segment.pieces[-1].stop_draw
        assert draws is not None
        steps = sum(
            -(-min(segment.window_size, draws - first) // (segment.rule.size * segment.lanes))
            for first in range(0, draws, segment.window_size)
        )
        return passes * steps * lanes_per_rank(segment.lanes, self.identity().world_size)
