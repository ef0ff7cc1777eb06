"""A batch survives what trainers and torch do to mappings, with its place in the run where that can be kept."""

from __future__ import annotations

import copy
import pickle
from typing import Any, NamedTuple

import pytest
import torch
from torch.utils.data._utils.pin_memory import pin_memory

from deliveries import stream
from playhead import Batch, PlayheadError
from playhead.torch import DataLoader

PLACE = ("step", "lane", "idle", "is_last_in_step", "num_samples", "sources", "worker")


@pytest.fixture(scope="module")
def delivered(tmp_path_factory: pytest.TempPathFactory) -> Any:
    loader = DataLoader(stream(tmp_path_factory.mktemp("batches"), "fixed"))
    return loader, next(iter(loader))


def place(batch: Batch) -> list[Any]:
    return [getattr(batch, name) for name in PLACE]


class Unpinned:
    """What torch may pin, where there is no device to pin for."""

    def pin_memory(self) -> str:
        return "pinned"


class Pair(NamedTuple):
    left: Any
    right: Any


def test_a_batch_rebuilt_from_its_fields_has_them_and_does_not_invent_a_place(delivered: Any) -> None:
    _, batch = delivered
    rebuilt = type(batch)({name: batch[name] for name in batch})
    assert isinstance(rebuilt, Batch)
    assert list(rebuilt) == list(batch)
    assert rebuilt["tokens"] is batch["tokens"]
    assert repr(rebuilt).startswith("Batch(rebuilt, fields: n, id, ")
    for name in (*PLACE, "task", "rows", "epochs"):
        with pytest.raises(PlayheadError, match="rebuilt from its fields"):
            getattr(rebuilt, name)


def test_no_state_is_given_after_a_batch_that_does_not_know_its_place(delivered: Any) -> None:
    loader, batch = delivered
    with pytest.raises(PlayheadError, match="has lost its position"):
        loader.state_dict(after=type(batch)(batch))


def test_an_adapter_can_give_a_rebuilt_batch_its_place_again(delivered: Any) -> None:
    loader, batch = delivered
    rebuilt = type(batch)(dict(batch))
    rebuilt.place_as(batch)
    assert place(rebuilt) == place(batch)
    assert loader.state_dict(after=rebuilt) == loader.state_dict(after=batch)


def pickled(batch: Batch) -> Any:
    return pickle.loads(pickle.dumps(batch))  # noqa: S301 - our own


@pytest.mark.parametrize("change", [copy.copy, copy.deepcopy, pickled, lambda batch: batch.to("cpu")])
def test_copies_pickles_and_moves_keep_the_place(delivered: Any, change: Any) -> None:
    loader, batch = delivered
    changed = change(batch)
    assert place(changed) == place(batch)
    assert changed.rows.tolist() == batch.rows.tolist()
    assert changed["tokens"].equal(batch["tokens"])
    assert loader.state_dict(after=changed) == loader.state_dict(after=batch)


def test_torch_pins_a_batch_with_its_place() -> None:
    batch = Batch({"x": Unpinned(), "name": "x"}, 1, None, ())
    pinned = pin_memory(batch)
    assert isinstance(pinned, Batch)
    assert dict(pinned) == {"x": "pinned", "name": "x"}
    assert pinned.num_samples == 1


def test_tensors_inside_collections_of_a_collate_function_are_moved_too() -> None:
    nested = {"a": {"b": [torch.ones(2), "text"]}, "c": Pair(torch.ones(1), 3), "d": (torch.ones(1),)}
    moved = Batch(nested).to("meta")
    assert moved["a"]["b"][0].device.type == moved["c"].left.device.type == moved["d"][0].device.type == "meta"
    assert (moved["a"]["b"][1], moved["c"].right, type(moved["c"]), type(moved["d"])) == ("text", 3, Pair, tuple)
