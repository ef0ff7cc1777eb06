"""The fields named in `pad_values` and `dtypes`: a name that no sample has is an error in the recipe."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from playhead.errors import PlayheadError, RecipeError
from playhead.index.layout import tokenizer_digests
from playhead.index.table import open_tables
from playhead.order.picks import Picks
from playhead.read import Reader, Request
from playhead.recipe.tree import noises_of
from playhead.recipe.values import Recipe
from playhead.recipe.words import nearest
from playhead.resolve.resolve import leaves_by_stream
from playhead.store import Files


def check_named_fields(
    recipe: Recipe, fields: Iterable[str], map_function: Callable[..., Any] | None, files: Files | None = None
) -> None:
    """Refuse a recipe that names a field found neither in `fields` nor in a sample of any source.

    Sub-streams and evaluation sets may have other fields, so one sample of every source is read before a name is
    refused. If one cannot be read, no name is refused.
    """
    known = dict.fromkeys(fields)
    named = [(key, name) for key in ("pad_values", "dtypes") for name in getattr(recipe, key)]
    if all(name in known for _, name in named):
        return
    try:
        known |= dict.fromkeys(_fields_of_all_sources(recipe, map_function, files))
    except PlayheadError:
        return
    for key, name in named:
        if name not in known:
            meant = "".join(f"did you mean `{near}`? " for near in nearest(name, known)[:1])
            raise RecipeError(
                f'{key}.{name}: no sample has a field "{name}"',
                found=f"fields: {', '.join(known)}",
                fix=f"{meant}Correct the name, or remove it",
            )


def _fields_of_all_sources(recipe: Recipe, map_function: Callable[..., Any] | None, files: Files | None) -> list[str]:
    """The fields of one sample of every source."""
    found: list[str] = []
    for split in (None, *recipe.evaluation):
        leaves = {leaf.path: leaf for stream in leaves_by_stream(recipe, split) for leaf in stream}
        noises = noises_of(recipe, list(leaves.values()))
        tables = open_tables([*leaves.values(), *noises], recipe, files)
        reader = Reader(
            recipe,
            [[(leaf, tables[path]) for path, leaf in leaves.items()]],
            map_function,
            files,
            noises=[(leaf, tables[leaf.path]) for leaf in noises],
            tokenizers={
                path: digest for leaf in leaves.values() for path, digest in tokenizer_digests(recipe, leaf).items()
            },
        )
        for number in range(len(leaves)):
            picks = Picks(np.array([number]), np.zeros(1, np.int64), np.zeros(1, np.int64))
            found += reader.filler(Request(0, picks, None))
    return found
