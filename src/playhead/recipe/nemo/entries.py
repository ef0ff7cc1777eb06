"""What an `input_cfg` becomes before it is a recipe: datasets, and groups that share a weight."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

Modality = Literal["audio", "text", "pair", "conversation"]


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


def num_sources(values: dict[str, Any]) -> int:
    """The number of sources to train on, in the values of a recipe."""

    def count(entry: dict[str, Any]) -> int:
        return sum(map(count, entry["sources"])) if "sources" in entry else 1

    return sum(map(count, values["sources"]))
