"""What checks look at: the recipe, its tables, its plan and a few rows, each opened once and when first asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from playhead.errors import PlayheadError
from playhead.formats.registry import format_of
from playhead.formats.rows import Shard
from playhead.index.layout import Layout, layout_of
from playhead.index.table import Table, open_table
from playhead.inspect.summary import StreamSummary, planned_windows, summarise_windows
from playhead.plan.plan import Plan
from playhead.plan.window import Window
from playhead.recipe.storage import files_of
from playhead.recipe.tree import Leaf, branches, evaluation_branch, leaves
from playhead.recipe.values import Recipe
from playhead.resolve import plan_tables
from playhead.resolve.overlong import check_overlong
from playhead.resolve.resolve import leaves_by_stream
from playhead.store import Files
from playhead.verify.checks.machine_limits import MachineLimits, limits_here
from playhead.verify.checks.options import CheckOptions
from playhead.verify.checks.sampled_rows import RowFacts, facts_of

_MOST_WINDOWS = 4
_MOST_DRAWS = 1 << 21  # of a sub-stream in all windows: planning them takes seconds


@dataclass(frozen=True)
class CheckedSource:
    """A source of the recipe; its table, or why it cannot be opened."""

    leaf: Leaf
    layout: Layout | None = None
    table: Table | None = None
    problem: PlayheadError | None = None

    @property
    def name(self) -> str:
        return self.leaf.source.name


@dataclass(frozen=True)
class PreparedSource:
    """A source whose table is open."""

    leaf: Leaf
    layout: Layout
    table: Table

    @property
    def name(self) -> str:
        return self.leaf.source.name


@dataclass(frozen=True)
class MeasuredStream:
    """A sub-stream with some of its windows planned, and what they say."""

    number: int
    leaves: tuple[Leaf, ...]
    windows: tuple[Window, ...]
    summary: StreamSummary


@dataclass(frozen=True)
class Context:
    """One recipe under check. `values` are those of its file as written, `loaded` the recipe, or why there is none."""

    path: Path
    values: Mapping[str, Any]
    loaded: Recipe | PlayheadError
    options: CheckOptions

    @property
    def recipe(self) -> Recipe:
        assert isinstance(self.loaded, Recipe)
        return self.loaded

    @cached_property
    def files(self) -> Files:
        return files_of(self.recipe, "refuse")

    @cached_property
    def limits(self) -> MachineLimits:
        return self.options.limits or limits_here(Path(self.recipe.cache_dir))

    @cached_property
    def sources(self) -> tuple[CheckedSource, ...]:
        """Every source of the recipe: those trained on, those of evaluation sets, noises."""
        return tuple(self._opened(leaf) for leaf in leaves(self.recipe))

    def _opened(self, leaf: Leaf) -> CheckedSource:
        layout = None
        try:
            layout = layout_of(leaf, self.recipe)
            return CheckedSource(leaf, layout, open_table(leaf, self.recipe))
        except PlayheadError as error:
            return CheckedSource(leaf, layout, problem=error)

    @cached_property
    def prepared(self) -> tuple[PreparedSource, ...]:
        """The sources whose tables are open."""
        return tuple(
            PreparedSource(source.leaf, source.layout, source.table)
            for source in self.sources
            if source.layout is not None and source.table is not None
        )

    @property
    def trained(self) -> tuple[PreparedSource, ...]:
        """Those of them that are trained on."""
        return tuple(source for source in self.prepared if source.leaf.evaluation is None and not source.leaf.is_noise)

    @cached_property
    def shards(self) -> dict[str, list[Shard] | PlayheadError]:
        """The shards of each source as they are found now, by its place in the recipe; or why there are none."""
        found: dict[str, list[Shard] | PlayheadError] = {}
        for source in self.sources:
            leaf = source.leaf
            try:
                found[leaf.path] = list(format_of(leaf.source, leaf.path).format.discover(leaf.source, self.files))
            except PlayheadError as error:
                found[leaf.path] = error
        return found

    @cached_property
    def overlong(self) -> dict[str, PlayheadError]:
        """What refuses the longest sample of a source, by the source's place."""
        found = {}
        for source in self.prepared:
            try:
                check_overlong(source.leaf, source.table)
            except PlayheadError as error:
                found[source.leaf.path] = error
        return found

    @cached_property
    def plan(self) -> Plan | PlayheadError | None:
        """The plan, or why it cannot be made; None where a source that is trained on is not prepared."""
        return self._planned(None, [leaf for branch in branches(self.recipe) for leaf in branch.leaves()])

    @cached_property
    def evaluation_plans(self) -> dict[str, Plan | PlayheadError | None]:
        """The same for each evaluation set, on one rank."""
        return {
            split: self._planned(split, list(evaluation_branch(self.recipe, split).leaves()))
            for split in self.recipe.evaluation
        }

    def _planned(self, split: str | None, wanted: list[Leaf]) -> Plan | PlayheadError | None:
        tables = {source.leaf.path: source.table for source in self.prepared}
        if any(leaf.path not in tables for leaf in wanted):
            return None
        try:
            return plan_tables(self.recipe, {leaf.path: tables[leaf.path] for leaf in wanted}, split)
        except PlayheadError as error:
            return error

    @cached_property
    def streams(self) -> tuple[MeasuredStream, ...]:
        """The sub-streams of the plan, some windows of each planned; none where there is no plan."""
        plan = self.plan
        if not isinstance(plan, Plan):
            return ()
        return tuple(
            self._measured(plan, number, tuple(found)) for number, found in enumerate(leaves_by_stream(self.recipe))
        )

    def _measured(self, plan: Plan, number: int, found: tuple[Leaf, ...]) -> MeasuredStream:
        size = plan.streams[number].segments[0].window_size
        windows = planned_windows(plan, number, max(1, min(_MOST_WINDOWS, _MOST_DRAWS // size)))
        return MeasuredStream(number, found, tuple(windows), summarise_windows(plan, number, windows))

    @cached_property
    def rows(self) -> dict[str, tuple[RowFacts, ...]]:
        """What a few rows of each prepared source are found to be, by the source's place."""
        tables = {source.leaf.path: (source.leaf, source.table) for source in self.prepared}
        return facts_of(self.recipe, tables, self.files, self.options.rows)

    def has(self, need: str) -> bool:
        """Whether what a check needs is there."""
        if need == "recipe":
            return isinstance(self.loaded, Recipe)
        if need == "tables":
            return bool(self.prepared)
        if need == "plan":
            return isinstance(self.plan, Plan)
        given: dict[str, object] = {
            "steps": self.options.steps,
            "worlds": self.options.worlds,
            "state": self.options.state,
        }
        return bool(given[need])
