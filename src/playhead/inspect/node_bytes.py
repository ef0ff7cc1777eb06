"""The bytes of each source that a node reads in an epoch: whole shards, each counted once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd

import msgspec
import numpy as np

from playhead.deal import check_world
from playhead.errors import RecipeError
from playhead.index.table import Table
from playhead.inspect.shard_peak import unit_bytes
from playhead.plan.plan import Plan
from playhead.recipe.values import Recipe
from playhead.resolve import plan_tables
from playhead.resolve.batching import FloatArray
from playhead.types import IntArray


@dataclass(frozen=True)
class NodeBytes:
    """What the node that reads most reads of a source in one epoch of it, with the recipe's parts and without.

    All shards are counted of which a node is expected to read a row; `num_bytes` are those of the whole source.
    """

    name: str
    num_bytes: int
    with_parts: int
    without_parts: int


@dataclass(frozen=True)
class Nodes:
    """Nodes with as many ranks each, numbered one node after another, and the parts of the recipe."""

    num_nodes: int
    world_size: int
    parts: int
    sources: tuple[NodeBytes, ...]


def node_bytes(
    recipe: Recipe, plan: Plan, tables: Mapping[str, Table], num_nodes: int | None = None, world_size: int | None = None
) -> Nodes:
    """`num_nodes` is by default that of the recipe's parts, as far as they can share the ranks; `world_size` is by
    default one rank for each node. `tables` are by path in the recipe.
    """
    num_nodes = num_nodes or gcd(recipe.parts, world_size or recipe.parts)
    world_size = world_size or num_nodes
    check_world(0, world_size, plan.lanes)
    if world_size % num_nodes:
        raise RecipeError(
            f"{num_nodes} nodes cannot share {world_size} ranks evenly",
            expected="a number of nodes that divides the number of ranks",
            fix="give other --nodes, or the --world of the job",
        )
    by_name = {table.name: table for table in tables.values()}
    with_parts = _read_by_a_node(plan, by_name, num_nodes, world_size)
    without = with_parts
    if recipe.parts > 1:
        whole = plan_tables(msgspec.structs.replace(recipe, parts=1), dict(tables))
        without = _read_by_a_node(whole, by_name, num_nodes, world_size)
    sources = [
        NodeBytes(name, int(by_name[name].unit_bytes[by_name[name].unit_rows > 0].sum()), read, without[name])
        for name, read in with_parts.items()
    ]
    return Nodes(num_nodes, world_size, recipe.parts, tuple(sources))


def _read_by_a_node(plan: Plan, tables: Mapping[str, Table], num_nodes: int, world_size: int) -> dict[str, int]:
    """The bytes of each source on the node that reads most of it."""
    found: dict[str, FloatArray] = {}
    for number, stream in enumerate(plan.streams):
        distinct, which = np.unique(_shares(plan, number, num_nodes, world_size), return_inverse=True)
        for name, order in zip(stream.source_names, stream.orders, strict=True):
            sizes = unit_bytes(tables[name], order)
            read = np.array([_expected_bytes(sizes, order.shard_rows, share) for share in distinct.tolist()])
            found[name] = found.get(name, np.zeros(num_nodes)) + read[which]
    return {name: round(float(read.max())) for name, read in found.items()}


def _expected_bytes(sizes: IntArray, rows: IntArray, share: float) -> float:
    """Of shards whose rows go to a node by chance: of one with many rows, hardly a node gets none."""
    return float(((1 - (1 - share) ** rows) * sizes).sum())


def _shares(plan: Plan, stream: int, num_nodes: int, world_size: int) -> FloatArray:
    """The share of a sub-stream's lanes that each node has: rank r takes lanes r, r + world size, ..."""
    lanes = range(plan.lanes)
    if plan.fuse is None:
        lanes = next(part.lanes for part in plan.parts_at(plan.start()) if part.stream == stream)
    node_of_lane = np.array(lanes) % world_size // (world_size // num_nodes)
    shares: FloatArray = np.bincount(node_of_lane, minlength=num_nodes) / len(lanes)
    return shares
