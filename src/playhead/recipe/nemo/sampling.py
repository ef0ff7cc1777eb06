"""How NeMo's sampler makes batches, as the batching of a recipe, and its filters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from playhead.errors import RecipeError
from playhead.recipe.nemo.report import shown
from playhead.recipe.nemo.sections import Block

_NUM_BUCKETS = 30  # NeMo's default

Limits = list[float | None] | None


@dataclass(frozen=True)
class Filters:
    """Ranges of rows that are kept: seconds, tokens, tokens a second, and output tokens for an input token."""

    duration: Limits
    tokens: Limits
    tokens_per_second: Limits
    tokens_per_token: Limits


@dataclass(frozen=True)
class Sampling:
    """`in_tokens`: lengths are counted in tokens, also those of audio; `total`: of input and output together.

    `pairs`: buckets are of two lengths. `by_length`: batches are planned by length at all.
    """

    batching: dict[str, Any]
    filters: Filters
    in_tokens: bool
    total: bool
    pairs: bool
    by_length: bool
    token_seconds: float | None


def read_sampling(block: Block) -> Sampling:
    """The batching of a dataset, and what is left out."""
    in_tokens = block.flag("use_multimodal_sampling") or block.flag("use_multimodal_dataloading")
    bins = block.take("bucket_duration_bins")
    sizes = block.take("bucket_batch_size")
    bucketing = block.flag("use_bucketing") or bins is not None or sizes is not None
    pairs = bucketing and isinstance(bins, list) and bool(bins) and isinstance(bins[0], list)
    filters = _filters(block)
    num_buckets = block.number("num_buckets", _NUM_BUCKETS)
    if block.flag("pack"):
        batching = _pack(block, in_tokens)
    elif bucketing:
        batching = _buckets(block, bins, sizes, int(num_buckets or _NUM_BUCKETS), in_tokens, filters)
    else:
        batching = _plain(block, in_tokens)
    _note_strictness(block, pairs)
    return Sampling(
        batching=batching,
        filters=filters,
        in_tokens=in_tokens,
        total=block.flag("measure_total_length", True),
        pairs=pairs,
        by_length=batching["type"] != "fixed",
        token_seconds=block.number("token_equivalent_duration"),
    )


def _filters(block: Block) -> Filters:
    """NeMo compares tokens only where it tokenizes before it samples."""
    counted = block.flag("pretokenize", True)
    ratios = []
    for low, high in (("min_tps", "max_tps"), ("min_tpt", "max_tpt")):
        limits = block.limits(low, high)
        if limits is not None and not counted:
            block.notes.ignored(block.at(high), limits, "NeMo does not filter by tokens with `pretokenize: false`")
            limits = None
        ratios.append(limits)
    return Filters(
        block.limits("min_duration", "max_duration"), block.limits("min_tokens", "max_tokens"), ratios[0], ratios[1]
    )


def _budget(block: Block, in_tokens: bool) -> tuple[str, dict[str, Any]]:
    """The key that limits the length of a batch, and the budget with its penalty for long samples."""
    keys = ("batch_tokens", "quadratic_factor") if in_tokens else ("batch_duration", "quadratic_duration")
    other = ("batch_duration", "quadratic_duration") if in_tokens else ("batch_tokens", "quadratic_factor")
    for key in other:
        if block.has(key):
            unit = "tokens" if in_tokens else "seconds"
            block.notes.ignored(block.at(key), block.take(key), f"NeMo counts {unit} here, and does not read it")
    budget, quadratic = block.number(keys[0]), block.number(keys[1])
    if budget is None:
        return keys[0], {}
    return keys[0], {"budget": budget} | ({} if quadratic is None else {"quadratic": quadratic})


def _plain(block: Block, in_tokens: bool) -> dict[str, Any]:
    size = block.number("batch_size")
    key, budget = _budget(block, in_tokens)
    if budget:
        _note_lost_size(block, size, key)
        block.notes.mapped(block.at(key), budget["budget"], "batching of type budget")
        return {"type": "budget", **budget, "overlong": "alone"}
    if size is None:
        raise RecipeError(
            f"{block.place or 'the configuration'}: says no batch size",
            expected=f"`batch_size`, `{key}`, or `bucket_duration_bins` with `bucket_batch_size`",
        )
    block.notes.mapped(
        block.at("batch_size"), size, "batching of type fixed", "the size of a micro-batch, on each rank"
    )
    return {"type": "fixed", "size": size}


def _note_lost_size(block: Block, size: float | None, key: str) -> None:
    if size is not None:
        why = f"`{key}` limits a batch; there is no second limit on its number of samples"
        block.notes.changed(block.at("batch_size"), size, "not kept", why, at="batching")
        block.notes.check(f"Batches are limited by `{key}` alone, no longer by `batch_size: {size}`: check the memory")


def _buckets(
    block: Block, bins: Any, sizes: Any, num_buckets: int, in_tokens: bool, filters: Filters
) -> dict[str, Any]:
    if bins is not None and (not isinstance(bins, list) or not bins):
        raise RecipeError(f"{block.at('bucket_duration_bins')}: is not a list of edges", found=shown(bins))
    if sizes is not None:
        return _sized_buckets(block, bins, sizes)
    if bins is not None and isinstance(bins[0], list):
        raise RecipeError(
            f"{block.at('bucket_duration_bins')}: pairs need `bucket_batch_size`",
            found=shown(bins),
            expected="a batch size for each bucket, as NeMo requires",
        )
    size = block.number("batch_size")
    key, budget = _budget(block, in_tokens)
    if budget:
        _note_lost_size(block, size, key)
    elif size is None:
        raise RecipeError(f"{block.place}: buckets need `{key}`, `batch_size` or `bucket_batch_size`")
    filled: dict[str, Any] = budget or {"size": size}
    edges = _edges(block, bins, num_buckets, budget.get("budget"), in_tokens, filters)
    where = block.at("bucket_duration_bins" if bins is not None else "num_buckets")
    if budget:
        why = "a bucket holds as many samples as fit at its upper edge; NeMo counts by the longest sample of the batch"
        block.notes.changed(block.at(key), budget["budget"], f"budget: {budget['budget']:g}", why, at="batching")
    if edges is None:
        num = num_buckets if bins is None else len(bins) + 1
        why = "buckets of equal total length, as NeMo estimates them"
        if bins is None:
            block.notes.mapped(where, num, f"num: {num}", why)
        else:
            why = f"NeMo's last bucket has no end, and nothing says how long a sample may be: {why}"
            block.notes.changed(where, bins, f"num: {num}", why, at="batching")
        return {"type": "bucket", "num": num, **filled, "overlong": "alone"}
    block.notes.mapped(where, bins or num_buckets, f"edges: {shown(edges)}", "the upper edge of every bucket")
    return {"type": "bucket", "edges": edges, **filled, "overlong": "alone"}


def _edges(
    block: Block, bins: list[float] | None, num_buckets: int, budget: float | None, in_tokens: bool, filters: Filters
) -> list[float] | None:
    """The upper edges. NeMo's bins lie between buckets: the last one ends with the longest sample, or a full batch."""
    limits = filters.tokens if in_tokens else filters.duration
    longest = limits[1] if limits else None
    if bins is None:
        if longest is None or in_tokens:
            return None
        first = (filters.duration or [None])[0] or 0.0
        width = (longest - first) / num_buckets
        return [round(first + width * (i + 1), 3) for i in range(num_buckets)]
    numbers = [block.as_number("bucket_duration_bins", edge) for edge in bins]
    end = longest if longest is not None else budget
    if end is None:
        return None
    return [*(edge for edge in numbers if edge < end), end]


