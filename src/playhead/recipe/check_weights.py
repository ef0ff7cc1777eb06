"""Rules about weights: which entries may have one, and which values are allowed."""

from __future__ import annotations

from playhead.errors import RecipeError
from playhead.recipe.values import Group, Recipe, Source

_HIGHEST_TEMPERATURE = 10


def check_weights(recipe: Recipe) -> None:
    """Refuse invalid weights, and weights that would be ignored."""
    _check_level("sources", "", recipe.sources, recipe.temperature, recipe.epochs)
    for name, chosen in recipe.evaluation.items():
        for i, source in enumerate(chosen.sources):
            if source.weight is not None:
                raise RecipeError(
                    f'evaluation.{name}.sources[{i}].weight "{source.name}": evaluation sets have no weights',
                    found=f"{source.weight:g}",
                    expected="no weight: every row is read once",
                    fix="remove the line",
                )


def _check_level(
    path: str, owner: str, entries: list[Source | Group], temperature: float | None, epochs: int | None
) -> None:
    if temperature is not None and temperature > _HIGHEST_TEMPERATURE:
        raise RecipeError(
            f"{owner}temperature: too high",
            found=f"{temperature:g}",
            expected=f"above 0, at most {_HIGHEST_TEMPERATURE}; 1 shares by size, more favours large sources",
        )
    if temperature is not None and epochs is not None:
        raise _against_epochs(f"{owner}temperature", f"{temperature:g}")
    weighted = [i for i, entry in enumerate(entries) if entry.weight is not None]
    for i in weighted:
        _check_weight(f"{path}[{i}].weight", entries[i], temperature, epochs)
    if weighted and len(weighted) < len(entries):
        bare = next(i for i in range(len(entries)) if i not in weighted)
        raise RecipeError(
            f'{path}[{bare}] "{entries[bare].name}": has no weight, but {path}[{weighted[0]}] has one',
            expected="a weight on every entry of a list, or on none",
            fix="add `weight:` here, or remove the others",
        )
    for i, entry in enumerate(entries):
        if isinstance(entry, Group):
            here = f"{path}[{i}]"
            _check_level(f"{here}.sources", f"{here}.", entry.sources, entry.temperature, epochs)


def _check_weight(path: str, entry: Source | Group, temperature: float | None, epochs: int | None) -> None:
    assert entry.weight is not None
    found = f"{entry.weight:g}"
    if not 0 < entry.weight < float("inf"):  # NaN is not either
        raise RecipeError(
            f'{path} "{entry.name}": a weight must be above 0',
            found=found,
            fix="give a number above 0, or remove the source",
        )
    if temperature is not None:
        raise RecipeError(
            f'{path} "{entry.name}": weights and a temperature cannot both decide the shares',
            found=f"weight {found} and temperature {temperature:g}",
            fix="remove the weights, or the `temperature` beside the list",
        )
    if epochs is not None:
        raise _against_epochs(f'{path} "{entry.name}"', found)


def _against_epochs(where: str, found: str) -> RecipeError:
    return RecipeError(
        f"{where}: cannot be combined with `epochs`",
        found=found,
        expected="no weights: a pass reads every row once, so the row counts decide the shares",
        fix="remove it, or remove `epochs`",
    )
