"""The recipe that `fetch` writes beside the copies, in the place of none but its own."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import yaml
from msgspec.structs import replace

from playhead.errors import RecipeError
from playhead.fingerprint import digest_bytes
from playhead.prepare.fetch_sidecars import INDEXES
from playhead.recipe.tree import Leaf, leaves, with_sources
from playhead.recipe.values import Recipe
from playhead.store import replacing, writing_to
from playhead.store.copies import Copies, load_copies, save_copies

RECIPE = "recipe.yaml"
CACHE = "cache"
_FIX = "name another directory (`--to`)"


def check_place(recipe: Recipe, root: str) -> None:
    """Refuse a directory whose `recipe.yaml` must not be replaced by that of this recipe.

    It may be if `fetch` wrote it, nobody has changed it since, and it is for a version of the same recipe: one that has
    a path of data in common, or the name of a source.
    """
    target = Path(root, RECIPE)
    if recipe.copies is not None and str(Path(recipe.copies).resolve()) == root:
        raise RecipeError(f"{root}: holds the copies that this recipe reads", fix=_FIX)
    if not os.path.lexists(target):
        return
    known = load_copies(root)
    if known is None or _digest(target) not in known.recipes:
        raise RecipeError(
            f"{target}: would be replaced",
            found="a file that `playhead fetch` did not write, or that was changed since",
            expected="no such file, or the recipe that an earlier fetch of the same recipe wrote",
            fix=f"{_FIX}, or move the file away",
        )
    there = Recipe.load(target)
    if all(_in_training(recipe, of).isdisjoint(_in_training(there, of)) for of in (_paths, _name)):
        raise RecipeError(
            f"{target}: is for another recipe, and would be replaced",
            found=f"sources {', '.join(sorted(_in_training(there, _name)))}",
            expected="a recipe with one of these sources",
            fix=_FIX,
        )


def write_recipe(recipe: Recipe, root: str, *, copies: bool, indexes: bool, cache: bool) -> None:
    """Places in the directory are written relative to it: it may be moved, with the recipe in it.

    Where its `cache` is used, nothing but the copies is read: options of stores, which may be secrets, and a shard
    cache of them are left out.
    """
    if cache:
        recipe = with_sources(recipe, lambda source, _: replace(source, store={}))
        recipe = replace(recipe, stores={}, shard_cache=None)
    places = {"copies": "." if copies else None, "indexes_root": INDEXES if indexes else None}
    places["cache_dir"] = CACHE if cache else None
    written = recipe.to_dict() | {name: place for name, place in places.items() if place is not None}
    content = yaml.safe_dump(written, sort_keys=False, allow_unicode=True, width=120).encode()
    target = Path(root, RECIPE)
    known = load_copies(root) or Copies()
    # Both are ours: a kill may come before the one is replaced by the other.
    ours = [digest for digest in (_digest(target), digest_bytes(content)) if digest is not None]
    save_copies(root, replace(known, recipes=[*dict.fromkeys(ours)]))
    with writing_to(target), replacing(target) as file:
        file.write(content)


def _digest(path: Path) -> str | None:
    """The digest of a file; None where there is none that can be read."""
    try:
        return digest_bytes(path.read_bytes())
    except OSError:
        return None


def _in_training(recipe: Recipe, values: Callable[[Leaf], list[str]]) -> set[str]:
    return {value for leaf in leaves(recipe) if leaf.evaluation is None and not leaf.is_noise for value in values(leaf)}


def _paths(leaf: Leaf) -> list[str]:
    return list(leaf.source.path)


def _name(leaf: Leaf) -> list[str]:
    return [leaf.source.name]
