"""Limits of memory read from files as the kernel writes them, and the real ones of this machine."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from playhead.inspect.bench.memory_pressure import (
    MemoryLimit,
    UseReading,
    memory_limits,
    memory_use,
    read_use,
    reading_use,
)
from playhead.inspect.bench.process_use import ProcessUse, machine_seconds, num_cores, process_uses

MIB = 1 << 20
GIB = 1 << 30


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def machine(tmp_path: Path, groups: str) -> Path:
    pressure = "some avg10=0.00 avg60=0.00 avg300=0.00 total=2500000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=9\n"
    return write(
        tmp_path / "proc",
        {
            "self/cgroup": groups,
            "meminfo": "MemTotal: 67108864 kB\nMemFree: 1 kB\nMemAvailable: 50331648 kB\nHugePages_Total: 0\n",
            "pressure/memory": pressure,
        },
    )


def by_origin(limits: tuple[MemoryLimit, ...]) -> dict[str, MemoryLimit]:
    return {limit.origin.rpartition("/")[2]: limit for limit in limits}


def test_a_version_2_group_and_those_around_it_are_found_without_cached_pages(tmp_path: Path) -> None:
    proc = machine(tmp_path, "0::/jobs/mine\n")
    groups = write(
        tmp_path / "cgroup",
        {
            "jobs/memory.max": f"{8 * GIB}\n",
            "jobs/memory.current": f"{5 * GIB}\n",
            "jobs/memory.stat": f"anon 1\ninactive_file {GIB}\n",
            "jobs/memory.events": "low 0\nhigh 3\nmax 4\noom 0\n",
            "jobs/memory.pressure": "some avg10=1.00 avg60=0.00 avg300=0.00 total=1500000\nfull total=0\n",
            "jobs/mine/memory.max": "max\n",
            "jobs/mine/memory.current": "1\n",
        },
    )
    found = by_origin(memory_limits(proc, groups))
    assert found["jobs"] == MemoryLimit(f"cgroup {groups / 'jobs'}", 8 * GIB, 4 * GIB, 7, 1.5)
    assert found["the machine"] == MemoryLimit("the machine", 64 * GIB, 16 * GIB, 0, 2.5)
    assert set(found) == {"jobs", "the machine"}


def test_a_version_1_group_that_sees_itself_as_the_root_is_found(tmp_path: Path) -> None:
    proc = machine(tmp_path, "4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n0::/\n")
    groups = write(
        tmp_path / "cgroup",
        {
            "memory/memory.limit_in_bytes": f"{2 * GIB}\n",
            "memory/memory.usage_in_bytes": f"{GIB}\n",
            "memory/memory.stat": f"cache 5\ntotal_inactive_file {256 * MIB}\n",
            "memory/memory.failcnt": "11\n",
        },
    )
    found = by_origin(memory_limits(proc, groups))
    assert found["memory"] == MemoryLimit(f"cgroup {groups / 'memory'}", 2 * GIB, 768 * MIB, 11)


def test_a_group_without_a_limit_and_a_system_without_groups_leave_the_machine(tmp_path: Path) -> None:
    proc = machine(tmp_path, "4:memory:/\n")
    groups = write(tmp_path / "cgroup", {"memory/memory.limit_in_bytes": "9223372036854771712\n"})
    assert [limit.origin for limit in memory_limits(proc, groups)] == ["the machine"]
    assert memory_limits(tmp_path / "nothing", tmp_path / "nothing") == ()


def reading(resident: int, faults: int, hits: int, stalled: float | None) -> UseReading:
    use = ProcessUse(1, resident, 3, faults, 0.0)
    return UseReading({1: use}, (MemoryLimit("group", 100, resident, hits, stalled), MemoryLimit("all", 1000, 9)))


def test_a_run_counts_from_its_first_reading_and_keeps_the_peak() -> None:
    found = memory_use([reading(10, 100, 5, 1.0), reading(90, 101, 5, 1.1), reading(20, 104, 6, 1.5)])
    assert (found.resident_bytes, found.swap_bytes, found.major_faults, found.hits) == (90, 3, 4, 1)
    assert found.stalled_seconds == 0.5
    assert found.limit == MemoryLimit("group", 100, 90, 5, 1.1)
    assert memory_use([reading(10, 1, 0, None)]).stalled_seconds is None


def test_this_process_is_read_and_one_that_has_ended_is_left_out() -> None:
    data = bytearray(os.urandom(32 * MIB))
    found = process_uses([os.getpid(), 1 << 29])
    assert found.keys() == {os.getpid()}
    use = found[os.getpid()]
    assert use.resident_bytes > len(data)
    assert use.cpu_seconds > 0
    assert read_use().resident_bytes > len(data)


def test_readings_are_taken_while_a_block_runs_and_no_thread_is_left() -> None:
    readings: list[UseReading] = []
    before = set(threading.enumerate())
    with reading_use(readings, 0.001):
        while len(readings) < 4:
            pass
    assert os.getpid() in readings[0].processes  # beside children that other tests have left to this process
    assert len(readings) >= 5
    assert set(threading.enumerate()) <= before


def test_the_processor_time_of_the_machine_is_all_but_idle_and_waiting(tmp_path: Path) -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    text = f"cpu  {ticks} {ticks} {ticks} 900 800 {ticks} {ticks} 7 8 9\ncpu0 1 2 3 4 5 6 7 8 9 10\n"
    assert machine_seconds(write(tmp_path, {"stat": text})) == 5.0
    assert machine_seconds(tmp_path / "nothing") == 0.0
    assert machine_seconds() > 0


def test_the_quota_of_a_container_bounds_the_cores(tmp_path: Path) -> None:
    assert num_cores(write(tmp_path / "a", {"cpu.max": "50000 100000\n"})) == 0.5
    assert num_cores(write(tmp_path / "b", {"cpu.max": "max 100000\n"})) == len(os.sched_getaffinity(0))
    version_1 = {"cpu/cpu.cfs_quota_us": "25000\n", "cpu/cpu.cfs_period_us": "100000\n"}
    assert num_cores(write(tmp_path / "c", version_1)) == 0.25
    unbounded = {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}
    assert num_cores(write(tmp_path / "d", unbounded)) == len(os.sched_getaffinity(0))
