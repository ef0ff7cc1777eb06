"""Shared memory between workers and their owner: nothing in use is overwritten, nothing is left behind."""

from __future__ import annotations

import errno
import gc
import multiprocessing
import os
import pickle
import socket
from collections.abc import Iterator
from itertools import islice
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import hypothesis.extra.numpy as arrays_of
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import loader_maps
from deliveries import npy, seen, stream
from few_descriptors import few_left
from playhead import Loader, Recipe, StoreError
from playhead.feed.arena import SMALLEST_SHARED_BYTES, Arena
from playhead.feed.shared_memory import SharedBuffers
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
    """The buffers that this process has mapped."""
    return Path("/proc/self/maps").read_text().count("memfd:playhead")


@pytest.mark.parametrize(("workers", "lookahead"), [(1, 1), (2, 1), (2, 2), (3, 2)])
def test_a_loop_that_lets_go_of_its_batches_uses_as_many_buffers_as_are_made_ahead(
    heavy: Any, workers: int, lookahead: int
) -> None:
    recipe, expected = heavy
    with Loader(recipe, workers=workers, lookahead=lookahead) as loader:
        found = []
        for batch in islice(loader, NUM_BATCHES):
            found.append(seen(batch))
            num_buffers = len(loader._pool._buffers)
        assert found == expected
        # With one batch ahead a worker has another to fill while its first is in the user's hands.
        assert num_buffers == max(workers * lookahead, (workers - 1) * lookahead + 2)


def test_batches_that_are_kept_are_never_overwritten_and_buffers_stay_within_their_bound(heavy: Any) -> None:
    recipe, expected = heavy
    with Loader(recipe, workers=2) as loader:
        kept = list(islice(loader, NUM_BATCHES))
        buffers = loader._pool._buffers
        assert len(buffers) == buffers.most < NUM_BATCHES
        assert len(buffers._held) == (2 + 1) * 2 + 1  # the others are copies
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
        held = loader._pool._buffers._held
        assert len(held) == 1
        del part
        assert len(held) == 0
        assert len(loader._pool._buffers) <= 3


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


