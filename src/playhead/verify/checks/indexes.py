"""Indexes: present, current, and what was written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from playhead.errors import PlayheadError
from playhead.formats.contract import WithSidecars
from playhead.formats.rows import Shard
from playhead.formats.schema import Track
from playhead.formats.sidecar import offsets_in, sidecar_path
from playhead.index.integrity import damaged_arrays
from playhead.index.opened import Index
from playhead.index.selection import selection_damage
from playhead.store import Files, compression_of, is_url, open_file
from playhead.verify.checks.context import Context, PreparedSource
from playhead.verify.checks.finding import Problem, problem_of
from playhead.verify.checks.registry import check

_MOST_STAMPS = 20_000  # of local files, a call of the system each
_MOST_REQUESTS = 64  # of remote or compressed files, a request or more each
_MOST_OFFSETS = 1 << 20
_PREPARE = "run `playhead prepare` on the recipe"


@check("PH010", "error", "a source is not prepared, or its index is older than the recipe", "recipe")
def unprepared(context: Context) -> Iterator[Problem]:
    for source in context.sources:
        if source.problem is not None:
            found = problem_of(source.problem, source.leaf.path)
            fix = found.fix.replace("<recipe>", str(context.path)) if found.fix else _PREPARE
            yield Problem(found.place, found.problem, found.found, found.expected, fix)


@check("PH011", "error", "files of a source are missing, or changed since they were indexed", "recipe")
def changed_files(context: Context) -> Iterator[Problem]:
    for source in context.sources:
        shards = context.shards[source.leaf.path]
        if isinstance(shards, PlayheadError):
            yield problem_of(shards, source.leaf.path)
        elif source.table is not None:
            yield from _changes(source.name, source.leaf.path, shards, source.table.index, context.files)


def _changes(name: str, place: str, shards: list[Shard], index: Index, files: Files) -> Iterator[Problem]:
    """New, vanished and changed files of a source, with one of each named."""
    now = dict.fromkeys(path for shard in shards for _, path in shard.files)
    known = index.stamps
    changed = [path for path in _examined(path for path in now if path in known) if not _unchanged(path, index, files)]
    for what, paths in (
        ("are new since it was indexed", [path for path in now if path not in known]),
        ("were indexed and are not there any more", [path for path in known if path not in now]),
        ("changed since they were indexed", changed),
    ):
        if paths:
            yield Problem(
                place,
                f'files of "{name}" {what}',
                found=f"{len(paths):,} of {len(now):,}, for one {paths[0]}",
                expected="the files that were indexed",
                fix=f"{_PREPARE} again, or restore the files",
            )


def _examined(paths: Iterable[str]) -> list[str]:
    """The files to ask for their size and mark: all that are cheap to ask, and a few of the others."""
    found = list(paths)
    cheap = [path for path in found if not is_url(path) and compression_of(path) is None]
    dear = [path for path in found if is_url(path) or compression_of(path) is not None]
    return [*cheap[:_MOST_STAMPS], *dear[:: max(1, len(dear) // _MOST_REQUESTS)]]


def _unchanged(path: str, index: Index, files: Files) -> bool:
    try:
        return files.stamp(path) == index.stamps[path]
    except PlayheadError:
        return False


@check("PH012", "error", "an index is not what was written: digests, counts or sentinels differ", "recipe", "tables")
def damaged_indexes(context: Context) -> Iterator[Problem]:
    for source in context.prepared:
        index = source.table.index
        names = damaged_arrays(index.directory, index.meta.digests, everything=False)
        names += selection_damage(source.layout, everything=False)
        wrong = [f"{name} has other bytes" for name in names] or list(_wrong_numbers(source))
        if wrong:
            yield Problem(
                source.leaf.path,
                f'the index of "{source.name}" is damaged',
                found=f"{wrong[0]}, in {index.directory}",
                expected="what `playhead prepare` wrote",
                fix="run `playhead prepare --verify` on the recipe, which makes it again; then check the disk",
            )


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
    sidecar: Path = sidecar_path(path, indexes_root)
    if compression_of(path) is not None or (is_url(path) and indexes_root is None) or not sidecar.is_file():
        return False
    file = open_file(files, path)
    return file.size > 0 and offsets_in(file, sidecar) is None
