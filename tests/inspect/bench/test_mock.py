from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from bench_worlds import world
from corpora import write_speech
from playhead import Loader, Recipe
from playhead.inspect.bench.mock import mock_loader
from playhead.inspect.bench.values import LoaderSettings
from playhead.prepare import prepare
from playhead.recipe.values import Pack


def taken(loader: Any, num: int) -> list[dict[str, np.ndarray[Any, Any]]]:
    found = []
    with loader:
        for batch in loader:
            found.append({name: np.array(batch[name]) for name in batch if isinstance(batch[name], np.ndarray)})
            if len(found) == num:
                break
    return found


@pytest.mark.parametrize("settings", [LoaderSettings(workers=0), LoaderSettings(workers=1)], ids=str)
def test_batches_have_the_shapes_of_the_real_ones_and_no_file_is_read(tmp_path: Path, settings: LoaderSettings) -> None:
    recipe = replace(world(tmp_path), pad_values={"tokens": 7, "n": 1}, dtypes={"tokens": "int32", "n": "int16"})
    real = taken(Loader(recipe), 12)
    for path in tmp_path.glob("*.jsonl"):
        path.unlink()
    mock = taken(mock_loader(recipe, settings), 12)
    for one, other in zip(real, mock, strict=True):
        for name in ("tokens", "tokens_lengths", "tokens_mask", "weights"):
            assert (other[name].shape, other[name].dtype) == (one[name].shape, one[name].dtype)
        assert (other["tokens_lengths"] == one["tokens_lengths"]).all()
        assert not other["tokens"][other["tokens_mask"]].any()
        assert set(other) == {"tokens", "tokens_lengths", "tokens_mask", "weights"}


def test_maps_and_collate_functions_of_the_recipe_are_not_called(tmp_path: Path) -> None:
    recipe = replace(world(tmp_path), map="bench_maps:nowhere", collate="bench_maps:nowhere_either")
    assert len(taken(mock_loader(recipe, LoaderSettings(workers=0)), 3)) == 3


def test_packs_and_lengths_in_seconds_have_their_sizes(tmp_path: Path) -> None:
    recipe = replace(world(tmp_path), batching=Pack(max_length=64))
    prepare(recipe, workers=1)
    (first, *_) = taken(mock_loader(recipe, LoaderSettings(workers=0)), 1)
    assert first["tokens"].shape == (64,)
    spoken = tmp_path / "spoken"
    spoken.mkdir()
    source = write_speech(spoken, "calls", [[0.5, 1.5, 2.0, 0.25]])
    given = {"sources": [source], "batching": {"type": "fixed", "size": 4}, "sequence": "audio", "sequence_rate": 8000}
    (spoken / "recipe.json").write_text(json.dumps(given))
    speech = Recipe.load(spoken / "recipe.json")
    prepare(speech, workers=1)
    (batch, *_) = taken(mock_loader(speech, LoaderSettings(workers=0)), 1)
    assert sorted(batch["audio_lengths"].tolist()) == [2000, 4000, 12000, 16000]
    assert batch["audio"].dtype == np.float32
