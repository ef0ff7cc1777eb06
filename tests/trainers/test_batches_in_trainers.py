"""What Accelerate, Lightning and transformers do to batches, done by their own functions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from accelerate.utils import concatenate, convert_to_fp32, find_batch_size, recursively_apply, send_to_device
from lightning.fabric.utilities.apply_func import move_data_to_device
from lightning.pytorch.plugins.precision import DoublePrecision
from lightning.pytorch.utilities.data import extract_batch_size
from token_rows import write_recipe
from transformers import Trainer, TrainingArguments

from playhead import Batch, PlayheadError
from playhead.torch import DataLoader

pytestmark = [pytest.mark.trainers, pytest.mark.filterwarnings("ignore:::(lightning|transformers|accelerate|torch)")]


def tensors_only(samples: list[dict[str, Any]]) -> dict[str, Any]:
    return {"tokens": torch.stack([torch.tensor(sample["input_ids"][:1]) for sample in samples]).float()}


@pytest.fixture
def loader(tmp_path: Path) -> DataLoader:
    return DataLoader(write_recipe(tmp_path, "endless"))


@pytest.mark.parametrize("move", [send_to_device, move_data_to_device])
def test_moved_to_a_device_a_batch_keeps_its_place(loader: DataLoader, move: Any) -> None:
    batch = next(iter(loader))
    moved = move(batch, torch.device("meta"))
    assert moved["input_ids"].device.type == "meta"
    assert (moved.step, moved.lane, moved.num_samples, moved["id"]) == (0, 0, batch.num_samples, batch["id"])
    assert loader.state_dict(after=moved) == loader.state_dict(after=batch)


def rebuilt_by_transformers(batch: Batch, folder: Path) -> Any:
    args = TrainingArguments(output_dir=str(folder), use_cpu=True, report_to=[])
    return Trainer(torch.nn.Linear(1, 1), args)._prepare_input(batch)


REBUILDS = {
    "transformers": rebuilt_by_transformers,
    "Lightning": lambda batch, _: DoublePrecision().convert_input(batch),
    "Accelerate": lambda batch, _: convert_to_fp32(batch),
    "applied": lambda batch, _: recursively_apply(lambda value: value + 0, batch),
}


@pytest.mark.parametrize("rebuild", REBUILDS.values(), ids=REBUILDS.keys())
def test_rebuilt_a_batch_has_its_fields_and_invents_no_place(loader: DataLoader, tmp_path: Path, rebuild: Any) -> None:
    batch = next(iter(loader))
    rebuilt = rebuild(batch, tmp_path / "out")
    assert isinstance(rebuilt, Batch)
    assert list(rebuilt) == list(batch)
    assert rebuilt["input_ids"].equal(batch["input_ids"])
    with pytest.raises(PlayheadError, match="rebuilt from its fields"):
        loader.state_dict(after=rebuilt)


def test_concatenated_batches_are_no_batch_of_the_run(tmp_path: Path) -> None:
    loader = DataLoader(write_recipe(tmp_path, "endless"), collate=tensors_only)
    batches = iter(loader)
    both = concatenate([next(batches), next(batches)])
    assert len(both["tokens"]) > 1
    with pytest.raises(PlayheadError, match="rebuilt from its fields"):
        _ = both.step


def test_trainers_find_the_size_of_a_batch(tmp_path: Path) -> None:
    batch = next(iter(DataLoader(write_recipe(tmp_path, "endless"), collate=tensors_only)))
    assert find_batch_size(batch) == extract_batch_size(batch) == batch.num_samples


def test_accelerate_leaves_a_loader_as_it_is(loader: DataLoader) -> None:
    assert Accelerator(cpu=True).prepare(loader) is loader