def _sized_buckets(block: Block, bins: Any, sizes: Any) -> dict[str, Any]:
    if bins is None or not isinstance(sizes, list) or len(bins) != len(sizes):
        raise RecipeError(
            f"{block.at('bucket_batch_size')}: needs an edge in `bucket_duration_bins` for each size",
            found=f"{shown(sizes)} for {shown(bins)}",
        )
    for key in ("batch_size", "batch_duration", "batch_tokens", "quadratic_duration", "quadratic_factor"):
        if block.has(key):
            why = "NeMo does not read it where `bucket_batch_size` says the sizes"
            block.notes.ignored(block.at(key), block.take(key), why)
    if block.has("num_buckets"):
        block.notes.ignored(
            block.at("num_buckets"), block.take("num_buckets"), "the bins say how many buckets there are"
        )
    block.notes.mapped(
        block.at("bucket_duration_bins"), bins, "batching.edges", "longer samples are left out, as in NeMo"
    )
    block.notes.mapped(block.at("bucket_batch_size"), sizes, "batching.size")
    return {"type": "bucket", "edges": bins, "size": sizes, "overlong": "drop"}


def _pack(block: Block, in_tokens: bool) -> dict[str, Any]:
    key, budget = _budget(block, in_tokens)
    if not budget:
        raise RecipeError(f"{block.at('pack')}: packs need `{key}`, their length")
    block.notes.mapped(block.at("pack"), True, f"batching of type pack, max_length: {budget['budget']:g}")
    return {"type": "pack", "max_length": budget["budget"], "overlong": "drop"}


def _note_strictness(block: Block, pairs: bool) -> None:
    strict = block.flag("bucketing_2d_strict_mode", True)
    place = block.at("bucketing_2d_strict_mode")
    if pairs and strict:
        why = "a sample whose output is too long for its bucket goes to the next bucket that holds it; NeMo left it out"
        block.notes.changed(place, strict, "not strict", why, at="batching")
    elif block.has("bucketing_2d_strict_mode"):
        block.notes.mapped(place, strict, "batching.edges", "samples go to the first bucket that holds them")
