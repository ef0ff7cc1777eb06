"""Rules about how samples become batches."""

from __future__ import annotations

from playhead.errors import RecipeError
from playhead.recipe.check_source import check_tokenize
from playhead.recipe.imports import check_function_name
from playhead.recipe.tree import Branch, Leaf, branches, evaluation_branch
from playhead.recipe.values import Batching, Bucket, Budget, ImageOptions, MediaOptions, Pack, Recipe
from playhead.recipe.words import nearest
from playhead.store.addresses import is_link_local, is_url, without_query

COLLATES = ("pad", "list")


def check_delivery(recipe: Recipe) -> None:
    if recipe.tokenize is not None:
        check_tokenize(recipe.tokenize, "tokenize")
    if recipe.map is not None:
        check_function_name(recipe.map, "map")
    if recipe.collate not in COLLATES:
        check_function_name(recipe.collate, "collate")
    if recipe.fields is not None and not recipe.fields:
        raise RecipeError("fields: is empty", fix="name those to deliver, or remove the line for all of them")
    if isinstance(recipe.media, MediaOptions):
        for i, prefix in enumerate(recipe.media.allow):
            _check_allowed(prefix, f"media.allow[{i}]")
    if recipe.shard_cache is not None:
        _check_cache_directory(recipe.shard_cache.dir)
    _check_image(recipe.image, "image", recipe)
    if recipe.masks != "always" and recipe.collate != "pad":
        raise RecipeError(
            "masks: only `collate: pad` makes masks",
            found=f"collate: {recipe.collate}",
            fix="remove `masks`; your function decides what is in a batch",
        )
    _check_named_fields(recipe)
    if recipe.sequence is None:
        _check_without_sequence(recipe)
    for branch in (*branches(recipe), *(evaluation_branch(recipe, split) for split in recipe.evaluation)):
        _check_padding(recipe, branch)
        for leaf in branch.leaves():
            _check_measured(recipe, leaf)
            if leaf.source.image is not None:
                _check_image(leaf.source.image, f"{leaf.path}.image", recipe)


def _check_cache_directory(path: str) -> None:
    if not path.strip() or is_url(path) or "\0" in path:
        raise RecipeError(
            "shard_cache.dir: is not a local directory",
            found=without_query(path) or "nothing",
            expected="a directory on a disk of the node: what is read again and again is copied there",
            fix="name a directory that is empty or does not exist yet, as in `dir: /local/copies`",
        )


def _check_allowed(prefix: str, where: str) -> None:
    """A prefix in `allow` must name a bucket, a server or a directory: rows must not choose the host."""
    if not prefix:
        raise RecipeError(f"{where}: is empty", expected="a URL, or a directory")
    scheme, _, rest = prefix.partition("://")
    if is_url(prefix) and (not rest.partition("/")[0] or set("?#@") & set(rest)):
        raise RecipeError(
            f"{where}: does not name a bucket or a server",
            found=without_query(prefix),
            expected=f"{scheme}://<name>/, without a user or a query",
        )
    if is_link_local(prefix):
        raise RecipeError(f"{where}: is a link-local address, which is never read", found=without_query(prefix))


def _check_image(how: ImageOptions, where: str, recipe: Recipe) -> None:
    """Refuse several sizes, and a size beyond the limit for images."""
    given = [name for name in ("size", "shortest", "longest") if getattr(how, name) is not None]
    if len(given) > 1:
        raise RecipeError(
            f"{where}: more than one size is given",
            found=" and ".join(f"`{name}`" for name in given),
            fix="keep one of them",
        )
    width, height = how.size or (how.shortest or how.longest or 1, how.shortest or 1)
    limit = (recipe.media if isinstance(recipe.media, MediaOptions) else MediaOptions()).max_pixels
    if width * height > limit:
        raise RecipeError(
            f"{where}.{given[0]}: is more than one image may have",
            found=f"{width * height:,} pixels or more",
            expected=f"at most {limit:,}",
            fix="make it smaller, or raise `media: {max_pixels: ...}`",
        )


def _check_named_fields(recipe: Recipe) -> None:
    """Dtypes and padding need delivered fields; if `fields` is not given, the first batch is checked."""
    if recipe.dtypes and recipe.collate != "pad":
        raise RecipeError(
            "dtypes: only `collate: pad` makes arrays of numbers",
            found=f"collate: {recipe.collate}",
            fix="remove `dtypes`, and convert the numbers in your function",
        )
    if recipe.fields is None or recipe.collate != "pad":
        return
    for key, names in (("pad_values", recipe.pad_values), ("dtypes", recipe.dtypes)):
        for name in names:
            if name not in recipe.fields:
                raise RecipeError(
                    f"{key}.{name}: is not among the fields that are delivered",
                    found=f"fields: {', '.join(recipe.fields)}",
                    fix="".join(f"did you mean `{near}`? " for near in nearest(name, recipe.fields)[:1])
                    + "Correct the name, remove it, or add it to `fields`",
                )


