"""Datasets of Hugging Face: the directories that they are saved in, and the objects in place of a path."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from columnar_data import plain, read_rows, recipe_of, wav, wav_of
from playhead import Loader
from playhead.errors import PrepareError, RecipeError
from playhead.index.table import open_table
from playhead.prepare import prepare
from playhead.recipe.tree import leaves
from playhead.recipe.values import Recipe


@pytest.fixture
def saved(tmp_path: Path, datasets: Any) -> Any:
    """A dataset in two files, loaded from where it was saved."""
    rows = [
        {"id": i, "text": f"t{i}" * 9, "tags": [str(i)] * (i % 3), "deep": {"a": [i], "b": None}} for i in range(50)
    ]
    datasets.Dataset.from_list(rows).save_to_disk(str(tmp_path / "saved"), num_shards=2)
    return datasets.load_from_disk(str(tmp_path / "saved"))


def test_saved_directories_give_the_rows_of_the_dataset(tmp_path: Path, saved: Any, datasets: Any) -> None:
    recipe = recipe_of(tmp_path, {"path": "saved", "format": "arrow"})
    assert [plain(sample) for sample in read_rows(recipe)] == list(saved)
    datasets.DatasetDict({"train": saved, "dev": saved}).save_to_disk(str(tmp_path / "splits"))
    with pytest.raises(PrepareError, match="holds several splits"):
        prepare(recipe_of(tmp_path, {"path": "splits", "format": "arrow"}))
    recipe = recipe_of(tmp_path, {"path": "splits/dev", "format": "arrow"})
    assert [plain(sample) for sample in read_rows(recipe)] == list(saved)


def test_names_outside_the_saved_directory_are_refused(tmp_path: Path, saved: Any) -> None:
    state = tmp_path / "saved" / "state.json"
    state.write_text(state.read_text().replace("data-00001", "../data-00001"))
    with pytest.raises(PrepareError, match="names a file in another directory"):
        prepare(recipe_of(tmp_path, {"path": "saved", "format": "arrow"}))


def changed_datasets(saved: Any, datasets: Any) -> Iterator[Any]:
    yield saved
    yield saved.shuffle(seed=3)
    yield saved.shuffle(seed=3).select(range(4, 20))
    yield saved.select([9, 3, 3, 49, 0])
    yield saved.select(range(20, 45))
    yield saved.select(range(20, 45)).shuffle(seed=1)
    yield saved.filter(lambda row: row["id"] % 3 == 0)
    yield saved.train_test_split(0.3, seed=1)["test"]
    yield datasets.concatenate_datasets([saved.shuffle(seed=2), saved.select(range(5))])
    yield saved.remove_columns("tags")
    yield saved.map(lambda row: {"more": row["id"] * 2})


def test_a_dataset_in_place_of_a_path_gives_its_rows_by_its_files(tmp_path: Path, saved: Any, datasets: Any) -> None:
    with_indices = 0
    for number, dataset in enumerate(changed_datasets(saved, datasets)):
        source = {"name": f"d{number}", "path": dataset, "ids": "id"}
        recipe = recipe_of(tmp_path, source, cache_dir=f"cache{number}")
        (found,) = recipe.to_dict()["sources"]
        assert all(Path(path).is_file() for path in found["path"])
        indices = found["options"].get("indices", [])
        with_indices += len(indices)
        assert all(
            Path(path).parent in (tmp_path / f"cache{number}" / "indices", tmp_path / "saved") for path in indices
        )
        assert Recipe.parse(recipe.to_dict()) == recipe
        assert [plain(sample) for sample in read_rows(recipe)] == list(dataset)
        table = open_table(leaves(recipe)[0], recipe)
        assert table.find(str(dataset[4]["id"])).tolist()[-1] == 4
    assert with_indices == 8


def test_a_dataset_may_be_anywhere_in_a_recipe_where_a_path_may(tmp_path: Path, saved: Any) -> None:
    batching = {"type": "fixed", "size": 2}
    evaluation = {"dev": {"sources": [{"name": "dev", "path": saved.select([3, 1])}], "batching": batching}}
    group = {"name": "g", "sources": [{"name": "s", "path": saved, "options": {"columns": ["id"]}}]}
    values = {"sources": [group], "batching": batching, "evaluation": evaluation, "sequence": None, "collate": "list"}
    recipe = Recipe.parse(values, base_dir=tmp_path)
    prepare(recipe)
    assert set(next(iter(Loader(recipe)))["samples"][0]) == {"id"}
    (batch,) = Loader(recipe, split="dev")
    assert [sample["id"] for sample in batch["samples"]] == [3, 1]


def hearable(folder: Path, datasets: Any, **feature: Any) -> Any:
    """A dataset of stereo sounds at 16 kHz, saved with and loaded by a feature of Hugging Face."""
    frames = np.arange(32_000, dtype="<i2").reshape(-1, 2)
    kind = datasets.Features({"sound": datasets.Audio(**feature)})
    rows = [{"sound": {"bytes": wav_of(frames + i), "path": None}} for i in range(3)]
    datasets.Dataset(pa.Table.from_pylist(rows, schema=kind.arrow_schema)).save_to_disk(str(folder))
    return datasets.load_from_disk(str(folder))


def sounds_of(folder: Path, source: dict[str, Any], **fields: Any) -> Any:
    recipe = recipe_of(folder, {"shuffle": "none", **source}, epochs=1, **fields)
    prepare(recipe)
    return next(iter(Loader(recipe)))["samples"][0]


def test_the_settings_of_an_audio_feature_hold_where_the_recipe_says_nothing(tmp_path: Path, datasets: Any) -> None:
    hearable(tmp_path / "a", datasets, sampling_rate=8000, num_channels=1)
    source = {"path": "a", "format": "arrow"}
    found = sounds_of(tmp_path, source)
    assert found["sound_rate"] == 8000
    assert found["sound"].shape == (8000,)
    found = sounds_of(tmp_path, source, audio={"sample_rate": 4000, "channels": [1]})
    assert found["sound_rate"] == 4000
    assert found["sound"].shape == (4000,)
    own = {"features": {"sound": {"type": "Audio"}}}
    assert sounds_of(tmp_path, {**source, "options": own})["sound"].shape == (16_000, 2)


def test_the_features_of_a_dataset_come_before_those_in_its_files(tmp_path: Path, datasets: Any) -> None:
    dataset = hearable(tmp_path / "a", datasets, sampling_rate=8000)
    assert sounds_of(tmp_path, {"path": dataset})["sound_rate"] == 8000
    fast = dataset.cast_column("sound", datasets.Audio(sampling_rate=32_000))
    assert sounds_of(tmp_path, {"path": fast})["sound"].shape == (32_000, 2)
    assert sounds_of(tmp_path, {"path": "a", "format": "arrow"})["sound_rate"] == 8000
    raw = dataset.cast_column("sound", datasets.Audio(decode=False))
    assert sounds_of(tmp_path, {"path": raw}) == raw[0]
    plain_structs = {"bytes": datasets.Value("binary"), "path": datasets.Value("string")}
    cast = dataset.cast(datasets.Features({"sound": plain_structs}))
    assert sounds_of(tmp_path, {"path": cast}) == raw[0]


def test_audio_that_is_not_to_be_decoded_stays_as_it_is(tmp_path: Path, datasets: Any) -> None:
    dataset = hearable(tmp_path / "a", datasets, decode=False)
    assert sounds_of(tmp_path, {"path": "a", "format": "arrow"}) == dataset[0]
    forced = sounds_of(tmp_path, {"path": "a", "format": "arrow", "options": {"audio": ["sound"]}})
    assert forced["sound"].shape == (16_000, 2)


def test_audio_of_other_numbers_of_channels_is_refused_with_the_remedy(tmp_path: Path, datasets: Any) -> None:
    hearable(tmp_path / "a", datasets, num_channels=2)
    with pytest.raises(PrepareError, match=r"Audio\(num_channels=2\)") as caught:
        prepare(recipe_of(tmp_path, {"path": "a", "format": "arrow"}))
    assert "`options: {features: {sound: {type: Audio}}}`" in str(caught.value)


def test_audio_inside_structs_and_lists_stays_as_it_is(tmp_path: Path, datasets: Any) -> None:
    kinds = datasets.Features({"turn": {"sound": datasets.Audio()}, "takes": datasets.List(datasets.Audio())})
    held = {"bytes": wav(10), "path": None}
    table = pa.Table.from_pylist([{"turn": {"sound": held}, "takes": [held, held]}], schema=kinds.arrow_schema)
    datasets.Dataset(table).save_to_disk(str(tmp_path / "a"))
    found = sounds_of(tmp_path, {"path": "a", "format": "arrow"})
    assert found == {"turn": {"sound": held}, "takes": [held, held]}


def test_rows_that_indices_leave_out_need_no_length(tmp_path: Path, datasets: Any) -> None:
    rows = [{"n": None if i % 2 else i, "text": "x"} for i in range(20)]
    datasets.Dataset.from_list(rows).save_to_disk(str(tmp_path / "saved"))
    dataset = datasets.load_from_disk(str(tmp_path / "saved"))
    good = dataset.filter(lambda row: row["n"] is not None)
    recipe = recipe_of(tmp_path, {"path": good, "length": "n"})
    prepare(recipe)
    assert open_table(leaves(recipe)[0], recipe).lengths_of(np.arange(10)).tolist() == list(range(0, 20, 2))
    with pytest.raises(PrepareError, match=r"row 1: field \"n\" is not a length"):
        prepare(recipe_of(tmp_path, {"name": "all rows", "path": dataset, "length": "n"}))


def test_datasets_whose_rows_are_not_those_of_files_are_refused(tmp_path: Path, saved: Any, datasets: Any) -> None:
    for dataset in (
        datasets.Dataset.from_dict({"a": [1, 2]}),
        saved.rename_column("id", "number"),
        saved.with_transform(lambda rows: rows),
        saved.add_column("more", list(range(50))),
    ):
        with pytest.raises(RecipeError, match=r'source "s": [\s\S]*save_to_disk'):
            recipe_of(tmp_path, {"path": dataset})
    for dataset in (saved.to_iterable_dataset(), datasets.DatasetDict({"train": saved})):
        with pytest.raises(RecipeError, match=r"expected +a datasets\.Dataset[\s\S]*give one of its splits"):
            recipe_of(tmp_path, {"path": dataset})
    with pytest.raises(RecipeError, match=r'source "s": the dataset has no rows'):
        recipe_of(tmp_path, {"path": saved.select([])})
    with pytest.raises(RecipeError, match="remove `format`"):
        recipe_of(tmp_path, {"path": saved, "format": "parquet"})
    with pytest.raises(RecipeError, match=r"sources\[0\]\.options"):
        recipe_of(tmp_path, {"path": saved, "options": 5})
