"""The recipe's tree of groups, seen as sub-streams of leaves.

In: a Recipe. Out: one `Branch` per sub-stream (most recipes have one), each with its rules, and
every source as a `Leaf` with its path in the recipe, so that errors can name it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import msgspec

from playhead.errors import RecipeError
from playhead.recipe.augment_lengths import changes_length
from playhead.recipe.augments import Augment, Noise, kind_of
from playhead.recipe.units import in_units, length_limit
from playhead.recipe.values import (
    AsConversation,
    Batching,
    Bucket,
    Evaluation,
    Fixed,
    Group,
    Recipe,
    Source,
    Template,
    Tokenize,
    Unit,
    WeightsIn,
)
from playhead.seeds import key

MAIN = "main"
NOISES = "noises"


@dataclass(frozen=True)
class Leaf:
    """A source at its location in the recipe; `evaluation` names the evaluation set it is in.

    A source in `noises` is in no stream: augmentations draw from it.
    """

    path: str
    source: Source
    batching: Batching
    batching_path: str
    evaluation: str | None = None
    is_noise: bool = False

    @property
    def unit(self) -> Unit:
        return self.source.length.unit if self.source.length else "tokens"

    @property
    def output_unit(self) -> Unit:
        return self.source.output_length.unit if self.source.output_length else "tokens"

    @property
    def limit(self) -> int | None:
        """The longest sample its micro-batches can hold."""
        return length_limit(self.batching, self.unit, self.batching_path)

    @property
    def dropped_above(self) -> int | None:
        """The limit, where samples beyond it are left out of the selection."""
        return self.limit if self.batching.overlong == "drop" else None

    @property
    def output_limit(self) -> int | None:
        """The longest output, which only two-dimensional buckets limit."""
        if not isinstance(self.batching, Bucket) or not self.batching.edges:
            return None
        outputs = [edge[1] for edge in self.batching.edges if isinstance(edge, tuple)]
        return in_units(max(outputs), self.output_unit, f"{self.batching_path}.edges") if outputs else None

    @property
    def frontier(self) -> tuple[tuple[int, int], ...] | None:
        """The longest output that any bucket holds for inputs up to each edge, as (input, output), inputs rising.

        None if that is the same for all inputs, so that the two limits are sufficient.
        """
        if self.output_limit is None:
            return None
        assert isinstance(self.batching, Bucket)
        where = f"{self.batching_path}.edges"
        held: dict[int, int] = {}
        for edge in reversed(self.batching.edges or []):
            assert isinstance(edge, tuple)
            ends = in_units(edge[0], self.unit, where), in_units(edge[1], self.output_unit, where)
            held[ends[0]] = max(ends[1], *held.values(), 0)
        return None if len(set(held.values())) == 1 else tuple(sorted(held.items()))

    @property
    def output_dropped_above(self) -> int | None:
        """The same for outputs."""
        return self.output_limit if self.batching.overlong == "drop" else None


@dataclass(frozen=True)
class Node:
    """A group or the whole list: how its members share its weight."""

    path: str
    members: tuple[Node | Leaf, ...]
    weight: float | None
    temperature: float | None


@dataclass(frozen=True)
class Branch:
    """The rules of one sub-stream."""

    name: str
    root: Node
    batching: Batching
    weights_in: WeightsIn | None
    lanes: int | None
    window_size: int | None
    balance: int | None

    def leaves(self) -> tuple[Leaf, ...]:
        return tuple(_leaves(self.root))


def branches(recipe: Recipe) -> tuple[Branch, ...]:
    """The sub-streams of the training stream, in recipe order."""
    groups = [entry for entry in recipe.sources if isinstance(entry, Group) and entry.batching is not None]
    if not groups:
        return (_main_branch(recipe),)
    if len(groups) < len(recipe.sources):
        index = next(i for i, entry in enumerate(recipe.sources) if entry not in groups)
        raise RecipeError(
            f'sources[{index}] "{recipe.sources[index].name}": has no batching, while other groups have their own',
            expected="either every top-level entry is a group with its own `batching`, or none is",
            fix="put this source into a group with `batching`",
        )
    return tuple(_group_branch(recipe, i, group) for i, group in enumerate(groups))


def evaluation_branch(recipe: Recipe, split: str) -> Branch:
    """The one sub-stream of a named evaluation set."""
    if split not in recipe.evaluation:
        raise RecipeError(
            f'unknown evaluation set "{split}"',
            expected=f"one of: {', '.join(recipe.evaluation) or '(none; add `evaluation:`)'}",
        )
    chosen = recipe.evaluation[split]
    path = f"evaluation.{split}"
    leaves = tuple(
        Leaf(f"{path}.sources[{i}]", source, chosen.batching, f"{path}.batching", split)
        for i, source in enumerate(chosen.sources)
    )
    return Branch(split, Node(path, leaves, None, None), chosen.batching, "samples", chosen.lanes, None, None)


def leaves(recipe: Recipe) -> tuple[Leaf, ...]:
    """Every source of the recipe: training first, then each evaluation set, then noises."""
    found = [leaf for branch in branches(recipe) for leaf in branch.leaves()]
    for split in recipe.evaluation:
        found += evaluation_branch(recipe, split).leaves()
    return (*found, *noise_leaves(recipe))


def noise_leaves(recipe: Recipe) -> tuple[Leaf, ...]:
    """The sources that augmentations draw on. They are in no stream, so their batching does not matter."""
    return tuple(
        Leaf(f"{NOISES}[{i}]", source, Fixed(size=1), NOISES, is_noise=True) for i, source in enumerate(recipe.noises)
    )


def noises_of(recipe: Recipe, sources: Iterable[Leaf]) -> list[Leaf]:
    """The sources of noise that augmentations of some sources draw on."""
    augments = [augment for leaf in sources for augment in augments_of(recipe, leaf)]
    names = {augment.source for augment in augments if isinstance(augment, Noise)}
    return [leaf for leaf in noise_leaves(recipe) if leaf.source.name in names]


def with_sources(recipe: Recipe, change: Callable[[Source, str], Source]) -> Recipe:
    """The recipe with every source changed; the function is given the source and its path in the recipe."""

    def changed(entry: Source | Group, path: str) -> Source | Group:
        if isinstance(entry, Source):
            return change(entry, path)
        members = [changed(member, f"{path}.sources[{i}]") for i, member in enumerate(entry.sources)]
        return msgspec.structs.replace(entry, sources=members)

    def changed_set(chosen: Evaluation, path: str) -> Evaluation:
        sources = [change(source, f"{path}.sources[{i}]") for i, source in enumerate(chosen.sources)]
        return msgspec.structs.replace(chosen, sources=sources)

    return msgspec.structs.replace(
        recipe,
        sources=[changed(entry, f"sources[{i}]") for i, entry in enumerate(recipe.sources)],
        evaluation={name: changed_set(chosen, f"evaluation.{name}") for name, chosen in recipe.evaluation.items()},
        noises=[change(source, f"{NOISES}[{i}]") for i, source in enumerate(recipe.noises)],
    )


def map_of(recipe: Recipe, leaf: Leaf) -> tuple[str, str] | None:
    """The map of a source, and its location in the recipe: its own, or the recipe's."""
    if leaf.source.map is not None:
        return leaf.source.map, f"{leaf.path}.map"
    return None if recipe.map is None else (recipe.map, "map")


