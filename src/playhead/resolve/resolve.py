"""From a recipe and its prepared sources to the plan. Nothing is read but what the tables map."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from playhead.errors import RecipeError
from playhead.index.table import Table
from playhead.order.exhaustion import Mixture, blend_key, pieces_of
from playhead.order.picks import Piece
from playhead.order.shares import fixed_point, weighted
from playhead.order.source_order import SourceOrder
from playhead.plan.plan import Plan
from playhead.plan.rules import Rule
from playhead.plan.segments import Segment, Stream
from playhead.recipe.tree import Branch, Leaf, branches, evaluation_branch
from playhead.recipe.values import Recipe
from playhead.resolve.batching import Profile, default_balance, profile, resolve_rule
from playhead.resolve.fingerprints import first_link
from playhead.resolve.overlong import check_overlong
from playhead.resolve.shard_ranges import shard_ranges
from playhead.resolve.weights import check_turns, check_weights, sample_weights
from playhead.resolve.window_size import Drawn, default_window_size
from playhead.seeds import extend, key


@dataclass(frozen=True)
class Member:
    """A source of a sub-stream: its leaf, its table, and how often it is drawn."""

    leaf: Leaf
    table: Table
    weight: Fraction


def resolve(recipe: Recipe, tables: Mapping[str, Table], world_size: int = 1) -> Plan:
    """The plan of a recipe's training stream. `world_size` only says whether `lanes` may be left out."""
    found = branches(recipe)
    lanes = lanes_of(recipe, world_size)
    if recipe.parts > 1:
        (branch,) = found
        streams = tuple(_stream(recipe, branch, tables, lanes // recipe.parts, part) for part in range(recipe.parts))
    else:
        streams = tuple(_stream(recipe, branch, tables, branch.lanes or lanes) for branch in found)
    fuse = None
    if isinstance(recipe.fuse, dict):
        weights = [Fraction(str(recipe.fuse[branch.name])) for branch in found]
        check_turns(found, weights)
        fuse = weighted(weights, key(recipe.seed, "fuse"))
    used = [[tables[leaf.path] for leaf in leaves] for leaves in leaves_by_stream(recipe)]
    return Plan(streams, fuse, (first_link(streams, fuse, used),), interleaved=recipe.parts > 1)


def resolve_evaluation(recipe: Recipe, split: str, tables: Mapping[str, Table], world_size: int = 1) -> Plan:
    """The plan of a named evaluation set: source after source in file order, every row once."""
    branch = evaluation_branch(recipe, split)
    chosen = [(leaf, tables[leaf.path]) for leaf in branch.leaves()]
    members = [Member(leaf, table, Fraction(table.num_rows)) for leaf, table in chosen]
    pieces = []
    first = 0
    for i, member in enumerate(members):
        base = np.zeros(len(members), np.int64)
        alone = weighted([Fraction(1)], 0)
        pieces.append(Piece(first, first + member.table.num_rows, np.array([i]), base, alone))
        first += member.table.num_rows
    orders = tuple(SourceOrder(member.table.num_rows, "none", 0) for member in members)
    lanes = branch.lanes or world_size
    rule, size = _rule_and_window(branch, members, orders, lanes)
    stream = _assembled(branch, recipe.seed, members, orders, tuple(pieces), (rule, size, lanes))
    return Plan((stream,), None, (first_link((stream,), None, [[member.table for member in members]]),))


def leaves_by_stream(recipe: Recipe, split: str | None = None) -> list[list[Leaf]]:
    """The sources of each sub-stream in the plan's order; all parts share those of the one branch."""
    if split is not None:
        return [list(evaluation_branch(recipe, split).leaves())]
    return [_by_name(branch) for branch in branches(recipe)] * recipe.parts


def _by_name(branch: Branch) -> list[Leaf]:
    return sorted(branch.leaves(), key=lambda leaf: leaf.source.name)


def lanes_of(recipe: Recipe, world_size: int) -> int:
    """The lanes of the training stream. They may be left out with one rank only."""
    if recipe.lanes is None and world_size > 1:
        raise RecipeError(
            "lanes: is missing, and it decides what an optimizer step sees",
            found=f"{world_size} ranks",
            expected="the number of micro-batches in a step, a multiple of the number of ranks",
            fix=f"add `lanes: {world_size}` to the recipe",
        )
    return recipe.lanes or 1


def _stream(recipe: Recipe, branch: Branch, tables: Mapping[str, Table], lanes: int, part: int | None = None) -> Stream:
    weights = sample_weights(branch, tables)
    leaves = _by_name(branch)
    if recipe.epochs is None:
        check_weights(branch, [(leaf, weights[leaf.path]) for leaf in leaves])
    else:
        weights = {leaf.path: Fraction(tables[leaf.path].num_rows) for leaf in leaves}
    members = [Member(leaf, tables[leaf.path], weights[leaf.path]) for leaf in leaves]
    orders = tuple(_order_of(recipe, member, part) for member in members)
    mixture = Mixture(
        np.arange(len(members)),
        tuple(member.weight for member in members),
        np.array([order.num_rows for order in orders]),
        blend_key(recipe.seed, _stream_name(branch, part), segment=0),
    )
    pieces = pieces_of(mixture, recipe.exhaustion, recipe.epochs, 0, np.zeros(len(members), np.int64))
    rule, size = _rule_and_window(branch, members, orders, lanes)
    return _assembled(branch, recipe.seed, members, orders, pieces, (rule, size, lanes), part, recipe.epochs)


def _assembled(
    branch: Branch,
    seed: int,
    members: list[Member],
    orders: tuple[SourceOrder, ...],
    pieces: tuple[Piece, ...],
    rules: tuple[Rule, int, int],
    part: int | None = None,
    epochs: int | None = None,
) -> Stream:
    rule, size, lanes = rules
    balance = branch.balance or default_balance(lanes)
    segment = Segment(0, 0, 0, pieces, size, lanes, balance, rule)
    return Stream(
        _stream_name(branch, part),
        seed,
        tuple(member.leaf.source.name for member in members),
        orders,
        tuple(member.table.lengths_of if member.table.histogram else None for member in members),
        tuple(member.table.outputs_of if member.table.output_histogram else None for member in members),
        (segment,),
        epochs,
    )


def _stream_name(branch: Branch, part: int | None) -> str:
    return branch.name if part is None else f"{branch.name}#{part}"


def _order_of(recipe: Recipe, member: Member, part: int | None) -> SourceOrder:
    source, table = member.leaf.source, member.table
    order_key = key(recipe.seed, "shuffle", source.name)
    rows, first_row = table.unit_rows, 0
    if part is not None:
        first, stop = shard_ranges(member.leaf, rows, recipe.parts)[part]
        rows, first_row = rows[first:stop], int(rows[:first].sum())
        order_key = extend(order_key, "part", part)
    return SourceOrder(int(rows.sum()), source.shuffle, order_key, rows, source.shuffle_group, first_row)


def _rule_and_window(
    branch: Branch, members: list[Member], orders: tuple[SourceOrder, ...], lanes: int
) -> tuple[Rule, int]:
    shares = _shares(members)
    inputs, outputs = _profiles(members, shares)
    rule = resolve_rule(members[0].leaf, inputs, outputs)
    for member in members:
        check_overlong(member.leaf, member.table)
    if branch.window_size is not None:
        return rule, branch.window_size
    return rule, default_window_size(rule, lanes, Drawn(inputs, outputs, tuple(zip(orders, shares, strict=True))))


def _shares(members: list[Member]) -> list[float]:
    """The share of each source in the draws."""
    shares = [float(share) for share in fixed_point([member.weight for member in members])]
    total = sum(shares)
    return [share / total for share in shares]


def _profiles(members: list[Member], shares: list[float]) -> tuple[Profile | None, Profile | None]:
    tables = [member.table for member in members]
    inputs = [(t.histogram, t.longest) for t in tables if t.histogram and t.longest]
    outputs = [(t.output_histogram, t.longest_output) for t in tables if t.output_histogram and t.longest_output]
    found = [
        profile([h for h, _ in side], shares, max(longest for _, (_, longest) in side))
        if len(side) == len(members)
        else None
        for side in (inputs, outputs)
    ]
    return found[0], found[1]
