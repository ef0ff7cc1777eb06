"""The loader for torch: the same batches as tensors, and torch's options with their meaning there."""

from __future__ import annotations

import copy
import gc
import json
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import loader_maps
from deliveries import Seen, deliver, npy, rounds, saved, seen, stream, woven
from loopback import serving
from playhead import Loader, Recipe, RecipeError, SampleError, StoreError, WorkerError
from playhead.prepare import prepare
from playhead.torch import DataLoader
from small_data import write_tar

NUM_BATCHES = 24
OPTIONS: list[dict[str, Any]] = [
    {},
    {"num_workers": 2},
    {"num_workers": 1, "prefetch_factor": 5, "persistent_workers": True},
    {"num_workers": 3, "prefetch_factor": 1, "pin_memory": False},
]
SPAWN: dict[str, Any] = {"num_workers": 1, "multiprocessing_context": "spawn"}


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Recipe, list[Seen], list[str], list[Any]]:
    """What the numpy loader delivers."""
    recipe = stream(tmp_path_factory.mktemp("mixed"), "zip")
    found = [*zip(*deliver(Loader(recipe), NUM_BATCHES), strict=True)]
    return recipe, *(list(column) for column in found)


@pytest.mark.parametrize("options", OPTIONS)
def test_torch_delivers_what_numpy_does_with_any_options_and_resumes_anywhere(mixed: Any, options: Any) -> None:
    recipe, batches, states, totals = mixed
    for world_size, after in ((1, 0), (2, 5)):
        dealt = rounds(
            lambda rank, world: DataLoader(recipe, rank=rank, world_size=world, **options),
            world_size,
            states[after],
            8 // world_size,
        )
        assert woven(dealt) == batches[after + 1 : after + 9]
        assert [rank[-1][1:] for rank in dealt] == [(states[after + 8], totals[after + 8])] * world_size


def test_numbers_are_tensors_and_other_things_are_left_alone(mixed: Any) -> None:
    batch = next(batch for batch in DataLoader(mixed[0]) if "tokens_lengths" in batch)
    assert batch["tokens"].dtype == torch.float32
    assert batch["tokens_mask"].dtype == torch.bool
    assert batch["weights"].dtype == torch.float32
    assert isinstance(batch["text"][0], str)


@pytest.mark.parametrize("options", [{}, {"num_workers": 2}, {"num_workers": 2, "persistent_workers": True}])
def test_states_are_loaded_before_after_and_during_iteration(mixed: Any, options: Any) -> None:
    recipe, batches, states, _ = mixed
    loader = DataLoader(recipe, **options)
    iterator = iter(loader)
    loader.load_state_dict(json.loads(states[10]))
    fetched = [next(iterator) for _ in range(4)]
    assert [seen(batch) for batch in fetched] == batches[11:15]
    assert [saved(loader, after=batch) for batch in fetched] == states[11:15]
    loader.load_state_dict(json.loads(states[3]))
    assert [seen(next(iterator)) for _ in range(3)] == batches[4:7]
    assert saved(loader) == states[6]
    later = iter(loader)
    assert [seen(next(later)) for _ in range(3)] == batches[7:10]
    with pytest.raises(Exception, match="this iterator was replaced"):
        next(iterator)
    assert seen(next(later)) == batches[10]
    del later
    assert [seen(batch) for batch in islice(loader, 2)] == batches[11:13]


@pytest.mark.parametrize("options", [{}, {"num_workers": 1, "persistent_workers": True}])
@pytest.mark.parametrize("kind", ["passes", "stop_all"])
def test_a_finite_stream_ends_and_begins_anew_when_asked(tmp_path: Path, kind: str, options: Any) -> None:
    recipe = stream(tmp_path, kind)
    expected = Loader(recipe)
    loader = DataLoader(recipe, **options)
    for _ in range(2):
        assert not loader.finished
        found = [seen(batch) for batch in loader]
        assert found == [seen(batch) for batch in expected]
        assert kind != "passes" or len(found) == len(loader)
        assert loader.finished
        assert [*loader] == []
        loader.next_round()
        expected.next_round()


@pytest.mark.parametrize("workers", [1.5, "2", -1, True])
def test_a_number_of_workers_that_cannot_be_is_refused(mixed: Any, workers: Any) -> None:
    with pytest.raises(RecipeError, match="num_workers: invalid value"):
        DataLoader(mixed[0], num_workers=workers)


def test_a_length_that_only_planning_would_tell_is_a_type_error(mixed: Any) -> None:
    with pytest.raises(TypeError, match="known only for a finite stream of fixed batches"):
        len(DataLoader(mixed[0]))


