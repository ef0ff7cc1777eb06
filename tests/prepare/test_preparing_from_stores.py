"""A recipe over an object store, indexed and read by its URLs alone, from a server on loopback."""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import tarfile
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from threading import Barrier

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from loopback import Loopback, serving
from playhead import Loader, Recipe, StoreError
from playhead.prepare import prepare
from playhead.store import MEMORY, SchemeFiles, list_files
from playhead.store.objects import create, read_object, replace
from store_servers import moto


def test_a_recipe_over_a_bucket_is_indexed_and_read_and_a_changed_object_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"tokens": [i, i + 1], "n": 2} for i in range(12)]
    lines = [json.dumps(row).encode() + b"\n" for row in rows]
    objects = {"/bucket/data/0.jsonl": b"".join(lines[:7]), "/bucket/data/1.jsonl": b"".join(lines[7:])}
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    with serving(objects) as server:
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        source = {"name": "a", "path": "s3://bucket/data/*.jsonl", "length": "n", "shuffle": "none"}
        values = {"sources": [source], "batching": {"type": "fixed", "size": 3}, "epochs": 1, "lanes": 1}
        recipe = Recipe.parse({**values, "cache_dir": "cache"}, base_dir=tmp_path)
        (report,) = prepare(recipe).sources
        assert (report.num_shards, report.num_rows) == (2, 12)
        assert not prepare(recipe).changed
        found = [row for batch in Loader(recipe) for row in batch["tokens"].tolist()]
        assert found == [row["tokens"] for row in rows]
        server.objects["/bucket/data/1.jsonl"] += b"\n"
        with pytest.raises(StoreError, match=r"s3://bucket/data/1\.jsonl: changed since it was indexed"):
            list(Loader(recipe))
        assert prepare(recipe).sources[0].scanned_shards == 1


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loopback]:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    with serving({}) as served:
        for name, value in served.environment().items():
            monkeypatch.setenv(name, value)
        yield served


def recipe_of(tmp_path: Path, **source: object) -> Recipe:
    values = {"batching": {"type": "fixed", "size": 1}, "epochs": 1, "lanes": 1, "cache_dir": "cache"}
    return Recipe.parse({**values, "sources": [{"name": "a", "shuffle": "none", **source}]}, base_dir=tmp_path)


def tar_of(members: dict[str, bytes]) -> bytes:
    found = io.BytesIO()
    with tarfile.open(fileobj=found, mode="w") as tar:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return found.getvalue()


def parquet_of(num_rows: int) -> bytes:
    found = io.BytesIO()
    table = pa.table({"tokens": [list(range(i % 700)) for i in range(num_rows)], "n": list(range(num_rows))})
    pq.write_table(table, found, row_group_size=300, compression="none")
    return found.getvalue()


LINES = b"".join(json.dumps({"tokens": [i] * 300, "n": 300}).encode() + b"\n" for i in range(3_000))
SHARDS = {
    "a.jsonl": (LINES, "n", {}),
    "a.tar": (
        tar_of(
            {
                f"{i:05d}.{kind}": json.dumps({"n": i}).encode() if kind == "json" else bytes(2_000)
                for i in range(700)
                for kind in ("json", "txt")
            }
        ),
        "json.n",
        {"format": "webdataset"},
    ),
    "a.parquet": (parquet_of(3_000), "n", {}),
    "manifest.jsonl": (
        b"".join(json.dumps({"audio_filepath": f"{i}.wav", "duration": 1.0}).encode() + b"\n" for i in range(9_000)),
        "duration",
        {"format": "nemo"},
    ),
}


@pytest.mark.parametrize("name", SHARDS)
def test_a_shard_in_a_store_is_read_once_to_index_it(tmp_path: Path, server: Loopback, name: str) -> None:
    """What a column needs of a Parquet file, what else is not more than the file and a few small looks at its ends."""
    data, length, others = SHARDS[name]
    server.objects[f"/bucket/{name}"] = data
    recipe = recipe_of(tmp_path, path=f"s3://bucket/{name}", length=length, **others)
    prepare(recipe)
    assert server.sent_bytes <= len(data) * 1.02 + (64 << 10)
    server.sent_bytes = 0
    prepare(recipe)
    assert server.sent_bytes == 0


def test_lines_in_a_store_are_scanned_in_few_large_requests(tmp_path: Path, server: Loopback) -> None:
    server.objects["/bucket/a.jsonl"] = LINES * 4
    prepare(recipe_of(tmp_path, path="s3://bucket/a.jsonl", length="n"))
    assert sum("bytes=" in request for request in server.requests) <= 2 + 6  # 512 KiB first, then twice as many


def test_gzip_in_a_store_is_read_twice_in_few_requests(tmp_path: Path, server: Loopback) -> None:
    """Once to find its seek points, and once for its rows."""
    numbers = random.Random(0)  # noqa: S311 - no secret
    rows = ({"tokens": [numbers.randrange(10**9) for _ in range(300)], "n": 300} for _ in range(2_000))
    server.objects["/bucket/a.jsonl.gz"] = data = gzip.compress(
        b"".join(json.dumps(row).encode() + b"\n" for row in rows), 1
    )
    prepare(recipe_of(tmp_path, path="s3://bucket/a.jsonl.gz", length="n"))
    assert server.sent_bytes <= 2 * len(data) * 1.02 + (400 << 10)
    assert sum("bytes=" in request for request in server.requests) <= 20


