"""Paths in a recipe: patterns expanded, and relative ones made absolute from the recipe's directory."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from playhead.recipe.patterns import expand_braces
from playhead.recipe.values import Evaluation, Group, MediaOptions, Recipe, Source
from playhead.store import is_url


def place(recipe: Recipe, directory: Path) -> Recipe:
    """Law: placing a placed recipe changes nothing, whatever the directory."""
    evaluation = {
        name: _place_evaluation(chosen, directory, f"evaluation.{name}") for name, chosen in recipe.evaluation.items()
    }
    return msgspec.structs.replace(
        recipe,
        sources=[_place_entry(entry, directory, f"sources[{i}]") for i, entry in enumerate(recipe.sources)],
        evaluation=evaluation,
        media=_place_media(recipe.media, directory),
        cache_dir=absolute(recipe.cache_dir, directory),
        indexes_root=absolute(recipe.indexes_root, directory) if recipe.indexes_root is not None else None,
    )


def _place_media(media: bool | MediaOptions, directory: Path) -> bool | MediaOptions:
    if isinstance(media, bool):
        return media
    return msgspec.structs.replace(media, allow=[absolute(prefix, directory) for prefix in media.allow])


def absolute(path: str, directory: Path) -> str:
    """The path from `directory`, spelt one way however it was reached; URLs as they are."""
    return path if is_url(path) else os.path.normpath(directory / Path(path).expanduser())


def _place_evaluation(chosen: Evaluation, directory: Path, path: str) -> Evaluation:
    sources = [_place_source(source, directory, f"{path}.sources[{i}]") for i, source in enumerate(chosen.sources)]
    return msgspec.structs.replace(chosen, sources=sources)


def _place_entry(entry: Source | Group, directory: Path, path: str) -> Source | Group:
    if isinstance(entry, Source):
        return _place_source(entry, directory, path)
    members = [_place_entry(member, directory, f"{path}.sources[{i}]") for i, member in enumerate(entry.sources)]
    return msgspec.structs.replace(entry, sources=members)


def _place_source(source: Source, directory: Path, path: str) -> Source:
    def placed(patterns: list[str], where: str) -> list[str]:
        return [
            absolute(found, directory)
            for i, pattern in enumerate(patterns)
            for found in expand_braces(pattern, f"{where}[{i}]" if len(patterns) > 1 else where)
        ]

    return msgspec.structs.replace(
        source,
        path=placed(source.path, f"{path}.path"),
        drop_ids=placed(source.drop_ids, f"{path}.drop_ids"),
        drop_rows=placed(source.drop_rows, f"{path}.drop_rows"),
    )
