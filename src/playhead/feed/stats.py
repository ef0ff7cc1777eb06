"""What a loader counts: the timing of each micro-batch, and the totals of a running loader."""

from __future__ import annotations

from array import array
from collections.abc import Callable

from msgspec import Struct

STAGES = ("open", "read", "decode", "map", "collate")


class BatchTiming(Struct, frozen=True):
    """How long it took to make one micro-batch, and where. Times are of time.monotonic(), durations in seconds.

    `process` and `worker` made it (worker 0 where there are none), from `began` to `ended`. `open` and `read` are spent
    in storage: the stamp of a file or the first request for it, and all other bytes; requests in flight together count
    once. Look-ahead threads work on a batch from `fetch_began` to `fetch_ended`: they read, and decode what is needed
    for that. `ahead` is the part of `open`, `read` and `decode` during which the worker did not wait for them;
    `waited` is how long the worker waited for storage.
    """

    process: int
    worker: int
    step: int
    lane: int
    began: float
    ended: float
    open: float = 0.0
    read: float = 0.0
    decode: float = 0.0
    map: float = 0.0
    collate: float = 0.0
    ahead: float = 0.0
    waited: float = 0.0
    num_requests: int = 0
    num_bytes: int = 0
    slowest_path: str | None = None
    slowest_seconds: float = 0.0
    cache_hits: int = 0
    cache_misses: int = 0
    cache_bytes: int = 0
    fetch_began: float = 0.0
    fetch_ended: float = 0.0

    def own_seconds(self) -> dict[str, float]:
        """The time of the worker by what it did: of what look-ahead threads did, only what it waited for."""
        parts = {"storage": self.waited, "map": self.map, "collate": self.collate}
        decoded_ahead = self.ahead - (self.open + self.read - self.waited)
        rest = max(0.0, self.ended - self.began - sum(parts.values()))
        decode = min(rest, max(0.0, self.decode - decoded_ahead))
        return {**parts, "decode": decode, "other": rest - decode}


# A BatchTiming as it travels from a worker and waits to be added up: its numbers, packed in order, and its path. Many
# of them are added up at once, as the rows of an array.
Timed = tuple[bytes, str | None]

NUMBERS = tuple(name for name in BatchTiming.__struct_fields__ if name != "slowest_path")
DOUBLES = "d"  # of an array: whole numbers too, which are exact up to 2^53
WHOLE = ("process", "worker", "step", "lane", "num_requests", "num_bytes", "cache_hits", "cache_misses", "cache_bytes")


def timing_of(timed: Timed) -> BatchTiming:
    numbers = dict(zip(NUMBERS, array(DOUBLES, timed[0]), strict=True))
    whole = {name: int(numbers[name]) for name in WHOLE}
    return BatchTiming(**{**numbers, **whole}, slowest_path=timed[1])


# Receives the timing of a batch, when the training loop asked for it, and when the loop was given it.
Watcher = Callable[[BatchTiming, float, float], None]


class WorkerStats(Struct, frozen=True, kw_only=True):
    """What one worker did, or all of them together (`worker` and `process` are then -1). Durations are in seconds."""

    worker: int = -1
    process: int = -1
    batches: int = 0
    samples: int = 0
    open: float = 0.0
    read: float = 0.0
    decode: float = 0.0
    map: float = 0.0
    collate: float = 0.0
    ahead: float = 0.0
    waited: float = 0.0
    num_requests: int = 0
    num_bytes: int = 0
    cache_hits: int = 0
    cache_misses: int = 0
    cache_bytes: int = 0
    resident_bytes: int = 0
    major_faults: int = 0


class SlowWait(Struct, frozen=True):
    """A wait of the training loop for a batch that was much longer than usual, and what the batch was waiting for.

    `stage` is the longest stage of the batch ("other": none of them); "queue": its worker was still making an earlier
    batch; "start": the worker had not started yet; "plan": without workers, the next steps were planned. `path` is
    the file of the slowest request.
    """

    step: int
    lane: int
    worker: int
    stage: str
    path: str | None
    seconds: float


class LoaderStats(Struct, frozen=True, kw_only=True):
    """The counters of a loader since it was made; they are of this rank, and not part of its state.

    `wait_seconds` is how long the training loop waited for batches, `consumer_seconds` what it did between them.
    `queue_depth` is the number of batches that were ready when the loop asked for the next one: the mean, and the last.
    `resident_bytes` and `major_faults` are of this process; those of worker processes are in `workers`, one for each
    worker in order, and summed up in `total`. `slow` are the last waits of over five medians.
    """

    batches: int = 0
    steps: int = 0
    samples: int = 0
    wait_seconds: float = 0.0
    consumer_seconds: float = 0.0
    queue_depth_mean: float = 0.0
    queue_depth_last: int = 0
    resident_bytes: int = 0
    major_faults: int = 0
    total: WorkerStats = WorkerStats()
    workers: tuple[WorkerStats, ...] = ()
    slow: tuple[SlowWait, ...] = ()