def test_many_small_shards_are_looked_at_and_scanned_several_at_a_time(tmp_path: Path, server: Loopback) -> None:
    lines = LINES.splitlines(keepends=True)
    for i in range(24):
        server.objects[f"/bucket/{i:02d}.jsonl"] = b"".join(lines[i * 5 : i * 5 + 5])
    recipe = recipe_of(tmp_path, path="s3://bucket/{00..23}.jsonl", length="n")
    server.meeting, server.meets = Barrier(4), "HEAD"
    list_files(SchemeFiles(), recipe.sources[0].path)  # type: ignore[union-attr]
    server.meeting = None
    server.silent_seconds = 0.02
    server.requests.clear()
    (report,) = prepare(recipe).sources
    assert (report.num_shards, report.num_rows) == (24, 120)
    read = [request.split()[1] for request in server.requests if "bytes=" in request]
    assert len(list(groupby(read))) > 24  # one shard after another would be as many runs as shards
    server.silent_seconds = 0.0
    found = [row[0] for batch in Loader(recipe) for row in batch["tokens"].tolist()]
    assert found == list(range(120))


def test_a_sidecar_of_a_file_in_a_store_saves_reading_it(tmp_path: Path, server: Loopback) -> None:
    """Also where blank lines, which are no rows, have to be found between long ones."""
    lines = [json.dumps({"text": "x" * 2_000, "n": i}).encode() + b"\n" for i in range(3_000)]
    lines[1_000:1_000] = [b"\n", b" \t\r\n"]
    data = b"".join(lines)
    offsets = np.cumsum([0, *map(len, lines)], dtype="<u8")
    server.objects |= {"/bucket/a.jsonl": data, "/bucket/a.jsonl.idx": offsets.tobytes()}
    recipe = recipe_of(tmp_path, path="s3://bucket/a.jsonl", ids=None)
    (report,) = prepare(recipe).sources
    assert report.num_rows == 3_000
    assert server.sent_bytes < len(data) / 20 + 2 * offsets.nbytes
    assert sum("bytes=" in request for request in server.requests) < 200
    found = [row for batch in Loader(recipe) for row in batch["n"].tolist()]
    assert found == list(range(3_000))


@pytest.mark.parametrize("root", [None, "s3://indexes/of"])
def test_sidecars_are_written_to_stores_and_used_from_there(tmp_path: Path, root: str | None) -> None:
    with moto() as s3:
        bucket, indexes = s3.make_bucket("data"), s3.make_bucket("indexes")
        stores = {bucket: s3.options, indexes: s3.options}
        create(f"{bucket}/a.jsonl", LINES, stores)
        sources = [
            {"name": "a", "path": f"{bucket}/a.jsonl", "length": "n", "store": s3.options},
            {"name": "b", "path": f"{indexes}/b.jsonl", "length": "n", "store": s3.options},
        ]
        create(f"{indexes}/b.jsonl", LINES[:5000].rpartition(b"\n")[0] + b"\n", stores)
        values = {"batching": {"type": "fixed", "size": 1}, "lanes": 1, "cache_dir": "cache", "indexes_root": root}
        recipe = Recipe.parse({**values, "sources": sources}, base_dir=tmp_path)
        prepare(recipe, sidecars=True)
        place = f"{bucket}/a.jsonl.idx" if root is None else f"{root}/data/a.jsonl.idx"
        found = read_object(place, stores)
        assert found is not None
        offsets = np.frombuffer(found[0], "<u8")
        assert (offsets[0], offsets[-1], offsets.size) == (0, len(LINES), 3_001)
        prepare(recipe, sidecars=True, force=True)
        assert read_object(place, stores) == found
        replace(place, b"broken!", found[1], stores)
        prepare(recipe, sidecars=True, force=True)
        rewritten = read_object(place, stores)
        assert rewritten is not None
        assert rewritten[0] == found[0]


@pytest.mark.parametrize("length", ["n", {"measure": True}])
def test_files_in_memory_are_indexed_in_this_process_however_large(tmp_path: Path, length: object) -> None:
    """Other processes would not find them."""
    lines = "".join(json.dumps({"tokens": [i] * 2_000, "n": 2_000}) + "\n" for i in range(1_700)).encode()
    for i in range(2):
        MEMORY.write(f"memory://{tmp_path.name}/{i}.jsonl", lines)
    source = {"name": "a", "path": f"memory://{tmp_path.name}/*.jsonl", "length": length}
    values = {"sources": [source], "batching": {"type": "fixed", "size": 1}, "sequence": "tokens", "lanes": 1}
    recipe = Recipe.parse({**values, "cache_dir": "cache"}, base_dir=tmp_path)
    (report,) = prepare(recipe, measure=True, verify=True).sources
    assert report.total_bytes > 32 << 20
    assert (report.num_rows, report.length_sum) == (3_400, 3_400 * 2_000)
