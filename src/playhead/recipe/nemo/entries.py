"""What an `input_cfg` becomes before it is a recipe: datasets, groups that share a weight, and their weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from math import isfinite
from numbers import Real
from typing import Any, Literal

from playhead.errors import RecipeError
from playhead.recipe.nemo.context import Context
from playhead.recipe.nemo.report import shown
from playhead.recipe.nemo.sections import Block

Modality = Literal["audio", "text", "pair", "conversation"]
_DIGITS = 12  # of a weight that is computed


@dataclass
class Dataset:
    """A source to be: the values of the recipe, and what decides its length.

    `text_field` and `duration_field` are the fields of an audio row. A conversation with audio has the `audio_tag` that
    stands for a recording and the seconds of a token.
    """

    name: str
    values: dict[str, Any]
    modality: Modality
    place: str
    weight: float | None = None
    text_field: str = "text"
    duration_field: str = "duration"
    audio_field: str = "audio"
    audio_tag: str | None = None
    token_seconds: float | None = None
    tags: dict[str, Any] = field(default_factory=dict)


@dataclass
class Group:
    """Entries that share a weight; members without weights share it by their sizes."""

    name: str
    members: list[Dataset | Group]
    place: str
    weight: float | None = None


Entry = Dataset | Group


def datasets_of(entries: list[Entry]) -> Iterator[Dataset]:
    for entry in entries:
        if isinstance(entry, Dataset):
            yield entry
        else:
            yield from datasets_of(entry.members)


def as_values(entry: Entry) -> dict[str, Any]:
    """A source or a group as the recipe has it."""
    weight = {} if entry.weight is None else {"weight": entry.weight}
    if isinstance(entry, Group):
        return {"name": entry.name, **weight, "sources": [as_values(member) for member in entry.members]}
    values = dict(entry.values)
    first: dict[str, Any] = {key: values.pop(key) for key in ("format", "path") if key in values}
    tags = {"tags": entry.tags} if entry.tags else {}
    return {"name": entry.name, **first, **weight, **tags, **values}


def checked_weights(given: Sequence[Any], places: Sequence[str]) -> list[float] | None:
    """The weights of the entries of a list, or None if none has one. A weight on some of several is refused."""
    missing = [place for place, weight in zip(places, given, strict=True) if weight is None]
    if len(missing) == len(given):
        return None
    if missing and len(given) > 1:
        weighted = next(place for place, weight in zip(places, given, strict=True) if weight is not None)
        raise RecipeError(
            f"{missing[0]}: has no weight, but {weighted} has one",
            found=f"{len(missing)} of {len(given)} entries without a weight",
            expected="a weight on every entry of a list, or on none, as NeMo requires",
            fix="add the weights that are missing",
        )
    for place, weight in zip(places, given, strict=True):
        if not _is_number(weight) or weight <= 0:
            raise RecipeError(
                f"{place}.weight: a weight must be a number above 0",
                found=str(weight),
                fix="give a number above 0, or remove the entry",
            )
    return list(given)


def reweighted(weights: Sequence[float], temperature: float) -> list[float]:
    """NeMo's reweighting: the powers of the weights, normalised. At temperature 1 the weights stay as they are."""
    if temperature == 1:
        return list(weights)
    most_drawn = max(weights) if temperature > 0 else min(weights)
    powers = [(weight / most_drawn) ** temperature for weight in weights]
    total = sum(powers)
    return [float(f"{power / total:.{_DIGITS}g}") for power in powers]


def level_temperatures(given: Any, depth: int, place: str) -> list[float]:
    """The temperature of every level of `input_cfg`, outermost first."""
    if _is_number(given):
        return [float(given)] * depth
    if not isinstance(given, list) or not all(map(_is_number, given)):
        raise RecipeError(
            f"{place}: is neither a number nor a list of numbers",
            found=str(given),
            expected="one number for each level",
        )
    if len(given) != depth:
        raise RecipeError(
            f"{place}: needs one number for each level of `input_cfg`",
            found=f"{len(given)} temperatures for {depth} levels",
            expected="one number for each level, or one for all",
        )
    return [float(each) for each in given]


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and isfinite(value)


class EntryReader:
    """An entry that is being read. Its name is that of its source or, if it `is_blend`, of the group of its sources."""

    def __init__(self, block: Block, context: Context, fallback: str) -> None:
        self.block = block
        self.context = context
        self._given = next((block.take(key) for key in ("name", "corpus") if block.has(key)), None)
        self._fallback = fallback
        self.is_blend = False

    def path(self, *names: str) -> list[str]:
        """The paths in the first of these keys that is given."""
        for name in names:
            if self.block.has(name):
                return self.placed(self.block.take(name), name)
        raise RecipeError(f"{self.block.place}: `{names[0]}` is missing", found=shown(self.block.values))

    def placed(self, value: Any, name: str) -> list[str]:
        paths = [value] if isinstance(value, str) else value
        if not isinstance(paths, list) or not paths or not all(isinstance(path, str) for path in paths):
            raise RecipeError(f"{self.block.at(name)}: is not a path or a list of paths", found=shown(value))
        return [self.context.placed(path) for path in paths]

    def dataset(self, modality: Modality, format_name: str, paths: Sequence[str], **values: Any) -> Dataset:
        options = {key: value for key, value in values.pop("options", {}).items() if value}
        named = paths or [text for field in options.get("fields", {}).values() for text in as_list(field)]
        name = self.context.name_for(None if self.is_blend else self._given, named, self._fallback)
        path = {"path": one_or_list(paths)} if paths else {}
        found = {"format": format_name, **path, **values, **({"options": options} if options else {})}
        return Dataset(name, found, modality, self.block.place)

    def group(self, members: list[Entry], weights: list[float] | None) -> Entry:
        """A blend: by weights, or by the sizes of its members."""
        if len(members) == 1:
            return members[0]
        for member, weight in zip(members, weights or repeat(None, len(members)), strict=True):
            member.weight = weight
        name = self.context.name_for(self._given, [], f"{self._fallback}-blend")
        return Group(name, members, self.block.place)


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def one_or_list(paths: Sequence[str]) -> str | list[str]:
    return paths[0] if len(paths) == 1 else list(paths)
