"""Rows that hold or name images, from the recipe to the batch."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

from playhead import Loader, Recipe, RecipeError, SampleError
from playhead.feed.produce import Blueprint
from playhead.formats.media import Media
from playhead.index.layout import layout_of
from playhead.index.table import open_table
from playhead.prepare import prepare
from playhead.recipe.tree import leaves
from playhead.store import MEMORY
from read.image_files import CONTAINERS, encoded, picture, png_of, turned
from small_data import write_tar

PATCHES = {"image": "jpg", "patch": 14}


def recipe_of(directory: Path, source: dict[str, Any], **fields: Any) -> Recipe:
    values = {
        "sources": [{"name": "pictures", "shuffle": "none", **source}],
        "batching": {"type": "fixed", "size": 2},
        "sequence": None,
        "epochs": 1,
        "cache_dir": str(directory / "cache"),
    }
    return Recipe.parse(values | fields, base_dir=directory)


def samples_of(recipe: Recipe, **loader: Any) -> list[dict[str, Any]]:
    """All samples, where the recipe delivers lists."""
    prepare(recipe)
    return [sample for batch in Loader(recipe, **loader) for sample in batch["samples"]]


def images(count: int = 6) -> list[bytes]:
    """JPEG files of different sizes, some of them on their side."""
    sizes = np.random.default_rng(3).integers(20, 90, (count, 2)).tolist()
    return [turned(1 + i * 5 % 8, "JPEG", picture(*size, seed=i)) for i, size in enumerate(sizes)]


def tar_of(directory: Path, members: list[bytes], extension: str = "jpg") -> str:
    named = {f"k{i}.{extension}": data for i, data in enumerate(members)}
    about = {f"k{i}.json": json.dumps({"label": i}).encode() for i in range(len(members))}
    write_tar(directory / "a.tar", sorted((named | about).items()))
    return "a.tar"


def expected(data: bytes, size: tuple[int, int] | None = None) -> np.ndarray[Any, Any]:
    image = ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB")
    return np.asarray(image if size is None else image.resize(size, Image.Resampling.BICUBIC))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_tar_of_images_and_labels_gives_batches_without_a_map(tmp_path: Path, workers: int) -> None:
    held = images()
    recipe = recipe_of(tmp_path, {"path": tar_of(tmp_path, held)}, image={"size": [32, 24], "mode": "RGB"})
    prepare(recipe)
    batches = list(Loader(recipe, workers=workers, worker_kind="process"))
    assert [batch["jpg"].shape for batch in batches] == [(2, 24, 32, 3)] * 3
    assert batches[0]["jpg"].dtype == np.uint8
    found = np.concatenate([batch["jpg"] for batch in batches])
    np.testing.assert_array_equal(found, [expected(data, (32, 24)) for data in held])
    assert [about["label"] for batch in batches for about in batch["json"]] == list(range(6))


@pytest.mark.parametrize("container", CONTAINERS)
def test_every_container_is_decoded_by_its_bytes_whatever_its_extension(tmp_path: Path, container: str) -> None:
    held = [encoded(picture(200, 170, seed=seed), container) for seed in range(3)]
    for extension in ("jpg", "jpeg", "png", "webp", "gif", "bmp", "tif", "tiff", "left.png"):
        recipe = recipe_of(tmp_path, {"path": tar_of(tmp_path, held, extension)}, collate="list", image={"mode": "RGB"})
        found = [sample[extension] for sample in samples_of(recipe)]
        np.testing.assert_array_equal(found, [expected(data) for data in held])


def test_images_are_left_as_they_are_where_the_recipe_says_so(tmp_path: Path) -> None:
    held = images()
    for left in ({"decode": False}, {"media": False}):
        recipe = recipe_of(tmp_path, {"path": tar_of(tmp_path, held)}, collate="list", **left)
        assert [sample["jpg"] for sample in samples_of(recipe)] == held


def test_images_of_different_sizes_are_refused_in_a_batch_with_the_remedy(tmp_path: Path) -> None:
    held = images()
    recipe = recipe_of(tmp_path, {"path": tar_of(tmp_path, held)})
    prepare(recipe)
    with pytest.raises(SampleError, match='field "jpg" is ragged in more than its first axis') as caught:
        list(Loader(recipe))
    assert "image: {size: [width, height], mode: RGB}" in str(caught.value.fix)
    assert "collate: list" in str(caught.value.fix)
    assert "a.tar" in str(caught.value)
    listed = recipe_of(tmp_path, {"path": "a.tar"}, collate="list")
    for sample, data in zip(samples_of(listed), held, strict=True):
        np.testing.assert_array_equal(sample["jpg"], expected(data))


def test_a_map_is_given_images_it_may_write_to(tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path, {"path": tar_of(tmp_path, images())}, image={"size": [4, 4]})
    prepare(recipe)

    def blacken(sample: dict[str, Any]) -> dict[str, Any]:
        sample["jpg"][:] = 0
        return sample

    assert not any(batch["jpg"].any() for batch in Loader(recipe, map=blacken))


def test_rows_of_json_name_images_by_path_and_url(tmp_path: Path) -> None:
    held = images()
    named = {"image": {"path": "file", "kind": "image"}}
    for base in (str(tmp_path), "memory://pictures"):
        rows = "".join(json.dumps({"file": f"{i}.jpg"}) + "\n" for i in range(len(held))).encode()
        for name, data in {"a.jsonl": rows, **{f"{i}.jpg": data for i, data in enumerate(held)}}.items():
            if base.startswith("memory://"):
                MEMORY.write(f"{base}/{name}", data)
            else:
                (tmp_path / name).write_bytes(data)
        source = {"path": f"{base}/a.jsonl", "options": {"media": named}}
        found = samples_of(recipe_of(tmp_path, source, collate="list"))
        for sample, data in zip(found, held, strict=True):
            np.testing.assert_array_equal(sample["image"], expected(data))
        (left, *_) = samples_of(recipe_of(tmp_path, source, collate="list", media=False))
        assert left["image"] == Media("image", path="0.jpg", base=base)


def test_an_image_has_no_segments(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"file": "a.jpg"}\n')
    media = {"image": {"path": "file", "kind": "image", "offset": "begin"}}
    recipe = recipe_of(tmp_path, {"path": "a.jsonl", "options": {"media": media}})
    prepare(recipe)
    with pytest.raises(RecipeError, match="an image has no segments"):
        list(Loader(recipe))


def test_urls_outside_the_source_are_bad_samples(tmp_path: Path) -> None:
    MEMORY.write("memory://elsewhere/a.jsonl", b'{"file": "s3://secret/a.jpg"}\n')
    source = {"path": "memory://elsewhere/a.jsonl", "options": {"media": {"i": {"path": "file", "kind": "image"}}}}
    with pytest.raises(SampleError, match=r'source "pictures", row 0 .*may name'):
        samples_of(recipe_of(tmp_path, source, collate="list"))


BAD = {
    "cut short": (encoded(picture(), "JPEG")[:-200], "is not a JPEG file that can be decoded"),
    "no image": (b"<html>404</html>", "unsupported image format"),
    "a pixel bomb": (png_of(50_000, 50_000, b""), "is too large for one sample"),
}


@pytest.mark.parametrize(("data", "problem"), BAD.values(), ids=BAD)
def test_a_bad_image_is_named_with_file_and_row_or_replaced(tmp_path: Path, data: bytes, problem: str) -> None:
    held = images()
    held[3] = data
    source = {"path": tar_of(tmp_path, held)}
    recipe = recipe_of(tmp_path, source, image={"size": [16, 16]})
    prepare(recipe)
    with pytest.raises(SampleError, match=rf'source "pictures", row 3 .*a\.tar, byte .*member "jpg": {problem}'):
        list(Loader(recipe))
    recipe = recipe_of(tmp_path, source, image={"size": [16, 16]}, on_error="substitute", max_bad=0.5)
    found = np.concatenate([batch["jpg"] for batch in Loader(recipe)])
    good = [expected(each, (16, 16)) if each is not data else None for each in held]
    np.testing.assert_array_equal(found[[0, 1, 2, 4, 5]], [each for each in good if each is not None])
    assert any(np.array_equal(found[3], each) for each in good if each is not None)
    assert problem in "".join(path.read_text() for path in tmp_path.glob("cache/quarantine/*/*"))


def test_a_source_has_its_own_options_in_place_of_the_recipe_s(tmp_path: Path) -> None:
    tar_of(tmp_path, images())
    recipe = recipe_of(tmp_path, {"path": "a.tar", "image": {"mode": "L", "longest": 9}}, image={"size": [4, 4]})
    recipe = Recipe.parse({**recipe.to_dict(), "collate": "list"})
    assert all(sample["jpg"].ndim == 2 and max(sample["jpg"].shape) == 9 for sample in samples_of(recipe))


@pytest.mark.parametrize("how", [{}, {"shortest": 40}, {"longest": 40}, {"size": [30, 45]}, {"mode": "L"}])
def test_patches_are_planned_of_the_image_as_it_is_delivered(tmp_path: Path, how: dict[str, Any]) -> None:
    source = {"path": tar_of(tmp_path, images(12)), "length": PATCHES}
    recipe = recipe_of(tmp_path, source, image=how, collate="list")
    shapes = [sample["jpg"].shape for sample in samples_of(recipe)]  # lengths are compared with the plan
    patches = [-(-shape[0] // 14) * -(-shape[1] // 14) for shape in shapes]
    assert open_table(leaves(recipe)[0], recipe).lengths_of(np.arange(12)).tolist() == patches


@pytest.mark.parametrize("left", [{"media": False}, {"decode": False}])
def test_lengths_of_images_that_are_not_decoded_are_taken_on_trust(tmp_path: Path, left: dict[str, Any]) -> None:
    held = images()
    recipe = recipe_of(tmp_path, {"path": tar_of(tmp_path, held), "length": PATCHES}, collate="list", **left)
    assert [sample["jpg"] for sample in samples_of(recipe)] == held


def test_a_sum_of_patches_and_fields_is_counted_again_and_compared(tmp_path: Path) -> None:
    length = {"sum": [PATCHES, {"field": "json.label"}]}
    recipe = recipe_of(
        tmp_path, {"path": tar_of(tmp_path, images()), "length": length}, image={"size": [28, 29]}, collate="list"
    )
    assert len(samples_of(recipe)) == 6
    assert open_table(leaves(recipe)[0], recipe).lengths_of(np.arange(6)).tolist() == [6, 7, 8, 9, 10, 11]


def test_an_image_that_is_not_as_planned_is_a_length_mismatch(tmp_path: Path) -> None:
    row = {"file": str(tmp_path / "a.jpg")}
    (tmp_path / "a.jsonl").write_text(json.dumps(row) + "\n")
    (tmp_path / "a.jpg").write_bytes(encoded(picture(40, 40), "JPEG"))
    options = {"media": {"jpg": {"path": "file", "kind": "image"}}}
    recipe = recipe_of(tmp_path, {"path": "a.jsonl", "length": PATCHES, "options": options}, collate="list")
    assert len(samples_of(recipe)) == 1
    (tmp_path / "a.jpg").write_bytes(encoded(picture(80, 40), "JPEG"))
    with pytest.raises(SampleError, match="the sample is not as long as planned") as caught:
        list(Loader(recipe))
    assert "18 tokens" in str(caught.value)


def test_options_are_in_the_payload_fingerprint_and_sizes_in_that_of_counted_patches(tmp_path: Path) -> None:
    def fingerprints(source: dict[str, Any] | None = None, **fields: Any) -> tuple[str, str]:
        found = recipe_of(tmp_path, {"path": "a.tar", "length": PATCHES, **(source or {})}, **fields)
        return layout_of(leaves(found)[0], found).fingerprint, Blueprint(found).fingerprint()

    index, payload = fingerprints()
    assert fingerprints(image={}) == (index, payload)
    assert fingerprints({"image": {}})[0] == index
    for how in ({"size": [8, 8]}, {"shortest": 8}, {"longest": 8}):
        for found in (fingerprints(image=how), fingerprints({"image": how})):
            assert found[0] != index
            assert found[1] != payload
    grey = fingerprints(image={"mode": "L"})
    assert grey[0] == index
    assert grey[1] != payload
    plain = {"length": "json.label"}
    assert fingerprints(plain)[0] == fingerprints(plain, image={"size": [8, 8]})[0]
