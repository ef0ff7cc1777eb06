"""The recipe as runs use it: a single pass of it, and a cache that keeps what they write to themselves."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from playhead.recipe.values import Group, Recipe, Source
from playhead.store import writing_to

_WRITTEN_BY_RUNS = ("ledgers", "quarantine", "verify")


def one_pass(recipe: Recipe) -> Recipe:
    """The recipe with every row exactly once, and the same batching: no weights, one epoch."""
    sources = [_unweighted(entry) for entry in recipe.sources]
    return replace(recipe, sources=sources, epochs=1, exhaustion="repeat", temperature=None)


def _unweighted(entry: Source | Group) -> Source | Group:
    if isinstance(entry, Source):
        return replace(entry, weight=None)
    sources = [_unweighted(member) for member in entry.sources]
    return replace(entry, sources=sources, weight=None, temperature=None)


def private_cache(recipe: Recipe, folder: Path) -> str:
    """A cache directory with the indexes of the recipe's, in which runs keep a ledger and a quarantine of their own."""
    with writing_to(folder):
        folder.mkdir(parents=True)
        for entry in Path(recipe.cache_dir).iterdir():
            if entry.name not in _WRITTEN_BY_RUNS:
                (folder / entry.name).symlink_to(entry.absolute())
    return str(folder)
