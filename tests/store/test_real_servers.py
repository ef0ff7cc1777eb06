"""Stores on real servers: the laws of storage, conditional puts, load, kills and an unreliable network."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from commands import wait_until
from playhead.errors import StoreError
from playhead.store import Files, JoiningFiles, Ranges, RemoteFiles, open_file
from playhead.store.clients import Stores, _client, client_of
from playhead.store.objects import create, is_same, names_under, remove, replace, version_of
from playhead.testing import check_files
from slow_proxy import Network, slow_proxy
from store_servers import S3, azurite, has, moto, nginx, num_stored_bytes, seaweedfs

DATA = random.Random(0).randbytes(6 << 20)  # noqa: S311 - no secret


def needs(program: str) -> pytest.MarkDecorator:
    missing = not has(program) and "CI" not in os.environ  # there it is an error
    return pytest.mark.skipif(missing, reason=f"{program} is not installed, and `make test-full` may not")


def check_store(bucket: str, stores: Stores) -> None:
    """Every law of storage, and of writing."""

    def write(name: str, data: bytes) -> str:
        import obstore

        from playhead.store.addresses import address_of

        url = f"{bucket}/laws/{name}"
        address = address_of(url)
        obstore.put(client_of(address, stores), address.key, data)
        return url

    check_files(RemoteFiles(stores), write, lambda url: remove(url, stores))
    url = f"{bucket}/written/object"
    assert create(url, b"one", stores)
    assert not create(url, b"two", stores)
    version = version_of(url, stores)
    assert version is not None
    replace(url, b"two", version, stores)
    with pytest.raises(StoreError, match="another writer was there first"):
        replace(url, b"three", version, stores)
    assert is_same(url, b"two", stores)
    assert names_under(f"{bucket}/written", stores) == ["object"]


def test_moto_keeps_the_laws() -> None:
    with moto() as server:
        bucket = server.make_bucket("laws")
        check_store(bucket, {bucket: server.options})


@pytest.fixture(scope="module")
def weed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    with seaweedfs(tmp_path_factory.mktemp("weed")) as server:
        yield server


@pytest.mark.full
@needs("weed")
def test_seaweedfs_keeps_the_laws(weed: S3) -> None:
    bucket = weed.make_bucket("laws")
    check_store(bucket, {bucket: weed.options})


@pytest.mark.full
@needs("azurite-blob")
def test_azurite_keeps_the_laws(tmp_path: Path) -> None:
    with azurite(tmp_path) as server:
        container = server.make_container("laws")
        check_store(container, {container: server.options})


@pytest.mark.full
@needs("nginx")
def test_nginx_keeps_the_laws_of_reading(tmp_path: Path) -> None:
    served, work = tmp_path / "served", tmp_path / "nginx"
    served.mkdir()
    work.mkdir()
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    versions = iter(range(1, 1 << 30))

    with nginx(served, work) as port:

        def write(name: str, data: bytes) -> str:
            path, new = served / name, work / "new"
            path.parent.mkdir(parents=True, exist_ok=True)
            new.write_bytes(data)
            os.utime(new, (10**9 + next(versions),) * 2)  # nginx marks a file by its size and the second it changed
            new.replace(path)
            return f"http://127.0.0.1:{port}/{name}"

        def unlink(url: str) -> None:
            (served / url.partition(f":{port}/")[2]).unlink()

        check_files(RemoteFiles(), write, unlink, can_list=False)


def ranges_at_random(seed: int, number: int = 40) -> Ranges:
    drawn = random.Random(seed)  # noqa: S311 - no secret
    firsts = [drawn.randrange(len(DATA) - 70_000) for _ in range(number)]
    return Ranges(firsts, [first + drawn.randrange(70_000) for first in firsts])


def expect_bytes(files: Files, url: str, seed: int) -> None:
    ranges = ranges_at_random(seed)
    found = files.read(url, files.stamp(url), ranges)
    assert [bytes(part) for part in found] == [DATA[first:end] for first, end in zip(*ranges, strict=True)]


@pytest.mark.full
@needs("weed")
def test_reading_over_an_unreliable_network_gives_the_same_bytes(weed: S3) -> None:
    bucket = weed.make_bucket("unreliable")
    url = f"{bucket}/object"
    create(url, DATA, {bucket: weed.options})
    with slow_proxy(weed.port, Network(latency_seconds=0.005, cut=0.1, fail=0.1)) as proxy:
        files = JoiningFiles(RemoteFiles({bucket: {**weed.options, "endpoint": proxy.address}}))
        for seed in range(6):
            expect_bytes(files, url, seed)
        counts = proxy.counts()
        assert counts["cut"]
        assert counts["failed"]


@pytest.mark.full
@needs("weed")
def test_a_network_that_is_gone_for_a_while_is_waited_for(weed: S3) -> None:
    bucket = weed.make_bucket("gone")
    url = f"{bucket}/object"
    create(url, DATA, {bucket: weed.options})
    with slow_proxy(weed.port) as proxy:
        files = RemoteFiles({bucket: {**weed.options, "endpoint": proxy.address}})
        expect_bytes(files, url, 0)
        proxy.kill()
        starter = threading.Timer(1.0, proxy.start)
        starter.start()
        try:
            expect_bytes(files, url, 1)
        finally:
            starter.join()


@pytest.mark.full
@needs("weed")
def test_a_server_that_is_killed_and_started_again_serves_the_same_objects(tmp_path: Path) -> None:
    with seaweedfs(tmp_path) as server:
        bucket = server.make_bucket("killed")
        stores = {bucket: server.options}
        url = f"{bucket}/object"
        create(url, DATA, stores)
        stamp = RemoteFiles(stores).stamp(url)
        expect_bytes(RemoteFiles(stores), url, 0)
        wait_until(lambda: num_stored_bytes(tmp_path) >= len(DATA))
        os.kill(server.pid, 9)
    _client.cache_clear()
    with seaweedfs(tmp_path):
        assert open_file(RemoteFiles(stores), url).stamp == stamp
        expect_bytes(RemoteFiles(stores), url, 1)


def test_no_server_is_left_behind() -> None:
    with moto() as server:
        pid = server.pid
    assert not Path(f"/proc/{pid}").exists()
