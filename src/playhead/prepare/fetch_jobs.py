"""Files to fetch, how they are copied, and what was done for each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from msgspec import Struct

from playhead.store import Stamp

FetchKind = Literal["manifest", "index", "prepared", "shard", "media"]
Outcome = Literal["copied", "present", "to copy", "missing", "invalid"]


class FetchedFile(Struct, frozen=True):
    """A file of the recipe, or its sidecar: what was done for it. `copy` is where it is now, if it was found."""

    path: str
    kind: FetchKind
    outcome: Outcome
    num_bytes: int = 0
    copy: str | None = None


class FetchProgress(NamedTuple):
    done_files: int
    total_files: int
    done_bytes: int


class FetchJob(NamedTuple):
    """A file to copy; `stamp` is the one that it had when it was indexed, None if any is right."""

    kind: FetchKind
    path: str
    stamp: Stamp | None = None


@dataclass(frozen=True)
class FetchOptions:
    """How files are copied. `verify` compares the bytes of copies that are present with their digests."""

    workers: int = 8
    force: bool = False
    verify: bool = False
    dry_run: bool = False
    progress: Callable[[FetchProgress], None] | None = None
