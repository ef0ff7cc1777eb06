"""What locality costs and buys: each source under its own shuffle, beside others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
import numpy as np

from playhead.index.table import Table
from playhead.inspect.mixing import source_mixing
from playhead.inspect.shard_peak import shard_peak
from playhead.plan.plan import Plan
from playhead.recipe.tree import with_sources
from playhead.recipe.values import Recipe, Source
from playhead.resolve import plan_tables

_FACTORS = (0.5, 1, 2, 4)
_MOST_SOURCES = 16


@dataclass(frozen=True)
class ShuffleFigures:
    """A shuffle of a source: its mixing score (mixing.py), and the most units and bytes that are in use at a time.

    `group` is its number of units in a group, None without groups. `chosen` is the one in the recipe.
    """

    shuffle: str
    group: int | None
    mixing: float
    units_in_use: int
    bytes_in_use: int
    chosen: bool


@dataclass(frozen=True)
class SourceShuffles:
    """The shuffles of a source, from the most local to `global`. `unit` is what a group consists of."""

    name: str
    unit: str
    num_units: int
    shuffles: tuple[ShuffleFigures, ...]


def source_shuffles(recipe: Recipe, plan: Plan, tables: Mapping[str, Table]) -> tuple[tuple[SourceShuffles, ...], ...]:
    """The figures of each sub-stream's sources; of parts, those of the first. The largest sources only, where many.

    Other shuffles are those of the same recipe in which every shuffled source has them, with windows that suit them.
    `tables` are by the path of their source in the recipe.
    """
    by_name = {table.name: table for table in tables.values()}
    plans = [plan]
    if any(order.shuffle != "none" for stream in plan.streams for order in stream.orders):
        others = [_with_groups(recipe, by_name, factor) for factor in _FACTORS] + [_all_global(recipe)]
        plans += [plan_tables(other, dict(tables)) for other in others]
    streams = range(1 if plan.interleaved else len(plan.streams))
    return tuple(_of_stream(plans, stream, by_name) for stream in streams)


def _of_stream(plans: list[Plan], stream: int, tables: Mapping[str, Table]) -> tuple[SourceShuffles, ...]:
    own = plans[0].streams[stream]
    chosen = sorted(sorted(range(len(own.orders)), key=lambda i: -own.orders[i].num_rows)[:_MOST_SOURCES])
    figures = [_figures(plan, stream, chosen, tables, is_own=plan is plans[0]) for plan in plans]
    found = []
    for nth, i in enumerate(chosen):
        ways = {(each[nth].shuffle, each[nth].group): each[nth] for each in reversed(figures)}
        if own.orders[i].shuffle == "none":
            ways = {("none", None): figures[0][nth]}
        in_order = sorted(ways.values(), key=lambda each: (each.shuffle == "global", each.group or 0))
        name, num_units = own.source_names[i], int(np.count_nonzero(own.orders[i].shard_rows))
        found.append(SourceShuffles(name, tables[name].unit, num_units, tuple(in_order)))
    return tuple(found)


def _figures(
    plan: Plan, stream: int, sources: list[int], tables: Mapping[str, Table], *, is_own: bool
) -> list[ShuffleFigures]:
    """The figures of some sources in one plan."""
    found = []
    part = plan.streams[stream]
    for source, mixing in zip(sources, source_mixing(plan, stream, sources), strict=True):
        order = part.orders[source]
        peak = shard_peak(part, source, tables[part.source_names[source]])
        group = min(order.group, len(order.shard_rows)) if order.shuffle == "shards" else None
        found.append(ShuffleFigures(order.shuffle, group, mixing, peak.num_shards, peak.num_bytes, chosen=is_own))
    return found


def _with_groups(recipe: Recipe, tables: Mapping[str, Table], factor: float) -> Recipe:
    def changed(source: Source, _: str) -> Source:
        if source.shuffle == "none" or source.name not in tables:
            return source
        group = max(1, min(int(source.shuffle_group * factor), len(tables[source.name].unit_rows)))
        return msgspec.structs.replace(source, shuffle="shards", shuffle_group=group)

    return with_sources(recipe, changed)


def _all_global(recipe: Recipe) -> Recipe:
    return with_sources(
        recipe,
        lambda source, _: source if source.shuffle == "none" else msgspec.structs.replace(source, shuffle="global"),
    )
