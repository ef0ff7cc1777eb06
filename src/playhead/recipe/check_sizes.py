"""Sizes that could not be planned, kept in memory or counted are refused early, with the limit."""

from __future__ import annotations

from collections.abc import Iterator

from playhead.errors import RecipeError
from playhead.recipe.tree import Branch, Leaf
from playhead.recipe.units import LARGEST_LENGTH, readable
from playhead.recipe.values import Bucket, Budget, Fixed, Pack, Recipe, Unit

LARGEST_SEED = 2**64 - 1
MOST_LANES = 1 << 16
MOST_SAMPLES = 1 << 20  # in a micro-batch
LARGEST_WINDOW = 1 << 22  # samples, and so those of a step
MOST_BUCKETS = 1 << 10
LARGEST_PACK = 1 << 24  # the search for free space takes longer in longer bins
LARGEST_BATCH = 1 << 26  # total length of a padded micro-batch
MOST_ELEMENTS = 1 << 32  # of one field of a padded micro-batch
MOST_EPOCHS = 1_000_000
MOST_SHARDS = 1_000_000
FASTEST_RATE = 1_000_000_000


def check_sizes(recipe: Recipe) -> None:
    """Sizes at the top of a recipe; sizes of batches are checked with the sources that share them."""
    if not 0 <= recipe.seed <= LARGEST_SEED:
        raise RecipeError(
            "seed: must be a whole number of 64 bits that is not negative",
            found=str(recipe.seed),
            expected=f"0 to {LARGEST_SEED}",
            fix="give another number",
        )
    for path, lanes in _said(recipe, "lanes"):
        _at_most(path, lanes, MOST_LANES, "lower it: a step has `lanes` micro-batches, a multiple of the ranks")
    for path, size in _said(recipe, "window_size"):
        _at_most(path, size, LARGEST_WINDOW, "lower it, or remove the line: the default suits the batching")
    _at_most("parts", recipe.parts, MOST_LANES, "lower it: every part needs its own lanes and shards")
    if recipe.epochs is not None:
        _at_most("epochs", recipe.epochs, MOST_EPOCHS, "remove the line: without it the stream is endless")
    if recipe.sequence_rate is not None and not 1 <= recipe.sequence_rate <= FASTEST_RATE:
        raise RecipeError(
            "sequence_rate: out of range",
            found=f"{recipe.sequence_rate:g}",
            expected=f"1 to {FASTEST_RATE:,}",
            fix="give the steps of the sequence field in a second, for example `sequence_rate: 16000`",
        )


def check_batch_sizes(branch: Branch, recipe: Recipe) -> None:
    """The batching of a sub-stream or an evaluation set, with its lanes and its unit."""
    leaf = branch.leaves()[0]
    lanes = branch.lanes or recipe.lanes or 1
    for where, size in _samples(leaf):
        _at_most(where, size, MOST_SAMPLES, "lower it: it counts the samples of one micro-batch, on one rank")
        if size * lanes > LARGEST_WINDOW:
            raise _too_large(
                f"{where}: a step of {lanes:,} lanes would have {size * lanes:,} samples",
                str(size),
                LARGEST_WINDOW // lanes,
                "lower it, or `lanes`",
            )
    for where, length, most, unit in _lengths(leaf):
        if length > (most / 1000 if unit == "seconds" else most):
            fix = "lower it: no micro-batch of this size could be kept in memory, and no sample is longer"
            raise _too_large(f"{where}: is too large", f"{length:g}", readable(most, unit), fix)
    if isinstance(leaf.batching, Bucket):
        _check_num_buckets(leaf.batching, leaf.batching_path)
    _check_padded(leaf, recipe)
    for each in branch.leaves():
        fix = "lower it, or write `shuffle: global`, which mixes all shards"
        _at_most(f"{each.path}.shuffle_group", each.source.shuffle_group, MOST_SHARDS, fix)


