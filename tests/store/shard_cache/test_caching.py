"""Files read through a shard cache keep the laws of `Files`, whatever the cache holds."""

from __future__ import annotations

import errno
import os
import pickle
import random
import resource
import signal
import stat
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from itertools import count
from math import inf
from pathlib import Path
from typing import Any

import pytest

from few_descriptors import few_left
from playhead.errors import StoreError
from playhead.read.cache_filler.copying import Copier, DiskError
from playhead.read.cache_filler.filling import Filler
from playhead.read.cache_filler.streams import StreamKey
from playhead.store import CachingFiles, CountingFiles, Files, JoiningFiles, LocalFiles, Ranges, Stamp
from playhead.store.shard_cache import caching as caching_module
from playhead.store.shard_cache.counters import (
    CacheCounts,
    FillerStatus,
    ProcessCounters,
    reset_direct,
    spend_direct,
    sum_counters,
    write_status,
)
from playhead.store.shard_cache.directory import FILLER_LOCK, CacheDirectory, Unit, is_locked, locked, open_directory
from playhead.store.shard_cache.queue import is_within, queued_spans, write_queue
from playhead.store.shard_cache.ranks import RankFile, RankRecord, any_lives, live_ranks
from playhead.testing import check_files

SIZE = 50_000
DATA = random.Random(1).randbytes(SIZE)  # noqa: S311 - no secret


class Cache:
    """The directory of a cache that a rank uses, and a copier in place of a filler."""

    def __init__(self, root: Path) -> None:
        self.directory = open_directory(str(root))
        self.rank = RankFile(self.directory, {}, RankRecord("", None, 0, 1, (0,), os.getpid(), 1 << 40))
        marker = self.directory.marker()
        assert marker is not None
        self.generation = marker.generation
        self.counters = ProcessCounters(self.directory)
        self.copier = Copier(self.directory, self.generation, self.counters)
        self.copier.max_bytes = 1 << 30

    def copy(self, path: str, *spans: tuple[int, int], files: Files | None = None) -> None:
        stamp = LocalFiles().stamp(path)
        for first, end in spans:
            assert self.copier.begin(Unit(path, stamp, first, end), files or LocalFiles(), (), lambda _: True)
        while self.copier.finish_some() is not None:
            pass

    def units(self) -> list[Path]:
        return sorted(stored.path for stored in self.directory.stored() if stored.span is not None)

    def close(self) -> None:
        self.copier.close()
        self.rank.close()
        self.counters.close()


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Cache]:
    found = Cache(tmp_path / "cache")
    yield found
    found.close()


@pytest.fixture
def path(tmp_path: Path) -> str:
    (tmp_path / "original").write_bytes(DATA)
    return str(tmp_path / "original")


def spans_of(kind: str, size: int) -> list[tuple[int, int]]:
    if kind == "all":
        return [(0, size)]
    pieces = [(first, min(first + 700, size)) for first in range(0, size, 700)]
    return {"none": [], "pieces": pieces, "some": pieces[::2], "nested": [(0, size), *pieces[::3]]}[kind]


@pytest.mark.parametrize("kind", ["none", "all", "pieces", "some", "nested"])
def test_the_contract_of_files_holds_whatever_is_in_the_cache(tmp_path: Path, cache: Cache, kind: str) -> None:
    """Every file is copied as soon as it is written, so that most reads are of copies."""
    folder = tmp_path / "data"

    def write(name: str, data: bytes) -> str:
        place, temporary = folder / name, folder / "new"
        place.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(data)
        temporary.replace(place)
        if not name.endswith("mixed"):  # which a thread writes, again and again
            cache.copy(str(place), *spans_of(kind, len(data)))
        return str(place)

    files = CachingFiles(LocalFiles(), str(cache.directory.root))
    check_files(JoiningFiles(files), write, os.unlink)
    check_files(files, write, os.unlink)
    assert (sum_counters(cache.directory).hit_bytes > 0) == (kind != "none")


def ask(files: Files, path: str, *wanted: tuple[int, int]) -> None:
    stamp = LocalFiles().stamp(path)
    ranges = Ranges([first for first, _ in wanted], [end for _, end in wanted])
    assert [bytes(part) for part in files.read(path, stamp, ranges)] == [DATA[first:end] for first, end in wanted]
    into = [memoryview(bytearray(end - first)) for first, end in wanted]
    files.read(path, stamp, ranges, into)
    assert [bytes(part) for part in into] == [DATA[first:end] for first, end in wanted]


