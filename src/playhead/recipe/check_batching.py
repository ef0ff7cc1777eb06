"""Rules about batching, and whether its numbers fit the unit of the sources."""

from __future__ import annotations

from playhead.errors import RecipeError
from playhead.recipe.tree import Leaf
from playhead.recipe.units import in_units, length_limit
from playhead.recipe.values import Bucket, Fixed


def check_batching(leaves: tuple[Leaf, ...]) -> None:
    """Leaves of one sub-stream: they share the batching, and their units agree."""
    first = leaves[0]
    path = first.batching_path
    if isinstance(first.batching, Bucket):
        _check_bucket(first.batching, path)
        if _has_pairs(first.batching):
            _check_outputs(leaves, path)
        _check_bucket_units(first, path)
    if isinstance(first.batching, Fixed) and first.batching.overlong == "alone" and first.batching.max_length:
        raise RecipeError(
            f"{path}.overlong: a sample cannot be batched alone if every micro-batch has {first.batching.size} samples",
            found="alone",
            expected="one of: error, drop, truncate; or another type of batching",
        )
    length_limit(first.batching, first.unit, path)


def _check_bucket(batching: Bucket, path: str) -> None:
    _exactly_one(path, "edges", batching.edges, "num", batching.num)
    _exactly_one(path, "size", batching.size, "budget", batching.budget)
    if batching.quadratic is not None and batching.budget is None:
        raise RecipeError(
            f"{path}.quadratic: needs `budget`",
            fix="remove it, or give `budget` instead of `size`",
        )
    if isinstance(batching.num, int) and batching.num < 1:
        raise RecipeError(f"{path}.num: must be at least 1", found=str(batching.num))
    if batching.edges is not None:
        _check_edges(batching.edges, f"{path}.edges")
    if isinstance(batching.size, list) and len(batching.size) != num_buckets(batching):
        raise RecipeError(
            f"{path}.size: a list must have one entry for each bucket",
            found=f"{len(batching.size)} sizes for {num_buckets(batching)} buckets",
        )


def num_buckets(batching: Bucket) -> int:
    """The number of buckets in the recipe."""
    if batching.edges is not None:
        return len(batching.edges)
    assert batching.num is not None
    return batching.num[0] * batching.num[1] if isinstance(batching.num, tuple) else batching.num


def _exactly_one(path: str, one: str, first: object, other: str, second: object) -> None:
    if (first is None) == (second is None):
        raise RecipeError(
            f"{path}: needs exactly one of `{one}` and `{other}`",
            found="both" if first is not None else "neither",
            fix=f"remove one of them, or add one: see {one} and {other} in docs/recipe.md",
        )


def _check_edges(edges: list[float | tuple[float, float]], path: str) -> None:
    if not edges:
        raise RecipeError(f"{path}: is empty", expected="the upper edge of each bucket")
    pairs = [edge if isinstance(edge, tuple) else (edge,) for edge in edges]
    if len({len(pair) for pair in pairs}) > 1:
        raise RecipeError(f"{path}: mixes numbers and pairs", expected="a number for each bucket, or a pair for each")
    if min(pairs[0]) <= 0:
        raise RecipeError(f"{path}[0]: an edge must be above 0", found=f"{min(pairs[0]):g}")
    for i in range(1, len(pairs)):
        if pairs[i - 1] >= pairs[i]:
            before, after = (", ".join(f"{number:g}" for number in pair) for pair in (pairs[i - 1], pairs[i]))
            raise RecipeError(
                f"{path}[{i}]: the edges do not increase",
                found=f"{before} and then {after}",
                expected="each edge above the previous one"
                + ("; pairs by input length, then by output length" if len(pairs[i]) > 1 else ""),
            )


def _has_pairs(batching: Bucket) -> bool:
    return isinstance(batching.num, tuple) or any(isinstance(edge, tuple) for edge in batching.edges or ())


def _check_outputs(leaves: tuple[Leaf, ...], path: str) -> None:
    for leaf in leaves:
        if leaf.source.output_length is None:
            raise RecipeError(
                f'{leaf.path} "{leaf.source.name}": `output_length` is missing, and {path} has buckets of two lengths',
                fix="say which field holds it, for example `output_length: num_tokens`",
            )


def _check_bucket_units(leaf: Leaf, path: str) -> None:
    batching = leaf.batching
    assert isinstance(batching, Bucket)
    for name, number in (("budget", batching.budget), ("quadratic", batching.quadratic)):
        if number is not None:
            in_units(number, leaf.unit, f"{path}.{name}")
    for i, edge in enumerate(batching.edges or ()):
        here = f"{path}.edges[{i}]"
        if isinstance(edge, tuple):
            in_units(edge[0], leaf.unit, f"{here}[0]")
            in_units(edge[1], leaf.output_unit, f"{here}[1]")
        else:
            in_units(edge, leaf.unit, here)