def _said(recipe: Recipe, field: str) -> Iterator[tuple[str, int]]:
    """A number of the recipe, of its groups and of its evaluation sets, each with its path."""
    places: list[tuple[str, object]] = [("", recipe)]
    places += [(f"sources[{i}].", entry) for i, entry in enumerate(recipe.sources)]
    places += [(f"evaluation.{name}.", chosen) for name, chosen in recipe.evaluation.items()]
    for path, place in places:
        number = getattr(place, field, None)
        if number is not None:
            yield f"{path}{field}", number


def _samples(leaf: Leaf) -> Iterator[tuple[str, int]]:
    """The sizes of micro-batches in samples, if the recipe sets them."""
    batching, where = leaf.batching, f"{leaf.batching_path}.size"
    if isinstance(batching, Fixed) or (isinstance(batching, Bucket) and isinstance(batching.size, int)):
        assert isinstance(batching.size, int)
        yield where, batching.size
    elif isinstance(batching, Bucket) and isinstance(batching.size, list):
        yield from ((f"{where}[{i}]", size) for i, size in enumerate(batching.size))


def _lengths(leaf: Leaf) -> Iterator[tuple[str, float, int, Unit]]:
    """Every length the batching names, with its place, bound and unit."""
    batching, where, unit = leaf.batching, leaf.batching_path, leaf.unit
    if isinstance(batching, Fixed | Pack) and batching.max_length is not None:
        most = LARGEST_PACK if isinstance(batching, Pack) else LARGEST_LENGTH
        yield f"{where}.max_length", batching.max_length, most, unit
    if isinstance(batching, Budget | Bucket) and batching.budget is not None:
        yield f"{where}.budget", batching.budget, LARGEST_BATCH, unit
    if isinstance(batching, Budget | Bucket) and batching.quadratic is not None:
        yield f"{where}.quadratic", batching.quadratic, LARGEST_LENGTH, unit
    for i, edge in enumerate((batching.edges or ()) if isinstance(batching, Bucket) else ()):
        if isinstance(edge, tuple):
            yield f"{where}.edges[{i}][0]", edge[0], LARGEST_LENGTH, unit
            yield f"{where}.edges[{i}][1]", edge[1], LARGEST_LENGTH, leaf.output_unit
        else:
            yield f"{where}.edges[{i}]", edge, LARGEST_LENGTH, unit


def _check_num_buckets(batching: Bucket, path: str) -> None:
    fix = "lower it: the more buckets, the longer a window that fills them all"
    if batching.edges is not None and len(batching.edges) > MOST_BUCKETS:
        raise _too_large(f"{path}.edges: too many buckets", f"{len(batching.edges):,}", MOST_BUCKETS, fix)
    num = batching.num
    total = num[0] * num[1] if isinstance(num, tuple) else num
    if total is not None and total > MOST_BUCKETS:
        raise _too_large(f"{path}.num: too many buckets", f"{total:,}", MOST_BUCKETS, fix)


def _check_padded(leaf: Leaf, recipe: Recipe) -> None:
    """Refuse padding to more than could be kept in memory."""
    if not isinstance(recipe.pad_to, int):
        return
    _at_most("pad_to", recipe.pad_to, LARGEST_BATCH, "lower it: every sample is padded to this length")
    for where, size in _samples(leaf):
        if size * recipe.pad_to > MOST_ELEMENTS:
            raise _too_large(
                f"pad_to: {size:,} samples ({where}) would be padded to {size * recipe.pad_to:,} elements",
                str(recipe.pad_to),
                MOST_ELEMENTS // size,
                f"lower it, or `{where}`; or write `pad_to: batch`",
            )


def _at_most(path: str, number: int, most: int, fix: str) -> None:
    if number > most:
        raise _too_large(f"{path}: is too large", str(number), most, fix)


def _too_large(problem: str, found: str, most: int | str, fix: str) -> RecipeError:
    bound = f"{most:,}" if isinstance(most, int) else most
    return RecipeError(problem, found=found, expected=f"at most {bound}", fix=fix)
