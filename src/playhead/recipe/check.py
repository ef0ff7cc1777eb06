"""The rules of a recipe beyond its types: each broken rule is a RecipeError with its location and the fix."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from playhead.errors import RecipeError
from playhead.recipe.by_format import holds_conversations
from playhead.recipe.check_augments import check_augments
from playhead.recipe.check_batching import check_batching
from playhead.recipe.check_conversations import check_conversations
from playhead.recipe.check_delivery import check_delivery
from playhead.recipe.check_sizes import check_batch_sizes, check_sizes
from playhead.recipe.check_source import check_source
from playhead.recipe.check_streams import check_streams
from playhead.recipe.check_weights import check_weights
from playhead.recipe.tree import Branch, Leaf, branches, evaluation_branch, noise_leaves
from playhead.recipe.values import SUM_NAME, Fixed, Group, Recipe, Source


def check(recipe: Recipe) -> None:
    """Refuse a recipe that breaks a rule; rules that depend on the data are checked later."""
    check_sizes(recipe)
    _check_lists(recipe)
    check_weights(recipe)
    check_delivery(recipe)
    training = branches(recipe)
    check_streams(recipe, training)
    evaluation = tuple(evaluation_branch(recipe, split) for split in recipe.evaluation)
    _check_names(recipe, training, evaluation)
    for branch in (*training, *evaluation):
        _check_branch(branch, recipe)
    for leaf in noise_leaves(recipe):
        check_source(leaf)
    check_augments(recipe)
    check_conversations(recipe)


def _check_branch(branch: Branch, recipe: Recipe) -> None:
    leaves = branch.leaves()
    for leaf in leaves:
        check_source(leaf)
        _check_has_length(leaf, branch)
    _check_units(leaves)
    check_batch_sizes(branch, recipe)
    check_batching(leaves)


def _check_lists(recipe: Recipe) -> None:
    lists: list[tuple[str, list[Source | Group] | list[Source]]] = [("sources", recipe.sources)]
    lists += [(f"{path}.sources", group.sources) for path, group in _groups("sources", recipe.sources)]
    lists += [(f"evaluation.{name}.sources", chosen.sources) for name, chosen in recipe.evaluation.items()]
    for path, entries in lists:
        if not entries:
            raise RecipeError(f"{path}: is empty", fix="add one, or remove the list")


def _groups(path: str, entries: list[Source | Group]) -> Iterator[tuple[str, Group]]:
    for i, entry in enumerate(entries):
        if isinstance(entry, Group):
            yield f"{path}[{i}]", entry
            yield from _groups(f"{path}[{i}].sources", entry.sources)


def _check_names(recipe: Recipe, training: tuple[Branch, ...], evaluation: tuple[Branch, ...]) -> None:
    named = [(branch.root.path, branch.name) for branch in training if branch.root.path != "sources"]
    named += [(leaf.path, leaf.source.name) for branch in training for leaf in branch.leaves()]
    _check_distinct(named)
    plain_groups = [(path, group.name) for path, group in _groups("sources", recipe.sources)]
    for path, name in (*named, *plain_groups, *((f"evaluation.{name}", name) for name in recipe.evaluation)):
        _check_name(path, name)
    for branch in (*training, *evaluation):
        for leaf in branch.leaves():
            _check_not_reserved(leaf)
    trained = {leaf.source.name: leaf for branch in training for leaf in branch.leaves()}
    for branch in evaluation:
        _check_distinct([(leaf.path, leaf.source.name) for leaf in branch.leaves()])
        for leaf in branch.leaves():
            _check_name(leaf.path, leaf.source.name)
            _check_same(trained.get(leaf.source.name), leaf)
    others = {leaf.source.name: leaf for branch in evaluation for leaf in branch.leaves()} | trained
    _check_distinct([(leaf.path, leaf.source.name) for leaf in noise_leaves(recipe)])
    for leaf in noise_leaves(recipe):
        _check_name(leaf.path, leaf.source.name)
        _check_not_reserved(leaf)
        _check_same(others.get(leaf.source.name), leaf)


def _check_name(path: str, name: str) -> None:
    if not name.strip() or not name.isprintable():
        raise RecipeError(
            f"{path}: a name must be printable text, with no control characters", found=repr(name), fix="rename it"
        )


def _check_not_reserved(leaf: Leaf) -> None:
    if leaf.source.name == SUM_NAME:
        raise RecipeError(
            f'{leaf.path} "{SUM_NAME}": this name is reserved',
            expected=f'another name: totals give the sum of all sources under "{SUM_NAME}"',
            fix="rename the source",
        )


def _check_distinct(named: list[tuple[str, str]]) -> None:
    seen: dict[str, str] = {}
    for path, name in named:
        if name in seen:
            raise RecipeError(
                f'{path} "{name}": the name is already taken by {seen[name]}',
                expected="a unique name: it decides the order of the source and where its index is kept",
                fix="rename one of the two",
            )
        seen[name] = path


def _check_same(trained: Leaf | None, evaluated: Leaf) -> None:
    """One name stands for one index, so a source may be shared with evaluation or noises only unchanged."""
    if trained is None:
        return
    own, other = (
        msgspec.structs.replace(leaf.source, weight=None, shuffle="none", shuffle_group=8, shuffle_unit="shard")
        for leaf in (evaluated, trained)
    )
    for field in own.__struct_fields__:
        if getattr(own, field) != getattr(other, field):
            raise RecipeError(
                f'{evaluated.path} "{own.name}": differs in `{field}` from {trained.path}, which has the same name',
                expected="sources of one name to differ in `weight` and `shuffle` at most",
                fix="rename one of the two",
            )


def _check_has_length(leaf: Leaf, branch: Branch) -> None:
    if leaf.source.length is not None:
        return
    batching = branch.batching
    if not isinstance(batching, Fixed):
        reason = "this batching plans by length"
    elif batching.max_length is not None:
        reason = "`max_length` is set"
    elif branch.weights_in == "length":
        reason = "`weights_in: length` is set"
    else:
        return
    if holds_conversations(leaf.source):
        raise RecipeError(
            f'{leaf.path} "{leaf.source.name}": conversations have a length in tokens, and {reason}',
            found="no `template` that makes tokens of them",
            fix="add `template: {tokenizer: tokenizer.json, file: chat_template.jinja}` to the recipe",
        )
    raise RecipeError(
        f'{leaf.path} "{leaf.source.name}": `length` is missing, and {reason}',
        fix="name its field, for example `length: num_tokens` or `length: {field: duration, unit: seconds}`",
    )


def _check_units(leaves: tuple[Leaf, ...]) -> None:
    for field in ("length", "output_length"):
        units: dict[str, Leaf] = {}
        for leaf in leaves:
            length = getattr(leaf.source, field)
            if length is not None:
                units.setdefault(length.unit, leaf)
        if len(units) > 1:
            (one, first), (other, second) = list(units.items())[:2]
            raise RecipeError(
                f'{second.path}.{field} "{second.source.name}": its unit differs from that of {first.path}',
                found=f"{other} here, {one} there",
                expected="one unit in sources that share batches",
                fix="use one unit, or put the sources into groups with a `batching` each",
            )