def test_without_memfd_buffers_are_unlinked_shared_memory(heavy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.EPERM])
def test_where_memfd_is_blocked_buffers_are_unlinked_shared_memory(
    heavy: Any, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def blocked(*_: Any) -> int:
        raise OSError(code, os.strerror(code))

    recipe, expected = heavy
    monkeypatch.setattr(os, "memfd_create", blocked)
    with Loader(recipe, workers=1) as loader:
        kept = list(islice(loader, 5))
        assert "/dev/shm/playhead-" in Path("/proc/self/maps").read_text()  # noqa: S108
        assert [seen(batch) for batch in kept] == expected[:5]


@pytest.mark.parametrize("num_left", [0, 1, 2, 3])
def test_where_descriptors_run_out_batches_that_are_kept_are_copied(heavy: Any, num_left: int) -> None:
    recipe, expected = heavy
    with Loader(recipe, workers=2) as loader:
        batches = iter(loader)
        kept = [next(batches)]
        with few_left(num_left):
            kept += islice(batches, NUM_BATCHES - 1)
        assert [seen(batch) for batch in kept] == expected


@pytest.mark.parametrize("num_left", range(0, 16, 3))
def test_too_few_descriptors_for_workers_are_an_error_that_names_the_limit(heavy: Any, num_left: int) -> None:
    recipe, expected = heavy
    found = []
    loader = Loader(recipe, workers=2)
    with few_left(num_left):
        try:
            found.append(seen(next(iter(loader))))
        except StoreError as error:
            assert num_left < 15
            assert "ulimit -n" in error.fix  # noqa: PT017 - how many are enough depends on what else is open
            assert not loader._pool._workers
        else:
            assert num_left > 8
    found += [seen(batch) for batch in islice(loader, 3)]
    assert found == expected[: len(found)]
    loader.close()


def test_a_default_time_out_of_sockets_does_not_matter(heavy: Any) -> None:
    recipe, expected = heavy
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(0.001)
    try:
        with Loader(recipe, workers=2) as loader:
            assert [seen(batch) for batch in islice(loader, NUM_BATCHES)] == expected
    finally:
        socket.setdefaulttimeout(before)


def shared_bytes(loader: Loader) -> int:
    return sum(os.fstat(descriptor).st_size for descriptor in loader._pool._buffers._descriptors.values())


def test_fields_of_dates_take_no_more_memory_from_batch_to_batch(tmp_path: Path) -> None:
    recipe = stream(tmp_path, "fixed", map="loader_maps:dated")
    with Loader(recipe, workers=1) as loader:
        sizes = [(batch["at"].nbytes, shared_bytes(loader)) for batch in islice(loader, 40)]
    assert min(size for size, _ in sizes) > SMALLEST_SHARED_BYTES
    assert max(shared for _, shared in sizes) <= 3 << 18


def test_buffers_that_were_made_for_batches_kept_go_with_them(heavy: Any) -> None:
    recipe, _ = heavy
    with Loader(recipe, workers=2) as loader:
        batches = iter(loader)
        kept = list(islice(batches, 10))
        assert len(loader._pool._buffers) == 10
        kept.clear()
        for batch in islice(batches, 60):
            del batch
        assert len(loader._pool._buffers) == 4


def test_the_memory_of_a_batch_that_is_far_larger_than_the_others_is_given_back(tmp_path: Path) -> None:
    sizes = [20_000_000 if i == 7 else 50_000 for i in range(100)]
    write_tar(tmp_path / "a.tar", [(f"{i:03}.npy", npy(np.zeros(size, np.uint8))) for i, size in enumerate(sizes)])
    source = {"name": "a", "path": "a.tar", "shuffle": "none"}
    recipe = Recipe.parse({"sources": [source], "batching": {"type": "fixed", "size": 1}, "epochs": 3}, tmp_path)
    prepare(recipe, workers=1)
    with Loader(recipe, workers=2) as loader:
        sizes = [(batch["npy"].nbytes, shared_bytes(loader)) for batch in loader]
    assert [shared > 20_000_000 for size, shared in sizes if size == 20_000_000] == [True] * 3
    assert max(shared for _, shared in sizes) < 50_000_000
    assert sizes[99][1] < 4 << 20


def test_no_descriptor_for_a_buffer_is_an_error_that_says_so(heavy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*_: Any) -> int:
        raise OSError(24, os.strerror(24))

    monkeypatch.setattr(os, "memfd_create", none_left)
    loader = Loader(heavy[0], workers=1)
    with pytest.raises(StoreError, match="no shared memory can be made") as caught:
        next(iter(loader))
    assert "ulimit -n" in caught.value.fix
    assert not loader._pool._workers


@pytest.fixture(scope="module")
def ends() -> Iterator[tuple[Arena, SharedBuffers]]:
    """Both ends in one process, joined by a real pipe."""
    arena: list[Arena] = []
    reader, writer = os.pipe()
    arena.append(Arena(Connection(reader, writable=False)))

    def announce(number: int, descriptor: int | None) -> None:
        if descriptor is None:
            arena[0].forget(number)
        else:
            arena[0].announced(number, os.dup(descriptor))

    buffers = SharedBuffers(1, 2, writer, announce)
    yield arena[0], buffers
    buffers.close()


DTYPES = st.one_of(
    arrays_of.integer_dtypes(),
    arrays_of.floating_dtypes(),
    arrays_of.complex_number_dtypes(),
    arrays_of.datetime64_dtypes(),
    arrays_of.timedelta64_dtypes(),
    arrays_of.unicode_string_dtypes(max_len=3),
    st.sampled_from([np.dtype(bool), np.dtype([("at", "M8[s]"), ("size", ">i2")])]),
)
ARRAYS = arrays_of.arrays(DTYPES, arrays_of.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
LARGE = st.builds(np.tile, ARRAYS, st.sampled_from([1, 5_000]))
VALUES = st.recursive(
    st.one_of(LARGE, st.integers(), st.text(), st.binary(), LARGE.map(np.ndarray.tobytes), st.none()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=2), inner, max_size=3)),
    max_leaves=6,
)


