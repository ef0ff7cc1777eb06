"""Failing storage, full disks and killed processes: the stream is the same, and nothing is left."""

from __future__ import annotations

import json
import math
import os
import random
import resource
import shutil
import signal
import subprocess
import threading
import time
import warnings
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from rank_process import digest
from test_shard_cache import start_rank

from cached_runs import by_shards, counts_of, delivered, left_in, recipe_of, served_folder, size_of, write_shards
from commands import wait_until
from deliveries import Seen, seen
from loopback import Loopback
from playhead import Loader, Recipe, StoreError
from playhead.deal import Identity
from playhead.feed import delivery
from playhead.feed.cache_member import CacheWarning, join_cache
from playhead.inspect.cache import cache_stat
from playhead.read.cache_filler import filling
from playhead.store.shard_cache import caching
from playhead.store.shard_cache.directory import FILLER_LOCK, CacheDirectory, locked, open_directory
from slow_proxy import Network, SlowProxy, slow_proxy

PATIENCE_SECONDS = 240


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shards")
    write_shards(folder)
    return folder


@pytest.fixture(scope="module")
def server(data: Path) -> Iterator[Loopback]:
    with served_folder(data) as served:
        yield served


@pytest.fixture(scope="module")
def expected(data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Seen], Any]:
    """What a local run delivers, with its receipt."""
    return delivered(recipe_of(data, tmp_path_factory.mktemp("plain"), data, **by_shards()))


def through(proxy: SlowProxy, folder: Path, data: Path, **cache: Any) -> Recipe:
    cache = {"max_bytes": int(0.6 * size_of(data)), **cache}
    return recipe_of(f"{proxy.address}/data", folder, data, cache, **by_shards())


def check(recipe: Recipe, loader: Loader, found: list[Seen], expected: tuple[list[Seen], Any]) -> None:
    assert found == expected[0]
    assert loader.state_dict()["receipt"] == expected[1]
    loader.close()
    assert left_in(recipe) == []


@pytest.mark.parametrize("num_kills", [1, pytest.param(6, marks=pytest.mark.full)])
def test_a_server_killed_and_started_again_in_mid_run_changes_nothing(
    server: Loopback, data: Path, tmp_path: Path, expected: tuple[list[Seen], Any], num_kills: int
) -> None:
    with slow_proxy(server.port, Network(bytes_per_second=2e6)) as proxy:
        recipe = through(proxy, tmp_path, data)
        found = []
        with Loader(recipe) as loader:
            for batch in loader:
                found.append(seen(batch))
                if len(found) % 20 == 0 and len(found) // 20 <= num_kills:
                    proxy.kill()
                    time.sleep(0.3)
                    proxy.start()
            check(recipe, loader, found, expected)


@pytest.mark.parametrize("chance", [0.1, pytest.param(0.25, marks=pytest.mark.full)])
def test_requests_that_fail_now_and_then_change_nothing(
    server: Loopback, data: Path, tmp_path: Path, expected: tuple[list[Seen], Any], chance: float
) -> None:
    with slow_proxy(server.port) as proxy:
        recipe = through(proxy, tmp_path, data, unit="range")
        proxy.set(fail=chance, cut=chance)
        with Loader(recipe, workers=2, worker_kind="thread") as loader:
            check(recipe, loader, [seen(batch) for batch in loader], expected)
        counts = proxy.counts()
        assert counts["failed"] + counts["cut"] > 0


@pytest.mark.parametrize("rate", [3e6, pytest.param(0.5e6, marks=pytest.mark.full)])
def test_a_bandwidth_cut_to_a_tenth_changes_nothing_and_wastes_nothing(
    server: Loopback, data: Path, tmp_path: Path, expected: tuple[list[Seen], Any], rate: float
) -> None:
    with slow_proxy(server.port, Network(bytes_per_second=rate, latency_seconds=0.01)) as proxy:
        recipe = through(proxy, tmp_path, data)
        before = proxy.counts()["bytes"]
        found = []
        with Loader(recipe) as loader:
            for batch in loader:
                found.append(seen(batch))
                if len(found) == 10:
                    proxy.set(bytes_per_second=rate / 10)
                if len(found) == 40:
                    proxy.set(bytes_per_second=rate)
            check(recipe, loader, found, expected)
        assert proxy.counts()["bytes"] - before <= 1.1 * size_of(data)


