"""Work -> the arrays of a micro-batch. What a worker does, wherever it runs."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from playhead.errors import RecipeError, SampleError
from playhead.feed.collate import Collation, Payload, packed, padded
from playhead.feed.tasks import Work
from playhead.fingerprint import digest
from playhead.index.table import open_tables
from playhead.plan.resolve import leaves_by_stream
from playhead.read import Incident, Reader, Request
from playhead.read.faults import Faults
from playhead.read.mapping import name_of
from playhead.recipe.imports import resolve_function
from playhead.recipe.values import Recipe

UserFunction = Callable[..., Any]


@dataclass(frozen=True)
class Produced:
    payload: Payload
    incidents: list[Incident]


@dataclass(frozen=True)
class Blueprint:
    """Everything a worker needs to make batches: it travels to other processes, and each builds its own Producer."""

    recipe: Recipe
    split: str | None = None
    map: UserFunction | None = None
    collate: UserFunction | None = None
    known: tuple[Incident, ...] = ()

    def build(self) -> Producer:
        return Producer(self)

    def fingerprint(self) -> str:
        """What decides the contents of batches beyond the plan."""
        recipe = self.recipe
        given = [None if function is None else name_of(function) for function in (self.map, self.collate)]
        maps = [[leaf.source.map for leaf in leaves] for leaves in leaves_by_stream(recipe, self.split)]
        options = [recipe.map, recipe.collate, recipe.decode, recipe.fields, recipe.sequence, recipe.sequence_rate]
        padding = [recipe.pad_to, recipe.pad_batch, recipe.pad_values, recipe.on_length_mismatch]
        return digest([given, maps, options, padding])[:16]

    def check_picklable(self) -> None:
        """Refuse a function that cannot travel, before any worker starts."""
        for name, function in (("map", self.map), ("collate", self.collate)):
            try:
                pickle.dumps(function)
            except Exception as error:
                raise RecipeError(
                    f"{name}: {name_of(function) if function else name} cannot be sent to worker processes",
                    found=f"{type(error).__name__}: {error}",
                    expected="a function at the top level of a module",
                    fix=f'move it to a module and name it in the recipe (`{name}: "module:function"`), '
                    "or use worker threads",
                ) from error


class Producer:
    """Makes micro-batches."""

    def __init__(self, blueprint: Blueprint) -> None:
        recipe = blueprint.recipe
        streams = leaves_by_stream(recipe, blueprint.split)
        tables = open_tables({leaf.path: leaf for leaves in streams for leaf in leaves}.values(), recipe)
        self._reader = Reader(
            recipe,
            [[(leaf, tables[leaf.path]) for leaf in leaves] for leaves in streams],
            blueprint.map,
            Faults.known(blueprint.known),
        )
        self._how = Collation(
            None if recipe.fields is None else tuple(recipe.fields), recipe.sequence, dict(recipe.pad_values)
        )
        self._collate = blueprint.collate
        self._as_list = recipe.collate == "list"
        if self._collate is None and recipe.collate not in ("pad", "list"):
            self._collate = resolve_function(recipe.collate, "collate")

    def __call__(self, work: Work) -> Produced:
        samples, incidents = self._reader.read(Request(work.stream, work.picks, work.lengths, work.step, work.lane))
        try:
            payload = self._payload(samples, work)
        except SampleError:
            raise
        except Exception as error:
            raise SampleError(
                f"step {work.step:,}, lane {work.lane}: the samples cannot be put into a batch: {error}",
            ) from error
        if work.idle and "weights" in payload:
            payload["weights"][:] = 0
        return Produced(payload, incidents)

    def _payload(self, samples: list[dict[str, Any] | None], work: Work) -> Payload:
        if self._as_list and self._collate is None:
            return {"samples": samples}
        if self._collate is not None:
            found = self._collate([sample for sample in samples if sample is not None])
            return found if isinstance(found, dict) else {"batch": found}
        if work.packed:
            return packed(samples, self._how, work.shape.length or 0)
        return padded(samples, self._how, work.shape)
