"""Validation and test sets: every row once, in order, without weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from playhead.errors import RecipeError
from playhead.recipe.nemo.block import MISSING, Block
from playhead.recipe.nemo.context import Context
from playhead.recipe.nemo.entries import as_values
from playhead.recipe.nemo.known_keys import DATA_KEYS
from playhead.recipe.nemo.notes import shown
from playhead.recipe.nemo.stream import Stream, read_stream

_DATA_KEYS = ("input_cfg", "manifest_filepath", "cuts_path", "shar_path")
_UNUSED = {
    "shuffle": "evaluation reads rows in order",
    "drop_last": "every row is read once",
    "force_finite": "every row is read once",
    "seed": "evaluation draws nothing at random",
}


@dataclass(frozen=True)
class EvaluationSet:
    stream: Stream

    def as_values(self) -> dict[str, Any]:
        sources = [as_values(dataset) for dataset in self.stream.datasets]
        for source in sources:
            source.pop("weight", None)
            source.pop("shuffle", None)
        return {"batching": self.stream.sampling.batching, "sources": sources}


def read_evaluation(name: str, values: Any, place: str, context: Context) -> dict[str, EvaluationSet]:
    """The sets of `validation_ds` or `test_ds`: one, one for each manifest of a list, or those in `datasets`."""
    if not isinstance(values, Mapping):
        raise RecipeError(f"{place}: is not a mapping", found=shown(values))
    shared = {key: value for key, value in values.items() if key != "datasets"}
    if isinstance(values.get("datasets"), Mapping):
        found: dict[str, EvaluationSet] = {}
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


def _read_set(name: str, values: Mapping[str, Any], place: str, context: Context) -> dict[str, EvaluationSet]:
    given = {key: values[key] for key in _DATA_KEYS if values.get(key) is not None}
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
    return {name: EvaluationSet(stream)}
