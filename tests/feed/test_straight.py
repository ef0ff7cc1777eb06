"""Large members from the tar straight into the batch: the same batches as by way of a map, each byte read once."""

from __future__ import annotations

import io
import json
import os
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deliveries import npy
from playhead import Loader, Recipe, StoreError
from playhead.prepare import prepare
from playhead.store import MEMORY, Access, CountingFiles, all_files
from small_data import write_tar

UNIT = 20_000  # numbers; a row is well above what is read at once
NUM_ROWS = 12
SIZES = [UNIT * (1 + i % 3) for i in range(NUM_ROWS)]


def same(sample: dict[str, Any]) -> dict[str, Any]:
    """A map that changes nothing: what it is given is read first."""
    assert all(type(value) in (str, bytes, dict, np.ndarray) for value in sample.values())
    assert all(value.flags.writeable for value in sample.values() if type(value) is np.ndarray)
    return sample


class SeeingFiles(CountingFiles):
    """Knows the ranges that were read into buffers, and those that were not."""

    def __init__(self, files: Any) -> None:
        super().__init__(files)
        self.straight: list[tuple[str, int, int]] = []
        self.other: list[tuple[str, int, int]] = []

    def read(self, path: Any, stamp: Any, ranges: Any, into: Any = None) -> Any:
        found = self.other if into is None else self.straight
        found += [(path, first, end) for first, end in zip(*ranges, strict=True)]
        return super().read(path, stamp, ranges, into)


class CostlyFiles(CountingFiles):
    """As on a network."""

    def access(self, _path: str) -> Access:
        return Access(requests_cost=True)


def contents(i: int) -> dict[str, bytes]:
    rng = np.random.default_rng(i)
    size = SIZES[i]
    return {
        "json": json.dumps({"n": size, "text": "x" * (i * 700)}).encode(),
        "npy": npy(rng.standard_normal((size, 2)).astype(np.float32)),
        "labels.npy": npy(rng.integers(0, 9, size)),
        "bin": rng.bytes(30_000),
        "txt": b"about",
    }


def broken(i: int, data: bytes) -> bytes:
    """Some members cut short, or with a header that numpy refuses."""
    return {2: data[:-1], 5: data.replace(b"'<f4'", b"'|O' "), 7: b"\x93NUMPY\x01\x00\xff\xff", 8: b""}.get(i, data)


