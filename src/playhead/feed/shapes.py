"""The shape that a micro-batch is padded to, according to the recipe."""

from __future__ import annotations

from playhead.feed.collate import Shape
from playhead.plan.form import bucket_of
from playhead.plan.rules import BucketRule, FixedRule, PackRule, Rule
from playhead.plan.step import MicroBatch
from playhead.recipe.units import ceil_div
from playhead.recipe.values import Recipe, Unit


def shape_of(recipe: Recipe, rule: Rule, unit: Unit, batch: MicroBatch) -> Shape:
    """The padded shape of a planned micro-batch. Law: micro-batches of one bucket have one shape."""
    if isinstance(rule, PackRule):
        return Shape(in_sequence(rule.max_length, unit, recipe.sequence_rate))
    bucket = _bucket(rule, batch) if isinstance(rule, BucketRule) else None
    length = recipe.pad_to if isinstance(recipe.pad_to, int) else None
    if recipe.pad_to == "bucket" and isinstance(rule, BucketRule) and bucket is not None:
        length = in_sequence(rule.edges[bucket], unit, recipe.sequence_rate)
    size = None
    if recipe.pad_batch and isinstance(rule, FixedRule):
        size = rule.size
    elif recipe.pad_batch and isinstance(rule, BucketRule) and bucket is not None:
        size = rule.sizes[bucket]
    return Shape(length, size)


def _bucket(rule: BucketRule, batch: MicroBatch) -> int | None:
    """The bucket of a micro-batch, found from its first sample; None for an overlong sample that is batched alone."""
    assert batch.lengths is not None
    outputs = None if batch.outputs is None else batch.outputs[:1]
    found = int(bucket_of(rule, batch.lengths[:1], outputs)[0])
    return found if found < len(rule.edges) else None


def in_sequence(length: int, unit: Unit, rate: float | None) -> int | None:
    """A planned length in steps of the sequence field; None for seconds with an unknown rate."""
    if unit != "seconds":
        return length
    return None if rate is None else ceil_div(length * round(rate), 1000)