def tokenize_of(recipe: Recipe, leaf: Leaf) -> tuple[Tokenize, str] | None:
    """The `tokenize` of a source, and its location in the recipe: its own, or the recipe's."""
    own = leaf.source.tokenize
    if own is not None:
        return None if isinstance(own, bool) else (own, f"{leaf.path}.tokenize")
    return None if recipe.tokenize is None else (recipe.tokenize, "tokenize")


def template_of(recipe: Recipe, leaf: Leaf) -> tuple[Template, str] | None:
    """The template of a source of conversations, and its location in the recipe: its own, or the recipe's."""
    own = leaf.source.template
    if own is not None:
        return None if isinstance(own, bool) else (own, f"{leaf.path}.template")
    return None if recipe.template is None else (recipe.template, "template")


def audio_conversations(source: Source) -> AsConversation | None:
    """How rows of audio become conversations, if they do."""
    given = source.as_conversation
    if isinstance(given, AsConversation):
        return given
    return AsConversation() if given else None


def augments_of(recipe: Recipe, leaf: Leaf) -> tuple[Augment, ...]:
    """The augmentations of a source: its own, or the recipe's; sources of evaluation sets have only their own."""
    if leaf.source.augment is not None:
        return tuple(leaf.source.augment)
    return () if leaf.evaluation is not None or leaf.is_noise else tuple(recipe.augment)


