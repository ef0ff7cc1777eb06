"""The shards of one source on disk, and the finished work that can be reused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeVar

from playhead.errors import DataError, Failure, NotPreparedError, PlayheadError
from playhead.formats.contract import Divisible, Section
from playhead.formats.rows import Shard
from playhead.index.integrity import damaged_arrays
from playhead.index.layout import FileEntry, Layout, files_now
from playhead.index.opened import Index, open_index
from playhead.prepare.decompress import decompress_new
from playhead.prepare.options import PrepareOptions
from playhead.prepare.parts import PartSummary, part_path, read_summary
from playhead.store import ask_together

R = TypeVar("R")


class ScanPart(NamedTuple):
    """A shard, or a section of one, that is or will be scanned into a file of arrays."""

    section: Section | None
    path: Path
    summary: PartSummary | None


@dataclass(frozen=True)
class Survey:
    """The shards of a source with their current files, and what need not be scanned again.

    `parts` are those of the shards that the old index does not have. `damaged` are the arrays of the existing index
    that changed after they were written: it is not used.
    """

    shards: tuple[Shard, ...]
    files: tuple[tuple[FileEntry, ...], ...]
    old: Index | None
    old_places: dict[tuple[FileEntry, ...], int]
    damaged: tuple[str, ...] = ()
    parts: dict[int, list[ScanPart]] = field(default_factory=dict)

    def up_to_date(self, layout: Layout) -> bool:
        if self.old is None or self.old.directory != layout.directory or not layout.draws_alike(self.old.meta):
            return False
        return [entry.files for entry in self.old.meta.shards] == list(self.files)

    def unknown(self) -> list[int]:
        """The shards that the old index does not have."""
        return [i for i, files in enumerate(self.files) if files not in self.old_places]

    def to_scan(self) -> list[int]:
        """The shards that must be scanned, at least in part."""
        return [i for i, parts in self.parts.items() if any(part.summary is None for part in parts)]

    def num_bytes(self, chosen: Sequence[int] | None = None) -> int:
        numbers = range(len(self.files)) if chosen is None else chosen
        sizes = {file.path: file.size for i in numbers for file in self.files[i]}  # one may be in many shards
        return sum(sizes.values())


def survey_source(layout: Layout, options: PrepareOptions) -> tuple[Survey, list[Failure]]:
    """Examine the files on disk, writing nothing. Every shard that cannot be examined is a failure."""
    failures: list[Failure] = []
    shards: list[Shard] = []
    found: list[tuple[FileEntry, ...]] = []
    discovered = layout.registered.format.discover(layout.leaf.source, options.files)
    if not discovered:
        raise DataError(
            f'{layout.leaf.path} "{layout.leaf.source.name}": no shards found',
            found=", ".join(layout.leaf.source.path),
            expected=f"at least one shard of the format {layout.registered.name}",
            fix="correct the path",
        )
    decompress_new(discovered, options)
    for shard, (now, problems) in zip(discovered, _files_now(layout, discovered, options), strict=True):
        failures += problems
        if now is not None:
            shards.append(shard)
            found.append(now)
    survey = Survey(tuple(shards), tuple(found), None, {})
    if not options.force:
        survey = _with_index(layout, survey, everything=options.verify)
        if survey.old is not None and not survey.up_to_date(layout):  # its arrays are about to be copied
            survey = _with_index(layout, survey, everything=True)
    for i in survey.unknown():
        parts = attempt(layout, survey.shards[i], lambda _, i=i: _parts(layout, survey, i, options), failures)  # type: ignore[misc]
        if parts is not None:
            survey.parts[i] = parts
    return survey, failures


def _files_now(
    layout: Layout, shards: Sequence[Shard], options: PrepareOptions
) -> list[tuple[tuple[FileEntry, ...] | None, list[Failure]]]:
    """The files of each shard as they are now, or why that cannot be said."""

    def ask(i: int) -> tuple[tuple[FileEntry, ...] | None, list[Failure]]:
        problems: list[Failure] = []
        return attempt(layout, shards[i], lambda shard: files_now(shard, options.files), problems), problems

    return ask_together(options.files, [shard.name for shard in shards], ask)


def _parts(layout: Layout, survey: Survey, i: int, options: PrepareOptions) -> list[ScanPart]:
    """The parts of a shard, each with its summary if an earlier run has finished it."""
    shard, files, format_ = survey.shards[i], survey.files[i], layout.registered.format
    sections: Sequence[Section | None] = ()
    if isinstance(format_, Divisible) and files[0].size > format_.section_bytes:
        sections = format_.sections(shard, layout.spec.scanned, options.files, options.limits)
    found = []
    for section in sections or (None,):
        path = part_path(parts_directory(layout), files, section)
        summary = None if options.force else read_summary(path)
        found.append(ScanPart(section, path, summary if summary is not None and summary.files == files else None))
    return found


def _with_index(layout: Layout, survey: Survey, *, everything: bool) -> Survey:
    old, damaged = _old_index(layout, everything=everything)
    places = {} if old is None else {entry.files: i for i, entry in enumerate(old.meta.shards)}
    return Survey(survey.shards, survey.files, old, places, damaged)


def parts_directory(layout: Layout) -> Path:
    return layout.directory.with_name(f"{layout.directory.name}.parts")


def attempt(layout: Layout, shard: Shard, action: Callable[[Shard], R], failures: list[Failure]) -> R | None:
    """Apply a function to a shard; a PlayheadError becomes a failure, and the other shards continue."""
    try:
        return action(shard)
    except PlayheadError as error:
        failures.append(Failure(layout.leaf.source.name, shard.name, str(error)))
        return None


def _old_index(layout: Layout, *, everything: bool) -> tuple[Index | None, tuple[str, ...]]:
    """The existing index, or the largest one made from other paths under this name; undamaged.

    Also the damaged arrays of the existing one. Its large arrays are checked only if `everything` is true.
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
    """The index in a directory, if it holds what the layout needs."""
    index = open_index(directory) if directory.suffix not in (".new", ".old") else None
    return index if index is not None and index.meta.fingerprint == layout.fingerprint else None


def _damage(index: Index, *, everything: bool) -> tuple[str, ...]:
    """The arrays that changed after they were written; that each is complete is always checked."""
    damage = damaged_arrays(index.directory, index.meta.digests, everything=everything)
    try:
        index.check_arrays()
    except NotPreparedError:
        return damage or damaged_arrays(index.directory, index.meta.digests, everything=True) or ("meta.json",)
    return damage


def _literal(text: str) -> str:
    return "".join(f"[{character}]" if character in "*?[" else character for character in text)
