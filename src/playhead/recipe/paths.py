"""Paths in a recipe: patterns expanded, and relative ones made absolute from the recipe's directory."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from playhead.recipe.by_format import path_options
from playhead.recipe.patterns import expand_braces
from playhead.recipe.tree import with_sources
from playhead.recipe.values import Length, MediaOptions, Recipe, ShardCache, Source, Template, Tokenize
from playhead.store import is_url

L = TypeVar("L", bound=Length | Tokenize | Template | bool | None)


def place(recipe: Recipe, directory: Path) -> Recipe:
    """Law: placing a placed recipe changes nothing, whatever the directory."""
    return msgspec.structs.replace(
        with_sources(recipe, partial(_place_source, directory)),
        template=_place_tokenizer(recipe.template, directory),
        tokenize=_place_tokenizer(recipe.tokenize, directory),
        media=_place_media(recipe.media, directory),
        cache_dir=absolute(recipe.cache_dir, directory),
        indexes_root=absolute(recipe.indexes_root, directory) if recipe.indexes_root is not None else None,
        copies=absolute(recipe.copies, directory) if recipe.copies is not None else None,
        shard_cache=_place_cache(recipe.shard_cache, directory),
    )


def _place_cache(cache: ShardCache | None, directory: Path) -> ShardCache | None:
    return None if cache is None else msgspec.structs.replace(cache, dir=absolute(cache.dir, directory))


def _place_media(media: bool | MediaOptions, directory: Path) -> bool | MediaOptions:
    if isinstance(media, bool):
        return media
    return msgspec.structs.replace(media, allow=[absolute(prefix, directory) for prefix in media.allow])


def _place_tokenizer(given: L, directory: Path) -> L:
    """A length, `tokenize` or a template, with the paths of its files absolute."""
    if isinstance(given, Length) and given.sum:
        return msgspec.structs.replace(given, sum=[_place_tokenizer(term, directory) for term in given.sum])
    if isinstance(given, Template) and given.file is not None:
        given = msgspec.structs.replace(given, file=absolute(given.file, directory))
    if not isinstance(given, Length | Tokenize | Template) or given.tokenizer is None:
        return given
    return msgspec.structs.replace(given, tokenizer=absolute(given.tokenizer, directory))


def absolute(path: str, directory: Path) -> str:
    """The path from `directory`, in one spelling however it was reached; URLs are not changed."""
    return path if is_url(path) else os.path.normpath(directory / Path(path).expanduser())


def _place_source(directory: Path, source: Source, path: str) -> Source:
    def placed(patterns: list[str], where: str) -> list[str]:
        return [
            absolute(found, directory)
            for i, pattern in enumerate(patterns)
            for found in expand_braces(pattern, f"{where}[{i}]" if len(patterns) > 1 else where)
        ]

    def option(value: Any, where: str) -> Any:
        if isinstance(value, dict):
            return {name: option(item, f"{where}.{name}") for name, item in value.items()}
        patterns = [value] if isinstance(value, str) else value
        texts = isinstance(patterns, list) and all(isinstance(pattern, str) for pattern in patterns)
        return placed(patterns, where) if texts else value  # other values are refused with the other options

    options = {name: option(source.options[name], f"{path}.options.{name}") for name in path_options(source)}
    return msgspec.structs.replace(
        source,
        path=placed(source.path, f"{path}.path"),
        drop_ids=placed(source.drop_ids, f"{path}.drop_ids"),
        drop_rows=placed(source.drop_rows, f"{path}.drop_rows"),
        length=_place_tokenizer(source.length, directory),
        output_length=_place_tokenizer(source.output_length, directory),
        template=_place_tokenizer(source.template, directory),
        tokenize=_place_tokenizer(source.tokenize, directory),
        options=source.options | options,
    )
