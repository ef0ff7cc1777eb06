"""The recipe's tree of weights as one weight per source, in samples."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Context, Decimal
from fractions import Fraction

from playhead.errors import RecipeError
from playhead.index.table import Table
from playhead.order.shares import LARGEST_BLOCK, too_small
from playhead.recipe.tree import Branch, Leaf, Node

# Powers are taken in decimal arithmetic of a fixed precision: the same on every platform, which libm's are not.
_POWERS = Context(prec=30)
_LEAST = f"{100 / LARGEST_BLOCK:.5f} %"


def sample_weights(branch: Branch, tables: Mapping[str, Table]) -> dict[str, Fraction]:
    """The weight of each source by its path: how often it is drawn.

    On each level members share by their weights, by a temperature over their sizes, or (neither given) by their sizes.
    Sizes, and the weights themselves, are in samples or in length units as `weights_in` says.
    """
    in_length = branch.weights_in == "length"
    weights: dict[str, Fraction] = {}
    _share_out(branch.root, Fraction(1), tables, in_length, weights)
    if in_length:
        weights = {path: weight / _mean_length(tables[path]) for path, weight in weights.items()}
    return weights


def check_weights(branch: Branch, weights: list[tuple[Leaf, Fraction]]) -> None:
    """Refuse a source that would not be drawn once in the largest block."""
    numbers = [weight for _, weight in weights]
    for i in too_small(numbers):
        leaf, _ = weights[i]
        raise RecipeError(
            f'{leaf.path} "{leaf.source.name}": its weight rounds to no sample in a block',
            found=f"{_in_percent(numbers, i)} of the samples of {branch.name}",
            expected=f"at least 1 sample in {LARGEST_BLOCK:,}, that is {_LEAST}",
            fix="raise its weight, or drop the source",
        )


def check_turns(branches: tuple[Branch, ...], weights: list[Fraction]) -> None:
    """Refuse a sub-stream that would not be dealt one step in the largest block."""
    for i in too_small(weights):
        raise RecipeError(
            f"fuse.{branches[i].name}: its weight rounds to no step in a block",
            found=f"{_in_percent(weights, i)} of the steps",
            expected=f"at least 1 step in {LARGEST_BLOCK:,}, that is {_LEAST}",
            fix="raise its weight, or drop the group",
        )


def _in_percent(weights: list[Fraction], i: int) -> str:
    return f"{float(100 * weights[i] / sum(weights, Fraction(0))):.3g} %"


def _share_out(
    node: Node, weight: Fraction, tables: Mapping[str, Table], in_length: bool, weights: dict[str, Fraction]
) -> None:
    own = [_own_weight(node, member, tables, in_length) for member in node.members]
    total = sum(own, Fraction(0))
    for member, share in zip(node.members, own, strict=True):
        part = weight * share / total
        if isinstance(member, Leaf):
            weights[member.path] = part
        else:
            _share_out(member, part, tables, in_length, weights)


def _own_weight(node: Node, member: Node | Leaf, tables: Mapping[str, Table], in_length: bool) -> Fraction:
    stated = member.source.weight if isinstance(member, Leaf) else member.weight
    if stated is not None:
        return Fraction(str(stated))
    size = _size(member, tables, in_length)
    if node.temperature is None:
        return Fraction(size)
    return Fraction(_POWERS.power(Decimal(size), Decimal(str(node.temperature))))


def _size(member: Node | Leaf, tables: Mapping[str, Table], in_length: bool) -> int:
    if isinstance(member, Leaf):
        table = tables[member.path]
        return max(table.length_sum, 1) if in_length else table.num_rows
    return sum(_size(inner, tables, in_length) for inner in member.members)


def _mean_length(table: Table) -> Fraction:
    return Fraction(max(table.length_sum, 1), table.num_rows)
