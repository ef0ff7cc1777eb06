"""Rules about sub-streams, lanes, windows and where the stream ends."""

from __future__ import annotations

from playhead.errors import RecipeError
from playhead.recipe.tree import Branch
from playhead.recipe.values import Budget, Fixed, Group, Pack, Recipe, Source


def check_streams(recipe: Recipe, training: tuple[Branch, ...]) -> None:
    grouped = training[0].root.path != "sources"
    if recipe.epochs is not None and recipe.exhaustion != "repeat":
        raise RecipeError(
            "exhaustion: cannot be combined with `epochs`",
            found=recipe.exhaustion,
            expected="no `exhaustion`: every source ends with the last pass",
            fix="remove one of the two",
        )
    _check_plain_groups(recipe.sources, "sources", grouped)
    if grouped:
        _check_grouped(recipe)
    _check_fuse(recipe, training)
    _check_parts(recipe, training)
    for branch in training:
        _check_weights_in(branch, recipe)
        _check_window(branch, recipe)


def _check_plain_groups(entries: list[Source | Group], path: str, grouped: bool) -> None:
    """A group that shares its parent's batching cannot set these rules."""
    for i, entry in enumerate(entries):
        if not isinstance(entry, Group):
            continue
        here = f"{path}[{i}]"
        for field in ("weights_in", "lanes", "window_size", "balance") if not grouped else ():
            if getattr(entry, field) is not None:
                raise RecipeError(
                    f'{here}.{field} "{entry.name}": only a group with its own `batching` can have it',
                    found=str(getattr(entry, field)),
                    fix="move the line to the top of the recipe, or give the group its own `batching`",
                )
        _check_plain_groups(entry.sources, f"{here}.sources", grouped=False)


def _check_grouped(recipe: Recipe) -> None:
    for i, entry in enumerate(recipe.sources):
        if entry.weight is not None:
            raise RecipeError(
                f'sources[{i}].weight "{entry.name}": groups with their own batching are weighted by `fuse`',
                found=f"{entry.weight:g}",
                fix=f"remove it, and write `fuse: {{{entry.name}: {entry.weight:g}, ...}}`",
            )
    for field in ("batching", "temperature"):
        if getattr(recipe, field) is not None:
            raise RecipeError(
                f"{field}: is never used, because every group has its own batching",
                fix="remove it, or remove the groups' own `batching`",
            )


def _check_fuse(recipe: Recipe, training: tuple[Branch, ...]) -> None:
    names = [branch.name for branch in training]
    if len(training) == 1:
        if recipe.fuse is not None:
            raise RecipeError(
                "fuse: needs several sub-streams",
                expected="several groups with their own `batching`",
                fix="remove it",
            )
    elif recipe.fuse is None:
        weights = ", ".join(f"{name}: 1" for name in names)
        raise RecipeError(
            "fuse: is missing, and there are several groups with their own batching",
            expected=f"`fuse: {{{weights}}}` to deal whole steps by weight, or `fuse: zip` to share every step",
        )
    elif isinstance(recipe.fuse, dict) and set(recipe.fuse) != set(names):
        raise RecipeError(
            "fuse: does not name the groups with their own batching",
            found=", ".join(recipe.fuse) or "nothing",
            expected=", ".join(names),
        )
    if recipe.fuse == "zip":
        _check_zip(recipe, training)
        return
    for branch in training:
        if branch.lanes is not None and branch.root.path != "sources":
            raise RecipeError(
                f'{branch.root.path}.lanes "{branch.name}": a group can have its own lanes only with `fuse: zip`',
                found=str(branch.lanes),
                fix="remove it; the recipe's `lanes` apply",
            )


def _check_zip(recipe: Recipe, training: tuple[Branch, ...]) -> None:
    for branch in training:
        if branch.lanes is None:
            raise RecipeError(
                f'{branch.root.path} "{branch.name}": `lanes` is missing, and `fuse: zip` shares every step'
            )
    total = sum(branch.lanes or 0 for branch in training)
    if recipe.lanes != total:
        raise RecipeError(
            "lanes: must be the sum of the groups' lanes",
            found=str(recipe.lanes) if recipe.lanes is not None else "no `lanes`",
            expected=" + ".join(str(branch.lanes) for branch in training) + f" = {total}",
            fix=f"write `lanes: {total}`, or change the groups'",
        )


def _check_parts(recipe: Recipe, training: tuple[Branch, ...]) -> None:
    if recipe.parts == 1:
        return
    if len(training) > 1:
        raise RecipeError(
            "parts: cannot be combined with several groups that have their own batching", found=str(recipe.parts)
        )
    lanes = recipe.lanes or 1
    if lanes % recipe.parts:
        divisors = [str(number) for number in range(1, lanes + 1) if lanes % number == 0]
        raise RecipeError(
            f"parts: must divide the lanes ({lanes})",
            found=str(recipe.parts),
            expected=f"one of: {', '.join(divisors)}",
        )


def _check_weights_in(branch: Branch, recipe: Recipe) -> None:
    by_length = isinstance(branch.batching, (Budget, Pack))
    if not by_length or branch.weights_in is not None or recipe.epochs is not None or len(branch.leaves()) == 1:
        return
    kind = "pack" if isinstance(branch.batching, Pack) else "budget"
    place = "" if branch.root.path == "sources" else f"{branch.root.path}."
    raise RecipeError(
        f"{place}weights_in: is missing, and with `{kind}` the meaning of a weight is ambiguous",
        expected="`weights_in: samples` (shares of samples) or `weights_in: length` (shares of the total length)",
        fix="add the line `weights_in: length` if in doubt: then a weight of 0.3 means 30 % of the tokens or seconds",
    )


def _check_window(branch: Branch, recipe: Recipe) -> None:
    lanes = (branch.lanes or recipe.lanes or 1) // recipe.parts
    if branch.balance is not None and lanes % branch.balance:
        raise RecipeError(
            f"{_owner(branch, recipe, 'balance')}: must divide the lanes ({lanes})", found=str(branch.balance)
        )
    if branch.window_size is None:
        return
    where = _owner(branch, recipe, "window_size")
    multiple = lanes * branch.batching.size if isinstance(branch.batching, Fixed) else lanes
    if branch.window_size % multiple:
        parts = f"size * lanes = {multiple}" if isinstance(branch.batching, Fixed) else f"the lanes ({multiple})"
        above = -(-branch.window_size // multiple) * multiple
        raise RecipeError(
            f"{where}: must be a multiple of {parts}", found=str(branch.window_size), fix=f"for example {above}"
        )


def _owner(branch: Branch, recipe: Recipe, field: str) -> str:
    """The location of a rule that a group may inherit."""
    if branch.root.path == "sources" or getattr(recipe, field) == getattr(branch, field):
        return field
    return f"{branch.root.path}.{field}"
