"""PH010 to PH016: indexes, files, sidecars, shards that are slow to read, and their cache."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import pyzstd
from checked_recipes import found, report_on, rows, sound, source, the_one, written
from rich.filesize import decimal

from playhead import Recipe
from playhead.prepare import prepare


def index_of(folder: Path, name: str) -> Path:
    (meta,) = folder.glob(f".playhead/{name}-*/meta.json")
    return meta.parent


def test_an_unprepared_recipe_is_an_error_that_names_the_command_and_what_was_not_checked(tmp_path: Path) -> None:
    path = sound(tmp_path, ready=False)
    report = report_on(path)
    findings = [each for each in report.findings if each.code == "PH010"]
    assert [each.place for each in findings] == ["sources[0]", "sources[1]"]
    assert findings[0].fix == f"run `playhead prepare {path}`"
    assert {"PH012", "PH020", "PH040"} <= {
        code for code, why in report.not_checked.items() if why.startswith("no source")
    }
    assert "PH011" in report.checked
    assert report.failed()


def test_a_recipe_prepared_in_part_is_checked_in_part(tmp_path: Path) -> None:
    path = sound(tmp_path)
    written(tmp_path, *Recipe.load(path).to_dict()["sources"], source(tmp_path, "c", rows("c", 9)), ready=False)
    report = report_on(path)
    assert [each.place for each in report.findings if each.code == "PH010"] == ["sources[2]"]
    assert "PH020" in report.checked
    assert report.not_checked["PH042"] == "no plan: a source is not prepared, or refused"


def test_an_index_older_than_the_recipe_is_found(tmp_path: Path) -> None:
    path = sound(tmp_path)
    assert found("PH010", path) == []
    path.write_text(path.read_text().replace("ids: id", "columns: [n]", 1))
    assert "its index is missing, or older than the recipe" in the_one("PH010", path).problem


def test_files_that_changed_since_they_were_indexed_are_found(tmp_path: Path) -> None:
    path = sound(tmp_path)
    assert found("PH011", path) == []
    with (tmp_path / "b.jsonl").open("a") as file:
        file.write(json.dumps(rows("late", 1)[0]) + "\n")
    finding = the_one("PH011", path)
    assert (finding.place, finding.severity) == ("sources[1]", "error")
    assert finding.problem == 'files of "b" changed since they were indexed'
    assert str(tmp_path / "b.jsonl") in finding.found


def test_files_that_came_and_went_are_found(tmp_path: Path) -> None:
    path = written(tmp_path, {**source(tmp_path, "a-0", rows("a", 9)), "name": "a", "path": "a-*.jsonl"})
    (tmp_path / "a-0.jsonl").rename(tmp_path / "a-1.jsonl")
    new, gone = found("PH011", path)
    assert new.problem == 'files of "a" are new since it was indexed'
    assert gone.problem == 'files of "a" were indexed and are not there any more'
    (tmp_path / "a-1.jsonl").unlink()
    assert "no file matches this pattern" in the_one("PH011", path).problem


def test_missing_files_are_found_before_anything_is_prepared(tmp_path: Path) -> None:
    path = written(tmp_path, {"name": "a", "path": "nowhere.jsonl", "length": "n"}, ready=False)
    assert "no such file" in the_one("PH011", path).problem


def test_a_damaged_array_is_found_by_its_digest(tmp_path: Path) -> None:
    path = sound(tmp_path)
    assert found("PH012", path) == []
    lengths = index_of(tmp_path, "a") / "lengths.npy"
    data = bytearray(lengths.read_bytes())
    data[-1] ^= 1
    lengths.write_bytes(data)
    finding = the_one("PH012", path)
    assert finding.place == "sources[0]"
    assert finding.found.startswith("lengths.npy has other bytes")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda meta: meta["shards"][0]["files"][0].update(size=100), "ends at byte"),
        (lambda meta: meta["shards"][0].update(num_rows=59), "59 rows in its shards, and 60 in all"),
    ],
)
def test_sentinels_and_counts_that_cannot_be_right_are_found(tmp_path: Path, change: Any, words: str) -> None:
    path = sound(tmp_path)
    file = index_of(tmp_path, "a") / "meta.json"
    meta = json.loads(file.read_bytes())
    change(meta)
    file.write_text(json.dumps(meta))
    findings = [each for each in report_on(path).findings if each.code in ("PH010", "PH012")]
    assert any(words in each.found for each in findings)


def test_a_sidecar_that_does_not_fit_its_file_is_found(tmp_path: Path) -> None:
    path = sound(tmp_path)
    prepare(Recipe.load(path), workers=1, sidecars=True)
    assert found("PH013", path) == []
    (tmp_path / "a.jsonl.idx").write_bytes(b"\0" * 20)
    finding = the_one("PH013", path)
    assert (finding.place, finding.severity) == ("sources[0]", "warning")
    assert str(tmp_path / "a.jsonl.idx") in finding.found


def compressed(folder: Path, ending: str, data: bytes, **fields: Any) -> Path:
    (folder / f"a.jsonl.{ending}").write_bytes(data)
    return written(
        folder, {"name": "a", "path": f"a.jsonl.{ending}", "length": "n", "ids": "id", **fields}, ready=False
    )


LINES = "".join(json.dumps(row) + "\n" for row in rows("a", 60)).encode()


def test_compressed_shards_in_any_order_are_found(tmp_path: Path) -> None:
    finding = the_one("PH014", compressed(tmp_path, "gz", gzip.compress(LINES)))
    assert (finding.severity, finding.place) == ("warning", "sources[0]")
    assert found("PH014", compressed(tmp_path, "gz", gzip.compress(LINES), shuffle="none")) == []


def test_a_shard_that_cannot_be_read_in_the_middle_is_an_error(tmp_path: Path) -> None:
    finding = the_one("PH014", compressed(tmp_path, "zst", pyzstd.compress(LINES)))
    assert finding.severity == "error"
    assert "has no seek points" in finding.problem
    assert finding.fix.startswith("zstd -dc ")


def test_an_order_that_decodes_blocks_again_and_again_is_found(tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_pylist(rows("a", 60)), tmp_path / "a.parquet", row_group_size=10)
    chats = {"name": "a", "path": "a.parquet", "length": "n", "ids": "id"}
    finding = the_one("PH015", written(tmp_path, chats))
    assert finding.place == "sources[0].shuffle"
    assert finding.fix == "write `shuffle: shards` and `shuffle_unit: block`"
    assert found("PH015", written(tmp_path, {**chats, "shuffle": "shards", "shuffle_unit": "block"})) == []


def test_a_changed_file_is_not_called_unreadable_too(tmp_path: Path) -> None:
    path = sound(tmp_path)
    with (tmp_path / "a.jsonl").open("a") as file:
        file.write("\n")
    assert [each.place for each in found("PH011", path)] == ["sources[0]"]
    assert found("PH020", path) == []


def test_many_unprepared_sources_are_one_finding(tmp_path: Path) -> None:
    names = [f"s{i}" for i in range(9)]
    path = written(tmp_path, *(source(tmp_path, name, rows(name, 3)) for name in names), ready=False)
    finding = the_one("PH010", path)
    assert finding.problem == "9 of 9 sources are not prepared"
    assert finding.found == "s0, s1, s2, s3, s4, ..."
    assert finding.fix == f"run `playhead prepare {path}`"


def test_a_shard_cache_smaller_than_the_shards_in_use_is_a_warning(tmp_path: Path) -> None:
    cache = {"dir": "cache", "max_bytes": 1_000}
    finding = the_one("PH016", sound(tmp_path, shard_cache=cache))
    size = sum((tmp_path / f"{name}.jsonl").stat().st_size for name in "ab")
    assert finding.place == "shard_cache.max_bytes"
    assert finding.found == f"1.0 kB; up to {decimal(size)} are in use"
    assert found("PH016", sound(tmp_path, shard_cache=cache | {"max_bytes": size})) == []
    assert found("PH016", sound(tmp_path, shard_cache=cache | {"unit": "range"})) == []


def test_a_shard_cache_larger_than_the_room_on_its_disk_is_a_warning(tmp_path: Path) -> None:
    finding = the_one("PH016", sound(tmp_path, shard_cache={"dir": "cache", "max_bytes": 1 << 60}))
    assert finding.problem == "the disk of the shard cache has less room than it may take"
