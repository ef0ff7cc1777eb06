"""The storage of a recipe: every kind of path, with the options of its stores, its local copies, its shard cache, and
compressed files of lines decompressed.
"""

from __future__ import annotations

from playhead.recipe.stores import stores_of
from playhead.recipe.values import Recipe
from playhead.store import (
    CachingFiles,
    CopiedFiles,
    Files,
    JoiningFiles,
    TimedFiles,
    caching_files,
    compressed_files,
    scheme_files,
    with_views,
)
from playhead.store.compressed import OnMissing


def files_of(recipe: Recipe, on_missing: OnMissing, given: Files | None = None, *, cached: bool = False) -> Files:
    """The storage of a recipe, or one that is `given` in place of the usual.

    `on_missing` says how a gzip file whose seek points `prepare` has not kept is handled. `cached` storage reads the
    copies in the recipe's shard cache, where it has one: for samples, which are in the plan.
    """
    if given is not None:
        files = given if compressed_files(given) is not None else with_copies(recipe, given)
        return with_views(TimedFiles(files), recipe.cache_dir, on_missing)
    files = with_copies(recipe, scheme_files(stores_of(recipe)))
    cache = recipe.shard_cache if cached else None
    if cache is None:
        return JoiningFiles(with_views(TimedFiles(files), recipe.cache_dir, on_missing))
    if cache.unit == "range":  # joined ranges would not be those that were copied
        files = TimedFiles(CachingFiles(JoiningFiles(files), cache.dir))
        return with_views(files, recipe.cache_dir, on_missing)
    return JoiningFiles(with_views(TimedFiles(CachingFiles(files, cache.dir)), recipe.cache_dir, on_missing))


def stored_files(recipe: Recipe) -> Files:
    """The files of a recipe as they are stored, without the queue of the node or a cache: for the filler of one, whose
    requests have a bound of their own.
    """
    return with_copies(recipe, scheme_files(stores_of(recipe), queued=False))


def uncached(recipe: Recipe, files: Files) -> Files:
    """The storage without its shard cache: for files that rows name. What is copied are the rows of the plan alone."""
    return files_of(recipe, "refuse") if caching_files(files) is not None else files


def with_copies(recipe: Recipe, files: Files) -> Files:
    """The storage with the local copies of the recipe in it, where it has some."""
    return files if recipe.copies is None else CopiedFiles(files, recipe.copies)