def length_changes(recipe: Recipe, leaf: Leaf) -> tuple[Augment, ...]:
    """The augmentations of a source that change the length of its audio."""
    return tuple(filter(changes_length, augments_of(recipe, leaf)))


def augment_keys(recipe: Recipe, leaf: Leaf) -> tuple[int, ...]:
    """The keys of the draws of each augmentation, before epoch and row.

    An augmentation is named by its type and its number among those of the type: another of a different type, wherever
    in the list, does not change its draws.
    """
    seen: dict[str, int] = {}
    found = []
    for augment in augments_of(recipe, leaf):
        kind = kind_of(augment)
        number = seen[kind] = seen.get(kind, -1) + 1
        found.append(key(recipe.seed, "augment", leaf.source.name, kind, number))
    return tuple(found)


def sample_key(recipe: Recipe, leaf: Leaf) -> int:
    """The key of the random generators of a source's samples, before epoch and row."""
    return key(recipe.seed, "sample", leaf.source.name)


def _main_branch(recipe: Recipe) -> Branch:
    if recipe.batching is None:
        raise RecipeError("batching: is missing", expected="for example `batching: {type: fixed, size: 32}`")
    root = Node("sources", _members(recipe.sources, "sources", recipe.batching, "batching"), None, recipe.temperature)
    return Branch(MAIN, root, recipe.batching, recipe.weights_in, recipe.lanes, recipe.window_size, recipe.balance)


def _group_branch(recipe: Recipe, index: int, group: Group) -> Branch:
    path = f"sources[{index}]"
    assert group.batching is not None
    members = _members(group.sources, f"{path}.sources", group.batching, f"{path}.batching")
    return Branch(
        group.name,
        Node(path, members, None, group.temperature),
        group.batching,
        group.weights_in or recipe.weights_in,
        group.lanes,
        group.window_size or recipe.window_size,
        group.balance or recipe.balance,
    )


def _members(
    entries: list[Source | Group], path: str, batching: Batching, batching_path: str
) -> tuple[Node | Leaf, ...]:
    found: list[Node | Leaf] = []
    for i, entry in enumerate(entries):
        here = f"{path}[{i}]"
        if isinstance(entry, Source):
            found.append(Leaf(here, entry, batching, batching_path))
            continue
        if entry.batching is not None:
            raise RecipeError(
                f'{here} "{entry.name}": a group inside a group cannot have its own batching',
                fix="move the group to the top level of `sources`, or remove its `batching`",
            )
        members = _members(entry.sources, f"{here}.sources", batching, batching_path)
        found.append(Node(here, members, entry.weight, entry.temperature))
    return tuple(found)


def _leaves(node: Node) -> Iterator[Leaf]:
    for member in node.members:
        if isinstance(member, Leaf):
            yield member
        else:
            yield from _leaves(member)
