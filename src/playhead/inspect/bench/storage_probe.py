"""What a storage gives by itself, asked for right after a run: a few small requests, then large ones at once, to files
that the run waited for.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from playhead.errors import DataError, StoreError
from playhead.feed.stats import BatchTiming
from playhead.index.table import Table
from playhead.inspect.bench.storage_trial import FileSpan, ReadJob, read_job
from playhead.seeds import key
from playhead.store import Files, Stamp, compression_of, num_costly
from playhead.store.copies import readable_of
from playhead.store.together import ask_together

PROBE_BYTES = 4 << 10
_LARGE_BYTES = 2 << 20
_PROBE_THREADS = (8, 64)  # large requests at once; more of them where so many all wait for round trips
_SECONDS = 1.0
_MOST_BYTES = 64 << 20
_NUM_PIECES = 4096
_NUM_PROBES = 8
_WAITS_ONLY = 2.0  # large requests that take less than so many small ones mostly wait for the round trip
_MOST_COMPRESSED = 64  # files
_MOST_MEDIA = 64


@dataclass(frozen=True)
class StorageProbe:
    """What a storage gives by itself: the seconds of a small request, and the rate of large ones at once, 0 where it
    is not known.

    `at_least`: the large requests took hardly longer than a small one, as where all files are small. They waited for
    round trips, too, and the storage gives more than that.
    """

    latency_seconds: float
    bytes_per_second: float
    at_least: bool = False


NO_PROBE = StorageProbe(0.0, 0.0)


@dataclass(frozen=True)
class ReadFiles:
    """The files that a run waited for: some of the media that rows name, or (`media` is None) the shards; and whether
    a request for one takes a round trip.
    """

    media: tuple[str, ...] | None = None
    requests_cost: bool = True


SHARDS = ReadFiles()  # where nothing else is known


def files_waited_for(files: Files, tables: Collection[Table], timings: Iterable[BatchTiming]) -> ReadFiles:
    """Those that the slowest requests of the batches were for, weighted by their time."""
    shards = {path for table in tables for path in table.index.stamps}
    slowest: dict[str, float] = {}
    for timing in timings:
        if timing.slowest_path is not None:
            slowest[timing.slowest_path] = slowest.get(timing.slowest_path, 0.0) + timing.slowest_seconds
    media = [path for path in slowest if path not in shards]
    if 2 * sum(slowest[path] for path in media) <= sum(slowest.values()):
        return ReadFiles(None, num_costly(files, shards) > 0)
    return ReadFiles(tuple(media[:: -(-len(media) // _MOST_MEDIA)]), num_costly(files, media) > 0)


def stamps_to_probe(files: Files, tables: Iterable[Table], read: ReadFiles) -> dict[str, Stamp]:
    """The files to probe. Of media on a disk there are none: after the run they are in the page cache, and would say
    nothing about the disk.
    """
    if read.media is None:
        return stored_stamps(files, tables)
    return _stamps_of(files, read.media) if read.requests_cost else {}


def _stamps_of(files: Files, paths: Sequence[str]) -> dict[str, Stamp]:
    """The stamps of those files that there are: rows may name media that do not exist."""

    def stamp_of(i: int) -> Stamp | None:
        try:
            return files.stamp(paths[i])
        except (DataError, StoreError):
            return None

    found = ask_together(files, paths, stamp_of)
    return {path: stamp for path, stamp in zip(paths, found, strict=True) if stamp is not None}


def stored_stamps(files: Files, tables: Iterable[Table]) -> dict[str, Stamp]:
    """The files of all shards as they are stored: an index has the decompressed size of a compressed file.

    Of compressed ones only some are asked for.
    """
    stamps = {path: stamp for table in tables for path, stamp in table.index.stamps.items()}
    indexed = {path: stamps[path] for path in readable_of(files, stamps)}
    compressed = [path for path in indexed if compression_of(path) is not None]
    chosen = compressed[:: max(1, len(compressed) // _MOST_COMPRESSED)]
    return {path: stamp for path, stamp in indexed.items() if compression_of(path) is None} | {
        path: files.stamp(path) for path in chosen
    }


def probe_storage(files: Files, stamps: dict[str, Stamp]) -> StorageProbe:
    """A few small requests, one after another, then large ones at once for a moment.

    Small files need more requests at once before they take all that the storage gives.
    """
    if not any(stamp.size for stamp in stamps.values()):
        return NO_PROBE
    small = random_pieces(stamps, PROBE_BYTES, _NUM_PROBES, key("bench", "small"))
    one = read_job(files, ReadJob(small, 1, time.monotonic(), _SECONDS, _MOST_BYTES))
    latency = float(np.median(one.latencies))
    large = random_pieces(stamps, _LARGE_BYTES, _NUM_PIECES, key("bench", "large"))
    found, left = NO_PROBE, _MOST_BYTES
    for threads in _PROBE_THREADS if num_costly(files, stamps) else _PROBE_THREADS[:1]:
        many = read_job(files, ReadJob(large, threads, time.monotonic(), _SECONDS, left))
        at_least = float(np.median(many.latencies)) < _WAITS_ONLY * latency
        rate = many.num_bytes / many.seconds
        if rate > found.bytes_per_second:
            found = StorageProbe(latency, rate, at_least)
        left -= many.num_bytes
        if not at_least or left <= 0:
            break
    return found


def random_pieces(stamps: dict[str, Stamp], size: int, num: int, seed: int) -> tuple[FileSpan, ...]:
    """Pieces anywhere in the files, a larger file having more of them; a smaller file is one piece."""
    paths = [path for path, stamp in stamps.items() if stamp.size]
    ends = np.cumsum([stamps[path].size for path in paths])
    found = []
    for place in np.random.default_rng(seed).integers(0, ends[-1], num).tolist():
        file = int(np.searchsorted(ends, place, side="right"))
        stamp = stamps[paths[file]]
        first = max(0, min(place - int(ends[file - 1] if file else 0), stamp.size - size))
        found.append(FileSpan(paths[file], stamp, first, min(stamp.size, first + size)))
    return tuple(found)
