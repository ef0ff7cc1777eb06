"""What this machine allows a process."""

from __future__ import annotations

import resource
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_MAPS = Path("/proc/sys/vm/max_map_count")


@dataclass(frozen=True)
class MachineLimits:
    """Files a process may have open, memory maps it may have, and bytes that are free; None: without a limit."""

    open_files: int | None
    memory_maps: int | None
    free_bytes: int | None


def limits_here(directory: Path) -> MachineLimits:
    """The limits of this process, and the room on the disk of a directory, which need not exist."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    maps = free = None
    with suppress(OSError, ValueError):
        maps = int(_MAPS.read_text())
    with suppress(OSError):
        free = shutil.disk_usage(existing(directory)).free
    return MachineLimits(None if files == resource.RLIM_INFINITY else files, maps, free)


def existing(directory: Path) -> Path:
    """The directory, or the nearest above it that exists."""
    return next(place for place in (directory, *directory.parents) if place.exists() or place == place.parent)