@pytest.mark.parametrize("options", [{}, {"num_workers": 1}])
def test_a_failing_map_is_told_whole_from_any_process(tmp_path: Path, options: Any) -> None:
    recipe = stream(tmp_path, "fixed", map="loader_maps:broken_in_places")
    with pytest.raises(SampleError) as caught:
        list(islice(DataLoader(recipe, **options), 50))
    assert caught.value.problem.startswith('source "')
    assert "raised ValueError: no good" in caught.value.problem
    assert str(caught.value.found).startswith(f"in {loader_maps.__file__}, line ")


def test_a_killed_worker_is_an_error_that_names_what_was_under_way(tmp_path: Path) -> None:
    recipe = stream(tmp_path, "fixed", map="loader_maps:slow")
    whole = [batch for batch, _, _ in deliver(Loader(recipe), 12)]
    loader = DataLoader(recipe, num_workers=2)
    others = multiprocessing.active_children()
    iterator = islice(loader, 200)
    delivered = [seen(next(iterator))]
    victim = next(child for child in multiprocessing.active_children() if child not in others)
    os.kill(victim.pid, signal.SIGKILL)
    with pytest.raises(WorkerError) as caught:
        delivered.extend(map(seen, iterator))
    name, _, row = whole[len(delivered)].picks[0]
    assert f"{name} row {row} ({tmp_path}/" in str(caught.value)
    rest = [batch for batch, _, _ in deliver(loader, 12 - len(delivered))]
    assert delivered + rest == whole


@pytest.mark.parametrize("context", ["spawn", "forkserver", multiprocessing.get_context("fork")])
def test_workers_start_in_the_way_that_is_asked_for(mixed: Any, context: Any) -> None:
    recipe, batches, states, _ = mixed
    loader = DataLoader(recipe, num_workers=1, multiprocessing_context=context)
    loader.load_state_dict(json.loads(states[2]))
    assert [seen(batch) for batch in islice(loader, 5)] == batches[3:8]


def test_persistent_workers_outlive_an_iteration_left_in_the_middle_and_end_with_their_loader(mixed: Any) -> None:
    recipe, batches, _, _ = mixed
    others = {*multiprocessing.active_children()}
    with DataLoader(recipe, num_workers=2, persistent_workers=True) as loader:
        assert [seen(batch) for batch in islice(loader, 3)] == batches[:3]
        workers = {*multiprocessing.active_children()} - others
        assert len(workers) == 2
        assert [seen(batch) for batch in islice(loader, 3)] == batches[3:6]
        assert {*multiprocessing.active_children()} - others == workers
    assert {*multiprocessing.active_children()} <= others
    assert [seen(batch) for batch in islice(loader, 3)] == batches[6:9]  # with new ones
    loader.close()


def pickled(loader: Any) -> Any:
    return pickle.loads(pickle.dumps(loader))  # noqa: S301  # our own


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, pickled])
@pytest.mark.parametrize("make", [Loader, partial(Loader, workers=1, worker_kind="thread"), DataLoader])
def test_copies_of_a_loader_go_on_from_its_place_whatever_it_was_doing(mixed: Any, how: Any, make: Any) -> None:
    recipe, batches, states, _ = mixed
    loader = make(recipe)
    assert [seen(batch) for batch in islice(how(loader), 2)] == batches[:2]
    iterator = iter(loader)
    assert seen(next(iterator)) == batches[0]
    copied = how(loader)
    assert [seen(next(iterator)) for _ in range(2)] == batches[1:3]
    assert [seen(batch) for batch in islice(copied, 3)] == batches[1:4]
    assert (saved(loader), saved(copied)) == (states[2], states[3])
    del copied
    assert seen(next(iterator)) == batches[3]


@pytest.mark.parametrize("option", ["batch_size", "shuffle", "sampler", "collate_fn", "drop_last"])
def test_what_the_recipe_decides_is_not_taken_as_an_option(mixed: Any, option: str) -> None:
    with pytest.raises(RecipeError, match=f"{option}: decided by the recipe"):
        DataLoader(mixed[0], **{option: 1})


def test_a_function_that_cannot_travel_is_refused_before_workers_start(mixed: Any) -> None:
    with pytest.raises(RecipeError, match="cannot be sent to worker processes"):
        DataLoader(mixed[0], **SPAWN, map=lambda sample: sample)


