"""What some steps of a recipe need: files of shards, rows that may name media, and prepared indexes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np
from msgspec import Struct

from playhead.deal import check_world
from playhead.errors import EndOfStreamError, RecipeError
from playhead.feed.ledger import seek
from playhead.feed.rank_stream import RankStream
from playhead.feed.state import check_takeover, read_state, restore
from playhead.index.table import Table, open_table
from playhead.order.picks import Picks
from playhead.plan.cursor import Cursor
from playhead.read.needs import picked_steps
from playhead.recipe.tree import Leaf, noises_of
from playhead.recipe.values import Recipe
from playhead.store import Files, Stamp
from playhead.types import IntArray


class StepsWanted(Struct, frozen=True):
    """Steps to fetch: `count` of them from step `first`, or from where a loader's `state` stands; None: any step.

    `ranks` are those of a world whose lanes are wanted; None: all. `splits` are evaluation sets to fetch whole.
    """

    count: int | None = None
    first: int = 0
    state: Mapping[str, Any] | None = None
    ranks: tuple[int, ...] | None = None
    world_size: int = 1
    splits: tuple[str, ...] = ()


class SourceRows(Struct, frozen=True):
    """Rows of one source, each once, in the order in which they are needed first; None: all of them."""

    leaf: Leaf
    table: Table
    rows: IntArray | None

    def sorted_chunks(self, most: int) -> Iterator[IntArray]:
        """The rows in the order of the source, at most so many at a time."""
        rows = None if self.rows is None else np.sort(self.rows)
        num_rows = self.table.num_rows if rows is None else len(rows)
        for first in range(0, num_rows, most):
            end = min(first + most, num_rows)
            yield np.arange(first, end) if rows is None else rows[first:end]


class StepFiles(Struct, frozen=True):
    """What steps need: the files of shards with their stamps, in order; rows; fingerprints of plans.

    `steps` are the numbers of the steps; None: it is all that any step needs. `indexed` are the files of all shards,
    needed or not.
    """

    steps: range | None
    files: dict[str, Stamp]
    sources: tuple[SourceRows, ...]
    fingerprints: tuple[str, ...]
    description: str
    indexed: dict[str, Stamp]


def step_files(recipe: Recipe, wanted: StepsWanted, files: Files | None = None) -> StepFiles:
    """Plan the steps. The recipe must be prepared; nothing but its indexes, and lists in `drop_ids`, is read.

    Sources of noise are needed whole: which of their rows are drawn is known only when samples are made.
    """
    stream = RankStream(recipe, None, 0, 1, files)
    for rank in wanted.ranks or (0,):
        check_world(rank, wanted.world_size, stream.plan.lanes)
    found = _Rows()
    steps = None if wanted.count is None else _add_steps(found, recipe, stream, wanted, wanted.count)
    if steps is None:
        found.add_all(stream)
    fingerprints = [stream.plan.fingerprint]
    for split in wanted.splits:
        evaluation = RankStream(recipe, split, 0, wanted.world_size, files)
        found.add_steps(evaluation, picked_steps(evaluation.plan))
        fingerprints.append(evaluation.plan.fingerprint)
    for leaf in noises_of(recipe, [leaf for leaf, _ in found.tables.values()]):
        found.add(leaf, open_table(leaf, recipe, files), None)
    sources = found.sources()
    return StepFiles(
        steps,
        {path: stamp for source in sources for path, stamp in _files_of(source)},
        sources,
        tuple(fingerprints),
        _description(steps, wanted),
        {path: stamp for source in sources for path, stamp in source.table.index.stamps.items()},
    )


def _add_steps(found: _Rows, recipe: Recipe, stream: RankStream, wanted: StepsWanted, count: int) -> range:
    start = _start(recipe, stream, wanted)
    end = found.add_steps(stream, islice(picked_steps(stream.plan, start, wanted.ranks, wanted.world_size), count))
    if end is None:
        raise EndOfStreamError(
            f"there is no step {start.step:,} to fetch", found="the stream ends before it", fix="give an earlier step"
        )
    return range(start.step, end)


def ranks_of_node(node: int, num_nodes: int, world_size: int) -> tuple[int, ...]:
    """The ranks of a node where nodes have as many ranks each, one node after another, as launchers number them."""
    if world_size % num_nodes or not 0 <= node < num_nodes:
        raise RecipeError(
            f"node {node} of {num_nodes} nodes does not exist with {world_size} ranks",
            expected="a number of nodes that divides the number of ranks, and a node from 0 to nodes - 1",
        )
    per_node = world_size // num_nodes
    return tuple(range(node * per_node, (node + 1) * per_node))


def _start(recipe: Recipe, stream: RankStream, wanted: StepsWanted) -> Cursor:
    if wanted.state is None:
        return seek(recipe, stream.plan, wanted.first)
    saved = read_state(wanted.state)
    position = restore(wanted.state, stream.plan, saved.payload)
    check_takeover(position, stream.plan.lanes, wanted.world_size)
    return position.cursor


def _description(numbers: range | None, wanted: StepsWanted) -> str:
    steps = "all steps" if numbers is None else f"steps {numbers[0]:,} to {numbers[-1]:,}"
    if wanted.ranks is not None:
        names = ", ".join(map(str, wanted.ranks))
        steps += f" of {'rank' if len(wanted.ranks) == 1 else 'ranks'} {names} of {wanted.world_size}"
    return " and ".join([steps, *(f"evaluation set {split}" for split in wanted.splits)])


class _Rows:
    """Rows by source, gathered from steps."""

    def __init__(self) -> None:
        self.tables: dict[str, tuple[Leaf, Table]] = {}
        self._rows: dict[str, list[IntArray] | None] = {}

    def add(self, leaf: Leaf, table: Table, rows: IntArray | None) -> None:
        """Rows of a source; None: all of them."""
        self.tables[leaf.path] = leaf, table
        known = self._rows.setdefault(leaf.path, [])
        if rows is None:
            self._rows[leaf.path] = None
        elif known is not None:
            known.append(rows)

    def add_all(self, stream: RankStream) -> None:
        for sources in stream.sources:
            for leaf, table in sources:
                self.add(leaf, table, None)

    def add_steps(self, stream: RankStream, steps: Iterator[tuple[int, list[tuple[int, Picks]]]]) -> int | None:
        """The rows of all picks; returns the step after the last, None where there is none."""
        for sources in stream.sources:
            for leaf, table in sources:  # every source is opened, also one that these steps do not draw
                self.add(leaf, table, np.empty(0, np.int64))
        end = None
        for step, parts in steps:
            end = step + 1
            for number, picks in parts:
                for source in np.unique(picks.source).tolist():
                    leaf, table = stream.sources[number][source]
                    self.add(leaf, table, picks.row[picks.source == source])
        return end

    def sources(self) -> tuple[SourceRows, ...]:
        return tuple(
            SourceRows(leaf, table, None if (rows := self._rows[path]) is None else _distinct(np.concatenate(rows)))
            for path, (leaf, table) in self.tables.items()
        )


def _distinct(values: IntArray) -> IntArray:
    """Each value once, in the order of their first occurrence."""
    _, firsts = np.unique(values, return_index=True)
    found: IntArray = values[np.sort(firsts)]
    return found


def _files_of(source: SourceRows) -> Iterator[tuple[str, Stamp]]:
    """The files of the shards that rows are in."""
    index, rows = source.table.index, source.rows
    shards: Iterable[int] = range(len(index.meta.shards))
    if rows is not None:
        shards = _distinct(index.shards_of(source.table.raw_rows(rows))).tolist()
    for shard in shards:
        yield from ((file.path, file.stamp) for file in index.meta.shards[shard].files)