def caching(cache: Cache) -> tuple[CachingFiles, CountingFiles]:
    below = CountingFiles(LocalFiles())
    return CachingFiles(below, str(cache.directory.root)), below


def asked_for(cache: Cache) -> tuple[int, int]:
    """The hits and misses so far."""
    counts = sum_counters(cache.directory)
    return counts.hits, counts.misses


def test_ranges_that_span_units_are_put_together_and_the_rest_is_read_past_them(cache: Cache, path: str) -> None:
    cache.copy(path, (0, 1000), (1000, 1500), (1500, 9000), (10_000, 20_000))
    files, _ = caching(cache)
    ask(files, path, (900, 1600), (0, 9000), (10, 20))
    assert asked_for(cache) == (6, 0)
    ask(files, path, (8900, 9100), (5, 6), (9500, 9600), (19_999, 20_001))
    assert asked_for(cache) == (8, 6)
    counts = sum_counters(cache.directory)
    assert counts.hit_bytes == 2 * (700 + 9000 + 10 + 1)
    assert counts.direct_bytes == 2 * (200 + 100 + 2)


def test_a_range_past_the_end_of_a_file_is_refused_without_waiting_for_a_copy(
    cache: Cache, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caching_module, "_POLL_SECONDS", -1.0)  # to wait is an error
    reset_direct(cache.directory)
    write_status(cache.directory, FillerStatus(cache.generation))  # nothing may be read past the cache
    files, _ = caching(cache)
    with pytest.raises(ValueError, match="sleep"):
        ask(files, path, (0, 10))
    with pytest.raises(StoreError, match="shorter than expected"):
        ask(files, path, (SIZE - 10, SIZE + 1))


