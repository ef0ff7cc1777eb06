"""One source: find its shards, scan what is new, merge, select."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from playhead.errors import DataError, NotPreparedError, PlayheadError
from playhead.formats.contract import Shard
from playhead.index.layout import Layout, ShardEntry, entry_of
from playhead.index.opened import Index, open_index
from playhead.index.selection import SelectionMeta, nothing_left, open_selection, write_selection
from playhead.prepare.effort import Effort
from playhead.prepare.lock import only_one
from playhead.prepare.merge import Piece, merge
from playhead.prepare.parts import Summary, part_path, read_summary
from playhead.prepare.report import Failure, Progress, SourceReport
from playhead.prepare.work import Job, run_jobs, write_sidecars
from playhead.store import writing_to

R = TypeVar("R")


@dataclass(frozen=True)
class Survey:
    """The shards of a source as they are, and what need not be scanned again."""

    shards: tuple[Shard, ...]
    entries: tuple[ShardEntry, ...]
    old: Index | None
    old_places: dict[tuple[object, ...], int]
    parts: dict[int, Summary] = field(default_factory=dict)

    @property
    def up_to_date(self) -> bool:
        return self.old is not None and [entry.files for entry in self.entries] == [
            entry.files for entry in self.old.meta.shards
        ]

    def to_scan(self) -> list[int]:
        """The shards that neither the old index nor a finished part has."""
        known = self.old_places
        return [i for i, entry in enumerate(self.entries) if entry.files not in known and i not in self.parts]

    def num_bytes(self, chosen: Sequence[int] | None = None) -> int:
        numbers = range(len(self.entries)) if chosen is None else chosen
        return sum(file.size for i in numbers for file in self.entries[i].files)


@dataclass(frozen=True)
class Outcome:
    report: SourceReport | None
    failures: tuple[Failure, ...]


def prepare_source(layout: Layout, effort: Effort) -> Outcome:
    """Bring one source up to date, holding its lock. Failures of shards are gathered, not raised."""
    source = layout.leaf.source.name
    with only_one(layout.directory):
        _finish_swap(layout.directory)
        survey, failures = survey_source(layout, effort.force)
        scanned = survey.to_scan()
        changed = not survey.up_to_date
        if changed:
            failures += _scan(layout, survey, scanned, effort)
        if effort.sidecars:
            failures += _sidecars(layout, survey, effort)
        if failures:
            return Outcome(None, tuple(failures))
        if changed:
            _merge(layout, survey, effort)
        index = open_index(layout.directory)
        assert index is not None
        opened = None if effort.force else open_selection(layout)
        meta = write_selection(layout, index) if opened is None else opened.meta
        _sweep_up(layout)
        if meta.num_rows == 0:
            return Outcome(None, (Failure(source, layout.leaf.path, str(nothing_left(layout, index, meta.losses))),))
        changed = changed or opened is None
        return Outcome(_report(layout, survey, scanned, (index, meta), changed), ())


def survey_source(layout: Layout, force: bool) -> tuple[Survey, list[Failure]]:
    """Look at what is there, writing nothing. Every shard that cannot be looked at is a failure."""
    shards = layout.registered.format.discover(layout.leaf.source)
    failures: list[Failure] = []
    looked = [(shard, _attempt(layout, shard, lambda shard: entry_of(shard, 0), failures)) for shard in shards]
    found = [shard for shard, entry in looked if entry is not None]
    entries = [entry for _, entry in looked if entry is not None]
    old = None if force else _old_index(layout)
    places: dict[tuple[object, ...], int] = {}
    if old is not None:
        places = {entry.files: i for i, entry in enumerate(old.meta.shards)}
    survey = Survey(tuple(found), tuple(entries), old, places)
    for i in [] if force else survey.to_scan():
        summary = read_summary(part_path(parts_directory(layout), entries[i]))
        if summary is not None and summary.files == entries[i].files:
            survey.parts[i] = summary
    return survey, failures


def parts_directory(layout: Layout) -> Path:
    return layout.directory.with_name(f"{layout.directory.name}.parts")


def _finish_swap(directory: Path) -> None:
    """A kill between the two renames of a swap leaves the old index beside its place."""
    retired = directory.with_name(f"{directory.name}.old")
    if retired.exists() and not directory.exists():
        with writing_to(directory):
            retired.rename(directory)


def _sweep_up(layout: Layout) -> None:
    """Remove what served its purpose, and what a kill left behind."""
    directory = layout.directory
    shutil.rmtree(parts_directory(layout), ignore_errors=True)
    for place in (directory, *directory.glob("selection-*")):
        for ending in (".new", ".old"):
            shutil.rmtree(place.with_name(f"{place.name}{ending}"), ignore_errors=True)


def _old_index(layout: Layout) -> Index | None:
    """The index in place, or the one made from other paths under this name that has the most rows; whole."""
    name = layout.directory.name.rpartition("-")[0]
    others = sorted(layout.directory.parent.glob(f"{_literal(name)}-*/meta.json"))
    candidates = [layout.directory, *(path.parent for path in others if path.parent != layout.directory)]
    usable = []
    for directory in candidates:
        index = open_index(directory) if directory.suffix not in (".new", ".old") else None
        if index is not None and index.meta.fingerprint == layout.fingerprint and _whole(index):
            if directory == layout.directory:
                return index
            usable.append(index)
    return max(usable, key=lambda index: index.meta.num_rows, default=None)


def _whole(index: Index) -> bool:
    """Whether every array is there in full."""
    try:
        index.check_arrays()
    except NotPreparedError:
        return False
    return True


def _literal(text: str) -> str:
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in text)


def _scan(layout: Layout, survey: Survey, chosen: list[int], effort: Effort) -> list[Failure]:
    source = layout.leaf.source.name
    directory = parts_directory(layout)
    with writing_to(directory):
        if effort.force:
            shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True, exist_ok=True)
    numbers = {survey.shards[i].name: i for i in chosen}
    failures: list[Failure] = []
    total_bytes = survey.num_bytes(chosen)
    done_bytes = done_shards = 0

    def done(job: Job, outcome: Summary | PlayheadError) -> None:
        nonlocal done_bytes, done_shards
        number = numbers[job.shard.name]
        done_bytes += survey.num_bytes([number])
        done_shards += 1
        if isinstance(outcome, PlayheadError):
            failures.append(Failure(source, job.shard.name, str(outcome)))
            return
        survey.parts[number] = outcome
        if effort.progress is not None:
            progress = (job.shard.name, outcome.num_rows, done_shards, len(chosen), done_bytes, total_bytes)
            effort.progress(Progress(source, *progress))

    jobs = [Job(layout.registered.format, survey.shards[i], layout.spec, effort.means, directory) for i in chosen]
    run_jobs(jobs, effort.workers_for(len(jobs), total_bytes), done)
    return failures


def _sidecars(layout: Layout, survey: Survey, effort: Effort) -> list[Failure]:
    failures: list[Failure] = []
    for shard in survey.shards:
        _attempt(layout, shard, lambda shard: write_sidecars(layout.registered.format, shard, effort.means), failures)
    return failures


def _attempt(layout: Layout, shard: Shard, action: Callable[[Shard], R], failures: list[Failure]) -> R | None:
    """Do something to a shard; what a user can mend becomes a failure, and the rest goes on."""
    try:
        return action(shard)
    except PlayheadError as error:
        failures.append(Failure(layout.leaf.source.name, shard.name, str(error)))
        return None


def _merge(layout: Layout, survey: Survey, effort: Effort) -> None:
    directory = parts_directory(layout)
    pieces = []
    shapes = set()
    for i, entry in enumerate(survey.entries):
        if i in survey.parts:
            summary = survey.parts[i]
            shapes.add((summary.roles, summary.tracks))
            # The scan may have met a newer file than the survey did; the part says which.
            pieces.append(Piece(summary.entry, part=part_path(directory, summary.entry)))
        else:
            assert survey.old is not None
            place = survey.old_places[entry.files]
            shapes.add((survey.old.meta.roles, survey.old.meta.tracks))
            pieces.append(Piece(survey.old.meta.shards[place], old_shard=place))
    if len(shapes) != 1:
        raise DataError(
            f'{layout.leaf.path} "{layout.leaf.source.name}": its shards are not alike',
            found="; ".join(f"files {', '.join(roles)}, tracks {', '.join(tracks)}" for roles, tracks in shapes),
            expected="the same kinds of files in every shard",
        )
    merge(layout, pieces, shapes.pop(), survey.old, effort.memory_bytes)


def _report(
    layout: Layout, survey: Survey, scanned: list[int], result: tuple[Index, SelectionMeta], changed: bool
) -> SourceReport:
    index, selection = result
    return SourceReport(
        name=layout.leaf.source.name,
        path=layout.leaf.path,
        directory=str(layout.directory),
        num_shards=len(survey.shards),
        scanned_shards=len(scanned),
        scanned_bytes=survey.num_bytes(scanned),
        reused_shards=len(survey.shards) - len(scanned),
        total_bytes=survey.num_bytes(),
        num_rows=index.meta.num_rows,
        length_sum=index.meta.length_sum,
        selected_rows=selection.num_rows,
        selected_length=selection.length_sum,
        losses=selection.losses,
        num_unknown_ids=selection.num_unknown_ids,
        index_bytes=sum(path.stat().st_size for path in layout.directory.rglob("*") if path.is_file()),
        changed=changed,
    )
