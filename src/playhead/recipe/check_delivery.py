"""Rules about how samples become batches."""

from __future__ import annotations

from playhead.errors import RecipeError
from playhead.recipe.imports import check_function_name
from playhead.recipe.tree import Branch, Leaf, branches, evaluation_branch
from playhead.recipe.values import Batching, Bucket, Budget, Pack, Recipe

COLLATES = ("pad", "list")


def check_delivery(recipe: Recipe) -> None:
    if recipe.map is not None:
        check_function_name(recipe.map, "map")
    if recipe.collate not in COLLATES:
        check_function_name(recipe.collate, "collate")
    if recipe.fields is not None and not recipe.fields:
        raise RecipeError("fields: there are none", fix="name those to deliver, or remove the line for all of them")
    for branch in (*branches(recipe), *(evaluation_branch(recipe, split) for split in recipe.evaluation)):
        _check_padding(recipe, branch)
        for leaf in branch.leaves():
            _check_measured(recipe, leaf)


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
            "pad_to: bucket: how many steps of the sequence make a second?",
            found=f"{branch.name} has lengths in seconds",
            fix="add `sequence_rate`, for example the sampling rate: `sequence_rate: 16000`",
        )


def _check_measured(recipe: Recipe, leaf: Leaf) -> None:
    length = leaf.source.length
    if length is not None and length.measure and length.unit == "seconds" and recipe.sequence_rate is None:
        raise RecipeError(
            f'{leaf.path}.length "{leaf.source.name}": how many steps of `{recipe.sequence}` make a second?',
            found="`measure: true` with `unit: seconds`",
            fix="add `sequence_rate`, for example the sampling rate: `sequence_rate: 16000`",
        )


def _unpaddable(key: str, branch: Branch, batching: Batching, needed: str) -> RecipeError:
    return RecipeError(
        f"{key}: there is nothing to pad to",
        found=f"{branch.name} has batching of type {type(batching).__name__.lower()}",
        expected=needed,
        fix=f"remove `{key.partition(':')[0]}`, or change the batching",
    )
