"""Shared memory between workers and their owner: nothing in use is overwritten, nothing is left behind."""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import hypothesis.extra.numpy as arrays_of
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import loader_maps
from deliveries import npy, seen
from playhead import Loader, Recipe, StoreError
from playhead.feed.arena import SMALLEST_SHARED_BYTES, Arena
from playhead.feed.segments import Segments
from playhead.feed.transport import pack, unpack
from playhead.prepare import prepare
from small_data import write_tar

NUM_BATCHES = 30


@pytest.fixture(scope="module")
def heavy(tmp_path_factory: pytest.TempPathFactory) -> tuple[Recipe, list[Any]]:
    """Signals of many sizes, all of them shared, and what one process delivers of them."""
    folder = tmp_path_factory.mktemp("heavy")
    members = [(f"{i:03}.npy", npy(np.arange(6_000 + 911 * (i % 17), dtype=np.float32) + i)) for i in range(40)]
    write_tar(folder / "a.tar", members)
    recipe = Recipe.parse(
        {"sources": [{"name": "a", "path": "a.tar"}], "batching": {"type": "fixed", "size": 3}, "seed": 3}, folder
    )
    prepare(recipe, workers=1)
    return recipe, [seen(batch) for batch in islice(Loader(recipe), NUM_BATCHES)]


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def mapped() -> int:
    """The segments that this process has mapped."""
    return Path("/proc/self/maps").read_text().count("memfd:playhead")


@pytest.mark.parametrize(("workers", "lookahead"), [(1, 1), (2, 1), (2, 2), (3, 2)])
def test_a_loop_that_lets_go_of_its_batches_uses_as_many_segments_as_are_made_ahead(
    heavy: Any, workers: int, lookahead: int
) -> None:
    recipe, expected = heavy
    with Loader(recipe, workers=workers, lookahead=lookahead) as loader:
        found = []
        for batch in islice(loader, NUM_BATCHES):
            found.append(seen(batch))
            num_segments = len(loader._pool._segments)
        assert found == expected
        # With one batch ahead a worker has another to fill while its first is in the user's hands.
        assert num_segments == max(workers * lookahead, (workers - 1) * lookahead + 2)


def test_batches_that_are_kept_are_never_overwritten_and_segments_stay_within_their_bound(heavy: Any) -> None:
    recipe, expected = heavy
    with Loader(recipe, workers=2) as loader:
        kept = list(islice(loader, NUM_BATCHES))
        segments = loader._pool._segments
        assert len(segments) == segments.most < NUM_BATCHES
        assert [seen(batch) for batch in kept] == expected
    assert [seen(batch) for batch in kept] == expected  # and after the workers are gone
    del kept
    gc.collect()
    assert mapped() == 0


def test_a_slice_of_a_slice_keeps_its_memory_and_the_last_reference_frees_it(heavy: Any) -> None:
    with Loader(heavy[0], workers=1, lookahead=2) as loader:
        batches = iter(loader)
        part = next(batches)["npy"][1:][0, 10:20]
        values = part.copy()
        for batch in islice(batches, NUM_BATCHES - 1):
            del batch
        assert np.array_equal(part, values)
        held = loader._pool._segments._held
        assert len(held) == 1
        del part
        assert len(held) == 0
        assert len(loader._pool._segments) <= 3


def test_what_a_fork_of_the_owner_lets_go_of_stays_in_use(heavy: Any) -> None:
    recipe, expected = heavy
    with Loader(recipe, workers=1, lookahead=2) as loader:
        batches = iter(loader)
        kept = [next(batches)]
        child = os.fork()
        if child == 0:
            kept.clear()
            gc.collect()
            os._exit(0)
        os.waitpid(child, 0)
        for batch in islice(batches, 10):
            del batch
        assert seen(kept[0]) == expected[0]


def test_arrays_may_be_written_to(heavy: Any) -> None:
    with Loader(heavy[0], workers=1) as loader:
        batch = next(iter(loader))
        assert batch["npy"].nbytes > SMALLEST_SHARED_BYTES
        signal = batch["npy"]
        signal += 1
        assert np.array_equal(batch["npy"], signal)


@pytest.mark.parametrize("how", ["a round", "left", "closed", "an error"])
def test_descriptors_and_mappings_end_with_the_workers(heavy: Any, tmp_path: Path, how: str) -> None:
    recipe, _ = heavy
    multiprocessing.get_context("spawn").Pipe()  # what multiprocessing itself keeps open
    with Loader(recipe, workers=1) as first:
        next(iter(first))
    gc.collect()
    before = descriptors()
    loader = Loader(recipe, workers=2, map=loader_maps.nothing if how == "an error" else None)
    if how == "an error":
        with pytest.raises(Exception, match="returned None"):
            next(iter(loader))
    else:
        batches = iter(loader)
        for batch in islice(batches, 5):
            assert batch["npy"].size
        del batch
        if how == "left":
            del batches
    loader.close()
    del loader
    gc.collect()
    assert (descriptors(), mapped()) == (before, 0)


