"""The reports of preparing and checking a cache."""

from __future__ import annotations

from msgspec import Struct


class EntryReport(Struct, frozen=True):
    """One dataset or blend: its name in the cache, its size, and what was, or would be, done: built or kept."""

    name: str
    split: str
    prefixes: tuple[str, ...]
    num_samples: int
    num_epochs: int | None
    num_bytes: int
    action: str


class CacheReport(Struct, frozen=True):
    """A whole job. `lengths` are those of the datasets used in training; several only for several validation sets."""

    cache: str
    release: str
    world_size: int
    data_parallel_size: int
    global_batch_size: int
    train_iters: int
    targets: tuple[int | None, int | None, int | None]
    lengths: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
    entries: tuple[EntryReport, ...]
    ignored: tuple[str, ...]
    num_bytes: int
    memory_bytes: int
    seconds: float
    workers: int
    dry_run: bool


class CacheProgress(Struct, frozen=True):
    """A phase of an entry begins, or (`indexes`, `done`) one item is done. `total` is the number of items."""

    phase: str
    name: str
    total: int


class Finding(Struct, frozen=True):
    """An entry that a job looks for and what was found: ok, missing, broken or stale. `details` say more."""

    name: str
    split: str
    state: str
    details: tuple[str, ...] = ()


class CheckReport(Struct, frozen=True):
    """Whether a job will hit its cache; `fast_load` says why fast load cannot work, if it cannot.

    `misread` are the datasets whose tokens Megatron would read with a wrong type, with `--per-dataset-sequences-path`.
    """

    cache: str
    good: bool
    findings: tuple[Finding, ...]
    fast_load: tuple[str, ...]
    misread: tuple[str, ...]
    ignored: tuple[str, ...]
