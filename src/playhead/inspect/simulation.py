"""A recipe at any scale, without data: the planner over simulated indexes.

Rows of a simulated source have the lengths of rows of the prepared one, drawn by hash; a source that is not prepared
has invented ones. Everything else (order, plan, deal, state) is the code that a job runs.
"""

from __future__ import annotations

import json
import time
import tracemalloc
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import gcd
from typing import cast

import msgspec
import numpy as np

from playhead.deal import lanes_of_rank, lanes_per_rank
from playhead.errors import NotPreparedError, RecipeError
from playhead.feed.loader import Loader
from playhead.feed.state import Position, save
from playhead.feed.totals import nothing_yet
from playhead.formats.schema import bytes_per_row, schema_of
from playhead.index.histogram import Histogram, Tally
from playhead.index.table import Table, open_table
from playhead.order.hashing import fold_each
from playhead.order.picks import Picks, draw_of
from playhead.plan.cursor import Cursor, Place
from playhead.plan.plan import Plan
from playhead.plan.segments import Stream, segment_at
from playhead.plan.window import Window
from playhead.recipe.check_sizes import MOST_LANES
from playhead.recipe.storage import files_of
from playhead.recipe.tree import Leaf, branches
from playhead.recipe.values import Group, Recipe
from playhead.resolve.resolve import resolve
from playhead.seeds import key
from playhead.store import CountingFiles
from playhead.types import IntArray, LengthArray

DEFAULT_ROWS = 10**12
_INVENTED_ROWS = 1 << 16
_ROWS_OF_A_SHARD = 1 << 17
_MOST_SHARDS = 1 << 20
_PICKS_TRACED = 16
_SELECTION_BYTES = 0.2  # of a row: a bit, and counts


@dataclass(frozen=True)
class Simulation:
    """The number of ranks and rows to simulate, and of windows to plan."""

    num_ranks: int
    num_rows: int
    num_windows: int = 4
    ranks_per_node: int = 8


@dataclass(frozen=True)
class StreamResult:
    """A sub-stream over the windows that were planned.

    `broken` are the laws that did not hold, with the window; none is what is expected. `planning_seconds` is CPU time
    of one rank for one step, `planning_bytes` the most memory that planning a window took. `uneven` is how much more
    than the mean the largest lane of a step holds, in length where there are lengths.
    """

    name: str
    lanes: int
    window_size: int
    windows: tuple[int, ...]
    steps_per_window: float
    samples_per_step: float
    uneven: float
    planning_seconds: float
    planning_bytes: int
    broken: tuple[str, ...]


@dataclass(frozen=True)
class SimulationResult:
    """What a job of this size would cost. `invented` are the sources whose lengths are not real; `requests` those that
    opening the recipe makes to its storage, None where it is not prepared.
    """

    num_ranks: int
    num_rows: int
    lanes: int
    lanes_of_recipe: int
    streams: tuple[StreamResult, ...]
    state_bytes: int
    index_bytes: int
    node_planning_bytes: int
    requests: int | None
    invented: tuple[str, ...] = field(default=())

    @property
    def passed(self) -> bool:
        return not any(stream.broken for stream in self.streams)


