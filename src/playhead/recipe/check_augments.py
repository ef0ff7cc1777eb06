"""Rules about augmentations, and the noises that they draw on."""

from __future__ import annotations

from collections.abc import Sequence

from playhead.errors import RecipeError
from playhead.recipe.augment_lengths import changes_length
from playhead.recipe.augments import Augment, Gain, Noise, Speed, kind_of
from playhead.recipe.tree import Leaf, augments_of, leaves
from playhead.recipe.values import Recipe
from playhead.recipe.words import nearest

MOST_DECIBELS = 120.0  # beyond it 16-bit audio is lost, and float32 comes near its limit
SLOWEST, FASTEST = 0.1, 10.0
MOST_SECONDS = 86_400.0


def check_augments(recipe: Recipe) -> None:
    """Refuse augmentations with impossible numbers, sources or lengths."""
    _check_noises(recipe)
    if recipe.media is False and any(augments_of(recipe, leaf) for leaf in leaves(recipe)):
        raise RecipeError(
            "augment: there is no decoded audio to augment",
            found="`media: false`",
            fix="remove `media: false`, or `augment`",
        )
    _check_list(recipe.augment, "augment", recipe)
    for leaf in leaves(recipe):
        _check_list(leaf.source.augment or (), f"{leaf.path}.augment", recipe)
        _check_planned(recipe, leaf)


def _check_noises(recipe: Recipe) -> None:
    for i, source in enumerate(recipe.noises):
        for field in ("weight", "augment"):
            if getattr(source, field) is not None:
                raise RecipeError(
                    f'noises[{i}] "{source.name}": a source of noise has no `{field}`',
                    expected="the rows of `noises` are drawn with equal probability, and added unchanged",
                    fix=f"remove `{field}`",
                )


def _check_list(augments: Sequence[Augment], where: str, recipe: Recipe) -> None:
    for i, augment in enumerate(augments):
        path = f"{where}[{i}]"
        if isinstance(augment, Gain):
            _check_decibels(augment.decibels, f"{path}.decibels")
        elif isinstance(augment, Noise):
            _check_decibels(augment.snr, f"{path}.snr")
            _check_noise(augment, path, recipe)
        elif isinstance(augment, Speed):
            _check_factors(augment.factors, f"{path}.factors")
        elif augment.seconds > MOST_SECONDS:
            raise RecipeError(
                f"{path}.seconds: is too long", found=f"{augment.seconds:g}", expected=f"{MOST_SECONDS:,.0f} at most"
            )


def _check_decibels(given: tuple[float, float], where: str) -> None:
    low, high = given
    if low > high:
        raise RecipeError(f"{where}: the range is empty", found=f"[{low:g}, {high:g}]", expected="the lower end first")
    if max(-low, high) > MOST_DECIBELS:
        raise RecipeError(
            f"{where}: is beyond what audio can hold",
            found=f"[{low:g}, {high:g}]",
            expected=f"decibels from {-MOST_DECIBELS:g} to {MOST_DECIBELS:g}",
        )


def _check_noise(augment: Noise, where: str, recipe: Recipe) -> None:
    known = [source.name for source in recipe.noises]
    if augment.source in known:
        return
    near = nearest(augment.source, known)
    raise RecipeError(
        f"{where}.source: is not one of `noises`",
        found=augment.source,
        expected=f"one of: {', '.join(known) or '(none)'}",
        fix=f"did you mean `{near[0]}`?"
        if near
        else f"add it to the recipe: `noises: [{{name: {augment.source}, path: ...}}]`",
    )


def _check_factors(factors: list[float], where: str) -> None:
    if not factors:
        raise RecipeError(f"{where}: is empty", fix="for example `factors: [0.9, 1.0, 1.1]`")
    for i, factor in enumerate(factors):
        if not SLOWEST <= factor <= FASTEST:
            raise RecipeError(
                f"{where}[{i}]: is not a factor of speed",
                found=f"{factor:g}",
                expected=f"{SLOWEST:g} to {FASTEST:g}; above 1 is faster",
            )


def _check_planned(recipe: Recipe, leaf: Leaf) -> None:
    """Lengths account for augmentations only in seconds, and for one field."""
    length = leaf.source.length
    changing = [augment for augment in augments_of(recipe, leaf) if changes_length(augment)]
    if length is None or not changing:
        return
    where = f"{leaf.path}.augment" if leaf.source.augment is not None else "augment"
    if length.unit == "seconds":
        fields = list(dict.fromkeys(augment.field for augment in changing))
        if len(fields) > 1:
            raise RecipeError(
                f'{where}: the lengths of "{leaf.source.name}" cannot follow changes to several fields',
                found=" and ".join(f"`field: {field}`" for field in fields),
                expected="speed, crop and pad of one field, that which `length` is of",
                fix="change the other field in your `map`",
            )
    elif any(augment.field == recipe.sequence for augment in changing):
        kinds = ", ".join(dict.fromkeys(kind_of(augment) for augment in changing))
        raise RecipeError(
            f'{where}: the lengths of "{leaf.source.name}" cannot follow it',
            found=f"{kinds} of `{recipe.sequence}`, and lengths in {length.unit}",
            expected="`length: {unit: seconds, ...}`",
        )
