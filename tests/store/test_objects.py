"""Objects written to a real server of S3: created once, replaced only as they were, whoever else writes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from loopback import serving
from playhead.errors import DataError, RecipeError, StoreError
from playhead.store import RemoteFiles, clients, list_files, objects, open_file, scheme_files
from playhead.store.objects import (
    check_writable,
    create,
    is_same,
    names_under,
    read_object,
    remove,
    replace,
    version_of,
    write_object,
)
from slow_proxy import slow_proxy
from store_servers import S3, moto


@pytest.fixture(scope="module")
def server() -> Iterator[S3]:
    with moto() as started:
        yield started


@pytest.fixture
def bucket(server: S3, request: pytest.FixtureRequest) -> str:
    return server.make_bucket(f"b-{abs(hash(request.node.name)) % 10**9}")


@pytest.fixture
def stores(server: S3, bucket: str) -> clients.Stores:
    return {bucket: server.options}


def test_an_object_is_created_once(bucket: str, stores: clients.Stores) -> None:
    url = f"{bucket}/a"
    assert version_of(url, stores) is None
    assert read_object(url, stores) is None
    assert create(url, b"one", stores)
    assert create(url, b"one", stores)  # as after an answer that was lost
    assert not create(url, b"two", stores)
    assert read_object(url, stores) == (b"one", version_of(url, stores))


def test_an_object_is_replaced_only_as_the_version_known(bucket: str, stores: clients.Stores) -> None:
    url = f"{bucket}/a"
    create(url, b"one", stores)
    version = version_of(url, stores)
    assert version is not None
    replace(url, b"two", version, stores)
    replace(url, b"two", version, stores)  # as after an answer that was lost
    with pytest.raises(StoreError, match="another writer was there first"):
        replace(url, b"three", version, stores)
    assert open_file(RemoteFiles(stores), url).read(0, 9) == b"two"


@pytest.mark.parametrize("large_bytes", [1 << 28, 1000])
def test_files_are_written_in_one_request_or_in_parts(
    bucket: str, stores: clients.Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large_bytes: int
) -> None:
    monkeypatch.setattr(objects, "LARGE_BYTES", large_bytes)
    file, url = tmp_path / "file", f"{bucket}/file"
    file.write_bytes(bytes(range(256)) * 30_000)
    assert create(url, file, stores)
    assert is_same(url, file, stores)
    assert create(url, file, stores)
    version = version_of(url, stores)
    assert version is not None
    file.write_bytes(b"other" * 2_000)
    assert not is_same(url, file, stores)
    assert not create(url, file, stores)
    replace(url, file, version, stores)
    assert is_same(url, file, stores)
    file.write_bytes(b"again" * 2_000)
    with pytest.raises(StoreError, match="another writer was there first"):
        replace(url, file, version, stores)


def test_of_many_writers_one_creates_an_object(bucket: str, stores: clients.Stores) -> None:
    contents = [f"writer {number}".encode() for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        created = list(pool.map(lambda content: create(f"{bucket}/a", content, stores), contents))
    assert created.count(True) == 1
    found = read_object(f"{bucket}/a", stores)
    assert found is not None
    assert found[0] == contents[created.index(True)]


def test_writing_over_an_unreliable_network_ends_with_the_bytes(server: S3, bucket: str) -> None:
    with slow_proxy(server.port) as proxy:
        stores = {bucket: {**server.options, "endpoint": proxy.address}}
        proxy.set(cut=0.3, fail=0.2)
        for number in range(6):
            assert create(f"{bucket}/{number}", bytes([number]) * 5_000, stores)
            assert is_same(f"{bucket}/{number}", bytes([number]) * 5_000, stores)


@pytest.mark.parametrize("there", [b"one", b"two"])
def test_an_answer_that_is_cut_short_does_not_say_whether_an_object_was_written(
    monkeypatch: pytest.MonkeyPatch, there: bytes
) -> None:
    with serving({"/bucket/a": there}) as loopback:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            monkeypatch.delenv(name)
        for name, value in loopback.environment().items():
            monkeypatch.setenv(name, value)
        loopback.cuts[:] = [3]
        assert create("s3://bucket/a", b"one") == (there == b"one")
        assert sum(request.startswith("PUT") for request in loopback.requests) == 2


def test_objects_are_listed_over_pages_and_removed(bucket: str, stores: clients.Stores) -> None:
    names = [f"n{number:04d}" for number in range(1_003)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: create(f"{bucket}/d/{name}", b"x", stores), [*names, "deep/er"]))
    assert names_under(f"{bucket}/d", stores) == names
    assert list_files(RemoteFiles(stores), [f"{bucket}/d/n000[12]"]) == [f"{bucket}/d/n0001", f"{bucket}/d/n0002"]
    remove(f"{bucket}/d/n0001", stores)
    remove(f"{bucket}/d/n0001", stores)
    assert names_under(f"{bucket}/d/", stores) == [name for name in names if name != "n0001"]


def test_options_of_a_storage_are_used_to_write(server: S3, bucket: str, stores: clients.Stores) -> None:
    files = scheme_files(stores)
    write_object(f"{bucket}/a", b"one", files)
    write_object(f"{bucket}/a", b"two", files)
    assert open_file(files, f"{bucket}/a").read(0, 9) == b"two"


@pytest.mark.parametrize("url", ["http://host/a", "https://host/a", "ais://bucket/a", "memory://a", "/tmp/a"])  # noqa: S108
def test_other_places_are_refused_by_name(url: str) -> None:
    with pytest.raises(RecipeError, match=f"{url}: cannot be written to"):
        check_writable(url)


def test_a_bucket_that_does_not_exist_is_said(server: S3) -> None:
    with pytest.raises(DataError, match="s3://no-such-bucket/a: there is no s3://no-such-bucket"):
        create("s3://no-such-bucket/a", b"x", {"s3://no-such-bucket": server.options})
