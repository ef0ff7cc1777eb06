"""What processes use: memory, swap, major faults and processor time, as Linux counts them."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
_CGROUPS = Path("/sys/fs/cgroup")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class ProcessUse:
    """One process at a moment. Of memory shared by several processes each counts its part, where the system says it.

    A major fault is a page that had to be read from a disk. `cpu_seconds` are those since it was started.
    """

    pid: int
    resident_bytes: int
    swap_bytes: int
    major_faults: int
    cpu_seconds: float


def process_uses(pids: Iterable[int]) -> dict[int, ProcessUse]:
    """What each process uses; those that have ended are left out."""
    found = {}
    for pid in pids:
        with suppress(OSError, ValueError, IndexError):
            found[pid] = _use_of(pid, PROC / str(pid))
    return found


def loader_pids() -> set[int]:
    """The processes of a loader: the current one, its workers, and the filler of its shard cache."""
    found = {os.getpid(), *(worker.pid for worker in multiprocessing.active_children() if worker.pid is not None)}
    for children in (PROC / str(os.getpid())).glob("task/*/children"):  # of every thread
        with suppress(OSError):  # it has ended
            found.update(map(int, children.read_text().split()))
    return found


def machine_seconds(proc: Path = PROC) -> float:
    """The processor time of all processes of the machine since it was started; 0 where the system does not say it."""
    try:
        user, nice, system, _idle, _iowait, irq, softirq = map(int, (proc / "stat").read_text().split(maxsplit=8)[1:8])
    except (OSError, ValueError):
        return 0.0
    return (user + nice + system + irq + softirq) / _TICKS


def num_cores(cgroups: Path = _CGROUPS) -> float:
    """The cores that this process may use: those it may run on, or the quota of its container where that is less."""
    cores = float(len(os.sched_getaffinity(0)))
    for name in ("cpu.max", "cpu/cpu.cfs_quota_us"):
        with suppress(OSError, ValueError, IndexError):
            words = (cgroups / name).read_text().split()
            period = int(words[1]) if len(words) > 1 else int((cgroups / "cpu/cpu.cfs_period_us").read_text())
            if int(words[0]) > 0:
                cores = min(cores, int(words[0]) / period)
    return cores


def _use_of(pid: int, folder: Path) -> ProcessUse:
    words = (folder / "stat").read_text().rpartition(")")[2].split()  # a name may hold spaces
    resident, swap = _resident_and_swap(folder)
    return ProcessUse(pid, resident, swap, int(words[9]), (int(words[11]) + int(words[12])) / _TICKS)


def _resident_and_swap(folder: Path) -> tuple[int, int]:
    try:
        sizes = dict(line.split(":", 1) for line in (folder / "smaps_rollup").read_text().splitlines()[1:])
        return tuple(int(sizes[name].split()[0]) * 1024 for name in ("Pss", "SwapPss"))  # type: ignore[return-value]
    except (OSError, ValueError, KeyError):  # the file needs rights that not every container gives
        return int((folder / "statm").read_text().split()[1]) * _PAGE_BYTES, 0
