"""Recipes read from files or Python values.

In: a path, or a mapping as loaded from YAML, in which a path may be a Hugging Face dataset. Out: a
checked `Recipe` whose paths are absolute and whose brace patterns are expanded.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from playhead.errors import RecipeError
from playhead.recipe.by_format import with_defaults, with_files
from playhead.recipe.check import check
from playhead.recipe.check_delivery import COLLATES
from playhead.recipe.environment import expand_environment
from playhead.recipe.imports import search_directory
from playhead.recipe.paths import absolute, place
from playhead.recipe.shape import fit
from playhead.recipe.stores import check_stores
from playhead.recipe.text import read_plain
from playhead.recipe.tree import leaves
from playhead.recipe.values import CACHE_DIR, Recipe, Template


def load(path: str | os.PathLike[str]) -> Recipe:
    """The recipe in a YAML file, or JSON where the name ends in `.json`."""
    file = Path(path).expanduser()
    return parse(read_plain(file), file.absolute().parent)


def parse(
    values: Any, base_dir: str | os.PathLike[str] | None = None, environment: Mapping[str, str] = os.environ
) -> Recipe:
    """The recipe in plain Python values; relative paths start at `base_dir`, else at the working directory."""
    directory = Path(base_dir).expanduser().absolute() if base_dir is not None else Path.cwd()
    try:
        files = with_files(values, _indices_dir(values, directory, environment))
        plain = expand_environment(files, environment)
        fitted = fit(plain, msgspec.inspect.type_info(Recipe), "")
    except RecursionError:
        raise RecipeError(
            "the recipe contains itself", fix="remove the YAML alias that points to its own parent"
        ) from None
    for name, chosen in fitted.get("evaluation", {}).items():
        _leave_unshuffled(chosen["sources"], f"evaluation.{name}.sources", "evaluation sets are not shuffled")
    _leave_unshuffled(fitted.get("noises", []), "noises", "rows of noise are drawn at random")
    recipe = with_defaults(msgspec.convert(fitted, Recipe), fitted)
    check(recipe)
    placed = place(recipe, directory)
    check_stores(placed)
    if _names_functions(placed):
        search_directory(directory)
    return placed


def _indices_dir(values: Any, directory: Path, environment: Mapping[str, str]) -> Path:
    """Where row numbers of datasets are written that exist only in memory."""
    given = values.get("cache_dir") if isinstance(values, Mapping) else None
    cache_dir = expand_environment(given, environment, "cache_dir") if isinstance(given, str) else CACHE_DIR
    return Path(absolute(cache_dir, directory)) / "indices"


def _names_functions(recipe: Recipe) -> bool:
    """Whether the recipe names a user function, which may be in a module beside it."""
    if recipe.map is not None or recipe.collate not in COLLATES:
        return True
    sources = [leaf.source for leaf in leaves(recipe)]
    lengths = [length for source in sources for length in (source.length, source.output_length) if length]
    if any(source.map for source in sources) or any(term.function for length in lengths for term in length.terms):
        return True
    templates = [recipe.template, *(source.template for source in sources)]
    return recipe.video is not None or any(_has_function(template) for template in templates)


def _has_function(template: Template | bool | None) -> bool:
    if not isinstance(template, Template):
        return False
    visual = [how for how in (template.image, template.video) if how is not None]
    return template.function is not None or any(how.function for how in visual)


def _leave_unshuffled(sources: list[dict[str, Any]], path: str, problem: str) -> None:
    """Sources that are read in order, or at random: the default shuffle does not apply to them."""
    for i, source in enumerate(sources):
        if source.setdefault("shuffle", "none") != "none":
            raise RecipeError(f"{path}[{i}].shuffle: {problem}", found=str(source["shuffle"]), fix="remove the line")
