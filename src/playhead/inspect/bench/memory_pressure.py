"""Whether memory is short: the limit of the container (cgroup v1 or v2) or machine, and what was waited for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread

from playhead.inspect.bench.process_use import PROC, ProcessUse, loader_pids, machine_seconds, process_uses

_CGROUPS = Path("/sys/fs/cgroup")
_NO_LIMIT = 1 << 60  # version 1 writes a number near 2^63 for none
_PRESSURE = "memory.pressure"


@dataclass(frozen=True)
class MemoryLimit:
    """A limit of memory: its origin, and what is used of it.

    `used_bytes` leave out pages of files that the system can drop at once. `hits` is how often the limit was reached.
    `stalled_seconds` is how long processes waited for memory since the start; None where the system does not say it.
    """

    origin: str
    limit_bytes: int
    used_bytes: int
    hits: int = 0
    stalled_seconds: float | None = None

    @property
    def share(self) -> float:
        return self.used_bytes / self.limit_bytes


@dataclass(frozen=True)
class MemoryUse:
    """Memory over a run: the peak of resident bytes (owner and workers together), and what changed during the run.

    `hits` and `stalled_seconds` are those of the whole container or machine.
    """

    resident_bytes: int
    swap_bytes: int
    major_faults: int
    hits: int
    stalled_seconds: float | None
    limit: MemoryLimit | None


@dataclass(frozen=True)
class UseReading:
    """What is used at a moment: by the processes of a loader, of every limit of memory that applies to them, and the
    processor time of the whole machine since it was started.
    """

    processes: dict[int, ProcessUse]
    limits: tuple[MemoryLimit, ...]
    machine_seconds: float = 0.0

    @property
    def resident_bytes(self) -> int:
        return sum(use.resident_bytes for use in self.processes.values())


def memory_use(readings: Sequence[UseReading]) -> MemoryUse:
    """What happened between the first reading and the last. A worker that the first does not know counts from 0."""
    first, last = readings[0], readings[-1]
    before = {pid: use.major_faults for pid, use in first.processes.items()}
    hits = {limit.origin: limit.hits for limit in first.limits}
    stalls = {limit.origin: limit.stalled_seconds for limit in first.limits}
    waited = [
        limit.stalled_seconds - since
        for limit in last.limits
        if limit.stalled_seconds is not None and (since := stalls.get(limit.origin)) is not None
    ]
    limits = [limit for reading in readings for limit in reading.limits]
    return MemoryUse(
        resident_bytes=max(reading.resident_bytes for reading in readings),
        swap_bytes=sum(use.swap_bytes for use in last.processes.values()),
        major_faults=sum(use.major_faults - before.get(pid, 0) for pid, use in last.processes.items()),
        hits=sum(limit.hits - hits.get(limit.origin, 0) for limit in last.limits),
        stalled_seconds=max(waited, default=None),
        limit=max(limits, key=lambda limit: limit.share, default=None),
    )


@contextmanager
def reading_use(readings: list[UseReading], every_seconds: float) -> Iterator[None]:
    """Append a reading now, more while the block runs (from a thread: it is not held up), and one at its end."""
    ended = Event()

    def watch() -> None:
        while not ended.wait(every_seconds):
            readings.append(read_use())

    thread = Thread(target=watch, name="playhead-memory", daemon=True)
    readings.append(read_use())
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        readings.append(read_use())


def read_use() -> UseReading:
    """What is used now, by this process and its workers among others."""
    return UseReading(process_uses(loader_pids()), memory_limits(), machine_seconds())


def memory_limits(proc: Path = PROC, cgroups: Path = _CGROUPS) -> tuple[MemoryLimit, ...]:
    """The limits of this process's control groups, and the memory of the machine."""
    return *_limits_of_groups(proc, cgroups), *_limit_of_machine(proc)


def _limits_of_groups(proc: Path, cgroups: Path) -> Iterator[MemoryLimit]:
    """The limits of the group of this process and of every group around it."""
    try:
        lines = (proc / "self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            for root in (cgroups, cgroups / "unified"):
                yield from _of_each(root, path, _version_2)
        elif "memory" in controllers.split(","):
            yield from _of_each(cgroups / "memory", path, _version_1)


def _of_each(root: Path, path: str, limit_of: Callable[[Path], MemoryLimit | None]) -> Iterator[MemoryLimit]:
    """A container may see its own group as the root: then the path of the host does not exist there."""
    folders = [root / path.lstrip("/")]
    while folders[-1] != root:
        folders.append(folders[-1].parent)
    for folder in folders:
        with suppress(OSError, ValueError, KeyError):
            found = limit_of(folder)
            if found is not None:
                yield found


def _version_2(folder: Path) -> MemoryLimit | None:
    text = (folder / "memory.max").read_text().strip()
    if text == "max":
        return None
    events = _numbers(folder / "memory.events")
    used = int((folder / "memory.current").read_text()) - _numbers(folder / "memory.stat").get("inactive_file", 0)
    hits = events.get("max", 0) + events.get("high", 0)
    return MemoryLimit(f"cgroup {folder}", int(text), used, hits, _stalled(folder / _PRESSURE))


def _version_1(folder: Path) -> MemoryLimit | None:
    limit = int((folder / "memory.limit_in_bytes").read_text())
    if limit >= _NO_LIMIT:
        return None
    stat = _numbers(folder / "memory.stat")
    used = int((folder / "memory.usage_in_bytes").read_text()) - stat.get("total_inactive_file", 0)
    return MemoryLimit(f"cgroup {folder}", limit, used, int((folder / "memory.failcnt").read_text()))


def _limit_of_machine(proc: Path) -> Iterator[MemoryLimit]:
    with suppress(OSError, ValueError, KeyError):
        sizes = _numbers(proc / "meminfo")
        total, available = (sizes[name] * 1024 for name in ("MemTotal:", "MemAvailable:"))
        yield MemoryLimit("the machine", total, total - available, 0, _stalled(proc / "pressure/memory"))


def _numbers(path: Path) -> dict[str, int]:
    try:
        rows = [line.split() for line in path.read_text().splitlines()]
    except OSError:
        return {}
    return {row[0]: int(row[1]) for row in rows if len(row) >= 2 and row[1].isdigit()}


def _stalled(path: Path) -> float | None:
    """The seconds in which at least one process waited for memory."""
    try:
        line = path.read_text().splitlines()[0]
        return int(line.rpartition("total=")[2]) / 1e6
    except (OSError, ValueError, IndexError):
        return None
