"""The storage of a recipe: every kind of path, its local copies, and compressed files of lines decompressed."""

from __future__ import annotations

from playhead.recipe.values import Recipe
from playhead.store import CopiedFiles, Files, JoiningFiles, SchemeFiles, compressed_files, with_views
from playhead.store.compressed import OnMissing


def files_of(recipe: Recipe, on_missing: OnMissing, given: Files | None = None) -> Files:
    """The storage of a recipe, or one that is `given` in place of the usual.

    `on_missing` says how a gzip file whose seek points `prepare` has not kept is handled.
    """
    if given is not None and compressed_files(given) is not None:
        return given
    files = SchemeFiles() if given is None else given
    if recipe.copies is not None:
        files = CopiedFiles(files, recipe.copies)
    files = with_views(files, recipe.cache_dir, on_missing)
    return JoiningFiles(files) if given is None else files
