"""Streams read through a shard cache: the same batches, every byte of a shard copied once, and nothing else touched."""

from __future__ import annotations

import copy
import json
import os
import pickle
import stat
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from rank_process import digest

from cached_runs import (
    KINDS,
    by_shards,
    counts_of,
    delivered,
    left_in,
    receipt_of,
    recipe_of,
    served_folder,
    size_of,
    stat_of,
    write_shards,
)
from commands import wait_until
from deliveries import Seen, numpy_loader, rounds, seen, woven
from loopback import Loopback
from playhead import Loader, Recipe, RecipeError
from playhead.feed import cache_member
from playhead.feed.cache_member import CacheWarning
from playhead.inspect.cache import cache_stat, clear_cache
from playhead.store.shard_cache.directory import TRAILER_BYTES, CacheDirectory
from playhead.store.shard_cache.ranks import live_ranks
from playhead.torch import DataLoader

HERE = Path(__file__).parent
LAW = 1.1  # a tenth is read by range while the first shards are still being copied


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve shards of JSON lines, 1.75 MB."""
    folder = tmp_path_factory.mktemp("shards")
    write_shards(folder)
    return folder


@pytest.fixture(scope="module")
def server(data: Path) -> Iterator[Loopback]:
    with served_folder(data) as served:
        yield served


@pytest.fixture(scope="module")
def expected(data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Seen], Any]:
    """What a run over the local files without a cache delivers, with its receipt."""
    return delivered(recipe_of(data, tmp_path_factory.mktemp("plain"), data, **by_shards()))


def cached(server: Loopback, folder: Path, data: Path, share: float = 0.6, **cache: Any) -> Recipe:
    """A recipe with a cache for a part of the data; groups of two shards out of twelve."""
    server.sent_bytes = 0
    fields = cache.pop("fields", by_shards())
    cache = {"max_bytes": int(share * size_of(data)), **cache}
    recipe = recipe_of(f"{server.address}/data", folder, data, cache, **fields)
    server.sent_bytes = 0
    return recipe


def check_unit(folder: Path, kind: str, unit: str, **how: Any) -> None:
    write_shards(folder / "data", kind)
    with served_folder(folder / "data") as server:
        fields = by_shards()
        plain = delivered(recipe_of(folder / "data", folder / "a", folder / "data", **fields))
        recipe = cached(server, folder / "b", folder / "data", unit=unit)
        assert delivered(recipe, **how) == plain
        counts = counts_of(recipe)
        assert counts["copied_units"] > 0
        assert counts["hits"] > 0
        assert counts["failures"] == 0
        assert left_in(recipe) == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("unit", ["shard", "block", "range"])
def test_every_format_and_unit_delivers_what_a_run_without_a_cache_does(tmp_path: Path, kind: str, unit: str) -> None:
    check_unit(tmp_path, kind, unit)


@pytest.mark.parametrize("how", [{"workers": 2}, {"workers": 3, "worker_kind": "thread"}], ids=["processes", "threads"])
def test_workers_share_the_cache(
    server: Loopback, data: Path, tmp_path: Path, expected: tuple[list[Seen], Any], how: dict[str, Any]
) -> None:
    recipe = cached(server, tmp_path, data)
    assert delivered(recipe, **how) == expected
    assert server.sent_bytes <= LAW * size_of(data)


def test_a_shard_shuffle_copies_every_shard_once_an_epoch_and_reads_at_most_a_tenth_beside(
    server: Loopback, data: Path, tmp_path: Path, expected: tuple[list[Seen], Any]
) -> None:
    recipe = cached(server, tmp_path, data)
    assert delivered(recipe) == expected
    counts = counts_of(recipe)
    assert counts["copied_units"] == 12
    assert counts["copied_bytes"] == size_of(data)
    assert server.sent_bytes == counts["copied_bytes"] + counts["direct_bytes"]
    assert server.sent_bytes <= LAW * size_of(data)


def test_shuffled_blocks_are_copied_once_an_epoch(tmp_path: Path) -> None:
    write_shards(tmp_path / "data", "arrow", num_shards=2, rows=240)
    data = tmp_path / "data"
    with served_folder(data) as server:
        fields = {"shuffle": "shards", "shuffle_unit": "block", "shuffle_group": 6}
        plain = delivered(recipe_of(data, tmp_path / "a", data, **fields))
        recipe = cached(server, tmp_path / "b", data, unit="block", fields=fields)
        assert delivered(recipe) == plain
        counts = counts_of(recipe)
        assert counts["copied_units"] == 60
        assert server.sent_bytes <= LAW * size_of(data)


def test_several_epochs_keep_what_is_needed_first_in_the_next(server: Loopback, data: Path, tmp_path: Path) -> None:
    recipe = cached(server, tmp_path, data, fields={**by_shards(), "epochs": 3})
    delivered(recipe)
    counts = counts_of(recipe)
    assert counts["copied_units"] < 3 * 12  # a plain LRU cache would copy each shard again in every epoch
    assert server.sent_bytes <= LAW * 3 * size_of(data)


def start_rank(
    recipe: Path, rank: int, world_size: int, out: Path, others: Sequence[Path] = ()
) -> subprocess.Popen[bytes]:
    """A rank that goes on together with `others`, or by itself."""
    paths = os.pathsep.join([str(HERE), str(HERE.parent), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, HERE / "rank_process.py", recipe, str(rank), str(world_size), "0", "spawn", out, *others]
    return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": paths}, stderr=subprocess.PIPE)


def run_ranks(recipe: Recipe, folder: Path, world_size: int) -> list[str]:
    """The digests of what ranks deliver, each a process, in the order of lanes."""
    path = folder / "recipe.json"
    path.write_text(json.dumps(recipe.to_dict()))
    outs = [folder / f"rank-{rank}" for rank in range(world_size)]
    ranks = [start_rank(path, rank, world_size, out, outs) for rank, out in enumerate(outs)]
    for process in ranks:
        _, problems = process.communicate(timeout=240)
        assert process.returncode == 0, problems.decode()
        assert problems == b""
    reports = [out.read_text().splitlines() for out in outs]
    return [reports[rank][i].split("\t")[0] for i in range(len(reports[0])) for rank in range(world_size)]


@pytest.mark.parametrize("world_size", [2, 4])
def test_ranks_that_are_processes_read_every_shard_once_together(
    server: Loopback, data: Path, tmp_path: Path, expected: tuple[list[Seen], Any], world_size: int
) -> None:
    recipe = cached(server, tmp_path, data)
    assert run_ranks(recipe, tmp_path, world_size) == [digest(batch) for batch in expected[0]]
    assert server.sent_bytes <= LAW * size_of(data)
    assert counts_of(recipe)["copied_bytes"] == size_of(data)
    assert left_in(recipe) == []


@pytest.mark.parametrize(
    ("make", "steps"),
    [
        (Loader, 0),
        (lambda recipe: Loader(recipe, workers=3, lookahead=3, worker_kind="thread"), 3),
        (lambda recipe: DataLoader(recipe, num_workers=2, prefetch_factor=3), 2),
        (DataLoader, 0),
    ],
    ids=["inline", "threads", "torch", "torch inline"],
)
def test_a_rank_registers_how_many_steps_its_workers_prepare_ahead(
    data: Path, tmp_path: Path, make: Callable[[Recipe], Any], steps: int
) -> None:
    """Of four lanes: nine micro-batches are in three steps."""
    recipe = recipe_of(data, tmp_path, data, {}, **by_shards())
    with make(recipe) as loader:
        next(iter(loader))
        (rank,) = live_ranks(CacheDirectory(Path(recipe.shard_cache.dir)))
    assert rank.about.steps_ahead == steps


def test_a_resumed_run_of_another_world_size_goes_on_with_the_same_batches(
    server: Loopback, data: Path, tmp_path: Path, expected: tuple[list[Seen], Any]
) -> None:
    recipe = cached(server, tmp_path, data)
    with Loader(recipe) as loader:
        before = [seen(batch) for batch in islice(loader, 40)]
        state = json.dumps(loader.state_dict())
    after = woven(rounds(numpy_loader(recipe), 2, state))
    assert before + after == expected[0]


def test_a_loaded_state_may_be_of_an_earlier_step(
    server: Loopback, data: Path, tmp_path: Path, expected: tuple[list[Seen], Any]
) -> None:
    recipe = cached(server, tmp_path, data)
    with Loader(recipe) as loader:
        found = []
        batches = iter(loader)
        found += [seen(batch) for batch in islice(batches, 8)]
        state = loader.state_dict()
        found += [seen(batch) for batch in islice(batches, 100)]
        assert found == expected[0][:108]
        loader.load_state_dict(state)
        assert [seen(batch) for batch in batches] == expected[0][8:]


def test_another_round_reads_through_the_cache(server: Loopback, data: Path, tmp_path: Path) -> None:
    recipe = cached(server, tmp_path, data, share=2)
    with Loader(recipe) as loader, Loader(recipe_of(data, tmp_path / "plain", data, **by_shards())) as plain:
        for _ in range(2):
            assert [seen(batch) for batch in loader] == [seen(batch) for batch in plain]
            loader.next_round()
            plain.next_round()
    assert counts_of(recipe)["copied_units"] == 12


def test_an_evaluation_set_is_read_through_the_cache_beside_training(
    server: Loopback, data: Path, tmp_path: Path
) -> None:
    dev = {
        "dev": {
            "sources": [{"name": "dev", "path": f"{server.address}/data/000.jsonl"}],
            "lanes": 4,
            "batching": {"type": "fixed", "size": 4},
        }
    }
    recipe = cached(server, tmp_path, data, share=1.2, fields={**by_shards(), "evaluation": dev})
    with Loader(recipe) as train, Loader(recipe, split="dev") as loader:
        batches = iter(train)
        first = [seen(batch) for batch in islice(batches, 12)]
        evaluated = [[seen(batch) for batch in loader] for _ in range(2)]
        rest = [seen(batch) for batch in batches]
        ranks = cache_stat(recipe.shard_cache.dir).ranks
    assert len(ranks) == 2
    plain = recipe_of(data, tmp_path / "plain", data, **by_shards())
    assert first + rest == delivered(plain)[0]
    assert evaluated[0] == evaluated[1]
    assert sum(batch.num_samples for batch in evaluated[0]) == 48


def test_two_jobs_with_other_limits_share_a_directory(
    server: Loopback, data: Path, tmp_path: Path, expected: tuple[list[Seen], Any]
) -> None:
    place = str(tmp_path / "together")
    first = cached(server, tmp_path / "a", data, dir=place)
    other = {"shuffle": "global", "seed": 9}
    second = cached(server, tmp_path / "b", data, dir=place, share=0.9, unit="block", fields=other)
    plain = delivered(recipe_of(data, tmp_path / "c", data, **other))
    with Loader(first) as a, Loader(second) as b:
        pairs = [(seen(one), seen(two)) for one, two in zip(a, b, strict=True)]
        held = cache_stat(place)
        assert (receipt_of(a), receipt_of(b)) == (expected[1], plain[1])
    assert [one for one, _ in pairs] == expected[0]
    assert [two for _, two in pairs] == plain[0]
    assert held.num_bytes <= 0.7 * size_of(data)  # the smaller of the two limits, and what stands behind the bytes
    assert left_in(first) == []


def test_a_second_run_copies_nothing_that_is_there(
    server: Loopback, data: Path, tmp_path: Path, expected: tuple[list[Seen], Any]
) -> None:
    recipe = cached(server, tmp_path, data, share=2)
    delivered(recipe)
    server.sent_bytes = 0
    assert delivered(recipe) == expected
    counts = counts_of(recipe)
    assert (counts["copied_units"], counts["kept_units"]) == (12, 12)
    assert server.sent_bytes <= 0.1 * size_of(data)  # by range, before the copies were checked


def test_a_smaller_limit_than_that_of_the_run_before_is_kept(
    server: Loopback, data: Path, tmp_path: Path, expected: tuple[list[Seen], Any]
) -> None:
    place = str(tmp_path / "together")
    delivered(cached(server, tmp_path / "a", data, dir=place, share=2))
    assert cache_stat(place).num_units == 12
    assert delivered(cached(server, tmp_path / "b", data, dir=place, share=0.4)) == expected
    held = cache_stat(place)
    assert held.num_bytes + held.unchecked_bytes <= 0.41 * size_of(data)


def test_a_copy_that_was_damaged_between_two_runs_is_found_and_copied_again(
    server: Loopback, data: Path, tmp_path: Path, expected: tuple[list[Seen], Any]
) -> None:
    recipe = cached(server, tmp_path, data, share=2)
    delivered(recipe)
    units = [path for path in Path(recipe.shard_cache.dir, "units").rglob("*") if "-" in path.name]
    assert len(units) == 12
    with units[3].open("r+b") as file:
        file.seek(1000)
        byte = file.read(1)
        file.seek(1000)
        file.write(bytes([byte[0] ^ 1]))
    os.truncate(units[5], 100)
    assert delivered(recipe) == expected
    counts = counts_of(recipe)
    assert counts["damaged_units"] == 2
    assert (counts["copied_units"], counts["kept_units"]) == (14, 10)


def test_originals_are_never_touched_and_the_directory_is_private(
    data: Path, tmp_path: Path, expected: tuple[list[Seen], Any]
) -> None:
    before = stat_of(data)
    contents = {path.name: path.read_bytes() for path in data.iterdir()}
    recipe = recipe_of(data, tmp_path, data, {"max_bytes": size_of(data) // 2}, **by_shards())
    assert delivered(recipe) == expected
    assert counts_of(recipe)["evictions"] > 0
    assert stat_of(data) == before
    assert {path.name: path.read_bytes() for path in data.iterdir()} == contents
    assert stat.S_IMODE(Path(recipe.shard_cache.dir).stat().st_mode) == 0o700


def test_a_directory_that_holds_something_else_is_refused_and_left_alone(data: Path, tmp_path: Path) -> None:
    place = tmp_path / "copies"
    place.mkdir(mode=0o755)
    (place / "thesis.txt").write_text("the only copy")
    recipe = recipe_of(data, tmp_path, data, {"dir": str(place)})
    with pytest.raises(RecipeError, match="holds something that is not a cache"):
        delivered(recipe)
    assert [path.name for path in place.iterdir()] == ["thesis.txt"]
    assert stat.S_IMODE(place.stat().st_mode) == 0o755


@pytest.mark.parametrize("name", [f"units/1/{'0a' * 16}/0-a", "jobs/a.json", "units/x.part", "queue"])
def test_a_directory_of_somebody_else_that_has_folders_of_our_names_is_refused(
    data: Path, tmp_path: Path, name: str
) -> None:
    place = tmp_path / "copies" / name
    place.parent.mkdir(parents=True)
    place.write_text("the only copy")
    with pytest.raises(RecipeError, match="holds something that is not a cache"):
        delivered(recipe_of(data, tmp_path, data, {}))
    assert [path for path in (tmp_path / "copies").rglob("*") if path.is_file()] == [place]


def test_what_somebody_puts_into_a_cache_is_neither_read_nor_removed(
    data: Path, tmp_path: Path, expected: tuple[list[Seen], Any]
) -> None:
    recipe = recipe_of(data, tmp_path, data, {"max_bytes": size_of(data) // 2}, **by_shards())
    assert delivered(recipe) == expected
    root = Path(recipe.shard_cache.dir)
    names = ["units/keep/me/1-2", "units/7/me/1-2.part", "ranks/a/b", "ranks/notes", "jobs/notes", "counters/notes"]
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("the only copy")
    assert delivered(recipe) == expected
    assert counts_of(recipe)["hits"] > 0
    clear_cache(root)
    assert [name for name in names if (root / name).read_text() != "the only copy"] == []


def test_a_directory_that_a_killed_process_began_to_make_is_made(
    data: Path, tmp_path: Path, expected: tuple[list[Seen], Any]
) -> None:
    place = tmp_path / "copies"
    (place / "units").mkdir(parents=True)
    (place / ".playhead-cache.json.123.part").write_text("{")
    recipe = recipe_of(data, tmp_path, data, {}, **by_shards())
    assert delivered(recipe) == expected
    assert left_in(recipe) == []


def test_a_file_in_place_of_the_directory_is_refused_by_name(data: Path, tmp_path: Path) -> None:
    (tmp_path / "copies").write_text("")
    with pytest.raises(RecipeError, match=r"shard_cache\.dir: .*copies cannot be used") as caught:
        delivered(recipe_of(data, tmp_path, data, {}))
    assert caught.value.found == f"{tmp_path / 'copies'} is not a directory"
    assert caught.value.fix == "name another directory, or move away what is there"


def test_a_cache_is_in_neither_fingerprint(data: Path, tmp_path: Path, expected: tuple[list[Seen], Any]) -> None:
    recipe = recipe_of(data, tmp_path / "a", data, {"unit": "block"}, **by_shards())
    plain = recipe_of(data, tmp_path / "b", data, **by_shards())
    with Loader(recipe) as loader, Loader(plain) as other:
        before = [seen(batch) for batch in islice(loader, 10)]
        state = loader.state_dict()
        other.load_state_dict(state)  # a warning would be an error here
        assert before + [seen(batch) for batch in other] == expected[0]
        loader.load_state_dict(json.loads(json.dumps(state)))
        assert [seen(batch) for batch in loader] == expected[0][10:]


def test_counters_add_up(server: Loopback, data: Path, tmp_path: Path) -> None:
    recipe = cached(server, tmp_path, data)
    for _ in range(2):
        delivered(recipe)
    found = cache_stat(recipe.shard_cache.dir)
    counts = found.counts
    held = found.num_units + found.num_unchecked
    assert counts["copied_units"] - counts["evictions"] == held
    trailers = found.num_bytes + found.unchecked_bytes - TRAILER_BYTES * held
    assert counts["copied_bytes"] - counts["evicted_bytes"] == trailers
    assert not found.filler_runs
    assert found.ranks == []
    assert counts["blocked_ns"] > 0


def test_a_cache_smaller_than_a_shard_is_said_once_and_reads_from_the_storage(
    server: Loopback, data: Path, tmp_path: Path, expected: tuple[list[Seen], Any]
) -> None:
    recipe = cached(server, tmp_path, data, max_bytes=1000)
    with warnings.catch_warnings(record=True) as said, Loader(recipe) as loader:
        warnings.simplefilter("always")
        found = []
        for number, batch in enumerate(loader):
            found.append(seen(batch))
            if number == 4:
                wait_until(lambda: said or loader._cache._messages)
    assert issubclass(said[0].category, CacheWarning)
    assert "Raise `max_bytes`" in str(said[0].message)
    assert len(said) == 1
    assert found == expected[0]
    assert counts_of(recipe)["copied_units"] == 0


def test_copies_and_pickles_of_a_loader_are_members_of_their_own(
    server: Loopback, data: Path, tmp_path: Path, expected: tuple[list[Seen], Any]
) -> None:
    recipe = cached(server, tmp_path, data)
    with Loader(recipe) as loader:
        before = [seen(batch) for batch in islice(loader, 20)]
        with copy.copy(loader) as one, pickle.loads(pickle.dumps(loader)) as two:  # noqa: S301 - our own
            for other in (one, two):
                assert before + [seen(batch) for batch in other] == expected[0]
    assert left_in(recipe) == []


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_forked_workers_of_torch_read_local_originals_through_the_cache(data: Path, tmp_path: Path) -> None:
    recipe = recipe_of(data, tmp_path, data, {"max_bytes": size_of(data) // 2}, **by_shards())
    plain = recipe_of(data, tmp_path / "plain", data, **by_shards())
    with DataLoader(recipe, num_workers=2, multiprocessing_context="fork") as loader:
        found = [seen(batch) for batch in loader]
    with DataLoader(plain) as loader:
        assert found == [seen(batch) for batch in loader]
    assert counts_of(recipe)["hits"] > 0
    assert left_in(recipe) == []


def test_a_fork_of_a_rank_keeps_neither_its_filler_nor_its_place(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_member, "_PATIENCE_SECONDS", 240.0)  # it is not killed, however slow it is
    recipe = recipe_of(data, tmp_path, data, {}, **by_shards())
    loader = Loader(recipe)
    batches = iter(loader)
    next(batches)
    wait_until(lambda: counts_of(recipe)["copied_units"] == 12)
    ready = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(ready[0], 1)
        os._exit(0)
    try:
        filler = loader._cache._filler
        loader.close()
        assert filler.returncode == 0, "it saw the end of its rank though a fork lives"
        assert cache_stat(recipe.shard_cache.dir).ranks == []
        assert not cache_stat(recipe.shard_cache.dir).filler_runs
    finally:
        os.write(ready[1], b"x")
        os.waitpid(child, 0)
        for end in ready:
            os.close(end)


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_loader_may_be_closed_while_its_filler_starts(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, begun = cache_member._start_filler, []

    def started_while_closing(*how: Any) -> subprocess.Popen[bytes]:
        begun.append(start(*how))
        begun[-1].stdin.close()
        return begun[-1]

    monkeypatch.setattr(cache_member, "_start_filler", started_while_closing)
    recipe = recipe_of(data, tmp_path, data, {}, **by_shards())
    with Loader(recipe) as loader:
        next(iter(loader))
        wait_until(lambda: begun)
        thread = loader._cache._thread
    thread.join()
    assert begun[-1].returncode is not None


SCRIPT = """
import sys, warnings
from playhead import Loader, Recipe

