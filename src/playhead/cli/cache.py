"""`playhead cache`: the shard cache of a recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="cache",
    help="Look into a shard cache, check it, or empty it.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_Where = Annotated[Path, typer.Argument(help="A recipe with a `shard_cache`, or the directory of the cache.")]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("stat")
def stat(where: _Where, as_json: _Json = False) -> None:
    """What the cache holds, who uses it, and its counters: hits, misses, bytes, evictions, time blocked."""
    from playhead.cli.cache_view import print_stat
    from playhead.inspect.cache import cache_stat

    print_stat(cache_stat(_directory(where)), as_json=as_json)


@app.command("verify")
def verify(where: _Where, as_json: _Json = False) -> None:
    """Compare every copy with its digest. Damaged ones are removed, and the exit code is 1."""
    from playhead.cli.cache_view import checking, print_check
    from playhead.cli.stopping import ending_cleanly
    from playhead.inspect.cache import verify_cache

    with ending_cleanly(as_json=as_json), checking() as progress:
        found = verify_cache(_directory(where), progress)
    print_check(found, as_json=as_json)
    if found.damaged:
        raise typer.Exit(1)


@app.command("clear")
def clear(where: _Where, as_json: _Json = False) -> None:
    """Remove all copies. The originals are never touched; a cache in use is refused."""
    from playhead.cli.cache_view import print_cleared
    from playhead.inspect.cache import clear_cache

    directory = _directory(where)
    print_cleared(directory, *clear_cache(directory), as_json=as_json)


def _directory(where: Path) -> str:
    """The directory of the cache; that of a recipe where a file is named."""
    from playhead.errors import DataError, RecipeError
    from playhead.recipe.values import Recipe

    where = where.expanduser()
    if where.is_dir():
        return str(where)
    if not where.exists():
        raise DataError(
            f"{where}: is not there",
            expected="a recipe with a `shard_cache`, or the directory of a cache",
            fix="correct the path; the first loader that uses a recipe makes the directory of its cache",
        )
    recipe = Recipe.load(where)
    if recipe.shard_cache is None:
        raise RecipeError(
            f"{where}: has no shard cache",
            fix="add `shard_cache: {dir: ..., max_bytes: ...}` to the recipe, or name the directory of a cache",
        )
    return recipe.shard_cache.dir