def simulate(recipe: Recipe, how: Simulation) -> SimulationResult:
    """Plan windows of a recipe as if it had that many rows and ranks, and check the laws of the stream on them."""
    scaled = with_ranks(recipe, how.num_ranks)
    bases = {leaf.path: _base(leaf, recipe) for branch in branches(recipe) for leaf in branch.leaves()}
    total = sum(base.num_rows for base in bases.values())
    shares = {path: max(1, how.num_rows * base.num_rows // total) for path, base in bases.items()}
    leaves = {leaf.path: leaf for branch in branches(scaled) for leaf in branch.leaves()}
    tables = {path: _simulated(leaves[path], base, shares[path]) for path, base in bases.items()}
    plan = resolve(scaled, cast("Mapping[str, Table]", tables), how.num_ranks)
    streams = tuple(_measured(Plan((stream,), None, plan.chain), plan.lanes, how) for stream in plan.streams)
    state = save(Position(plan.start(), 0, nothing_yet(plan)), plan, "0" * 16)
    return SimulationResult(
        how.num_ranks,
        sum(shares.values()),
        plan.lanes,
        recipe.lanes or 1,
        streams,
        len(json.dumps(state)),
        round(sum(_index_bytes(base) * shares[path] for path, base in bases.items())),
        how.ranks_per_node * sum(stream.planning_bytes for stream in streams),
        _requests(recipe),
        tuple(leaves[path].source.name for path, base in bases.items() if isinstance(base, InventedTable)),
    )


def with_ranks(recipe: Recipe, num_ranks: int) -> Recipe:
    """The recipe with the fewest lanes, a multiple of its own, that the ranks divide; groups in proportion."""
    lanes = recipe.lanes or 1
    factor = num_ranks // gcd(lanes, num_ranks)
    if lanes * factor > MOST_LANES:
        raise RecipeError(
            f"--ranks {num_ranks:,}: needs more lanes than a step can have",
            found=f"{lanes * factor:,} lanes, the least multiple of {lanes:,} that {num_ranks:,} divides",
            expected=f"{MOST_LANES:,} at most",
            fix=f"simulate a number of ranks that divides a small multiple of {lanes:,}",
        )
    scaled = msgspec.structs.replace(recipe, lanes=lanes * factor, window_size=None)
    groups = [
        msgspec.structs.replace(entry, lanes=entry.lanes * factor, window_size=None)
        if isinstance(entry, Group) and entry.lanes is not None
        else entry
        for entry in scaled.sources
    ]
    return msgspec.structs.replace(scaled, sources=groups)


class InventedTable:
    """Rows of a source that is not prepared: lengths spread as those of speech and text are, up to what fits."""

    def __init__(self, leaf: Leaf) -> None:
        longest = leaf.limit or 1 << 12
        noise = np.random.Generator(np.random.Philox(key=key("simulate", leaf.source.name)))
        middle = np.log(max(2, longest) / 8)
        self.num_rows = _INVENTED_ROWS
        self._lengths = np.clip(noise.lognormal(middle, 0.9, _INVENTED_ROWS), 1, longest).astype(np.uint32)
        outputs = min(leaf.output_limit or longest, longest)
        self._outputs = np.clip(self._lengths // 4, 1, outputs).astype(np.uint32)
        has_outputs = leaf.source.output_length is not None
        self.histogram = _histogram(self._lengths) if leaf.source.length is not None else None
        self.output_histogram = _histogram(self._outputs) if has_outputs else None
        self.longest = (0, int(self._lengths.max())) if self.histogram else None
        self.longest_output = (0, int(self._outputs.max())) if has_outputs else None
        self.length_sum = int(self._lengths.sum())

    def lengths_of(self, rows: IntArray) -> LengthArray:
        found: LengthArray = self._lengths[rows]
        return found

    def outputs_of(self, rows: IntArray) -> LengthArray:
        found: LengthArray = self._outputs[rows]
        return found


@dataclass(frozen=True)
class SimulatedTable:
    """A source of any size, with the interface of a Table; the lengths of its rows are those of rows of its base."""

    name: str
    num_rows: int
    unit_rows: IntArray
    base: Table | InventedTable
    key: int
    lengths_digest: str = "simulated"

    @property
    def shard_rows(self) -> IntArray:
        return self.unit_rows

    @property
    def length_sum(self) -> int:
        return self.base.length_sum * self.num_rows // self.base.num_rows

    @property
    def histogram(self) -> Histogram | None:
        return self.base.histogram

    @property
    def output_histogram(self) -> Histogram | None:
        return self.base.output_histogram

    @property
    def longest(self) -> tuple[int, int] | None:
        return self.base.longest

    @property
    def longest_output(self) -> tuple[int, int] | None:
        return self.base.longest_output

    def lengths_of(self, rows: IntArray) -> LengthArray:
        return self.base.lengths_of(self._base_rows(rows))

    def outputs_of(self, rows: IntArray) -> LengthArray:
        return self.base.outputs_of(self._base_rows(rows))

    def place(self, row: int) -> str:
        return f"simulated row {row:,}"

    def _base_rows(self, rows: IntArray) -> IntArray:
        hashed = fold_each(self.key, rows.astype(np.uint64))
        return (hashed % np.uint64(self.base.num_rows)).astype(np.int64)


def _histogram(lengths: LengthArray) -> Histogram:
    tally = Tally()
    tally.add(lengths)
    return tally.histogram()


def _base(leaf: Leaf, recipe: Recipe) -> Table | InventedTable:
    try:
        return open_table(leaf, recipe)
    except NotPreparedError:
        return InventedTable(leaf)


def _simulated(leaf: Leaf, base: Table | InventedTable, num_rows: int) -> SimulatedTable:
    """If shards are shuffled, their number grows with the number of rows, up to a bound."""
    num_units = 1
    if leaf.source.shuffle == "shards":
        per_unit = _ROWS_OF_A_SHARD if isinstance(base, InventedTable) else max(1, int(np.mean(base.unit_rows)))
        num_units = min(_MOST_SHARDS, -(-num_rows // per_unit))
    rows = np.full(num_units, num_rows // num_units, np.int64)
    rows[: num_rows % num_units] += 1
    return SimulatedTable(leaf.source.name, num_rows, rows, base, key("simulate", leaf.source.name))


def _requests(recipe: Recipe) -> int | None:
    """The requests of one rank that opens the recipe, counted."""
    files = CountingFiles(files_of(recipe, "refuse"))
    try:
        Loader(recipe, rank=0, world_size=1, files=files).close()
    except NotPreparedError:
        return None
    return files.counts["list"] + files.counts["stamp"] + files.counts["read"]


def _index_bytes(base: Table | InventedTable) -> float:
    if isinstance(base, InventedTable):
        return 8 + 4 + _SELECTION_BYTES
    meta = base.index.meta
    return bytes_per_row(schema_of(meta.spec, meta.tracks)) + _SELECTION_BYTES


def _measured(plan: Plan, lanes: int, how: Simulation) -> StreamResult:
    """The one sub-stream of a plan, of a stream with that many lanes in all."""
    (stream,) = plan.streams
    segment = segment_at(stream, 0)
    draws = sum(order.num_rows for order in stream.orders)
    windows = _windows(max(1, draws // segment.window_size), how.num_windows, stream.name)
    _lay_out(plan, windows[0], how.num_ranks)  # compiles the kernels
    seconds, steps, samples = 0.0, 0, 0
    uneven: list[float] = []
    broken: list[str] = []
    for number in windows:
        began = time.process_time()
        window = _planned(plan, number)
        _lay_out(plan, number, how.num_ranks)
        seconds += time.process_time() - began
        steps += window.num_steps
        samples += len(window.picks)
        uneven.append(_uneven(window))
        broken += [f"window {number:,}: {law}" for law in _broken_laws(stream, window)]
    return StreamResult(
        stream.name,
        segment.lanes,
        segment.window_size,
        windows,
        steps / len(windows),
        samples / steps,
        float(np.mean(uneven)),
        seconds / steps,
        _peak_bytes(plan, windows[-1]),
        (*broken, *_broken_deals(how.num_ranks, lanes)),
    )


def _windows(last: int, count: int, stream: str) -> tuple[int, ...]:
    """The first window, the last of the first pass over the rows, and some between, drawn by key."""
    drawn = [key("simulate", "window", stream, i) % last for i in range(count - 2)]
    return tuple(sorted({0, last - 1, *drawn})) if count > 1 else (0,)


def _planned(plan: Plan, number: int) -> Window:
    plan._windows.clear()  # noqa: SLF001 - a rank that comes to the window has not planned it yet
    return plan.window(0, number)


def _lay_out(plan: Plan, window: int, num_ranks: int) -> None:
    """The work of a rank with a window: look up the micro-batches of its lanes, step by step."""
    cursor = Cursor(0, (Place(window, 0),), 0, 0)
    while cursor.places[0].window == window:
        found = plan.steps_at(cursor, slice(0, None, num_ranks), 64)
        if found is None:
            return
        cursor = found.after


def _peak_bytes(plan: Plan, number: int) -> int:
    tracemalloc.start()
    try:
        _planned(plan, number)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def _uneven(window: Window) -> float:
    sizes = window.groups.sizes()
    if window.lengths is not None:
        ends = np.cumsum(sizes)
        sums = np.concatenate([[0], np.cumsum(window.lengths[window.groups.members], dtype=np.int64)])
        sizes = sums[ends] - sums[ends - sizes]
    steps = sizes.reshape(window.num_steps, window.lanes)
    return float(steps.max(axis=1).sum() / steps.mean(axis=1).sum() - 1)


def _broken_laws(stream: Stream, window: Window) -> Iterator[str]:
    """The laws of the stream that a window breaks."""
    members, picks = window.groups.members, window.picks
    if not np.array_equal(np.sort(members), np.arange(len(picks))):
        yield "a draw is on no lane, or on two"
    if _has_repeats(picks):
        yield "a row is drawn twice in an epoch"
    segment = segment_at(stream, window.number)
    for i in np.linspace(0, len(picks) - 1, min(_PICKS_TRACED, len(picks))).astype(np.int64).tolist():
        pick = (int(picks.source[i]), int(picks.epoch[i]), int(picks.row[i]))
        if draw_of(segment.pieces, stream.orders, *pick) != window.first_draw + i:
            yield f"the draw of pick {pick} is not the one that it came from"
            return


def _has_repeats(picks: Picks) -> bool:
    for source in range(int(picks.source.max(initial=-1)) + 1):
        mine = picks.source == source
        epochs, rows = picks.epoch[mine], picks.row[mine]
        for epoch in range(int(epochs.min(initial=0)), int(epochs.max(initial=-1)) + 1):
            ordered = np.sort(rows[epochs == epoch])
            if (ordered[1:] == ordered[:-1]).any():
                return True
    return False


def _broken_deals(num_ranks: int, lanes: int) -> Iterator[str]:
    dealt = [lanes_of_rank(rank, num_ranks, lanes) for rank in range(num_ranks)]
    if not np.array_equal(np.sort(np.concatenate([np.asarray(each) for each in dealt])), np.arange(lanes)):
        yield "a lane is dealt to no rank, or to two"
    if {len(each) for each in dealt} != {lanes_per_rank(lanes, num_ranks)}:
        yield "ranks have different numbers of lanes"
