"""What a shard cache holds and has done; its units checked, or removed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import Struct

from playhead.errors import DataError, StoreError
from playhead.store.shard_cache.counters import sum_counters
from playhead.store.shard_cache.directory import (
    FILLER_LOCK,
    REGISTER_LOCK,
    CacheDirectory,
    StoredUnit,
    is_intact,
    is_locked,
    locked,
    what_is_there,
)
from playhead.store.shard_cache.ranks import LiveRank, live_ranks
from playhead.store.shard_cache.refusals import naming_the_directory


class CacheStat(Struct, frozen=True):
    """A shard cache now. Units of an earlier run are checked before they are used again.

    `missing` names what every cache has and this one has not: it was removed.
    """

    directory: str
    num_units: int
    num_bytes: int
    num_unchecked: int
    unchecked_bytes: int
    num_parts: int
    part_bytes: int
    num_files: int
    filler_runs: bool
    ranks: list[dict[str, Any]]
    counts: dict[str, int]
    missing: list[str]

    @property
    def hit_rate(self) -> float | None:
        asked = self.counts["hits"] + self.counts["misses"]
        return self.counts["hits"] / asked if asked else None


class CacheCheck(Struct, frozen=True):
    """The units of a cache compared with their digests; damaged ones were removed."""

    directory: str
    num_units: int
    num_bytes: int
    damaged: list[str]


def cache_at(root: str | Path) -> CacheDirectory:
    """The cache in a directory; anything else there is an error."""
    found = CacheDirectory(Path(root))
    if found.marker() is None:
        there, fix = "no directory", "correct the path; the first loader that uses a recipe makes its cache"
        with naming_the_directory(root):
            if found.root.is_dir() and any(found.root.iterdir()):
                there, fix = what_is_there(found.root)
            elif found.root.exists():
                there = "an empty directory" if found.root.is_dir() else "a file"
        raise DataError(
            f"{root}: is not the directory of a shard cache",
            found=there,
            expected="the `dir` of a recipe's `shard_cache`, after a loader has used it",
            fix=fix,
        )
    return found


def cache_stat(root: str | Path) -> CacheStat:
    directory = cache_at(root)
    marker = directory.marker()
    generation = 0 if marker is None else marker.generation
    with naming_the_directory(root):
        counts, ranks = sum_counters(directory), live_ranks(directory)
    stored = [*directory.stored()]
    current = [unit for unit in stored if unit.span is not None and unit.generation == generation]
    earlier = [unit for unit in stored if unit.span is not None and unit.generation != generation]
    parts = [unit for unit in stored if unit.span is None]
    return CacheStat(
        directory=str(root),
        num_units=len(current),
        num_bytes=_size(current),
        num_unchecked=len(earlier),
        unchecked_bytes=_size(earlier),
        num_parts=len(parts),
        part_bytes=_size(parts),
        num_files=len({unit.key for unit in stored}),
        filler_runs=is_locked(directory.root / FILLER_LOCK),
        ranks=[_about(rank) for rank in ranks],
        counts=counts._asdict(),
        missing=directory.missing(),
    )


def _about(rank: LiveRank) -> dict[str, Any]:
    about = rank.about
    return {"rank": about.rank, "world_size": about.world_size, "step": rank.step, "process": about.process}


def verify_cache(root: str | Path, progress: Callable[[int, int], None] | None = None) -> CacheCheck:
    """Compare every unit with its digest. Damaged ones are removed: they are copied again when they are needed."""
    directory = cache_at(root)
    units = [unit for unit in directory.stored() if unit.span is not None]
    damaged: list[str] = []
    done, total = 0, _size(units)
    for unit in units:
        assert unit.span is not None
        size = unit.span[1] - unit.span[0]
        if unit.path.exists() and not is_intact(unit.path, size) and unit.path.exists():  # it may be evicted meanwhile
            origin = directory.origin(unit.generation, unit.key)
            damaged.append(f"{unit.path.name} of {'an unknown file' if origin is None else origin.path}")
            with naming_the_directory(root):
                unit.path.unlink(missing_ok=True)
        done += unit.num_bytes
        if progress is not None:
            progress(done, total)
    return CacheCheck(str(root), len(units), total, damaged)


def clear_cache(root: str | Path) -> tuple[int, int]:
    """Remove all units, and what processes that ended have left; returns their number and bytes.

    A cache in use is refused. Law: nothing but what a cache wrote is removed.
    """
    directory = cache_at(root)
    with naming_the_directory(root), locked(directory.root / REGISTER_LOCK, make=True):
        ranks = live_ranks(directory)
        if ranks or is_locked(directory.root / FILLER_LOCK):  # none can come meanwhile
            who = ", ".join(f"rank {live.about.rank} (process {live.about.process})" for live in ranks)
            raise StoreError(
                f"{root}: the cache is in use",
                found=who or "a filler that is about to end",
                fix="end the loaders that use it, then clear it",
            )
        stored = [*directory.stored()]
        for unit in stored:
            unit.path.unlink(missing_ok=True)
        directory.remove_empty()
        for folder in ("ranks", "jobs", "counters"):
            for path in directory.files(folder):
                if not is_locked(path):
                    path.unlink(missing_ok=True)
    return len(stored), _size(stored)


def _size(units: list[StoredUnit]) -> int:
    return sum(unit.num_bytes for unit in units)
