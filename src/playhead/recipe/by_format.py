"""Additions of a source's format to the recipe: the default length of its rows, and which options are paths;
and a dataset of Hugging Face in place of a path.

Formats are in a folder above this one, and may be another package's: their registry is found by its name.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from playhead.recipe.tree import NOISES, Leaf, leaves, template_of, with_sources
from playhead.recipe.values import Bucket, Length, Recipe, Source, Turns

_REGISTRY = "playhead.formats.registry"
_DATASETS = "playhead.formats.saved_datasets"


def with_defaults(recipe: Recipe, given: Collection[str]) -> Recipe:
    """The recipe with the default length of the format for every source without a length. Noises need none.

    Where all formats agree on the field that lengths count, it is the `sequence` unless one is `given`; that of audio
    has the rate that audio is resampled to.
    """
    recipe = with_sources(recipe, _with_length)
    turns = {leaf.path: _turns(leaf) for leaf in leaves(recipe) if template_of(recipe, leaf) is not None}
    recipe = with_sources(recipe, lambda source, path: _with_turns(source, turns.get(path, ())))
    found = {_sequence_of(leaf.source) for leaf in leaves(recipe) if not leaf.is_noise}
    if "sequence" not in given and len(found) == 1 and (sequence := found.pop()) is not None:
        recipe = msgspec.structs.replace(recipe, sequence=sequence)
        if recipe.sequence_rate is None and recipe.audio.sample_rate is not None:
            recipe = msgspec.structs.replace(recipe, sequence_rate=float(recipe.audio.sample_rate))
    return recipe


def holds_conversations(source: Source) -> bool:
    """Whether the rows of a source are conversations, or made into such."""
    return bool(source.as_conversation) or format_holds_conversations(source)


def format_holds_conversations(source: Source) -> bool:
    registered = _registered(source)
    return registered is not None and registered.conversations


def _turns(leaf: Leaf) -> tuple[Turns, ...]:
    """What the lengths of conversations count: in buckets of two lengths, the input and the output."""
    batching = leaf.batching
    if not isinstance(batching, Bucket):
        return ("all",)
    pairs = isinstance(batching.num, tuple) or isinstance((batching.edges or [0])[0], tuple)
    return ("input", "output") if pairs else ("all",)


def _with_turns(source: Source, turns: tuple[Turns, ...]) -> Source:
    """A source of conversations with lengths in tokens, unless the recipe gives others."""
    if not turns or not holds_conversations(source):
        return source
    names = ("length", "output_length")[: len(turns)]
    missing = [name for name in names if getattr(source, name) is None]
    found = dict(zip(names, turns, strict=True))
    return msgspec.structs.replace(source, **{name: Length(turns=found[name]) for name in missing})


def _sequence_of(source: Source) -> str | None:
    """The field that lengths count, according to a length in seconds or to the format."""
    registered, length = _registered(source), source.length
    if holds_conversations(source):
        return None
    if length is not None and length.audio is not None and length.unit == "seconds":
        return length.audio
    return None if registered is None else registered.default_sequence


def path_options(source: Source) -> list[str]:
    """The options of a source that are paths."""
    registered = _registered(source) if source.options else None
    return [] if registered is None else [name for name in registered.path_options if name in source.options]


def _with_length(source: Source, path: str) -> Source:
    registered = _registered(source)
    if registered is None or registered.default_length is None or path.startswith(NOISES):
        return source
    if source.length is None and holds_conversations(source):
        return source
    if source.length in (None, registered.default_length):
        return msgspec.structs.replace(source, length=registered.default_length)
    given = _with_audio(source.length, registered.default_length.field, registered.default_sequence)
    return msgspec.structs.replace(source, length=given)


def _with_audio(length: Length, duration: str | None, audio: str | None) -> Length:
    """A length in which the format's own duration names the audio that it is of."""
    if length.sum:
        return msgspec.structs.replace(length, sum=[_with_audio(term, duration, audio) for term in length.sum])
    if length.in_seconds and length.audio is None and length.field == duration:
        return msgspec.structs.replace(length, audio=audio)
    return length


def with_files(values: Any, indices_dir: Path) -> Any:
    """The values with the files of a dataset in place of one that is the `path` of a source.

    The numbers of its rows, where they are in memory only, are written to `indices_dir`.
    """
    if isinstance(values, (list, tuple)):
        return [with_files(item, indices_dir) for item in values]
    if not isinstance(values, Mapping):
        return values
    if type(values.get("path")).__module__.partition(".")[0] != "datasets":
        return {key: with_files(item, indices_dir) for key, item in values.items()}
    return import_module(_DATASETS).with_files(values, indices_dir)


def _registered(source: Source) -> Any:
    """None for an unknown format, which is reported when the source is opened."""
    return import_module(_REGISTRY).known_format(source)