def frozen(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        is_writeable = value.flags.writeable
        if value.dtype.kind in "mM":  # numpy pickles dates in the byte order of the machine
            value = value.astype(value.dtype.newbyteorder("="))
        return str(value.dtype), value.shape, value.tobytes(), is_writeable
    if isinstance(value, dict):
        return {name: frozen(item) for name, item in value.items()}
    return [frozen(item) for item in value] if isinstance(value, list) else value


@settings(deadline=None)
@given(st.lists(VALUES, min_size=1, max_size=3), st.data())
def test_what_arrives_is_what_was_sent_whatever_it_is_made_of(
    ends: tuple[Arena, SharedBuffers], values: list[Any], data: st.DataObject
) -> None:
    arena, buffers = ends
    arrivals = []
    for given_value in values[:2]:
        value = given_value
        if isinstance(value, np.ndarray) and data.draw(st.booleans()):
            value = arena.empty(value.shape, value.dtype)
            value[...] = given_value
        elif isinstance(value, np.ndarray) and value.ndim and data.draw(st.booleans()):
            value = data.draw(st.sampled_from([value[::-1], value.T, value[::2]]))
        expected = frozen(pickle.loads(pickle.dumps(value, protocol=5)))  # noqa: S301
        buffers.prepare_to_wait()
        message = pack(value, arena)
        arrivals.append((unpack(message, buffers), expected))
    for found, expected in arrivals:
        assert frozen(found) == expected
    assert len(buffers) <= buffers.most


def test_what_is_made_in_a_buffer_and_not_sent_leaves_no_trace_there(ends: tuple[Arena, SharedBuffers]) -> None:
    arena, buffers = ends
    buffers.prepare_to_wait()
    for _ in range(5):
        arena.empty((1_000_000,), np.uint8)
        assert unpack(pack("small", arena), buffers) == "small"
        assert arena._used == 0
    assert len(arena._mappings[arena._number]) < 2_000_000


@pytest.mark.parametrize(
    "value",
    [
        np.zeros((1_000, 200), np.float32).T[::2],
        np.zeros(100_000, np.int64)[::-1],
        np.zeros(100_000, "M8[ms]"),
        np.zeros(100_000, [("at", "M8[s]"), ("size", "i2")]),
        [b"x" * 300_000, "é" * 100_000],
        list(range(100_000)),
    ],
    ids=["transposed", "backwards", "dates", "records", "bytes and text", "numbers"],
)
def test_whatever_is_large_goes_through_shared_memory(ends: tuple[Arena, SharedBuffers], value: Any) -> None:
    arena, buffers = ends
    buffers.prepare_to_wait()
    message = pack(value, arena)
    assert len(message) < 1_000
    assert frozen(unpack(message, buffers)) == frozen(pickle.loads(pickle.dumps(value, protocol=5)))  # noqa: S301


def test_arrays_made_in_a_buffer_are_not_copied_to_be_sent(ends: tuple[Arena, SharedBuffers]) -> None:
    arena, buffers = ends
    buffers.prepare_to_wait()
    made = [arena.empty((100, 1_000), np.float32), arena.empty((5, 50_000), np.int64), arena.empty((3,), np.int64)]
    for number, array in enumerate(made):
        array[...] = number
    used = arena._used
    message = pack(made, arena)
    assert len(message) < 1_000
    found = unpack(message, buffers)
    assert used >= 100 * 1_000 * 4 + 5 * 50_000 * 8
    assert [array.shape for array in found] == [array.shape for array in made]
    made[0][:] = 7  # the same memory, seen by the other end
    assert (found[0] == 7).all()
    assert found[2].tolist() == [2, 2, 2]