def test_an_iteration_left_in_the_middle_keeps_its_workers_and_goes_on(heavy: Any) -> None:
    recipe, expected = heavy
    with Loader(recipe, workers=2) as loader:
        found = [seen(batch) for batch in islice(loader, 4)]
        workers = [worker.process.pid for worker in loader._pool._workers]
        found += [seen(batch) for batch in islice(loader, 4)]
        assert [worker.process.pid for worker in loader._pool._workers] == workers
        assert found == expected[:8]


def test_without_memfd_segments_are_unlinked_shared_memory(heavy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe, expected = heavy
    monkeypatch.delattr(os, "memfd_create")
    with Loader(recipe, workers=2) as loader:
        kept = list(islice(loader, 12))
        assert "/dev/shm/playhead-" in Path("/proc/self/maps").read_text()  # noqa: S108
        assert list(Path("/dev/shm").glob("*playhead*")) == []  # noqa: S108
        assert [seen(batch) for batch in kept] == expected[:12]


def test_where_shared_memory_has_no_room_batches_travel_through_pipes(heavy: Any, capfd: Any) -> None:
    recipe, _ = heavy
    expected = [seen(batch) for batch in islice(Loader(recipe, map=loader_maps.as_it_is), 8)]
    with Loader(recipe, workers=1, map=loader_maps.allows_small_files_only) as loader:
        assert [seen(batch) for batch in islice(loader, 8)] == expected
        assert mapped() == 0
    assert "shared memory has no room for a batch" in capfd.readouterr().err


def test_no_descriptor_for_a_segment_is_an_error_that_says_so(heavy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*_: Any) -> int:
        raise OSError(24, os.strerror(24))

    monkeypatch.setattr(os, "memfd_create", none_left)
    loader = Loader(heavy[0], workers=1)
    with pytest.raises(StoreError, match="no shared memory can be made") as caught:
        next(iter(loader))
    assert "ulimit -n" in caught.value.fix
    assert not loader._pool._workers


@pytest.fixture(scope="module")
def ends() -> Iterator[tuple[Arena, Segments]]:
    """Both ends in one process, joined by a real pipe."""
    arena: list[Arena] = []
    reader, writer = multiprocessing.Pipe(duplex=False)
    arena.append(Arena(reader))

    def announce(number: int, descriptor: int | None) -> None:
        if descriptor is None:
            arena[0].forget(number)
        else:
            arena[0].announced(number, os.dup(descriptor))

    segments = Segments(1, 2, writer, announce)
    yield arena[0], segments
    segments.close()


DTYPES = st.one_of(
    arrays_of.integer_dtypes(), arrays_of.floating_dtypes(), arrays_of.complex_number_dtypes(), st.just(np.dtype(bool))
)
ARRAYS = arrays_of.arrays(DTYPES, arrays_of.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
LARGE = st.builds(np.tile, ARRAYS, st.sampled_from([1, 5_000]))
VALUES = st.recursive(
    st.one_of(LARGE, st.integers(), st.text(), st.binary(), st.none()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=2), inner, max_size=3)),
    max_leaves=6,
)


def frozen(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.shape, value.tobytes(), value.flags.writeable
    if isinstance(value, dict):
        return {name: frozen(item) for name, item in value.items()}
    return [frozen(item) for item in value] if isinstance(value, list) else value


@settings(deadline=None)
@given(st.lists(VALUES, min_size=1, max_size=3), st.data())
def test_what_arrives_is_what_was_sent_whatever_it_is_made_of(
    ends: tuple[Arena, Segments], values: list[Any], data: st.DataObject
) -> None:
    arena, segments = ends
    arrivals = []
    for given_value in values[:2]:
        value = given_value
        if isinstance(value, np.ndarray) and data.draw(st.booleans()):
            value = arena.empty(value.shape, value.dtype)
            value[...] = given_value
        elif isinstance(value, np.ndarray) and value.ndim and data.draw(st.booleans()):
            value = value[::-1]
        expected = frozen(pickle.loads(pickle.dumps(value, protocol=5)))  # noqa: S301
        segments.prepare_to_wait()
        message = pack(value, arena)
        arrivals.append((unpack(message, segments), expected))
    for found, expected in arrivals:
        assert frozen(found) == expected
    assert len(segments) <= segments.most


def test_arrays_made_in_a_segment_are_not_copied_to_be_sent(ends: tuple[Arena, Segments]) -> None:
    arena, segments = ends
    made = [arena.empty((100, 1_000), np.float32), arena.empty((5, 50_000), np.int64), arena.empty((3,), np.int64)]
    for number, array in enumerate(made):
        array[...] = number
    used = arena._used
    message = pack(made, arena)
    assert len(message) < 1_000
    found = unpack(message, segments)
    assert used >= 100 * 1_000 * 4 + 5 * 50_000 * 8
    assert [array.shape for array in found] == [array.shape for array in made]
    made[0][:] = 7  # the same memory, seen by the other end
    assert (found[0] == 7).all()
    assert found[2].tolist() == [2, 2, 2]
