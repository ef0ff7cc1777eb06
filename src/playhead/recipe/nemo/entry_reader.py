"""An entry of an `input_cfg` that is being read: its paths, and the source or the blend it becomes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Any

from playhead.errors import RecipeError
from playhead.recipe.nemo.block import Block
from playhead.recipe.nemo.context import Context
from playhead.recipe.nemo.entries import Dataset, Entry, Group, Modality
from playhead.recipe.nemo.notes import shown


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
