"""The storage by itself: throughput and latency by the number of readers, on the shards of a recipe, or on
the media that its rows name.

One process reads R1 bytes a second, n of them together R(n). From some n on, more readers no longer add a quarter to
what they get together. That says who is the limit:

- they always add: each reader's rate holds, so the *client* is the limit, and more readers get more;
- they stop adding while they use nine tenths of the cores: the *cores* of this machine are the limit;
- they stop adding before: the *server*, or the network to it. More readers only share it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Literal, get_args

import numpy as np

from playhead.errors import DataError
from playhead.inspect.bench.named_media import named_media
from playhead.inspect.bench.process_use import num_cores
from playhead.inspect.bench.storage_probe import random_pieces, stored_stamps
from playhead.inspect.bench.storage_trial import FileSpan, ReadJob, ReadResult, read_job, readers_of
from playhead.inspect.readable import readable_bytes
from playhead.recipe.storage import stored_files
from playhead.recipe.values import Recipe
from playhead.resolve import map_tables
from playhead.seeds import key
from playhead.store import Files, Stamp, any_in_process

Pattern = Literal["sequential", "random"]
Culprit = Literal["client", "server", "cores"]

READERS = (1, 2, 4, 8)
SEQUENTIAL_BYTES = 8 << 20  # of a request
RANDOM_BYTES = 64 << 10
_ADDS = 1.25  # what doubling the readers must give
_CORES_SHARE = 0.9
_NUM_PIECES = 4096  # of a reader in a trial at most
_FEWEST_TRIALS = 2  # for a verdict


@dataclass(frozen=True)
class StorageLimits:
    """How long each trial may take, and how many bytes all its readers may read."""

    seconds: float = 1.0
    max_bytes: int = 512 << 20
    readers: tuple[int, ...] = READERS


@dataclass(frozen=True)
class StorageTrial:
    """One trial: processes and threads in each, bytes a second of all, requests a second, latency of a request."""

    pattern: Pattern
    processes: int
    threads: int
    bytes_per_second: float
    requests_per_second: float
    median_seconds: float
    high_seconds: float
    cores_used: float
    num_bytes: int


@dataclass(frozen=True)
class StorageSpeed:
    """The trials, who is the limit, and a sentence that says why. `again` is the share of bytes read more than once,
    `stopped` what interrupted them; `are_media` says whether media that rows name were read, not shards.
    """

    trials: tuple[StorageTrial, ...]
    limit: Culprit
    verdict: str
    num_files: int
    size_bytes: int
    again: float
    stopped: str | None = None
    are_media: bool = False


def measure_storage(
    recipe: Recipe,
    split: str | None = None,
    files: Files | None = None,
    limits: StorageLimits | None = None,
    progress: Callable[[str, int, int], None] = lambda *_: None,
    stops: tuple[type[BaseException], ...] = (),
) -> StorageSpeed:
    """Read the shards of a prepared recipe for a few seconds, with more and more readers; or media that its rows name,
    where those are most of what is read.

    An exception of `stops` ends it early, with what was found till then, if that is at least two trials.
    """
    limits = limits or StorageLimits()
    storage = files or stored_files(recipe)
    tables = map_tables(recipe, split, files).values()
    stamps = stored_stamps(storage, tables)
    if not any(stamp.size for stamp in stamps.values()):
        raise DataError("the shards of the recipe are empty: there is nothing to read", fix="name other files")
    media = named_media(recipe, split, storage, {path for table in tables for path in table.index.stamps})
    stamps = media or stamps
    groups = [(num, 1) for num in limits.readers]
    if any_in_process(storage, stamps):
        groups = [(1, num) for num in limits.readers]  # no other process can read them
    elif limits.readers[-1] > 1:
        groups.append((1, limits.readers[-1]))
    trials: list[StorageTrial] = []
    stopped = None
    try:
        with readers_of(storage) as readers:
            for pattern in get_args(Pattern):
                for number, (processes, threads) in enumerate(groups):
                    progress(f"{pattern} reading", len(trials), 2 * len(groups))
                    jobs = [
                        ReadJob(pieces, threads, time.monotonic(), limits.seconds, limits.max_bytes // processes)
                        for pieces in _pieces(pattern, stamps, processes, number / len(groups))
                    ]
                    found = [read_job(storage, jobs[0])] if processes == 1 and threads > 1 else readers.run(jobs)
                    trials.append(_trial(pattern, processes, threads, found))
    except stops as error:
        if len(trials) < _FEWEST_TRIALS:
            raise
        stopped = getattr(error, "name", "Ctrl-C")
    size = sum(stamp.size for stamp in stamps.values())
    again = 1 - size / max(size, sum(trial.num_bytes for trial in trials if trial.pattern == "sequential"))
    return StorageSpeed(
        tuple(trials), *judge_storage(trials, num_cores()), len(stamps), size, again, stopped, bool(media)
    )


def judge_storage(trials: Sequence[StorageTrial], cores: float) -> tuple[Culprit, str]:
    """Who limits sequential reading, and why."""
    found = [trial for trial in trials if trial.pattern == "sequential" and trial.threads == 1]
    if len(found) < 2:
        found = [trial for trial in trials if trial.pattern == "sequential"]
    one, most = found[0], found[-1]
    speeds = f"one reader gets {_rate(one)}, {_num(most)} together {_rate(most)}"
    for i, few in enumerate(found[:-1]):
        more = max(found[i + 1 :], key=lambda trial: trial.bytes_per_second)
        if more.bytes_per_second >= _ADDS * few.bytes_per_second:
            continue
        if more.cores_used >= _CORES_SHARE * cores:
            return "cores", f"the cores of this machine are the limit, not the storage: {speeds}"
        enough = "one reader already takes" if _num(few) == 1 else f"{_num(few)} readers already take"
        return "server", f"the server (or disk) is the limit: {speeds}; {enough} all that it gives"
    return "client", f"the client is the limit: {speeds}; more readers would get more"


def _rate(trial: StorageTrial) -> str:
    return f"{readable_bytes(trial.bytes_per_second)}/s"


def _num(trial: StorageTrial) -> int:
    return trial.processes * trial.threads


def _trial(pattern: Pattern, processes: int, threads: int, found: Sequence[ReadResult]) -> StorageTrial:
    seconds = max(result.seconds for result in found)
    latencies = [each for result in found for each in result.latencies]
    num_bytes = sum(result.num_bytes for result in found)
    return StorageTrial(
        pattern,
        processes,
        threads,
        num_bytes / seconds,
        len(latencies) / seconds,
        float(np.median(latencies)),
        float(np.percentile(latencies, 95)),
        min(num_cores(), sum(result.cpu_seconds for result in found) / seconds),  # short ones do not meet
        num_bytes,
    )


def _pieces(pattern: Pattern, stamps: dict[str, Stamp], num: int, start: float) -> list[tuple[FileSpan, ...]]:
    """The pieces of each reader. Sequential ones begin apart from each other, and elsewhere in each trial; small files
    are read again and again.
    """
    if pattern == "random":
        keys = [key("bench", "storage", num, reader, round(1000 * start)) for reader in range(num)]
        return [random_pieces(stamps, RANDOM_BYTES, _NUM_PIECES, each) for each in keys]
    every = [
        FileSpan(path, stamp, first, min(first + SEQUENTIAL_BYTES, stamp.size))
        for path, stamp in stamps.items()
        for first in range(0, stamp.size, SEQUENTIAL_BYTES)
    ]
    begins = [int(len(every) * ((start + reader / num) % 1.0)) for reader in range(num)]
    return [tuple(islice(cycle(every[begin:] + every[:begin]), _NUM_PIECES)) for begin in begins]