@contextmanager
def small_disk(folder: Path, num_bytes: int) -> Iterator[Path]:
    """A file system of so many bytes."""
    folder.mkdir()
    mount = shutil.which("mount")
    command = [str(mount), "-t", "tmpfs", "-o", f"size={num_bytes}", "tmpfs", str(folder)]
    if mount is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("a tmpfs cannot be mounted here: it needs root and the right to mount")
    try:
        yield folder
    finally:
        subprocess.run([str(shutil.which("umount")), "-l", str(folder)], check=True)


@pytest.mark.parametrize("share", [0.0, 0.35])
def test_a_full_disk_is_said_once_and_the_rest_is_read_from_the_storage(
    server: Loopback, data: Path, tmp_path: Path, expected: tuple[list[Seen], Any], share: float
) -> None:
    with small_disk(tmp_path / "disk", max(1 << 16, int(share * size_of(data)))) as disk:
        where = {"dir": str(disk / "copies"), "max_bytes": size_of(data)}
        recipe = recipe_of(f"{server.address}/data", tmp_path / "a", data, where, **by_shards())
        if not share:
            (disk / "full").write_bytes(bytes((1 << 16) - 8192))
        found = []
        with warnings.catch_warnings(record=True) as said, Loader(recipe) as loader:
            warnings.simplefilter("always")
            for batch in loader:
                found.append(seen(batch))
                if len(found) == 5 and loader._cache is not None:
                    wait_until(lambda: said or loader._cache._messages)
            check(recipe, loader, found, expected)
        assert [warning.category for warning in said] == [CacheWarning]
        assert "o space left" in str(said[0].message)


