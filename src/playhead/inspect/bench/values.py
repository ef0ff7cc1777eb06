"""What is run, and what was measured of it, as values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from playhead.inspect.bench.memory_pressure import MemoryUse
from playhead.inspect.bench.storage_probe import StorageProbe

Limit = Literal[
    "memory pressure",
    "the consumer",
    "delivery",
    "look-ahead",
    "storage latency",
    "storage bandwidth",
    "decode CPU",
    "user map",
    "collation",
    "other work",
    "unknown",
]

Setting = Literal["workers", "lookahead", "threads"]  # those that a sweep varies

_LEAST_SECONDS = 0.1
_LONG_SECONDS = 1.0  # of which few batches say enough: each took long


@dataclass(frozen=True)
class Bottleneck:
    """What limits a run, the figures that say so, what to change, and what else could help.

    The limit is "unknown" where too little was measured to say it.
    """

    limit: Limit
    evidence: str
    change: str
    also: tuple[str, ...] = field(default=())

    @property
    def title(self) -> str:
        return "too little was measured for a verdict" if self.limit == "unknown" else f"limited by {self.limit}"

    def __str__(self) -> str:
        return f"{self.title}: {self.evidence}; {self.change}"


@dataclass(frozen=True)
class LoaderSettings:
    """The settings of a loader that speed depends on.

    `threads` fetch ahead in each worker (None: as many as usual), `decode_threads` help it to decode media.
    """

    workers: int = 2
    lookahead: int = 2
    threads: int | None = None
    worker_kind: Literal["process", "thread"] = "process"
    decode_threads: int = 0

    @property
    def num_ahead(self) -> int:
        """How many batches are made ahead, or are being made, at most."""
        return max(1, self.workers * self.lookahead)

    def __str__(self) -> str:
        decoding = f", {self.decode_threads} decode threads" if self.decode_threads else ""
        if not self.workers:
            return f"no workers{decoding}"
        kinds = {"process": ("process", "processes"), "thread": ("thread", "threads")}[self.worker_kind]
        threads = "" if self.threads is None else f", {self.threads} fetch threads"
        return f"{self.workers} worker {kinds[self.workers > 1]}, look-ahead {self.lookahead}{threads}{decoding}"


def is_enough(num_batches: int, seconds: float, settings: LoaderSettings) -> bool:
    """Whether so many batches in so many seconds say what limits a loader.

    Batches that were made ahead before the first of them counted come at once: there must be twice as many, or they
    must have taken long.
    """
    if seconds < _LEAST_SECONDS or num_batches < max(2, settings.workers):
        return False
    return seconds >= _LONG_SECONDS or num_batches >= 2 * settings.num_ahead


@dataclass(frozen=True)
class RunFigures:
    """A run in numbers, from the moment when every worker had delivered a batch.

    `ready_seconds` is the part of `wait_seconds` in which no worker was making the batch: it was made already, or on
    its way. `uneven_seconds` is the other part of waits over five medians for batches that took over five medians to
    make. Both are without the longest; `longest_ready_seconds` is what was left out of the first, and
    `long_batch_seconds` the second longest time for a batch. `stages` are the seconds of the workers for these batches
    by what they did: storage, decode, map, collate and other; `busy_seconds` is their sum, `busy_share` how busy the
    workers were (1 without workers: batches are made while the trainer waits). `probe` is what the storage gives by
    itself; `waits_for_media` says whether the files that were waited for are media that rows name rather than shards,
    and `requests_cost` whether a request for one takes a round trip. `num_bytes` are all that the workers read,
    `cache_bytes` those of them that came from the shard cache, and `copied_bytes` what its filler copied meanwhile, for
    all ranks of the node. `cores_used` are those of all processes of the loader, `others_cores` those of all other
    processes of the machine. `settled` are the settings whose best values a sweep has found: more of them is no advice.
    `has_ended` says whether the stream ended before a limit of the run did, `is_trained` whether a trainer takes time;
    without one a bench only measures how fast loading is.
    """

    settings: LoaderSettings
    seconds: float
    num_batches: int
    num_steps: int
    num_samples: int
    wait_seconds: float
    ready_seconds: float
    uneven_seconds: float
    trainer_seconds: float
    busy_seconds: float
    busy_share: float
    long_batch_seconds: float
    stages: dict[str, float]
    num_requests: int
    num_bytes: int
    probe: StorageProbe
    cores_used: float
    others_cores: float
    cores: float
    memory: MemoryUse
    is_trained: bool = False
    has_cache: bool = False
    cache_bytes: int = 0
    copied_bytes: int = 0
    longest_ready_seconds: float = 0.0
    waits_for_media: bool = False
    requests_cost: bool = True
    has_ended: bool = False
    settled: tuple[Setting, ...] = ()

    @property
    def stored_bytes(self) -> int:
        """What was read from the storage itself."""
        return self.num_bytes - self.cache_bytes + self.copied_bytes

    @property
    def wait_share(self) -> float:
        return self.wait_seconds / self.seconds

    @property
    def pace_seconds(self) -> float:
        """The time for a batch that loading should keep up with: the trainer's, or what was reached without one."""
        return (self.trainer_seconds if self.is_trained else self.seconds) / self.num_batches

    @property
    def num_makers(self) -> int:
        """How many make batches at a time."""
        return max(1, self.settings.workers)