def test_awkward_arrays_of_a_collate_function_become_tensors(tmp_path: Path) -> None:
    recipe = stream(tmp_path, "fixed")
    frozen = np.arange(6)
    frozen.flags.writeable = False
    made = {
        "backwards": np.arange(5)[::-1],
        "frozen": frozen,
        "foreign": np.arange(4, dtype=">i4"),
        "text": np.array(["a"]),
    }
    batch = next(iter(DataLoader(recipe, collate=lambda _: made)))
    assert batch["backwards"].tolist() == [4, 3, 2, 1, 0]
    assert batch["frozen"].tolist() == [*range(6)]
    assert batch["foreign"].tolist() == [*range(4)]
    assert isinstance(batch["text"], np.ndarray)


def test_without_torch_the_missing_extra_names_itself() -> None:
    program = "import sys\nsys.modules['torch'] = None\nimport playhead.torch"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "playhead.torch needs PyTorch" in done.stderr
    assert "pip install 'playhead[torch]'" in done.stderr


def test_a_batch_moves_to_a_device_whole(mixed: Any) -> None:
    recipe, *_ = mixed
    batch = next(iter(DataLoader(recipe)))
    moved = batch.to("meta")
    assert moved["tokens"].device.type == "meta"
    assert moved["tokens"].shape == batch["tokens"].shape
    assert (moved.step, moved.lane, list(moved)) == (batch.step, batch.lane, list(batch))
    assert moved.task is batch.task


@pytest.mark.parametrize("num_workers", [0, 1])
def test_unsigned_numbers_are_tensors_of_their_own_dtype(tmp_path: Path, num_workers: int) -> None:
    recipe = stream(tmp_path, "fixed", map="loader_maps:hashed", dtypes={"doc_hash": "uint64"})
    batch = next(iter(DataLoader(recipe, num_workers=num_workers)))
    assert batch["doc_hash"].dtype == torch.uint64
    assert batch["doc_hash"].tolist() == [2**64 - int(n) for n in batch["n"]]
    assert (batch["doc_hash"].view(torch.int64) == -batch["n"]).all()


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_dtype_that_torch_has_not_is_an_error_that_names_field_and_remedy(tmp_path: Path, num_workers: int) -> None:
    with pytest.raises(SampleError, match='field "wide" has a dtype that torch ') as caught:
        next(iter(DataLoader(stream(tmp_path, "fixed", map="loader_maps:widened"), num_workers=num_workers)))
    assert caught.value.found == str(np.dtype(np.longdouble))
    assert "`dtypes: {wide: ...}`" in str(caught.value.fix)
    declared = stream(tmp_path, "fixed", map="loader_maps:widened", dtypes={"wide": "float32"})
    assert next(iter(DataLoader(declared)))["wide"].dtype == torch.float32


@pytest.mark.parametrize("options", [{}, {"num_workers": 1}])
def test_the_random_numbers_of_a_training_do_not_depend_on_where_its_loader_was_resumed(
    mixed: Any, options: Any
) -> None:
    recipe, *_ = mixed
    loader = DataLoader(recipe, **options)
    before = torch.random.get_rng_state()
    next(iter(loader))
    assert torch.random.get_rng_state().equal(before)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"prefetch_factor": 3}, "prefetch_factor: requires worker processes"),
        ({"persistent_workers": True}, "persistent_workers: requires worker processes"),
        ({"timeout": 3}, "timeout: requires worker processes"),
        ({"multiprocessing_context": "fork"}, "multiprocessing_context: requires worker processes"),
        ({"num_workers": 1, "prefetch_factor": 0}, "prefetch_factor: invalid value"),
        ({"num_workers": 1, "timeout": -1}, "timeout: invalid value"),
        ({"num_workers": 1, "timeout": float("nan")}, "timeout: invalid value"),
        ({"num_workers": 1, "multiprocessing_context": "thread"}, "unknown start method"),
        ({**SPAWN, "worker_init_fn": lambda _: None}, "worker_init_fn: this function cannot be sent"),
        ({"in_order": False}, "in_order: not supported by this loader"),
    ],
)
def test_options_that_cannot_be_are_refused(mixed: Any, options: Any, problem: str) -> None:
    with pytest.raises(RecipeError, match=problem):
        DataLoader(mixed[0], **options)


def test_options_at_the_defaults_of_torch_are_taken_and_unknown_ones_are_a_type_error(mixed: Any) -> None:
    DataLoader(mixed[0], in_order=True, pin_memory_device="", num_workers=0, timeout=0, prefetch_factor=None)
    with pytest.raises(TypeError, match="unexpected keyword argument 'num_worker'"):
        DataLoader(mixed[0], num_worker=2)