def test_a_cache_that_no_byte_was_free_for_is_used_when_there_is_space(
    data: Path, tmp_path: Path, expected: tuple[list[Seen], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit of no bytes on the files of this process is a full disk to it; that it is tried again is said once."""
    monkeypatch.setattr(delivery, "_JOIN_SECONDS", 0.0)
    recipe = recipe_of(data, tmp_path, data, {}, **by_shards())
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    found = []
    with warnings.catch_warnings(record=True) as said, Loader(recipe) as loader:
        warnings.simplefilter("always")
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
        try:
            batches = iter(loader)
            found += [seen(next(batches)) for _ in range(20)]
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert loader._cache is None
        found.append(seen(next(batches)))
        wait_until(lambda: counts_of(recipe)["copied_units"] > 0)
        check(recipe, loader, found + [seen(batch) for batch in batches], expected)
    assert [warning.category for warning in said] == [CacheWarning]
    assert "not used for now, and tried again every minute" in str(said[0].message)
    assert counts_of(recipe)["hits"] > 0


def test_a_disk_that_is_full_for_a_while_is_used_again(
    data: Path, tmp_path: Path, expected: tuple[list[Seen], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The filler is a thread of this process, which holds its lock: the loader starts none."""
    monkeypatch.setattr(filling, "_RETRY_SECONDS", 0.5)
    said: list[str] = []
    stopped = threading.Event()
    with small_disk(tmp_path / "disk", 2 * size_of(data)) as disk:
        recipe = recipe_of(data, tmp_path / "a", data, {"dir": str(disk / "copies")}, **by_shards())
        directory = open_directory(recipe.shard_cache.dir)
        with locked(directory.root / FILLER_LOCK), Loader(recipe) as loader:
            batches = iter(loader)
            found = [seen(next(batches))]
            (disk / "full").write_bytes(bytes(2 * size_of(data) - 300_000))
            filler = threading.Thread(target=filling.Filler(directory, said.append).run, args=(stopped.is_set,))
            filler.start()
            try:
                wait_until(lambda: said)
                (disk / "full").unlink()
                wait_until(lambda: cache_stat(directory.root).num_units == 12)
                found += [seen(batch) for batch in batches]
            finally:
                stopped.set()
                filler.join()
            assert found == expected[0]
    assert len(said) == 1
    assert "no space left" in said[0]


def test_directories_in_place_of_copies_are_said_once_and_not_waited_for(
    data: Path, tmp_path: Path, expected: tuple[list[Seen], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caching, "_STALL_SECONDS", math.inf)
    recipe = recipe_of(data, tmp_path, data, {}, **by_shards())
    delivered(recipe)
    directory = CacheDirectory(Path(recipe.shard_cache.dir))
    for stored in [*directory.stored()]:
        directory.place(stored.generation + 1, stored.key, stored.path.name).mkdir(parents=True)
        stored.path.unlink()
    with warnings.catch_warnings(record=True) as said, Loader(recipe) as loader:
        warnings.simplefilter("always")
        check(recipe, loader, [seen(batch) for batch in loader], expected)
    assert [warning.category for warning in said] == [CacheWarning]
    assert "a directory is where a copy belongs" in str(said[0].message)


def test_a_limit_on_file_sizes_is_a_full_disk(data: Path, tmp_path: Path, expected: tuple[list[Seen], Any]) -> None:
    """The limit takes the first bytes of a write, as a disk does that is nearly full; the filler inherits it."""
    recipe = recipe_of(data, tmp_path, data, {}, **by_shards())
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with warnings.catch_warnings(record=True) as said, Loader(recipe) as loader:
            warnings.simplefilter("always")
            found = []
            for batch in loader:
                found.append(seen(batch))
                if len(found) == 5:
                    wait_until(lambda: said or loader._cache._messages)
            check(recipe, loader, found, expected)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [warning.category for warning in said] == [CacheWarning]
    assert counts_of(recipe)["copied_units"] == 0


def test_a_filler_killed_in_mid_copy_is_replaced_and_leaves_no_part(
    server: Loopback, data: Path, tmp_path: Path, expected: tuple[list[Seen], Any]
) -> None:
    with slow_proxy(server.port, Network(bytes_per_second=1e6)) as proxy:
        recipe = through(proxy, tmp_path, data)
        found = []
        with Loader(recipe) as loader:
            for batch in loader:
                found.append(seen(batch))
                if len(found) == 1:
                    wait_until(lambda: counts_of(recipe)["copied_bytes"] > 0)
                    first = loader._cache._filler
                    os.kill(first.pid, signal.SIGKILL)
                    wait_until(lambda first=first: loader._cache._filler is not first)
            check(recipe, loader, found, expected)
    assert counts_of(recipe)["copied_units"] >= 8


def test_a_filler_that_is_killed_again_and_again_is_replaced_while_it_gets_on(data: Path, tmp_path: Path) -> None:
    """Each finds the copies of the last one gone, so that it has something to copy."""
    recipe = recipe_of(data, tmp_path, data, {}, **by_shards())
    with Loader(recipe) as loader:
        cursor = loader._position.cursor
    member = join_cache(recipe, None, Identity(0, 1, "given"), cursor, size_of(data))
    try:
        for number in range(7):
            wait_until(lambda number=number: counts_of(recipe)["copied_units"] == 12 * (number + 1))
            for unit in CacheDirectory(Path(recipe.shard_cache.dir)).stored():
                unit.path.unlink(missing_ok=True)
            filler = member._filler
            os.kill(filler.pid, signal.SIGKILL)
            wait_until(lambda filler=filler: member._filler is not filler)
        assert member._messages == []
    finally:
        member.close()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_filler_is_replaced_though_forks_were_made_while_it_started(data: Path, tmp_path: Path) -> None:
    """A fork that kept the filler's lock would keep others from being started."""
    recipe = recipe_of(data, tmp_path, data, {}, **by_shards())
    with Loader(recipe) as loader:
        cursor = loader._position.cursor
    member = join_cache(recipe, None, Identity(0, 1, "given"), cursor, size_of(data))
    forks = []
    for _ in range(40):
        if (child := os.fork()) == 0:
            time.sleep(PATIENCE_SECONDS)
            os._exit(0)
        forks.append(child)
        time.sleep(0.0002)
    try:
        wait_until(lambda: member._filler is not None)
        first = member._filler
        os.kill(first.pid, signal.SIGKILL)
        wait_until(lambda: member._filler is not first)
    finally:
        for child in forks:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        member.close()
    assert left_in(recipe) == []


def test_a_stream_that_cannot_be_planned_is_said_and_the_others_are_copied(tmp_path: Path) -> None:
    """A compressed file is asked for its size when its first row is planned: it may be gone by then."""
    write_shards(tmp_path / "data")
    write_shards(tmp_path / "packed", "jsonl.gz")
    place = {"dir": str(tmp_path / "together")}
    other = recipe_of(tmp_path / "data", tmp_path / "a", tmp_path / "data", place, **by_shards())
    packed = recipe_of(tmp_path / "packed", tmp_path / "b", tmp_path / "packed", place)
    (tmp_path / "packed" / "007.jsonl.gz").unlink()
    with warnings.catch_warnings(record=True) as said, Loader(packed) as loader:
        warnings.simplefilter("always")
        batches = iter(loader)
        next(batches)
        first = loader._cache._filler
        wait_until(lambda: said or loader._cache._messages)
        with Loader(other) as second:
            next(iter(second))
            wait_until(lambda: counts_of(other)["copied_units"] >= 12)
        with pytest.raises(StoreError):
            deque(batches)
        assert loader._cache._filler is first, "the filler ended"
    assert [warning.category for warning in said] == [CacheWarning]
    assert "a stream is read without the shard cache" in str(said[0].message)
    assert "007.jsonl.gz" in str(said[0].message)


def reported(out: Path) -> list[str]:
    text = out.read_text() if out.exists() else ""
    return [line.split("\t")[0] for line in text.split("\n")[:-1]]


def test_where_the_rank_with_the_filler_is_killed_another_takes_over(
    server: Loopback, data: Path, tmp_path: Path, expected: tuple[list[Seen], Any]
) -> None:
    with slow_proxy(server.port, Network()) as proxy:
        recipe = through(proxy, tmp_path, data)
        proxy.set(bytes_per_second=0.2e6)  # nine seconds for all of it
        path = tmp_path / "recipe.json"
        path.write_text(json.dumps(recipe.to_dict()))
        outs = [tmp_path / f"rank-{rank}" for rank in range(2)]
        first = start_rank(path, 0, 2, outs[0])
        wait_until(lambda: reported(outs[0]) and cache_stat(recipe.shard_cache.dir).filler_runs)
        first.send_signal(signal.SIGSTOP)  # its filler goes on, as far as there is room
        second = start_rank(path, 1, 2, outs[1])
        wait_until(lambda: len(reported(outs[1])) >= 1)
        first.kill()
        first.communicate()
        copied = counts_of(recipe)["copied_bytes"]
        wait_until(lambda: counts_of(recipe)["copied_bytes"] > copied)
        proxy.set(bytes_per_second=None)
        _, problems = second.communicate(timeout=PATIENCE_SECONDS)
    assert (second.returncode, problems) == (0, b"")
    assert reported(outs[1]) == [digest(batch) for batch in expected[0] if batch.lane % 2 == 1]
    assert copied < size_of(data)
    assert [path for path in left_in(recipe) if path.name.endswith(".part")] == []


def descendants(pid: int) -> list[int]:
    """The living processes that a process has started, and theirs."""
    found = [pid]
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
            if parent == pid:
                found += descendants(int(entry.name))
    return found


@pytest.mark.parametrize("seconds", [10, pytest.param(60, marks=pytest.mark.full)])
def test_eight_processes_on_one_directory_are_killed_at_random_and_what_they_deliver_is_right(
    server: Loopback, data: Path, tmp_path: Path, expected: tuple[list[Seen], Any], seconds: int
) -> None:
    """Ranks of two jobs, with their fillers; whoever was killed begins again."""
    chance = random.Random(seconds)  # noqa: S311 - no secret
    with slow_proxy(server.port, Network(bytes_per_second=20e6)) as proxy:
        where = {"dir": str(tmp_path / "together")}
        recipes = [through(proxy, tmp_path / unit, data, unit=unit, **where) for unit in ("shard", "range")]
        for recipe, name in zip(recipes, "ab", strict=True):
            (tmp_path / name).write_text(json.dumps(recipe.to_dict()))
        running: dict[int, subprocess.Popen[bytes]] = {}
        runs = 0

        def out(number: int) -> Path:
            return tmp_path / f"out-{number}"

        def judge(number: int) -> None:
            """What was reported so far is the beginning of what this rank delivers."""
            found = reported(out(number))
            wanted = [digest(batch) for batch in expected[0] if batch.lane % 4 == number % 4]
            assert found == wanted[: len(found)]
            if running[number].returncode == 0:
                assert found == wanted
            else:
                assert running[number].returncode == -signal.SIGKILL, running[number].stderr.read().decode()

        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline or runs == 8:
            for number in range(8):
                process = running.get(number)
                if process is not None and process.poll() is None:
                    continue
                if process is not None:
                    judge(number)
                    process.stderr.close()
                out(number).unlink(missing_ok=True)
                running[number] = start_rank(tmp_path / "ab"[number // 4], number % 4, 4, out(number))
                runs += 1
            time.sleep(chance.random())
            victims = [pid for process in running.values() for pid in descendants(process.pid)]
            with suppress(ProcessLookupError):  # it has just ended by itself
                os.kill(chance.choice(victims), signal.SIGKILL)
        for number, process in running.items():
            process.wait(PATIENCE_SECONDS)
            judge(number)
            process.stderr.close()
        for recipe in recipes:
            assert delivered(recipe) == expected
            assert left_in(recipe) == []


def test_a_directory_removed_in_mid_run_is_said_and_the_rest_is_read_from_the_storage(
    data: Path, tmp_path: Path, expected: tuple[list[Seen], Any]
) -> None:
    recipe = recipe_of(data, tmp_path, data, {}, **by_shards())
    found = []
    with warnings.catch_warnings(record=True) as said, Loader(recipe) as loader:
        warnings.simplefilter("always")
        for batch in loader:
            found.append(seen(batch))
            if len(found) == 20:
                wait_until(lambda: counts_of(recipe)["copied_units"] > 0)
                Path(recipe.shard_cache.dir).rename(tmp_path / "gone")
                wait_until(lambda: said or loader._cache._messages)
        assert found == expected[0]
    assert [warning.category for warning in said] == [CacheWarning]
    assert "was removed, or a part of it" in str(said[0].message)


@pytest.mark.parametrize("first", ["ranks", "units", "jobs", "counters", "filler.lock", "playhead-cache.json"])
def test_a_directory_removed_piece_by_piece_is_said_once_and_with_what_to_do(
    data: Path, tmp_path: Path, expected: tuple[list[Seen], Any], first: str, capfd: pytest.CaptureFixture[str]
) -> None:
    recipe = recipe_of(data, tmp_path, data, {"max_bytes": size_of(data) // 2}, **by_shards())
    place = Path(recipe.shard_cache.dir)
    found = []
    with warnings.catch_warnings(record=True) as said, Loader(recipe) as loader:
        warnings.simplefilter("always")
        for batch in loader:
            found.append(seen(batch))
            if len(found) == 20:
                wait_until(lambda: counts_of(recipe)["copied_units"] > 0)
                shutil.rmtree(place / first) if (place / first).is_dir() else (place / first).unlink()
                wait_until(lambda: said or loader._cache._messages)
                shutil.rmtree(place)
        assert found == expected[0]
    assert [warning.category for warning in said] == [CacheWarning]
    assert f"{place} was removed, or a part of it" in str(said[0].message)
    assert "remove what is left of it; then make a new loader" in str(said[0].message)
    assert capfd.readouterr().err == ""
    assert not place.exists()


def test_a_directory_made_in_place_of_a_cache_that_was_moved_away_stays_empty(
    data: Path, tmp_path: Path, expected: tuple[list[Seen], Any]
) -> None:
    recipe = recipe_of(data, tmp_path, data, {}, **by_shards())
    place = Path(recipe.shard_cache.dir)
    found = []
    with warnings.catch_warnings(record=True) as said, Loader(recipe, workers=2, worker_kind="thread") as loader:
        warnings.simplefilter("always")
        for batch in loader:
            found.append(seen(batch))
            if len(found) == 20:
                place.rename(tmp_path / "gone")
                place.mkdir()
                wait_until(lambda: said or loader._cache._messages)
        assert found == expected[0]
    assert [warning.category for warning in said] == [CacheWarning]
    assert [*place.iterdir()] == []
