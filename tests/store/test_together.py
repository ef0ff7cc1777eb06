"""Requests of several files: what a storage says they cost, and how many are in flight together."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from threading import Barrier, BrokenBarrierError

import pytest

from flights import Meeting
from playhead.errors import StoreError
from playhead.formats.rows import Fetch
from playhead.store import (
    MEMORY,
    CountingFiles,
    Files,
    JoiningFiles,
    LocalFiles,
    MemoryFiles,
    Ranges,
    RemoteFiles,
    access_of,
    all_files,
    any_in_process,
    ask_together,
    requests_cost,
)
from playhead.store.together import MOST_IN_FLIGHT
from playhead.testing import FaultyFiles


def written(folder: Path, count: int) -> list[str]:
    paths = [folder / f"{i}.bin" for i in range(count)]
    for i, path in enumerate(paths):
        path.write_bytes(bytes([i]) * 10)
    return [str(path) for path in paths]


def test_a_storage_says_what_requests_cost_through_every_wrapper() -> None:
    usual = CountingFiles(all_files())
    assert requests_cost(usual, "s3://bucket/key")
    assert requests_cost(usual, "https://host/key")
    assert not requests_cost(usual, "/data/key")
    assert not requests_cost(usual, "memory://data/key")
    assert requests_cost(RemoteFiles(), "s3://bucket/key")
    assert not requests_cost(JoiningFiles(MemoryFiles()), "memory://data/key")
    assert requests_cost(JoiningFiles(FaultyFiles(LocalFiles(), latency_seconds=0.01)), "/data/key")
    assert not requests_cost(FaultyFiles(LocalFiles()), "/data/key")


def test_a_storage_that_says_nothing_is_judged_by_the_path() -> None:
    class Silent:
        pass

    assert requests_cost(Silent(), "ours://bucket/key")
    assert not requests_cost(Silent(), "/data/key")
    assert not access_of(Silent(), "/data/key").in_process


def test_only_files_in_memory_are_in_this_process_alone() -> None:
    assert any_in_process(all_files(), ["/data/a", "memory://data/b"])
    assert any_in_process(FaultyFiles(MEMORY, latency_seconds=0.01), ["memory://data/b"])
    assert not any_in_process(all_files(), ["/data/a", "s3://bucket/b"])


def test_requests_that_cost_are_in_flight_together_up_to_the_bound(tmp_path: Path) -> None:
    paths = written(tmp_path, 2 * MOST_IN_FLIGHT)
    meeting = Meeting(MOST_IN_FLIGHT)
    files = FaultyFiles(LocalFiles(), latency_seconds=1e-6, fail=meeting)
    found = ask_together(files, paths, lambda i: (i, files.stamp(paths[i]).size))
    assert found == [(i, 10) for i in range(len(paths))]
    assert meeting.num_requests == len(paths)
    one_more = Barrier(MOST_IN_FLIGHT + 1, timeout=0.5)
    with pytest.raises(BrokenBarrierError):
        ask_together(files, paths, lambda _: one_more.wait())


def test_requests_that_cost_nothing_are_made_by_the_caller_in_order(tmp_path: Path) -> None:
    paths = written(tmp_path, 8)
    order: list[str] = []
    files = FaultyFiles(LocalFiles(), fail=lambda _number, _method, path: order.append(path))
    ask_together(files, paths, lambda i: files.stamp(paths[i]))
    assert order == paths


def test_the_first_path_that_fails_is_raised_whichever_failed_first(tmp_path: Path) -> None:
    paths = written(tmp_path, 6)

    def fail(_number: int, _method: str, path: str) -> str | None:
        return "error" if path in (paths[2], paths[4]) else None

    for latency_seconds in (0, 0.001):
        files = FaultyFiles(LocalFiles(), latency_seconds, fail)
        with pytest.raises(StoreError, match=r"2\.bin"):
            ask_together(files, paths, lambda i, files=files: files.stamp(paths[i]))


def test_calls_within_calls_do_not_wait_for_each_other(tmp_path: Path) -> None:
    paths = written(tmp_path, MOST_IN_FLIGHT)
    files = FaultyFiles(LocalFiles(), latency_seconds=1e-4)

    def inner(_: int) -> int:
        return sum(ask_together(files, paths, lambda i: files.stamp(paths[i]).size))

    assert ask_together(files, paths, inner) == [10 * MOST_IN_FLIGHT] * MOST_IN_FLIGHT


FORK = """
import os, sys
from playhead.store import LocalFiles, ask_together
from playhead.testing import FaultyFiles

paths, files = sys.argv[1:], FaultyFiles(LocalFiles(), latency_seconds=1e-4)
def sizes():
    return ask_together(files, paths, lambda i: files.stamp(paths[i]).size)
print(sizes(), flush=True)
if child := os.fork():
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
else:
    os._exit(sizes() != [10] * 4)
"""


def test_a_fork_has_threads_of_its_own(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORK, *written(tmp_path, 4)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=240)
    assert done.stdout == "[10, 10, 10, 10]\n0\n"


@pytest.mark.parametrize("latency_seconds", [0, 1e-6])
def test_rows_of_many_files_are_fetched_in_one_round(tmp_path: Path, latency_seconds: float) -> None:
    paths = written(tmp_path, 16)
    meeting = Meeting(16 if latency_seconds else 1)
    files: Files = FaultyFiles(LocalFiles(), latency_seconds, meeting)
    fetch = Fetch(files, {path: LocalFiles().stamp(path) for path in paths})
    twice = [*paths, *paths[::-1]]
    found = fetch(twice, Ranges([1] * 32, [3] * 32))
    assert [bytes(data) for data in found] == [bytes([i, i]) for i in [*range(16), *reversed(range(16))]]
    assert meeting.num_requests == 16
