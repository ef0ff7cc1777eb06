"""The memory use of a process, as Linux reports it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

_MAJOR_FAULTS = 9  # the field in /proc/<pid>/stat, counted after the name of the program


class ProcessMemory(NamedTuple):
    """Resident bytes, and page faults that had to wait for a disk since the process began."""

    resident_bytes: int
    major_faults: int


def process_memory(process: int) -> ProcessMemory:
    """The memory use of a process; zeros if it has exited, or the system does not say."""
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return ProcessMemory(pages * os.sysconf("SC_PAGE_SIZE"), int(fields[_MAJOR_FAULTS]))
    except (OSError, IndexError, ValueError):
        return ProcessMemory(0, 0)
