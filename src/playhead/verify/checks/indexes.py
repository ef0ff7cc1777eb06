"""Indexes: present, current, and what was written."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from playhead.errors import NotPreparedError, PlayheadError
from playhead.formats.contract import ScanLimits, WithSidecars
from playhead.formats.schema import Track
from playhead.formats.sidecar import offsets_of, sidecar_path
from playhead.index.integrity import LARGE_BYTES, damaged_arrays
from playhead.index.opened import Index
from playhead.index.selection import selection_damage
from playhead.store import Files, compression_of, is_url, open_file
from playhead.store.copies import has_copies_for_steps, readable_of
from playhead.verify.checks.context import Context, PreparedSource
from playhead.verify.checks.finding import Problem, problem_of
from playhead.verify.checks.registry import check
from playhead.verify.checks.wording import listed

_MOST_STAMPS = 20_000  # of local files, a call of the system each
_MOST_REQUESTS = 64  # of remote or compressed files, a request or more each
_MOST_OFFSETS = 1 << 20
_MOST_BYTES = 2 << 30  # of arrays in all; digests of more take too long
_MOST_NAMED = 4  # sources one by one; of a recipe that is not prepared at all, one finding is enough
_PREPARE = "run `playhead prepare` on the recipe"


@check("PH010", "error", "a source is not prepared, or its index is older than the recipe", "recipe")
def unprepared(context: Context) -> Iterator[Problem]:
    missing = [source for source in context.sources if isinstance(source.problem, NotPreparedError)]
    if len(missing) > _MOST_NAMED:
        yield Problem(
            missing[0].leaf.path,
            f"{len(missing):,} of {len(context.sources):,} sources are not prepared",
            found=listed(source.name for source in missing),
            fix=f"run `playhead prepare {context.path}`",
        )
    for source in context.sources:
        if source.problem is not None and (len(missing) <= _MOST_NAMED or source not in missing):
            found = problem_of(source.problem, source.leaf.path)
            fix = found.fix.replace("<recipe>", str(context.path)) if found.fix else _PREPARE
            yield replace(found, fix=fix)


@check("PH011", "error", "files of a source are missing, or changed since they were indexed", "recipe")
def changed_files(context: Context) -> Iterator[Problem]:
    for source in context.sources:
        place, table = source.leaf.path, source.table
        if table is not None and has_copies_for_steps(context.files):
            copied = readable_of(context.files, table.index.stamps)
            yield from _changes(source.name, place, copied, copied, table.index, context.files)
            continue
        shards = context.shards[place]
        if isinstance(shards, PlayheadError):
            yield problem_of(shards, place)
        elif table is not None:
            now = [*dict.fromkeys(path for shard in shards for _, path in shard.files)]
            yield from _changes(source.name, place, now, table.index.stamps, table.index, context.files)


def _changes(
    name: str, place: str, now: Sequence[str], known: Collection[str], index: Index, files: Files
) -> Iterator[Problem]:
    """New, vanished and changed files of a source, with one of each named."""
    there = frozenset(now)
    for what, paths in (
        ("are new since it was indexed", [path for path in now if path not in known]),
        ("were indexed and are not there any more", [path for path in known if path not in there]),
        ("changed since they were indexed", _changed((path for path in now if path in known), index, files)),
    ):
        if paths:
            yield Problem(
                place,
                f'files of "{name}" {what}',
                found=f"{len(paths):,} of {len(now):,}, for one {paths[0]}",
                expected="the files that were indexed",
                fix=f"{_PREPARE} again, or restore the files",
            )


def _changed(paths: Iterable[str], index: Index, files: Files) -> list[str]:
    """The files whose size or mark is another: of all that are cheap to ask for it, and of a few of the others."""
    cheap: list[str] = []
    costly: list[str] = []
    for path in paths:
        (costly if is_url(path) or compression_of(path) is not None else cheap).append(path)
    asked = [*cheap[:_MOST_STAMPS], *costly[:: max(1, len(costly) // _MOST_REQUESTS)]]
    return [path for path in asked if not _unchanged(path, index, files)]


def _unchanged(path: str, index: Index, files: Files) -> bool:
    try:
        return files.stamp(path) == index.stamps[path]
    except PlayheadError:
        return False


@check("PH012", "error", "an index is not what was written: digests, counts or sentinels differ", "recipe", "tables")
def damaged_indexes(context: Context) -> Iterator[Problem]:
    num_bytes = 0
    for source in context.prepared:
        index = source.table.index
        num_bytes += sum(min(array.nbytes, LARGE_BYTES) for array in index.arrays.values())
        wrong = [*(_other_bytes(source) if num_bytes < _MOST_BYTES else ()), *_wrong_numbers(source)]
        if wrong:
            yield Problem(
                source.leaf.path,
                f'the index of "{source.name}" is damaged',
                found=f"{wrong[0]}, in {index.directory}",
                expected="what `playhead prepare` wrote",
                fix="run `playhead prepare --verify` on the recipe, which makes it again; then check the disk",
            )


def _other_bytes(source: PreparedSource) -> list[str]:
    """Arrays whose bytes do not have the digest they were written with."""
    index = source.table.index
    names = damaged_arrays(index.directory, index.meta.digests, everything=False)
    return [f"{name} has other bytes" for name in (*names, *selection_damage(source.layout, everything=False))]


def _wrong_numbers(source: PreparedSource) -> Iterator[str]:
    """Counts and sentinels that cannot be right; arrays too large for their digests are only seen here."""
    index = source.table.index
    counted = sum(shard.num_rows for shard in index.meta.shards)
    if counted != index.meta.num_rows:
        yield f"{counted:,} rows in its shards, and {index.meta.num_rows:,} in all"
    for track in index.meta.tracks:
        if track.kind == "offsets":
            yield from _wrong_offsets(index, track)


def _wrong_offsets(index: Index, track: Track) -> Iterator[str]:
    """Sentinels beyond the end of their files, and offsets that fall."""
    offsets, role = index.arrays[track.array("offsets")], index.meta.roles.index(track.name)
    numbers = np.arange(len(index.meta.shards))
    sentinels = offsets[index.shard_starts[1:] + numbers].astype(np.int64)
    sizes = np.array([shard.files[role].size for shard in index.meta.shards], np.int64)
    for shard in islice(np.flatnonzero(sentinels > sizes).tolist(), 1):
        path = index.meta.shards[shard].files[role].path
        yield f"the last row of {path} ends at byte {sentinels[shard]:,} of {sizes[shard]:,}"
    first = offsets[:_MOST_OFFSETS].astype(np.int64)
    falls = np.flatnonzero(np.diff(first) < 0)
    begins = (index.shard_starts[1:-1] + numbers[:-1]).tolist()  # a new shard begins at 0 again
    if wrong := sorted(set(falls.tolist()).difference(begins)):
        yield f"offset {wrong[0] + 1:,} of track {track.name} is below the one before it"


@check("PH013", "warning", "a sidecar `.idx` does not fit its file, and is not used", "recipe")
def unusable_sidecars(context: Context) -> Iterator[Problem]:
    root = context.recipe.indexes_root
    for source in context.sources:
        shards = context.shards[source.leaf.path]
        if source.layout is None or isinstance(shards, PlayheadError):
            continue
        if not isinstance(source.layout.registered.format, WithSidecars):
            continue
        paths = [path for shard in shards[:: max(1, len(shards) // _MOST_REQUESTS)] for _, path in shard.files]
        wrong = [path for path in paths if _does_not_fit(path, root, context.files)]
        if wrong:
            yield Problem(
                source.leaf.path,
                f'sidecars of "{source.name}" do not fit their files, and are not used',
                found=f"{len(wrong):,} of the {len(paths):,} looked at, for one {sidecar_path(wrong[0], root)}",
                expected="one that is not older than its file, and whose offsets rise and end within it",
                fix="remove them, or run `playhead prepare --sidecars` on the recipe",
            )


def _does_not_fit(path: str, indexes_root: str | None, files: Files) -> bool:
    if compression_of(path) is not None:
        return False
    try:
        open_file(files, sidecar_path(path, indexes_root))
    except PlayheadError:  # there is none
        return False
    file = open_file(files, path)
    return file.size > 0 and offsets_of(file, ScanLimits(indexes_root=indexes_root)) is None
