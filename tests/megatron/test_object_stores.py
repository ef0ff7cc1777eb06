"""Datasets in a bucket: only their indexes are read, and the cache is that of megatron-core over the same URLs."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.request import Request, urlopen

import numpy as np
import oracle
import pytest
from megatron.core.datasets import indexed_dataset, object_storage_utils

from jobs import flags_over, write_pair
from loopback import Loopback, serving
from playhead.errors import DataError, PrepareError, StoreError
from playhead.formats.megatron_idx import open_idx
from playhead.megatron.arguments import read_request
from playhead.megatron.check_job import check_request
from playhead.megatron.merging import merge_prefixes
from playhead.megatron.prepare_job import CacheOptions, prepare_request
from playhead.store import MEMORY, all_files
from small_data import bytes_of

URLS = ["--data-path", "0.3", "s3://bucket/data/a", "0.7", "s3://bucket/data/b"]


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Loopback]:
    """The pair of datasets of the other tests, on disk and in a bucket."""
    write_pair(tmp_path)
    names = ("a.idx", "a.bin", "b.idx", "b.bin")
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    with serving({f"/bucket/data/{name}": (tmp_path / name).read_bytes() for name in names}) as served:
        for name, value in served.environment().items():
            monkeypatch.setenv(name, value)
        yield served


def prepare(folder: Path, *changes: str, **settings: object):
    return prepare_request(read_request(flags_over(folder, *URLS, *changes)), all_files(), CacheOptions(**settings))


def files(cache: Path) -> dict[Any, bytes]:
    return {name: data for name, data in bytes_of(cache).items() if "manifest" not in str(name)}


def boto3_at(address: str) -> SimpleNamespace:
    """What the oracle asks of boto3, which is not installed here."""

    def fetch(bucket: str, key: str, **headers: str) -> bytes:
        with urlopen(Request(f"{address}/{bucket}/{key}", headers=headers)) as answer:  # noqa: S310 - loopback
            return answer.read()

    class Client:
        def download_file(self, bucket: str, key: str, name: str) -> None:
            Path(name).write_bytes(fetch(bucket, key))

        def head_object(self, **words: str) -> None:
            fetch(words["bucket"], words["key"])

        def get_object(self, **words: str) -> dict[str, io.BytesIO]:
            return {"Body": io.BytesIO(fetch(words["Bucket"], words["Key"], Range=words["Range"]))}

        def close(self) -> None: ...

    return SimpleNamespace(client=lambda _: Client())


def test_the_cache_is_that_of_the_oracle_over_the_same_urls(
    bucket: Loopback, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(tmp_path)
    asked = [request for request in bucket.requests if ".bin" in request]
    assert all(request.startswith("HEAD ") for request in asked)
    for module in (indexed_dataset, object_storage_utils):
        monkeypatch.setattr(module, "boto3", boto3_at(bucket.address), raising=False)
    job = read_request(flags_over(tmp_path, *URLS)).job
    remote = {"object_storage_cache_path": str(tmp_path / "idx"), "mmap_bin_files": False}
    theirs = oracle.build(job, tmp_path / "theirs", **remote)
    ours = files(tmp_path / "cache")
    assert ours == files(tmp_path / "theirs")
    loaded = oracle.build(job, tmp_path / "cache", **remote)
    assert files(tmp_path / "cache") == ours  # it hit the cache
    assert [oracle.samples_of(split) for split in loaded] == [oracle.samples_of(split) for split in theirs]


def test_the_indexes_are_those_of_the_same_data_on_disk_and_the_key_keeps_the_url(
    bucket: Loopback, tmp_path: Path
) -> None:
    remote = prepare(tmp_path)
    local = prepare(tmp_path, *flags_over(tmp_path, "--data-cache-path", str(tmp_path / "local")))
    for ours, theirs in zip(remote.entries, local.entries, strict=True):
        for path in (tmp_path / "local").glob(f"{theirs.name}*.npy"):
            assert (tmp_path / "cache" / path.name.replace(theirs.name, ours.name)).read_bytes() == path.read_bytes()
        description = (tmp_path / "cache" / f"{ours.name}-description.txt").read_text()
        assert '"dataset_path": "s3://bucket/data/' in description


def test_data_in_memory_gives_the_arrays_of_the_same_data_on_disk(tmp_path: Path) -> None:
    write_pair(tmp_path)
    memory = f"memory://{tmp_path.name}"
    for name in ("a.idx", "a.bin", "b.idx", "b.bin"):
        MEMORY.write(f"{memory}/{name}", (tmp_path / name).read_bytes())
    prepare(tmp_path, "--data-path", "0.3", f"{memory}/a", "0.7", f"{memory}/b")
    prepare(tmp_path, *flags_over(tmp_path, "--data-cache-path", str(tmp_path / "local")))
    ours, theirs = (
        sorted(path.read_bytes() for path in (tmp_path / name).glob("*.npy")) for name in ("cache", "local")
    )
    assert ours == theirs
    merge_prefixes(all_files(), [f"{memory}/a", f"{memory}/b"], str(tmp_path / "merged"))
    assert (tmp_path / "merged.bin").read_bytes() == (tmp_path / "a.bin").read_bytes() + (
        tmp_path / "b.bin"
    ).read_bytes()


def test_data_that_changes_in_the_bucket_makes_the_cache_stale(bucket: Loopback, tmp_path: Path) -> None:
    prepare(tmp_path)
    assert check_request(read_request(flags_over(tmp_path, *URLS)), all_files()).good
    oracle.write_dataset(tmp_path / "a", oracle.documents_of(np.random.default_rng(6).integers(1, 50, 120), 1))
    for name in ("a.idx", "a.bin"):
        bucket.objects[f"/bucket/data/{name}"] = (tmp_path / name).read_bytes()
    findings = check_request(read_request(flags_over(tmp_path, *URLS)), all_files()).findings
    assert "stale" in {finding.state for finding in findings}


def test_a_server_that_stumbles_does_not_change_a_byte(bucket: Loopback, tmp_path: Path) -> None:
    prepare(tmp_path, workers=1)
    first = files(tmp_path / "cache")
    bucket.statuses[:] = [500, 200, 503, 200, 429]
    bucket.cuts[:] = [7, 100, 3]
    prepare(tmp_path, workers=1, force=True)
    assert (bucket.statuses, bucket.cuts) == ([], [])
    assert files(tmp_path / "cache") == first


@pytest.mark.parametrize("place", ["disk", "bucket"])
def test_an_index_that_changes_while_the_cache_is_made_is_refused(bucket: Loopback, tmp_path: Path, place: str) -> None:
    idx = open_idx(all_files(), "s3://bucket/data/a" if place == "bucket" else str(tmp_path / "a"))
    other = (tmp_path / "b.idx").read_bytes()
    (tmp_path / "a.idx").write_bytes(other)
    bucket.objects["/bucket/data/a.idx"] = other
    with pytest.raises(StoreError, match=r"a\.idx: changed while it was read"):
        idx.lengths()


def test_missing_and_short_objects_are_named_and_nothing_is_written(bucket: Loopback, tmp_path: Path) -> None:
    del bucket.objects["/bucket/data/a.idx"]
    bucket.objects["/bucket/data/b.bin"] += b"x"
    with pytest.raises(PrepareError) as caught:
        prepare(tmp_path)
    assert "s3://bucket/data/a.idx: no such object" in str(caught.value)
    assert "s3://bucket/data/b.bin: does not have the size that its index implies" in str(caught.value)
    assert not (tmp_path / "cache").exists()


def test_an_address_that_only_megatron_can_read_is_refused(bucket: Loopback, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is a Multi-Storage Client address"):
        prepare(tmp_path, "--data-path", "msc://profile/a")


def test_datasets_in_a_bucket_are_merged_as_those_on_disk(bucket: Loopback, tmp_path: Path) -> None:
    merge_prefixes(all_files(), [str(tmp_path / "a"), str(tmp_path / "b")], str(tmp_path / "local"))
    merge_prefixes(all_files(), ["s3://bucket/data/a", str(tmp_path / "b")], str(tmp_path / "mixed"))
    for kind in ("idx", "bin"):
        assert (tmp_path / f"mixed.{kind}").read_bytes() == (tmp_path / f"local.{kind}").read_bytes()