def doubled(sample):
    return {"tokens": sample["tokens"] * 2}

if __name__ == "__main__":
    loader = Loader(Recipe.load(sys.argv[1]), map=doubled)
    count = 0
    for batch in loader:
        count += 1
        if count == 30 and len(sys.argv) > 2:
            raise KeyboardInterrupt
    print(count)
"""


@pytest.mark.parametrize("interrupted", [False, True])
def test_a_script_that_closes_nothing_ends_quietly_and_leaves_nothing(
    server: Loopback, data: Path, tmp_path: Path, interrupted: bool
) -> None:
    recipe = cached(server, tmp_path, data)
    (tmp_path / "recipe.json").write_text(json.dumps(recipe.to_dict()))
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "queue.py").write_text("raise SystemExit('a module of the user in the working directory')")
    command = [sys.executable, "-P", "-W", "error", "train.py", "recipe.json", *["x"][: int(interrupted)]]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)
    if interrupted:
        assert done.returncode != 0
        assert done.stderr.count("Traceback") == 1
    else:
        assert (done.returncode, done.stdout, done.stderr) == (0, "144\n", "")
    wait_until(lambda: not cache_stat(recipe.shard_cache.dir).filler_runs)
    assert [path for path in left_in(recipe) if path.name.endswith(".part")] == []
