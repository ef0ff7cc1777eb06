"""Columns of images in Arrow and Parquet files, against what `datasets` decodes."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from columnar_data import parquet, read_rows, recipe_of, stream
from playhead import Loader, Recipe
from playhead.errors import PlayheadError
from playhead.formats.media import Media
from playhead.index.table import open_table
from playhead.prepare import prepare
from playhead.recipe.tree import leaves
from read.image_files import CONTAINERS, encoded, picture, turned

FILES = {"arrow": stream, "parquet": parquet}


def images() -> list[bytes]:
    held = [encoded(picture(seed=i), container) for i, container in enumerate(CONTAINERS) if container != "GIF"]
    return [
        *held,
        turned(6),
        turned(3, "PNG"),
        turned(8, "WebP"),
        encoded(picture(mode="L")),
        encoded(picture(mode="RGBA")),
    ]


def dataset_of(datasets: Any, directory: Path) -> Any:
    """Rows that hold an image, and one that names it."""
    (directory / "named.png").write_bytes(encoded(picture(50, 40)))
    rows = [{"picture": {"bytes": data, "path": None}, "label": i} for i, data in enumerate(images())]
    rows.append({"picture": {"bytes": None, "path": str(directory / "named.png")}, "label": len(rows)})
    features = datasets.Features({"picture": datasets.Image(), "label": datasets.Value("int64")})
    return datasets.Dataset.from_list(rows, features=features)


def samples_of(recipe: Recipe) -> list[dict[str, Any]]:
    prepare(recipe)
    return [sample for batch in Loader(recipe) for sample in batch["samples"]]


def save(dataset: Any, directory: Path) -> dict[str, Any]:
    dataset.save_to_disk(str(directory / "saved"))
    return {"path": "saved", "format": "arrow"}


def write_parquet(dataset: Any, directory: Path) -> dict[str, Any]:
    dataset.to_parquet(directory / "a.parquet", batch_size=3)
    return {"path": "a.parquet"}


def by_its_files(dataset: Any, directory: Path) -> dict[str, Any]:
    save(dataset, directory)
    return {"path": importlib.import_module("datasets").load_from_disk(str(directory / "saved"))}


@pytest.mark.parametrize("write", [save, write_parquet, by_its_files])
def test_images_are_those_that_datasets_decodes(tmp_path: Path, datasets: Any, write: Callable[..., Any]) -> None:
    dataset = dataset_of(datasets, tmp_path)
    recipe = recipe_of(tmp_path, {**write(dataset, tmp_path), "shuffle": "none"}, epochs=1)
    found = samples_of(recipe)
    assert len(found) == len(dataset)
    for sample, row in zip(found, dataset, strict=True):
        np.testing.assert_array_equal(sample["picture"], np.asarray(row["picture"]))
        assert sample["label"] == row["label"]


@pytest.mark.parametrize("kind", FILES)
def test_columns_of_bytes_are_images_by_the_options(tmp_path: Path, kind: str) -> None:
    held = [encoded(picture(seed=seed), "JPEG") for seed in range(5)]
    (tmp_path / f"a.{kind}").write_bytes(FILES[kind](pa.table({"jpg": held, "n": range(5)}), 2))
    source = {"path": f"*.{kind}", "shuffle": "none"}
    assert [row["jpg"] for row in read_rows(recipe_of(tmp_path, source))] == held
    source |= {"options": {"image": ["jpg"]}, "length": {"image": "jpg", "patch": 10}}
    recipe = recipe_of(tmp_path, source, epochs=1, image={"size": [31, 10]})
    assert read_rows(recipe)[3]["jpg"] == Media("image", data=held[3])
    assert [sample["jpg"].shape for sample in samples_of(recipe)] == [(10, 31, 3)] * 5
    assert open_table(leaves(recipe)[0], recipe).lengths_of(np.arange(5)).tolist() == [4] * 5
    (left, *_) = samples_of(recipe_of(tmp_path, source, epochs=1, media=False))
    assert left["jpg"] == Media("image", data=held[0])


@pytest.mark.parametrize("kind", FILES)
def test_a_column_that_cannot_hold_images_is_refused_with_the_option_to_correct(tmp_path: Path, kind: str) -> None:
    (tmp_path / f"a.{kind}").write_bytes(FILES[kind](pa.table({"n": range(5)}), 2))
    with pytest.raises(PlayheadError, match=r'column "n" holds no image') as caught:
        read_rows(recipe_of(tmp_path, {"path": f"*.{kind}", "options": {"image": ["n"]}}))
    assert "correct `options: {image: [...]}`" in str(caught.value)


def test_the_settings_of_an_image_feature_hold_where_the_recipe_says_nothing(tmp_path: Path, datasets: Any) -> None:
    def saved_with(**settings: Any) -> dict[str, Any]:
        kinds = datasets.Features({"picture": datasets.Image(**settings)})
        rows = [{"picture": {"bytes": encoded(picture()), "path": None}}]
        return save(datasets.Dataset(pa.Table.from_pylist(rows, schema=kinds.arrow_schema)), tmp_path)

    (found,) = samples_of(recipe_of(tmp_path, saved_with(mode="L"), epochs=1))
    (row,) = datasets.load_from_disk(str(tmp_path / "saved"))
    np.testing.assert_array_equal(found["picture"], np.asarray(row["picture"]))
    assert found["picture"].ndim == 2
    (found,) = samples_of(recipe_of(tmp_path, saved_with(mode="L"), epochs=1, image={"mode": "RGB"}))
    assert found["picture"].ndim == 3
    (found,) = samples_of(recipe_of(tmp_path, saved_with(decode=False), epochs=1))
    assert found == {"picture": {"bytes": encoded(picture()), "path": None}}
    with pytest.raises(PlayheadError, match=r'Image\(mode="CMYK"\)'):
        prepare(recipe_of(tmp_path, saved_with(mode="CMYK")))
