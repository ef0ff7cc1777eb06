"""A look at the shards of one source: as they are on disk, and what need not be done for them again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from playhead.errors import Failure, NotPreparedError, PlayheadError, RecipeError
from playhead.formats.contract import Shard
from playhead.index.integrity import damaged_arrays
from playhead.index.layout import Layout, ShardEntry, entry_of
from playhead.index.opened import Index, open_index
from playhead.prepare.options import PrepareOptions
from playhead.prepare.parts import Summary, part_path, read_summary
from playhead.store import is_url

R = TypeVar("R")


@dataclass(frozen=True)
class Survey:
    """The shards of a source as they are, and what need not be scanned again.

    `damaged` are the arrays of the index in place that are not what was written: it is not used.
    """

    shards: tuple[Shard, ...]
    entries: tuple[ShardEntry, ...]
    old: Index | None
    old_places: dict[tuple[object, ...], int]
    damaged: tuple[str, ...] = ()
    parts: dict[int, Summary] = field(default_factory=dict)

    def up_to_date(self, layout: Layout) -> bool:
        if self.old is None or self.old.directory != layout.directory or not layout.draws_alike(self.old.meta):
            return False
        return [entry.files for entry in self.entries] == [entry.files for entry in self.old.meta.shards]

    def to_scan(self) -> list[int]:
        """The shards that neither the old index nor a finished part has."""
        known = self.old_places
        return [i for i, entry in enumerate(self.entries) if entry.files not in known and i not in self.parts]

    def num_bytes(self, chosen: Sequence[int] | None = None) -> int:
        numbers = range(len(self.entries)) if chosen is None else chosen
        return sum(file.size for i in numbers for file in self.entries[i].files)


def survey_source(layout: Layout, options: PrepareOptions) -> tuple[Survey, list[Failure]]:
    """Look at what is there, writing nothing. Every shard that cannot be looked at is a failure."""
    _refuse_urls(layout)
    shards = layout.registered.format.discover(layout.leaf.source)
    failures: list[Failure] = []
    looked = [(shard, attempt(layout, shard, lambda shard: entry_of(shard, 0), failures)) for shard in shards]
    found = [shard for shard, entry in looked if entry is not None]
    entries = [entry for _, entry in looked if entry is not None]
    if options.force:
        return Survey(tuple(found), tuple(entries), None, {}), failures
    survey = _with_index(layout, tuple(found), tuple(entries), everything=options.verify)
    if survey.old is not None and not survey.up_to_date(layout):  # its arrays are about to be copied
        survey = _with_index(layout, tuple(found), tuple(entries), everything=True)
    for i in survey.to_scan():
        summary = read_summary(part_path(parts_directory(layout), entries[i]))
        if summary is not None and summary.files == entries[i].files:
            survey.parts[i] = summary
    return survey, failures


def _with_index(
    layout: Layout, shards: tuple[Shard, ...], entries: tuple[ShardEntry, ...], *, everything: bool
) -> Survey:
    old, damaged = _old_index(layout, everything=everything)
    places: dict[tuple[object, ...], int] = {}
    if old is not None:
        places = {entry.files: i for i, entry in enumerate(old.meta.shards)}
    return Survey(shards, entries, old, places, damaged)


def _refuse_urls(layout: Layout) -> None:
    for pattern in layout.patterns:
        if is_url(pattern):
            raise RecipeError(
                f'{layout.leaf.path}.path "{pattern}": training does not read object stores yet',
                expected="a path on a local or mounted file system",
                fix="copy the files to a disk, or mount the bucket, and give that path",
            )


def parts_directory(layout: Layout) -> Path:
    return layout.directory.with_name(f"{layout.directory.name}.parts")


def attempt(layout: Layout, shard: Shard, action: Callable[[Shard], R], failures: list[Failure]) -> R | None:
    """Do something to a shard; what a user can fix becomes a failure, and the rest goes on."""
    try:
        return action(shard)
    except PlayheadError as error:
        failures.append(Failure(layout.leaf.source.name, shard.name, str(error)))
        return None


def _old_index(layout: Layout, *, everything: bool) -> tuple[Index | None, tuple[str, ...]]:
    """The index in place, or the one made from other paths under this name that has the most rows; undamaged.

    Also the damaged arrays of the one in place. Large arrays of it are looked at if `everything` is asked.
    """
    index = _like(layout, layout.directory)
    damage = () if index is None else _damage(index, everything=everything)
    if index is not None and not damage:
        return index, ()
    name = layout.directory.name.rpartition("-")[0]
    places = sorted(path.parent for path in layout.directory.parent.glob(f"{_literal(name)}-*/meta.json"))
    others = [_like(layout, place) for place in places if place != layout.directory]
    known = sorted((other for other in others if other is not None), key=lambda other: -other.meta.num_rows)
    return next((other for other in known if not _damage(other, everything=True)), None), damage


def _like(layout: Layout, directory: Path) -> Index | None:
    """The index in a directory, if it holds what the layout asks for."""
    index = open_index(directory) if directory.suffix not in (".new", ".old") else None
    return index if index is not None and index.meta.fingerprint == layout.fingerprint else None


def _damage(index: Index, *, everything: bool) -> tuple[str, ...]:
    """The arrays that are not what was written; whether each is there in full is always looked at."""
    damage = damaged_arrays(index.directory, index.meta.digests, everything=everything)
    try:
        index.check_arrays()
    except NotPreparedError:
        return damage or damaged_arrays(index.directory, index.meta.digests, everything=True) or ("meta.json",)
    return damage


def _literal(text: str) -> str:
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in text)