def test_a_batch_that_takes_longer_than_the_timeout_is_an_error_that_names_it(tmp_path: Path) -> None:
    recipe = stream(tmp_path, "fixed", map="loader_maps:hangs")
    loader = DataLoader(recipe, num_workers=1, timeout=1.5)
    others = multiprocessing.active_children()
    with pytest.raises(WorkerError, match="took too long") as caught:
        next(iter(loader))
    assert "no batch within 1.5 s; it was making " in caught.value.found
    assert f"{tmp_path}/" in caught.value.found
    assert multiprocessing.active_children() == others


@pytest.mark.parametrize("persistent", [False, True])
def test_workers_are_set_up_as_in_torch(tmp_path: Path, persistent: bool) -> None:
    recipe = stream(tmp_path, "passes", epochs=1, map="loader_maps:about_its_worker")
    options = {"num_workers": 2, "worker_init_fn": loader_maps.remembers, "persistent_workers": persistent}
    loader = DataLoader(recipe, generator=torch.Generator().manual_seed(5), **options)
    drawn = []
    for _ in range(2):
        rounds = [*loader]
        for batch in rounds:
            assert {*batch["worker"].tolist()} == {*batch["remembered"].tolist()} <= {0, 1}
            assert {*batch["workers"].tolist()} == {2}
            assert {*batch["threads"].tolist()} == {1}
        drawn.append([batch["random"].tolist() for batch in rounds])
        loader.next_round()
    seeds = {number for found in drawn for numbers in found for number in numbers}
    assert len(seeds) == sum(len(numbers) for found in drawn for numbers in found)  # workers and rounds draw anew
    again = DataLoader(recipe, generator=torch.Generator().manual_seed(5), **options)
    assert [batch["random"].tolist() for batch in again] == drawn[0]


def test_workers_end_with_an_iteration_unless_they_are_persistent(tmp_path: Path) -> None:
    recipe = stream(tmp_path, "passes", epochs=1)
    others = {*multiprocessing.active_children()}
    for persistent, num_left in ((False, 0), (True, 2)):
        loader = DataLoader(recipe, num_workers=2, persistent_workers=persistent)
        assert len([*loader]) > 0
        assert len({*multiprocessing.active_children()} - others) == num_left
        loader.close()
    loader = DataLoader(recipe, num_workers=2)
    next(iter(loader))  # and with one that is left in the middle
    assert {*multiprocessing.active_children()} == others


def test_tensors_of_a_collate_function_arrive_as_they_were(tmp_path: Path) -> None:
    recipe = stream(tmp_path, "fixed", collate="loader_maps:tensors")
    here = next(iter(DataLoader(recipe)))
    with DataLoader(recipe, num_workers=1) as loader:
        there = next(iter(loader))
        assert [*here] == [*there]
        for name, tensor in here.items():
            assert there[name].dtype == tensor.dtype
            assert there[name].requires_grad == tensor.requires_grad
            assert torch.equal(there[name].resolve_conj(), tensor.resolve_conj()), name
    assert "memfd:playhead" in Path("/proc/self/maps").read_text()  # the large one is where the worker wrote it
    del there, tensor
    gc.collect()  # what other tests left
    assert "memfd:playhead" not in Path("/proc/self/maps").read_text()


@pytest.fixture(scope="module")
def heavy(tmp_path_factory: pytest.TempPathFactory) -> tuple[Recipe, list[Seen]]:
    """Two passes of signals of many sizes, all of them shared, and what one process delivers of them."""
    folder = tmp_path_factory.mktemp("heavy")
    members = [(f"{i:03}.npy", npy(np.arange(6_000 + 911 * (i % 17), dtype=np.float32) + i)) for i in range(40)]
    write_tar(folder / "a.tar", members)
    values = {"sources": [{"name": "a", "path": "a.tar"}], "batching": {"type": "fixed", "size": 3}, "epochs": 2}
    recipe = Recipe.parse({**values, "seed": 3}, folder)
    prepare(recipe, workers=1)
    return recipe, [seen(batch) for batch in Loader(recipe)]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_tensors_that_are_kept_are_never_overwritten(heavy: Any, method: str) -> None:
    recipe, expected = heavy
    with DataLoader(recipe, num_workers=2, multiprocessing_context=method) as loader:
        kept = [*loader]
        assert all(isinstance(batch["npy"], torch.Tensor) for batch in kept)
        assert [seen(batch) for batch in kept] == expected
        loader.next_round()
        parts = [(batch["npy"][0, 5:9], batch["npy"][0, 5:9].tolist()) for batch in islice(loader, 20)]
    assert [seen(batch) for batch in kept] == expected  # and after the workers are gone
    assert all(part.tolist() == numbers for part, numbers in parts)


