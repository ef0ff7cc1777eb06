"""PH060 to PH065: the cache directory, limits of the system, packages."""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from checked_recipes import found, report_on, rows, sound, the_one, written

from commands import started
from playhead.verify.checks.machine_limits import MachineLimits, limits_here

PLENTY = MachineLimits(None, None, None)


def as_anybody(folder: Path) -> list[dict[str, object]]:
    done = started(folder, "check", "recipe.yaml", "--json", as_anybody=True)
    return [each for each in json.loads(done.stdout)["findings"] if each["code"] == "PH060"]


def test_a_cache_directory_that_cannot_be_written_is_found(tmp_path: Path) -> None:
    sound(tmp_path, ready=False)
    assert as_anybody(tmp_path) == []
    tmp_path.chmod(0o500)
    try:
        (finding,) = as_anybody(tmp_path)
    finally:
        tmp_path.chmod(0o700)
    assert (finding["severity"], finding["place"]) == ("error", "cache_dir")
    assert finding["found"] == f"{tmp_path} is read-only for this user"


@pytest.mark.full
def test_a_cache_directory_that_is_prepared_and_read_only_is_a_warning(tmp_path: Path) -> None:
    sound(tmp_path)
    (tmp_path / ".playhead").chmod(0o500)
    try:
        (finding,) = as_anybody(tmp_path)
    finally:
        (tmp_path / ".playhead").chmod(0o700)
    assert finding["severity"] == "warning"


def test_a_cache_directory_that_is_a_file_is_found(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("")
    assert "is not a directory" in the_one("PH060", sound(tmp_path, ready=False, cache_dir="cache")).found


def test_little_room_is_found(tmp_path: Path) -> None:
    path = sound(tmp_path, ready=False)
    finding = the_one("PH061", path, limits=MachineLimits(None, None, 1 << 20))
    assert finding.found.startswith("1.0 MB free under ")
    assert found("PH061", path, limits=MachineLimits(None, None, 1 << 30)) == []
    large = tmp_path / "a.jsonl"
    with large.open("ab") as file:
        file.truncate(100 << 30)  # a hole, which takes no room
    assert the_one("PH061", path, limits=MachineLimits(None, None, 1 << 30)).expected == "about 5.4 GB"


def test_few_open_files_are_found_against_the_number_of_shards(tmp_path: Path) -> None:
    for i in range(20):
        (tmp_path / f"a-{i:02}.jsonl").write_text(json.dumps(rows(f"a{i}", 1)[0]) + "\n")
    path = written(tmp_path, {"name": "a", "path": "a-*.jsonl", "length": "n"})
    finding = the_one("PH062", path, limits=MachineLimits(64, None, None))
    assert finding.found == "64 open files a process, of which a quarter is for shards; there are 20 files"
    assert found("PH062", path, limits=MachineLimits(128, None, None)) == []
    assert found("PH062", path, limits=PLENTY) == []


def test_few_memory_maps_are_found_against_the_number_of_sources(tmp_path: Path) -> None:
    path = sound(tmp_path)
    finding = the_one("PH063", path, limits=MachineLimits(None, 20, None))
    assert finding.found.startswith("up to 16 arrays of indexes are mapped; a process may have 20 maps")
    assert found("PH063", path, limits=MachineLimits(None, 65_530, None)) == []


def test_the_limits_are_those_of_this_machine(tmp_path: Path) -> None:
    limits = limits_here(tmp_path / "not" / "there")
    assert limits.open_files in (None, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    assert limits.memory_maps == int(Path("/proc/sys/vm/max_map_count").read_text())
    assert limits.free_bytes > 0


def parquet(folder: Path) -> Path:
    pq.write_table(pa.Table.from_pylist(rows("a", 30)), folder / "a.parquet")
    return written(folder, {"name": "a", "path": "a.parquet", "length": "n"})


def test_a_package_that_the_recipe_needs_and_that_is_missing_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = parquet(tmp_path)
    assert found("PH064", path) == []
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    finding = the_one("PH064", path)
    assert (finding.severity, finding.place) == ("error", "sources[0]")
    assert (finding.expected, finding.fix) == ("pyarrow 14.0.1 or later", "pip install 'playhead[arrow]'")


def test_a_package_that_is_too_old_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = parquet(tmp_path)
    about = tmp_path / "older" / "pyarrow-13.0.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: pyarrow\nVersion: 13.0.0\n")
    monkeypatch.syspath_prepend(tmp_path / "older")
    finding = the_one("PH064", path)
    assert (finding.problem, finding.found) == ("the package pyarrow is too old", "13.0.0")


def test_the_versions_of_packages_are_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    (finding,) = [each for each in report_on(sound(tmp_path)).findings if each.code == "PH065"]
    assert finding.severity == "note"
    assert f"pyarrow {pa.__version__}" in finding.found
    assert finding.found.endswith("; not installed: ray")