@pytest.fixture(scope="module", params=[tarfile.USTAR_FORMAT, tarfile.PAX_FORMAT])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Whole tars, and tars with broken members."""
    found = tmp_path_factory.mktemp("straight")
    for part in range(2):
        rows = range(part * NUM_ROWS // 2, (part + 1) * NUM_ROWS // 2)
        members = [(f"k/{i:02}.{name}", data) for i in rows for name, data in contents(i).items()]
        write_tar(found / f"good-{part}.tar", members, request.param)
        members = [(name, broken(int(name[2:4]), data) if name.endswith("npy") else data) for name, data in members]
        write_tar(found / f"bad-{part}.tar", members, request.param)
    return found


def recipe_in(folder: Path, kind: str = "good", **fields: Any) -> Recipe:
    source = {"name": "s", "path": f"{kind}-*.tar", "length": {"field": "json.n"}}
    values = {"sources": [source], "batching": {"type": "fixed", "size": 5}, "sequence": "npy", "epochs": 1, "lanes": 1}
    recipe = Recipe.parse({**values, "cache_dir": str(folder / "cache"), **fields}, folder)
    prepare(recipe, workers=1)
    return recipe


def delivered(recipe: Recipe, **how: Any) -> list[Any]:
    """Every batch, to the last bit."""
    with Loader(recipe, rank=0, world_size=1, **how) as loader:
        return [[(name, exact(value)) for name, value in batch.items()] for batch in loader]


def exact(value: Any) -> Any:
    return (value.dtype.str, value.shape, value.tobytes()) if isinstance(value, np.ndarray) else value


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"pad_to": UNIT * 3 + 1, "pad_batch": True, "pad_values": {"npy": -1.5, "labels.npy": -100}},
        {"batching": {"type": "bucket", "edges": [UNIT, UNIT * 3], "size": 4}, "pad_to": "bucket", "pad_batch": True},
        {"batching": {"type": "pack", "max_length": UNIT * 4}},
        {"batching": {"type": "pack", "max_length": UNIT * 2, "overlong": "truncate"}},
        {"batching": {"type": "pack", "max_length": UNIT, "overlong": "alone"}, "fields": ["labels.npy"]},
        {"batching": {"type": "fixed", "size": 5, "max_length": UNIT + 1, "overlong": "truncate"}},
        {"dtypes": {"npy": "float64", "labels.npy": "int32"}},
        {"fields": ["npy", "json"], "masks": "padded"},
        {"sequence": "labels.npy", "dtypes": {"npy": "float32", "labels.npy": "int64"}},
    ],
)
def test_batches_are_those_that_a_map_is_given_the_samples_of(folder: Path, fields: dict[str, Any]) -> None:
    for kind in ("good", "bad"):
        recipe = recipe_in(folder, kind, on_error="substitute", max_bad=1, **fields)
        expected = delivered(recipe, map=same)
        assert len(expected) > 1
        assert delivered(recipe) == expected
        assert delivered(recipe, workers=2, worker_kind="thread") == expected


def test_what_is_broken_is_named_as_it_is_for_a_map(folder: Path) -> None:
    recipe = recipe_in(folder, "bad", batching={"type": "fixed", "size": 1})
    problems = []
    for how in ({}, {"map": same}):
        with Loader(recipe, rank=0, world_size=1, **how) as loader, pytest.raises(Exception, match="npy") as caught:
            list(loader)
        problems.append(str(caught.value))
    assert problems[0] == problems[1]
    assert "cannot be decoded" in problems[0]


def test_every_array_is_read_once_and_straight_into_its_place(folder: Path) -> None:
    recipe = recipe_in(folder)
    files = SeeingFiles(all_files())
    with Loader(recipe, rank=0, world_size=1, files=files) as loader:
        batches = list(loader)
    assert sum(end - first for _, first, end in files.straight) == sum(SIZES) * (2 * 4 + 8)
    assert len(set(files.straight)) == len(files.straight) == 2 * NUM_ROWS
    heads = sum(end - first for _, first, end in files.other) - NUM_ROWS * 30_000
    assert heads < NUM_ROWS * 5 * 4096  # the headers, and the members that are not arrays
    assert sum(len(batch["npy"]) for batch in batches) == NUM_ROWS


def test_rows_of_a_store_where_requests_cost_are_read_whole_and_once() -> None:
    members = [(f"{i}.npy", contents(i)["npy"]) for i in range(4)]
    with tempfile.TemporaryDirectory() as name:
        path = MEMORY.write("memory://straight/good-0.tar", write_tar(Path(name) / "a.tar", members).read_bytes())
        recipe = Recipe.parse(
            {
                "sources": [{"name": "s", "path": path}],
                "batching": {"type": "fixed", "size": 4},
                "sequence": "npy",
                "epochs": 1,
                "cache_dir": name,
            }
        )
        prepare(recipe, processes=False)
        files = SeeingFiles(CostlyFiles(all_files()))
        with Loader(recipe, rank=0, world_size=1, files=files) as loader:
            (batch,) = loader
        assert not files.straight
        assert len(files.other) == len(set(files.other)) == 4
        for row, number in zip(batch["npy"], batch.rows.tolist(), strict=True):
            expected = np.load(io.BytesIO(members[number][1]))
            assert row[: len(expected)].tobytes() == expected.tobytes()


def test_a_field_that_is_not_delivered_is_never_read(folder: Path) -> None:
    files = SeeingFiles(all_files())
    with Loader(recipe_in(folder, fields=["labels.npy"]), rank=0, world_size=1, files=files) as loader:
        list(loader)
    assert sum(end - first for _, first, end in files.straight) == sum(SIZES) * 8


@pytest.mark.parametrize("fields", [{"collate": "list"}, {"collate": "list", "decode": False, "sequence": None}])
def test_other_collations_see_plain_values(folder: Path, fields: dict[str, Any]) -> None:
    plain = {str, bytes, dict, np.ndarray} if fields.get("decode", True) else {str, bytes}
    with Loader(recipe_in(folder, **fields), rank=0, world_size=1) as loader:
        for batch in loader:
            for sample in batch["samples"]:
                assert set(map(type, sample.values())) <= plain
    with Loader(recipe_in(folder), rank=0, world_size=1, collate=lambda samples: {"all": samples}) as loader:
        for batch in loader:
            for sample in batch["all"]:
                assert {type(value) for value in sample.values()} == {str, bytes, dict, np.ndarray}
                assert all(value.flags.writeable for value in sample.values() if type(value) is np.ndarray)


def test_a_tar_that_changes_between_its_headers_and_its_arrays_is_an_error_and_no_bad_sample(tmp_path: Path) -> None:
    class Changing(SeeingFiles):
        """Writes to the tar when the first array is asked for."""

        def read(self, path: Any, stamp: Any, ranges: Any, into: Any = None) -> Any:
            if into is not None:
                os.utime(path, ns=(0, 0))
            return super().read(path, stamp, ranges, into)

    write_tar(tmp_path / "good-0.tar", [(f"{i}.{name}", data) for i in range(3) for name, data in contents(i).items()])
    recipe = recipe_in(tmp_path, on_error="substitute", max_bad=1)
    for how in ({}, {"map": same}):
        stamp = os.stat(tmp_path / "good-0.tar")  # noqa: PTH116
        files = Changing(all_files())
        with (
            Loader(recipe, rank=0, world_size=1, files=files, **how) as loader,
            pytest.raises(StoreError, match=r"good-0.tar: changed since it was indexed") as caught,
        ):
            list(loader)
        assert ("step 0, lane 0" in str(caught.value)) == (not how)
        assert not list((tmp_path / "cache").rglob("*quarantine*"))
        os.utime(tmp_path / "good-0.tar", ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
