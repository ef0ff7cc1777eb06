"""Several streams: the sub-configs of `multi_config` and how they are fused, and evaluation sets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from playhead.errors import RecipeError
from playhead.recipe.nemo.context import Context
from playhead.recipe.nemo.entries import as_values
from playhead.recipe.nemo.known_keys import DATA_KEYS
from playhead.recipe.nemo.report import shown
from playhead.recipe.nemo.sections import DATASET_KEYS, MISSING, Block
from playhead.recipe.nemo.stream import Stream, read_stream

# What the outer configuration decides for all its sub-configs, whatever they say.
_SHARED = ("seed", "shard_seed", "num_workers", "force_finite", "indexes_root")
_MAPPINGS = ("sampler_weights", "noise_path", "random_padding")
_UNUSED = {
    "shuffle": "evaluation reads rows in order",
    "drop_last": "every row is read once",
    "force_finite": "every row is read once",
    "seed": "evaluation draws nothing at random",
}


def read_streams(block: Block, context: Context) -> list[Stream]:
    """A stream for every sub-config, by its key."""
    names = [key for key, value in block.values.items() if isinstance(value, Mapping) and key not in _MAPPINGS]
    if not names:
        raise RecipeError(
            f"{block.at('multi_config')}: there are no sub-configs", expected="mappings, such as `audio: {...}`"
        )
    shuffled = {"shuffle": block.take("shuffle")} if block.has("shuffle") else {}
    streams = []
    for name in names:
        own = block.take(name)
        inner = Block({**own, **shuffled}, block.at(name), context.notes)
        context.name_for(name, [], name)
        streams.append(read_stream(inner, context, name))
        for key in _SHARED:
            if inner.has(key):
                context.notes.ignored(
                    inner.at(key), inner.take(key), "the outer configuration decides it for all sub-configs"
                )
        inner.finish()
    context.notes.mapped(block.at("multi_config"), True, ", ".join(f'group "{name}"' for name in names))
    return streams


def fused(block: Block, streams: list[Stream], context: Context) -> dict[str, Any]:
    """`round_robin` takes turns, so all weights are equal; `zip` gives every step a batch of each."""
    fusion = block.take("sampler_fusion", "round_robin")
    place = block.at("sampler_fusion")
    names = [str(stream.name) for stream in streams]
    if len(names) == 1:
        return {}
    if fusion == "zip":
        why = (
            "each sub-config has its lanes in every step; they are delivered as micro-batches of their own, not merged"
        )
        context.notes.changed(place, fusion, "fuse: zip", why, at="fuse")
        return {"fuse": "zip"}
    if fusion == "round_robin":
        context.notes.mapped(place, fusion, "fuse with equal weights", "whole steps are dealt, evenly")
        return {"fuse": dict.fromkeys(names, 1)}
    if fusion != "randomized_round_robin":
        raise RecipeError(
            f"{place}: is unknown", found=str(fusion), expected="one of: round_robin, randomized_round_robin, zip"
        )
    weights = block.take("sampler_weights") or dict.fromkeys(names, 1)
    if isinstance(weights, list) and len(weights) == len(names):
        weights = dict(zip(names, weights, strict=True))
    if not isinstance(weights, dict) or set(weights) != set(names):
        raise RecipeError(
            f"{block.at('sampler_weights')}: does not name the sub-configs",
            found=str(weights),
            expected=", ".join(names),
        )
    for name, weight in weights.items():
        if block.as_number("sampler_weights", weight) <= 0:
            context.notes.refused(
                f"{block.at('sampler_weights')}.{name}", weight, "a weight is above 0: remove the sub-config instead"
            )
    context.notes.mapped(place, fusion, "fuse", "whole steps are dealt by weight")
    return {"fuse": {name: weights[name] for name in names}}


def evaluation_values(stream: Stream) -> dict[str, Any]:
    """An evaluation set as the recipe has it."""
    sources = [as_values(dataset) for dataset in stream.datasets]
    for source in sources:
        source.pop("weight", None)
        source.pop("shuffle", None)
    return {"batching": stream.sampling.batching, "sources": sources}


def read_evaluation(name: str, values: Any, place: str, context: Context) -> dict[str, Stream]:
    """The sets of `validation_ds` or `test_ds`: one, one for each manifest of a list, or those in `datasets`."""
    if not isinstance(values, Mapping):
        raise RecipeError(f"{place}: is not a mapping", found=shown(values))
    shared = {key: value for key, value in values.items() if key != "datasets"}
    if isinstance(values.get("datasets"), Mapping):
        found: dict[str, Stream] = {}
        for own, each in values["datasets"].items():
            inner = f"{place}.datasets.{own}"
            if not isinstance(each, Mapping):
                raise RecipeError(f"{inner}: is not a mapping", found=shown(each))
            found |= _read_set(str(own), {**shared, **each}, inner, context)
        return found
    manifests = values.get("manifest_filepath")
    if isinstance(manifests, list) and all(isinstance(each, str) for each in manifests):
        found = {}
        for i, manifest in enumerate(manifests):
            stem = manifest.rpartition("/")[2].partition(".")[0]
            own = stem if stem not in found else f"{stem}-{i + 1}"
            found |= _read_set(own, {**shared, "manifest_filepath": manifest}, place, context)
        # The sets share all other settings, which are noted once.
        context.notes.found[:] = dict.fromkeys(context.notes.found)
        return found
    return _read_set(name, shared, place, context)


def _read_set(name: str, values: Mapping[str, Any], place: str, context: Context) -> dict[str, Stream]:
    given = {key: values[key] for key in DATASET_KEYS if values.get(key) is not None}
    if not given or any(value == MISSING for value in given.values()):
        context.notes.ignored(place, given or "no data", "the set names no data")
        return {}
    block = Block(dict(values), place, context.notes)
    for key, why in _UNUSED.items():
        if block.has(key):
            context.notes.ignored(block.at(key), block.take(key), why)
    block.values = {key: value for key, value in block.values.items() if key not in _UNUSED}
    stream = read_stream(block, context, name, in_order=True)
    if block.has("indexes_root"):
        context.indexes_roots.append(str(block.text("indexes_root")))
    if any(dataset.weight is not None for dataset in stream.datasets):
        context.notes.ignored(f"{place}.input_cfg", "weights", "every row of an evaluation set is read once")
    block.finish(told=DATA_KEYS)
    return {name: stream}
