"""One source: find its shards, scan new ones, measure lengths, merge, select."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from playhead.errors import DataError, Failure, PlayheadError, PrepareError
from playhead.formats.column_schema import common_types
from playhead.formats.rows import Shard
from playhead.formats.schema import Track
from playhead.index.build import IndexShape
from playhead.index.layout import Layout, ShardEntry
from playhead.index.opened import Index, open_index, read_meta
from playhead.index.selection import (
    Selection,
    SelectionMeta,
    nothing_left,
    open_selection,
    selection_damage,
)
from playhead.index.sweep import write_selection
from playhead.jobs.lock import only_one
from playhead.jobs.shared_disk import expect_file
from playhead.prepare.measure import measure, read_headers
from playhead.prepare.merge import Contents, ShardPiece, merge
from playhead.prepare.options import PrepareOptions
from playhead.prepare.parts import PartSummary, ScanJob
from playhead.prepare.report import Progress, SourceReport
from playhead.prepare.sidecars import write_sidecars
from playhead.prepare.survey import Survey, attempt, parts_directory, survey_source
from playhead.prepare.verify import verify_rows
from playhead.recipe.values import Recipe
from playhead.store import unreadable, writing_to


@dataclass(frozen=True)
class Outcome:
    report: SourceReport | None
    failures: tuple[Failure, ...]


@dataclass
class _Done:
    """The result of this run for a source."""

    scanned: list[int]
    changed: bool
    measured_rows: int = 0
    num_sidecars: int = 0
    damaged: tuple[str, ...] = ()
    verified_rows: int = 0


def prepare_source(layout: Layout, recipe: Recipe, options: PrepareOptions) -> Outcome:
    """Bring one source up to date, holding its lock. Failures of shards are collected, not raised."""
    unchanged = _unchanged(layout, options)
    if unchanged is not None:
        return unchanged
    with only_one(layout.directory), _nothing_useless_left(layout):
        _finish_swap(layout.directory)
        survey, failures = survey_source(layout, options)
        done = _Done(survey.to_scan(), not survey.up_to_date(layout), damaged=survey.damaged)
        if done.changed:
            if layout.measured and not options.measure:
                raise _unmeasured(layout)
            failures += _scan(layout, survey, done.scanned, options)
        if options.sidecars:
            done.num_sidecars = _sidecars(layout, survey, options, failures)
        if done.changed and not failures:
            failures += _build(layout, recipe, survey, options, done)
        if failures:
            return Outcome(None, tuple(failures))
        index = open_index(layout.directory)
        assert index is not None
        if options.verify:
            failures += verify_rows(layout, index, options)
            if failures:
                return Outcome(None, tuple(failures))
            done.verified_rows = index.meta.num_rows
        return _select(layout, survey, index, options, done)


def _unchanged(layout: Layout, options: PrepareOptions) -> Outcome | None:
    """The outcome for a source that is up to date, found without its lock; None if there may be work to do."""
    if (
        options.force
        or options.sidecars
        or options.verify
        or _has_leftovers(layout)
        or read_meta(layout.directory) is None
    ):
        return None
    survey, failures = survey_source(layout, options)
    if failures or survey.old is None or survey.damaged or not survey.up_to_date(layout):
        return None
    done = _Done([], changed=False)
    selection = _sound_selection(layout, survey.old, options, done)
    if selection is None or selection.meta.num_rows == 0:
        return None
    return Outcome(_report(layout, survey, survey.old, selection.meta, done), ())


def _has_leftovers(layout: Layout) -> bool:
    """Whether a killed run left files that must be finished or removed."""
    directory = str(layout.directory)
    if any(os.path.lexists(f"{directory}{ending}") for ending in (".parts", ".new", ".old", ".lock")):
        return True
    try:
        return any(entry.suffix in (".new", ".old") for entry in layout.directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError as error:
        raise unreadable(directory, error) from error


@contextmanager
def _nothing_useless_left(layout: Layout) -> Iterator[None]:
    """After a failure, remove everything except finished parts, which the next run reuses."""
    try:
        yield
    finally:
        parts = parts_directory(layout)
        with suppress(OSError):
            parts.rmdir()  # unless it holds a part
        for place in (layout.directory, *layout.directory.glob("selection-*")):
            shutil.rmtree(place.with_name(f"{place.name}.new"), ignore_errors=True)


def _select(layout: Layout, survey: Survey, index: Index, options: PrepareOptions, done: _Done) -> Outcome:
    opened = None if options.force else _sound_selection(layout, index, options, done)
    meta = write_selection(layout, index) if opened is None else opened.meta
    _sweep_up(layout)
    if meta.num_rows == 0:
        problem = str(nothing_left(layout, index, meta.losses))
        return Outcome(None, (Failure(layout.leaf.source.name, layout.leaf.path, problem),))
    done.changed = done.changed or opened is None
    return Outcome(_report(layout, survey, index, meta, done), ())


def _sound_selection(layout: Layout, index: Index, options: PrepareOptions, done: _Done) -> Selection | None:
    """The existing selection, if it is undamaged."""
    damage = selection_damage(layout, everything=options.verify)
    done.damaged += damage
    return None if damage else open_selection(layout, index.meta.num_rows)


def _unmeasured(layout: Layout) -> PrepareError:
    return PrepareError(
        f'{layout.leaf.path} "{layout.leaf.source.name}": its lengths are not measured yet',
        found=f"no lengths of these files, map, `decode`, `sequence` and seed under {layout.directory.parent}",
        fix="run `playhead prepare --measure <recipe>`, which runs the map over all rows",
    )


def _finish_swap(directory: Path) -> None:
    """Recover from a kill between the two renames of a swap, which leaves the old index under another name."""
    retired = directory.with_name(f"{directory.name}.old")
    if retired.exists() and not directory.exists():
        with writing_to(directory):
            retired.rename(directory)


def _sweep_up(layout: Layout) -> None:
    """Remove files that are no longer needed, and leftovers of killed runs."""
    directory = layout.directory
    shutil.rmtree(parts_directory(layout), ignore_errors=True)
    for place in (directory, *directory.glob("selection-*")):
        for ending in (".new", ".old"):
            shutil.rmtree(place.with_name(f"{place.name}{ending}"), ignore_errors=True)


def _scan(layout: Layout, survey: Survey, chosen: list[int], options: PrepareOptions) -> list[Failure]:
    directory = parts_directory(layout)
    with writing_to(directory):
        if options.force:
            shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True, exist_ok=True)
    run = _ScanRun(layout, survey, chosen, options)
    jobs = list(run.jobs())
    paths = [path for i in chosen for _, path in survey.shards[i].files]
    options.engine_for(len(jobs), run.total_bytes, paths).run(jobs, run.done)
    return run.failures


class _ScanRun:
    """Scans some shards."""

    def __init__(self, layout: Layout, survey: Survey, chosen: list[int], options: PrepareOptions) -> None:
        self._layout, self._survey, self._chosen, self._options = layout, survey, chosen, options
        self._places: dict[Path, tuple[int, int]] = {}
        self.failures: list[Failure] = []
        self.total_bytes = survey.num_bytes(chosen)
        self._done_bytes = self._done_shards = 0

    def jobs(self) -> Iterator[ScanJob]:
        layout, options = self._layout, self._options
        for i in self._chosen:
            for k, part in enumerate(self._survey.parts[i]):
                if part.summary is None:
                    self._places[part.path] = i, k
                    how = (layout.spec.scanned, options.files, options.limits, part.path)
                    yield ScanJob(layout.registered.format, self._survey.shards[i], part.section, *how)

    def done(self, job: ScanJob, outcome: PartSummary | PlayheadError) -> None:
        source = self._layout.leaf.source.name
        i, k = self._places[job.path]
        self._done_bytes += self._survey.num_bytes([i]) if job.section is None else job.section.end - job.section.first
        if isinstance(outcome, PlayheadError):
            self.failures.append(Failure(source, job.shard.name, str(outcome)))
            return
        expect_file(job.path)
        parts = self._survey.parts[i]
        parts[k] = parts[k]._replace(summary=outcome)
        self._done_shards += all(part.summary is not None for part in parts)
        if self._options.progress is not None:
            counts = (outcome.num_rows, self._done_shards, len(self._chosen), self._done_bytes, self.total_bytes)
            self._options.progress(Progress(source, job.shard.name, *counts))


def _sidecars(layout: Layout, survey: Survey, options: PrepareOptions, failures: list[Failure]) -> int:
    """Write the sidecars that are missing; returns how many."""
    format_ = layout.registered.format
    written = [
        attempt(layout, shard, lambda shard: write_sidecars(format_, shard, options.files, options.limits), failures)
        for shard in survey.shards
    ]
    return sum(count or 0 for count in written)


def _build(layout: Layout, recipe: Recipe, survey: Survey, options: PrepareOptions, done: _Done) -> list[Failure]:
    """Replace the index by one built from the scan and, if lengths are measured, from measuring."""
    contents = _contents(layout, survey)
    if layout.measured or any(summary.num_unknown for piece in contents.pieces for _, summary in piece.parts):
        by = measure if layout.measured else read_headers
        measured = by(layout, recipe, contents, survey.old, options)
        done.measured_rows = measured.num_rows
        if measured.failures:
            return measured.failures
        contents = measured.contents
    merge(layout, contents, survey.old, options.memory_bytes)
    return []


def _contents(layout: Layout, survey: Survey) -> Contents:
    pieces = []
    shapes: set[tuple[tuple[str, ...], tuple[Track, ...]]] = set()
    types: list[tuple[str, dict[str, str]]] = []
    for i, files in enumerate(survey.files):
        if i in survey.parts:
            summaries = [(part.path, part.summary) for part in survey.parts[i] if part.summary is not None]
            # The scan may have read a newer file than the survey; the parts record which.
            pieces.append(ShardPiece(_scanned(survey.shards[i].name, summaries), tuple(summaries)))
            shapes.update((summary.roles, summary.tracks) for _, summary in summaries if summary.num_rows)
            types += [(survey.shards[i].name, summary.types) for _, summary in summaries if summary.num_rows]
        else:
            assert survey.old is not None
            place = survey.old_places[files]
            if survey.old.meta.shards[place].num_rows:
                shapes.add((survey.old.meta.roles, survey.old.meta.tracks))
                types.append((survey.shards[i].name, survey.old.meta.types))
            pieces.append(ShardPiece(survey.old.meta.shards[place], old_shard=place))
        _check_num_rows(survey.shards[i], pieces[-1].entry)
    if not any(piece.entry.num_rows for piece in pieces):
        raise _without_rows(survey)
    if len(shapes) != 1:
        raise DataError(
            f'{layout.leaf.path} "{layout.leaf.source.name}": its shards do not have the same files',
            found="; ".join(_shape(*shape) for shape in sorted(shapes, key=str)),
            expected="the same kinds of files in every shard",
        )
    entries = tuple(piece.entry for piece in pieces)
    return Contents(tuple(pieces), IndexShape(entries, *shapes.pop(), common_types(types)))


def _scanned(name: str, parts: list[tuple[Path, PartSummary]]) -> ShardEntry:
    """A shard as recorded by its parts: complete, and the same file in every part."""
    files = {summary.files for _, summary in parts}
    num_rows = sum(summary.num_rows for _, summary in parts)
    if len(files) != 1:
        raise DataError(f"{name}: changed while it was scanned", fix="run it again when it is complete")
    return ShardEntry(files.pop(), num_rows, sum(summary.num_skipped for _, summary in parts))


def _without_rows(survey: Survey) -> DataError:
    others = len(survey.shards) - 1
    return DataError(
        f"{survey.shards[0].name}: has no rows",
        found=f"{survey.num_bytes():,} bytes without a sample" + (f", nor in {others:,} others" if others else ""),
        expected="at least one sample",
        fix="restore the files, or correct the recipe's path",
    )


def _check_num_rows(shard: Shard, entry: ShardEntry) -> None:
    if shard.num_rows is not None and shard.num_rows != entry.num_rows:
        raise DataError(
            f"{shard.name}: has a different number of rows than in the list of shards",
            found=f"{entry.num_rows:,}",
            expected=f"{shard.num_rows:,}",
            fix="restore the shard, or write the list again",
        )


def _shape(roles: tuple[str, ...], tracks: tuple[Track, ...]) -> str:
    named = (f"{track.name} ({track.kind})" for track in tracks)
    return f"files {', '.join(roles)}, tracks {', '.join(named)}"


def _num_bytes(directory: Path) -> int:
    files = (entry for place, _, _ in os.walk(directory) for entry in os.scandir(place))
    return sum(entry.stat().st_size for entry in files if entry.is_file())


def _report(layout: Layout, survey: Survey, index: Index, selection: SelectionMeta, done: _Done) -> SourceReport:
    return SourceReport(
        name=layout.leaf.source.name,
        path=layout.leaf.path,
        directory=str(layout.directory),
        num_shards=len(survey.shards),
        scanned_shards=len(done.scanned),
        scanned_bytes=survey.num_bytes(done.scanned),
        reused_shards=len(survey.shards) - len(done.scanned),
        total_bytes=survey.num_bytes(),
        num_rows=index.meta.num_rows,
        length_sum=index.meta.length_sum,
        selected_rows=selection.num_rows,
        selected_length=selection.length_sum,
        losses=selection.losses,
        num_unknown_ids=selection.num_unknown_ids,
        index_bytes=_num_bytes(layout.directory),
        changed=done.changed,
        measured_rows=done.measured_rows,
        num_sidecars=done.num_sidecars,
        damaged=done.damaged,
        verified_rows=done.verified_rows,
        num_skipped=sum(entry.num_skipped for entry in index.meta.shards),
        empty_shards=tuple(entry.name for entry in index.meta.shards if not entry.num_rows),
        format=layout.registered.name,
        evaluation=layout.leaf.evaluation,
    )