def test_options_may_be_numbers_of_numpy_and_are_attributes(mixed: Any) -> None:
    options = {"num_workers": np.int64(1), "prefetch_factor": np.int64(3), "timeout": np.float32(5)}
    loader = DataLoader(mixed[0], **options, persistent_workers=True)
    assert (loader.num_workers, loader.prefetch_factor, loader.timeout) == (1, 3, 5)
    assert (loader.persistent_workers, loader.pin_memory) == (True, False)
    loader = DataLoader(mixed[0], num_workers=2)
    assert (loader.num_workers, loader.prefetch_factor, loader.timeout) == (2, 2, 0)
    assert (DataLoader(mixed[0]).num_workers, DataLoader(mixed[0]).prefetch_factor) == (0, None)


def test_an_option_that_cannot_be_is_a_value_error_as_in_torch(mixed: Any) -> None:
    for options in ({"num_workers": -1}, {"num_workers": 1, "timeout": -1}, {"persistent_workers": True}):
        with pytest.raises(ValueError, match=f"^{list(options)[-1]}: ") as caught:
            DataLoader(mixed[0], **options)
        assert isinstance(caught.value, RecipeError)
        with pytest.raises(ValueError, match=f"^{list(options)[-1]}: "):
            raise pickled(caught.value)


@pytest.mark.parametrize("timeout", [1e9, 1e300])
def test_a_timeout_beyond_what_can_be_waited_for_is_none(mixed: Any, timeout: float) -> None:
    with DataLoader(mixed[0], num_workers=1, timeout=timeout) as loader:
        assert seen(next(iter(loader))) == mixed[1][0]


@pytest.mark.parametrize("num_workers", [0, 1])
def test_arrays_in_collections_of_a_collate_function_become_tensors(tmp_path: Path, num_workers: int) -> None:
    recipe = stream(tmp_path, "fixed", collate="loader_maps:nested")
    with DataLoader(recipe, num_workers=num_workers) as loader:
        batch = next(iter(loader))
    assert batch["inputs"]["numbers"].tolist() == [*range(5)]
    assert [tensor.tolist() for tensor in batch["pairs"][0]] == [[0.0, 1.0], [2.0]]
    assert batch["pairs"][1] == "text"
    assert isinstance(batch["named"], loader_maps.Named)
    assert batch["named"].tensor.dtype == torch.bool
    assert isinstance(batch["words"][0], np.ndarray)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_samples_that_are_delivered_as_they_are_stay_so(tmp_path: Path, num_workers: int) -> None:
    recipe = stream(tmp_path, "tar", collate="list")
    with DataLoader(recipe, num_workers=num_workers) as loader:
        assert isinstance(next(iter(loader))["samples"][0]["tokens"], np.ndarray)


@pytest.mark.parametrize("kind", ["bfloat16", "learned", "sparse"])
@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_tensor_of_a_map_that_numpy_cannot_have_is_an_error_that_names_row_and_field(
    tmp_path: Path, num_workers: int, kind: str
) -> None:
    recipe = stream(tmp_path, "fixed", map=f"loader_maps:{kind}")
    with pytest.raises(
        SampleError, match=r'source ".*", row .*: field "odd" holds an array that cannot be converted to numpy'
    ) as caught:
        next(iter(DataLoader(recipe, num_workers=num_workers)))
    assert "in `map`" in str(caught.value.fix)


def test_memory_is_not_pinned_where_there_is_nothing_to_pin_it_for(mixed: Any) -> None:
    with pytest.warns(RuntimeWarning, match="there is no accelerator"):
        loader = DataLoader(mixed[0], pin_memory=True)
    assert seen(next(iter(loader))) == mixed[1][0]


def test_workers_are_not_forked_where_the_process_has_read_a_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    lines = b"".join(b'{"tokens": [%d], "n": 1}\n' % i for i in range(6))
    with serving({"/bucket/a.jsonl": lines}) as server:
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        source = {"name": "a", "path": "s3://bucket/a.jsonl", "length": "n", "shuffle": "none"}
        values = {"sources": [source], "batching": {"type": "fixed", "size": 2}, "epochs": 1, "lanes": 1}
        recipe = Recipe.parse({**values, "cache_dir": "cache"}, base_dir=tmp_path)
        prepare(recipe)
        with DataLoader(recipe, num_workers=2) as loader:
            assert [batch["tokens"].flatten().tolist() for batch in loader] == [[0, 1], [2, 3], [4, 5]]
        with (
            DataLoader(recipe, num_workers=2, multiprocessing_context="fork") as loader,
            pytest.raises(StoreError, match=r"cannot be read in a fork") as refused,
        ):
            next(iter(loader))
        assert "multiprocessing_context" in str(refused.value)