def _check_without_sequence(recipe: Recipe) -> None:
    """Refuse options that need the sequence field if there is none."""
    other = "remove the other line"
    if recipe.pad_to != "batch":
        raise _needs_sequence("`pad_to` needs a field to pad", f"pad_to: {recipe.pad_to}", other)
    if recipe.on_length_mismatch != "error":
        policy = f"on_length_mismatch: {recipe.on_length_mismatch}"
        raise _needs_sequence("`on_length_mismatch` has nothing to compare", policy, other)
    for branch in (*branches(recipe), *(evaluation_branch(recipe, split) for split in recipe.evaluation)):
        if isinstance(branch.batching, Pack) and recipe.collate == "pad":
            found = f"{branch.name} has batching of type pack"
            raise _needs_sequence("packs need a field to pack", found, "set `collate: list` or name a function")


def _needs_sequence(problem: str, found: str, other: str) -> RecipeError:
    fix = f"name the field that lengths count, for example `sequence: tokens`, or {other}"
    return RecipeError(f"sequence: null: {problem}", found=found, fix=fix)


def _check_padding(recipe: Recipe, branch: Branch) -> None:
    batching = branch.batching
    if recipe.pad_to == "bucket" and not isinstance(batching, Bucket | Pack):
        raise _unpaddable("pad_to: bucket", branch, batching, "a bucket to pad to")
    if isinstance(recipe.pad_to, int) and isinstance(batching, Pack):
        raise RecipeError(
            f"pad_to: {recipe.pad_to}: packs are filled up to their own length",
            found=f"{branch.name} has batching of type pack",
            fix="remove `pad_to`, and set `max_length` of the packs",
        )
    if recipe.pad_batch and isinstance(batching, Budget):
        raise _unpaddable("pad_batch", branch, batching, "a fixed number of samples in a micro-batch")
    in_seconds = branch.leaves()[0].unit == "seconds"
    if recipe.pad_to == "bucket" and in_seconds and recipe.sequence_rate is None:
        raise RecipeError(
            "pad_to: bucket: the rate of the sequence is missing",
            found=f"{branch.name} has lengths in seconds",
            fix="add `sequence_rate`, for example the sampling rate: `sequence_rate: 16000`",
        )


def _check_measured(recipe: Recipe, leaf: Leaf) -> None:
    """Measuring and truncating by the sequence field need that field and, for seconds, its rate."""
    length = leaf.source.length
    if length is None:
        return
    if length.measure and recipe.sequence is None:
        raise RecipeError(
            f'{leaf.path}.length "{leaf.source.name}": no sequence field to measure',
            found="`measure: true` with `sequence: null`",
            fix="name the field that is to be measured, for example `sequence: tokens`",
        )
    if length.by_terms and (recipe.on_length_mismatch == "truncate" or leaf.batching.overlong == "truncate"):
        raise RecipeError(
            f'{leaf.path}.length "{leaf.source.name}": a length of terms, or of characters, cannot be used to truncate',
            found="`on_length_mismatch: truncate`"
            if recipe.on_length_mismatch == "truncate"
            else "`overlong: truncate`",
            fix="use `error` or `substitute` for mismatches, and `drop` or `alone` for overlong samples",
        )
    if length.unit != "seconds" or recipe.sequence is None or recipe.sequence_rate is not None:
        return
    if length.measure:
        raise _without_rate(f'{leaf.path}.length "{leaf.source.name}"', "`measure: true`", recipe.sequence)
    if leaf.batching.overlong == "truncate" and leaf.limit is not None:
        raise _without_rate(f"{leaf.batching_path}.overlong", "`overlong: truncate`", recipe.sequence)


def _without_rate(where: str, found: str, sequence: str) -> RecipeError:
    return RecipeError(
        f"{where}: the rate of `{sequence}` is missing",
        found=f"{found} with `unit: seconds`",
        fix="add `sequence_rate`, for example the sampling rate: `sequence_rate: 16000`",
    )


def _unpaddable(key: str, branch: Branch, batching: Batching, needed: str) -> RecipeError:
    return RecipeError(
        f"{key}: no length to pad to",
        found=f"{branch.name} has batching of type {type(batching).__name__.lower()}",
        expected=needed,
        fix=f"remove `{key.partition(':')[0]}`, or change the batching",
    )
