"""What the format of a source adds to the recipe: the length that its rows have, and which of its options are paths.

Formats are in a folder above this one, and may be another package's: their registry is found by its name.
"""

from __future__ import annotations

from collections.abc import Collection
from importlib import import_module
from typing import Any

import msgspec

from playhead.recipe.tree import leaves, with_sources
from playhead.recipe.values import Recipe, Source

_REGISTRY = "playhead.formats.registry"


def with_defaults(recipe: Recipe, given: Collection[str]) -> Recipe:
    """The recipe in which a source that says no length has the one that its format gives, if any.

    Where all formats agree on the field that lengths count, it is the `sequence` unless one is `given`; that of audio
    has the rate that audio is resampled to.
    """
    recipe = with_sources(recipe, _with_length)
    found = {_sequence_of(leaf.source) for leaf in leaves(recipe) if not leaf.is_noise}
    if "sequence" not in given and len(found) == 1 and (sequence := found.pop()) is not None:
        recipe = msgspec.structs.replace(recipe, sequence=sequence)
        if recipe.sequence_rate is None and recipe.audio.sample_rate is not None:
            recipe = msgspec.structs.replace(recipe, sequence_rate=float(recipe.audio.sample_rate))
    return recipe


def _sequence_of(source: Source) -> str | None:
    registered = _registered(source)
    return None if registered is None else registered.default_sequence


def path_options(source: Source) -> list[str]:
    """The options of a source that are paths."""
    registered = _registered(source) if source.options else None
    return [] if registered is None else [name for name in registered.path_options if name in source.options]


def _with_length(source: Source, _path: str) -> Source:
    registered = _registered(source) if source.length is None else None
    if registered is None or registered.default_length is None:
        return source
    return msgspec.structs.replace(source, length=registered.default_length)


def _registered(source: Source) -> Any:
    """None for a format that is not known, which is reported when the source is opened."""
    return import_module(_REGISTRY).known_format(source)