def test_waiting_for_a_copy_that_is_on_its_way_counts_as_time_blocked(
    cache: Cache, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_status(cache.directory, FillerStatus(cache.generation, num_events=1))  # nothing may be read past the cache
    write_queue(cache.directory, [Unit(path, LocalFiles().stamp(path), 0, SIZE)])
    monkeypatch.setattr(caching_module.time, "sleep", lambda _: cache.copy(path, (0, SIZE)))
    files, _ = caching(cache)
    with locked(cache.directory.root / FILLER_LOCK):
        files.read(path, LocalFiles().stamp(path), Ranges([5], [50]))
    counts = sum_counters(cache.directory)
    assert (counts.hits, counts.misses) == (1, 0)
    assert counts.blocked_ns > 0


def test_units_of_different_kinds_in_one_directory_do_not_hide_each_other(cache: Cache, path: str) -> None:
    cache.copy(path, (0, SIZE), (100, 200), (300, 400))
    files, _ = caching(cache)
    ask(files, path, (150, 160), (250, 260), (380, 900), (0, SIZE))
    assert asked_for(cache) == (8, 0)


def test_a_unit_that_is_being_copied_is_read_as_far_as_it_is_there(cache: Cache, path: str) -> None:
    key = Unit(path, LocalFiles().stamp(path), 0, SIZE).key
    part = cache.directory.place(cache.generation, key, f"0-{SIZE:x}.part")
    part.parent.mkdir(parents=True)
    part.write_bytes(DATA[:8000])
    files, _ = caching(cache)
    ask(files, path, (0, 8000), (7000, 7999))
    assert asked_for(cache) == (4, 0)
    ask(files, path, (7999, 8001))
    assert asked_for(cache) == (4, 2)


def test_a_copy_that_is_too_short_is_removed_and_never_read(cache: Cache, path: str) -> None:
    cache.copy(path, (0, SIZE))
    os.truncate(cache.units()[0], SIZE - 5)
    files, _ = caching(cache)
    ask(files, path, (0, 100), (SIZE - 10, SIZE))
    assert asked_for(cache) == (0, 4)
    assert cache.units() == []


def test_a_copy_cut_short_while_it_is_open_is_read_past(cache: Cache, path: str) -> None:
    cache.copy(path, (0, SIZE))
    files, _ = caching(cache)
    ask(files, path, (0, 100))
    os.truncate(cache.units()[0], 50)
    ask(files, path, (0, 100), (10, 20))


def test_an_evicted_copy_is_read_no_more_and_its_space_becomes_free(
    cache: Cache, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("playhead.store.shard_cache.units._SWEEP_SECONDS", 0.0)
    cache.copy(path, (0, 10_000), (10_000, 20_000))
    files, _ = caching(cache)
    ask(files, path, (0, 20_000))
    for unit in cache.units():
        unit.unlink()
    ask(files, path, (0, 20_000))
    ask(files, path, (0, 20_000))
    assert not opened_files(cache.directory.units)


def test_copies_are_kept_open_as_far_as_the_limit_on_open_files_allows(cache: Cache, path: str) -> None:
    pieces = spans_of("pieces", SIZE)
    cache.copy(path, *pieces)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = 60 + max(int(place.name) for place in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, limits[1]))
    try:
        files, _ = caching(cache)
        for first, end in pieces:
            ask(files, path, (first, end))
        assert 0 < len(opened_files(cache.directory.units)) <= few // 4
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert asked_for(cache) == (2 * len(pieces), 0)


def test_copies_are_closed_where_descriptors_run_out(cache: Cache, path: str) -> None:
    pieces = spans_of("pieces", SIZE)
    cache.copy(path, *pieces)
    files, _ = caching(cache)
    with few_left(8):
        for first, end in pieces:
            ask(files, path, (first, end))
        assert 0 < len(opened_files(cache.directory.units)) <= 8
    assert asked_for(cache) == (2 * len(pieces), 0)


def opened_files(folder: Path) -> list[str]:
    """The files in a folder that this process has open: others may be open for threads of other tests."""
    found = []
    for place in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            found.append(str(place.readlink()))
    return sorted(name for name in found if name.startswith(f"{folder}/"))


def test_without_a_rank_nothing_in_the_directory_is_trusted(tmp_path: Path, cache: Cache, path: str) -> None:
    cache.copy(path, (0, SIZE))
    (unit,) = cache.units()
    with unit.open("r+b") as file:
        file.write(b"wrong")
    cache.rank.close()
    files, _ = caching(cache)
    ask(files, path, (0, 100))
    again = Cache(cache.directory.root)
    assert again.generation == cache.generation + 1
    ask(files, path, (0, 100))
    again.close()


def test_a_changed_original_is_another_file_to_the_cache(cache: Cache, path: str) -> None:
    cache.copy(path, (0, SIZE))
    files, _ = caching(cache)
    old = LocalFiles().stamp(path)
    Path(path).write_bytes(DATA[::-1])
    os.utime(path, ns=(1, old.mark + 10))
    new = files.stamp(path)
    assert bytes(files.read(path, new, Ranges([0], [9]))[0]) == DATA[::-1][:9]
    assert bytes(files.read(path, old, Ranges([0], [9]))[0]) == DATA[:9]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_forks_and_pickles_read_with_descriptors_and_counters_of_their_own(cache: Cache, path: str) -> None:
    cache.copy(path, (0, SIZE))
    files, _ = caching(cache)
    ask(files, path, (0, 100))
    files._lock.acquire()  # as another thread might when the fork is made
    child = os.fork()
    if child == 0:
        try:
            ask(files, path, (5, 500))
            os._exit(asked_for(cache) != (4, 0))
        except BaseException:  # noqa: BLE001 - the exit code says it
            os._exit(9)
    assert os.waitpid(child, 0)[1] == 0
    files._lock.release()
    copy = pickle.loads(pickle.dumps(files))  # noqa: S301 - our own
    ask(copy, path, (5, 500))
    assert asked_for(cache) == (6, 0)


class Slow:
    """A file that takes at most so many bytes in one call, as a disk does that is nearly full."""

    def __init__(self, most: int) -> None:
        self.most, self.written = most, b""

    def write(self, data: bytes) -> int:
        self.written += bytes(data[: self.most])
        return min(self.most, len(data))


def test_every_byte_is_written_though_a_call_takes_fewer() -> None:
    from playhead.read.cache_filler.copying import _write_all

    file = Slow(7)
    _write_all(file, DATA[:1000])
    assert file.written == DATA[:1000]


def test_the_queue_says_which_bytes_are_on_their_way(tmp_path: Path) -> None:
    directory = open_directory(str(tmp_path))
    stamp = Stamp(100, 1)
    assert queued_spans(directory, "00ff") == []
    units = [Unit("a", stamp, 0, 50), Unit("b", stamp, 0, 10), Unit("a", stamp, 50, 90)]
    write_queue(directory, units)
    assert queued_spans(directory, units[0].key) == [(0, 50), (50, 90)]
    assert queued_spans(directory, units[1].key) == [(0, 10)]
    write_queue(directory, units[1:2])
    assert queued_spans(directory, units[0].key) == []
    data = bytearray((tmp_path / "queue").read_bytes())
    data[-1] ^= 1
    data[20] ^= 1
    (tmp_path / "queue").write_bytes(data)
    assert queued_spans(directory, units[0].key) is None


@pytest.mark.parametrize(
    ("wanted", "spans", "expected"),
    [
        ((5, 95), [(0, 50), (50, 100)], True),
        ((5, 95), [(0, 50), (51, 100)], False),
        ((5, 10), [], False),
        ((7, 7), [], True),
        ((5, 95), [(0, 20), (0, 100), (10, 30)], True),
        ((5, 95), [(0, 20), (10, 30), (25, 96)], True),
    ],
)
def test_a_range_is_within_spans_that_meet(
    wanted: tuple[int, int], spans: Sequence[tuple[int, int]], expected: bool
) -> None:
    assert is_within(*wanted, spans) == expected


def test_counters_of_processes_that_ended_are_kept_in_one_total(tmp_path: Path) -> None:
    directory = open_directory(str(tmp_path))
    for number in range(5):
        counters = ProcessCounters(directory)
        counters.add(hits=number, hit_bytes=10)
        counters.close()
    living = ProcessCounters(directory)
    living.add(misses=3)
    rank = RankFile(directory, {}, RankRecord("", None, 0, 1, (0,), os.getpid()))
    assert len([*(tmp_path / "counters").iterdir()]) == 2
    assert sum_counters(directory) == CacheCounts(hits=10, hit_bytes=50, misses=3)
    rank.close()
    living.close()


def test_ranks_that_come_at_the_same_time_make_one_cache(tmp_path: Path) -> None:
    def join(number: int) -> RankFile:
        directory = open_directory(str(tmp_path / "cache"))
        return RankFile(directory, {}, RankRecord("", None, number, 8, (0,), os.getpid()))

    with ThreadPoolExecutor(8) as threads:
        ranks = list(threads.map(join, range(8)))
    marker = CacheDirectory(tmp_path / "cache").marker()
    assert marker is not None
    assert marker.generation == 1
    for rank in ranks:
        rank.close()


def test_a_rank_can_register_while_readers_look_for_ranks(cache: Cache) -> None:
    """Readers lock the files of ranks for a moment, to see which live."""
    stopped = threading.Event()

    def look() -> None:
        while not stopped.is_set():
            any_lives(cache.directory)

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(300):
            RankFile(cache.directory, {}, RankRecord("", None, 0, 1, (0,), os.getpid())).close()
    finally:
        stopped.set()
        for thread in threads:
            thread.join()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_fork_made_while_a_lock_is_held_does_not_keep_it(cache: Cache) -> None:
    path = cache.directory.root / "direct"
    with locked(path):
        child = os.fork()
        if child == 0:
            time.sleep(60)
            os._exit(0)
    try:
        assert not is_locked(path)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_rank_that_cannot_be_written_leaves_no_descriptor_open(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    before = opened_files(cache.directory.root)
    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(StoreError, match="cannot be written"):
        RankFile(cache.directory, {}, RankRecord("", None, 0, 1, (0,), os.getpid()))
    assert opened_files(cache.directory.root) == before


def test_less_is_requested_while_rows_are_read_past_the_cache(cache: Cache, tmp_path: Path) -> None:
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(100 << 20)
    unit = Unit(str(large), LocalFiles().stamp(str(large)), 0, 100 << 20)
    cache.copier.gives_way = True
    assert cache.copier.begin(unit, LocalFiles(), (), lambda _: True)
    cache.copier.request()
    assert cache.copier._bytes_in_flight == 16 << 20
    cache.copier.gives_way = False
    cache.copier.request()
    assert cache.copier._bytes_in_flight == 64 << 20
    while cache.copier.finish_some() is not None:
        pass
    assert cache.units()[0].stat().st_size > 100 << 20


def test_a_filler_gives_way_for_a_while_after_a_read_past_the_cache(cache: Cache) -> None:
    filler = Filler(cache.directory, print)
    told = []
    for passed, seconds_ago in ((0, 0.0), (4096, 0.0), (0, 0.5), (0, 2.0)):
        spend_direct(cache.directory, passed, None)
        filler._refreshed_at, filler._passed_at = -inf, filler._passed_at - seconds_ago
        filler._refresh()
        told.append(filler._copier.gives_way)
    assert told == [False, True, True, False]
    filler._copier.close()


def test_a_checked_copy_that_cannot_be_moved_is_still_there_and_counted(cache: Cache, path: str) -> None:
    """A file in place of a directory of the new generation: it cannot be made, as on a full disk."""
    cache.copy(path, (0, 1000), (1000, 2000))
    unit = Unit(path, LocalFiles().stamp(path), 0, 1000)
    later = Copier(cache.directory, cache.generation + 1, cache.counters)
    later.max_bytes = 1 << 30
    (cache.directory.units / str(cache.generation + 1)).write_text("")
    assert later.begin(unit, LocalFiles(), (), lambda _: True)
    with pytest.raises(DiskError) as caught:
        [*iter(later.finish_some, None)]
    assert caught.value.units == [unit]
    assert later.num_bytes == caught.value.num_bytes == 2000
    assert len(cache.units()) == 2
    later.close()


def test_units_that_failed_before_the_disk_did_are_given_up_with_the_others(cache: Cache, path: str) -> None:
    """One file is gone, and a file is in place of the directory of the other."""
    gone = Unit(f"{path}-2", Stamp(1000, 1), 0, 1000)
    unit = Unit(path, LocalFiles().stamp(path), 0, 1000)
    place = cache.directory.place(cache.generation, unit.key, "")
    place.parent.mkdir(exist_ok=True)
    place.write_text("")
    for each in (gone, unit):
        assert cache.copier.begin(each, LocalFiles(), (), lambda _: True)
    cache.copier.request()
    wait([request.future for request in cache.copier._in_flight])
    with pytest.raises(DiskError) as caught:
        [*iter(cache.copier.finish_some, None)]
    assert caught.value.units == [gone, unit]
    assert caught.value.num_bytes == 0


def test_a_rank_that_begins_again_is_never_seen_at_its_new_cursor_with_its_old_step(cache: Cache) -> None:
    ended = threading.Event()
    seen: set[tuple[int, int]] = set()

    def look() -> None:
        while not ended.is_set():
            seen.update((rank.about.cursor[0], rank.step) for rank in live_ranks(cache.directory))

    thread = threading.Thread(target=look)
    thread.start()
    deadline = time.monotonic() + 60
    for number in count():
        cache.rank.moved((number % 2 * 5000,), restarted=True)
        if number >= 3000 and (len(seen) > 1 or time.monotonic() > deadline):
            break
    ended.set()
    thread.join()
    assert seen == {(0, 0), (5000, 5000)}


def rank_of(cache: Cache, recipe: dict[str, Any], number: int) -> RankFile:
    return RankFile(cache.directory, recipe, RankRecord("", None, number, 2, (0,), os.getpid()))


def test_the_recipe_of_a_job_is_private_and_leaves_with_its_last_rank(cache: Cache) -> None:
    recipe = {"sources": [{"store": {"secret_access_key": "a secret"}}]}
    before = cache.directory.files("jobs")
    ranks = [rank_of(cache, recipe, number) for number in range(2)]
    (job,) = set(cache.directory.files("jobs")) - set(before)
    assert b"a secret" in job.read_bytes()
    assert stat.S_IMODE(job.stat().st_mode) == 0o600
    ranks[0].close()
    assert job.exists()
    ranks[1].close()
    assert cache.directory.files("jobs") == before


def test_the_recipe_of_a_job_stays_where_it_is_not_known_whose_a_rank_is(cache: Cache) -> None:
    """A rank is seen while it writes, in place, where it stands."""
    first, second = (rank_of(cache, {"seed": seed}, seed) for seed in range(2))
    jobs = cache.directory.files("jobs")
    (torn,) = (path for path in cache.directory.files("ranks") if path.name.startswith("1-"))
    whole = torn.read_bytes()
    torn.write_bytes(whole[:-1] + b"?")
    first.close()
    assert cache.directory.files("jobs") == jobs
    torn.write_bytes(whole)
    second.close()
    assert len(cache.directory.files("jobs")) == len(jobs) - 2


@pytest.mark.parametrize("has_left", [True, False])
def test_a_filler_says_that_a_recipe_is_gone_unless_its_last_rank_has_just_left(cache: Cache, has_left: bool) -> None:
    rank = rank_of(cache, {}, 1)
    (found,) = (live for live in live_ranks(cache.directory) if live.about.rank == 1)
    if has_left:
        cache.rank.close()  # of the same job
        rank.close()
    else:
        (cache.directory.root / "jobs" / f"{found.about.job}.json").unlink()
    said: list[str] = []
    Filler(cache.directory, said.append)._begin({StreamKey.of(found): [found]})
    assert len(said) == (0 if has_left else 1)
    rank.close()


def test_what_is_left_of_a_marker_is_removed_when_the_next_rank_registers(cache: Cache) -> None:
    left = cache.directory.root / ".playhead-cache.json.123.part"
    left.write_text("{")
    RankFile(cache.directory, {}, RankRecord("", None, 1, 2, (0,), os.getpid(), 0)).close()
    assert not left.exists()
