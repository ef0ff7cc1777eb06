"""JSON Lines in gzip and in seekable zstd: the rows of the plain file, found by prepare once, read in any order."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import pyzstd

from format_worlds import check_worlds, recipe_of
from playhead import Loader
from playhead.errors import NotPreparedError, PrepareError, RecipeError, StoreError
from playhead.prepare import prepare
from playhead.recipe.values import Recipe
from playhead.store import compressed
from playhead.testing import check_format

ROWS: list[dict[str, Any]] = [{"id": f"r{i}", "tokens": [i] * (i % 4 + 1), "n": i % 4 + 1} for i in range(150)]


def lines(rows: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def seekable_zstd(data: bytes) -> bytes:
    out = io.BytesIO()
    with pyzstd.SeekableZstdFile(out, "w", max_frame_content_size=1 << 12) as file:
        file.write(data)
    return out.getvalue()


def many_members(data: bytes) -> bytes:
    """As bgzip and several writers that append make it."""
    return b"".join(gzip.compress(data[at : at + 1000]) for at in range(0, len(data), 1000))


PACKERS = {".gz": gzip.compress, ".zst": seekable_zstd}


@pytest.mark.parametrize("ending", [".jsonl.gz", ".json.gz", ".jsonl.zst"])
def test_compressed_lines_keep_the_contract(ending: str) -> None:
    pack = PACKERS[f".{ending.rpartition('.')[2]}"]
    files = {f"a{ending}": pack(lines(ROWS[:60])), f"b{ending}": pack(lines(ROWS[60:80]))}
    check_format({"path": f"*{ending}", "length": "n", "ids": "id"}, files, ROWS[:80])


@pytest.mark.parametrize("pack", [gzip.compress, many_members])
def test_rows_of_large_files_are_found_by_sections_and_read_in_any_order(tmp_path: Path, pack: Any) -> None:
    rows = [{"i": i, "n": 1 + i % 7, "text": f"{i * 7919 % 10007} " * 9} for i in range(40_000)]
    (tmp_path / "a.jsonl").write_bytes(lines(rows))
    (tmp_path / "b.jsonl.gz").write_bytes(pack(lines(rows)))
    found = []
    for path in ("a.jsonl", "b.jsonl.gz"):
        values = {"path": path, "length": "n"}
        recipe = recipe_of(tmp_path, values, batching={"type": "fixed", "size": 400}, sequence=None, lanes=4)
        found.append([batch["i"].tolist() for batch in Loader(recipe)])
    assert found[0] == found[1]
    assert len(found[0]) == 100


def test_ranks_are_disjoint_and_complete_and_resume_on_another_world_size(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(lines(ROWS[:70])))
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(lines(ROWS[70:])))
    check_worlds(recipe_of(tmp_path, {"path": "*.jsonl.gz", "length": "n"}), len(ROWS))


def test_worker_processes_read_them(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(lines(ROWS)))
    recipe = recipe_of(tmp_path, {"path": "a.jsonl.gz", "length": "n"}, lanes=1)
    with Loader(recipe, workers=2) as loader:
        ids = sorted(name for batch in loader for name in batch["id"])
    assert ids == sorted(row["id"] for row in ROWS)


def test_points_are_found_once_and_are_the_same_for_any_number_of_workers(tmp_path: Path) -> None:
    for part in range(3):
        rows = [{"n": i, "text": f"{i * 7919 % 10007} " * 9} for i in range(20_000)]
        (tmp_path / f"{part}.jsonl.gz").write_bytes(gzip.compress(lines(rows), 1))
    written = []
    for how in ({"processes": False}, {"workers": 2, "processes": True}):
        values = {"sources": [{"name": "s", "path": "*.jsonl.gz"}], "batching": {"type": "fixed", "size": 2}}
        recipe = Recipe.parse({**values, "cache_dir": f"cache{len(written)}"}, base_dir=tmp_path)
        prepare(recipe, **how)  # type: ignore[arg-type]
        places = sorted(Path(recipe.cache_dir, compressed.DIRECTORY).iterdir())
        written.append([(place.name, place.read_bytes()) for place in places])
        before = [place.stat().st_mtime_ns for place in places]
        assert not prepare(recipe).sources[0].changed
        assert [place.stat().st_mtime_ns for place in places] == before
    assert written[0] == written[1]
    assert len(written[0]) == 3


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(lines(ROWS)))
    values = {"sources": [{"name": "s", "path": "*.jsonl.gz"}], "batching": {"type": "fixed", "size": 2}}
    recipe = Recipe.parse({**values, "cache_dir": "cache"}, base_dir=tmp_path)
    (report,) = prepare(recipe, dry_run=True).sources
    assert report.total_bytes == len(lines(ROWS))
    assert not (tmp_path / "cache").exists()


def test_a_file_that_changed_is_refused_and_prepared_again(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(lines(ROWS)))
    recipe = recipe_of(tmp_path, {"path": path.name, "length": "n"}, lanes=1)
    path.write_bytes(gzip.compress(lines(ROWS[::-1])))
    with pytest.raises(StoreError, match=r"a\.jsonl\.gz"):
        list(Loader(recipe))
    prepare(recipe)
    assert len([name for batch in Loader(recipe) for name in batch["id"]]) == len(ROWS)


def test_points_that_are_missing_or_damaged_are_named_and_made_again(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(lines(ROWS)))
    recipe = recipe_of(tmp_path, {"path": "a.jsonl.gz", "length": "n"}, lanes=1)
    (place,) = Path(recipe.cache_dir, compressed.DIRECTORY).iterdir()
    for damage in (place.unlink, lambda: place.write_bytes(b"\xc1" * 40)):
        damage()
        with pytest.raises((StoreError, NotPreparedError), match=r"a\.jsonl\.gz: its gzip index is missing"):
            list(Loader(recipe))
        prepare(recipe)
        assert sum(batch.num_samples for batch in Loader(recipe)) == len(ROWS)


def _flipped(data: bytes) -> bytes:
    return data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 0x55]) + data[len(data) // 2 + 1 :]


@pytest.mark.parametrize(
    ("name", "data", "problem"),
    [
        ("a.jsonl.gz", gzip.compress(lines(ROWS))[:-3], "a.jsonl.gz: cannot be decompressed"),
        ("a.jsonl.gz", gzip.compress(lines(ROWS))[:300], "a.jsonl.gz: cannot be decompressed"),
        ("a.jsonl.gz", _flipped(gzip.compress(lines(ROWS))), "a.jsonl.gz: cannot be decompressed"),
        ("a.jsonl.gz", lines(ROWS), "a.jsonl.gz: is not a gzip file"),
        ("a.jsonl.gz", b"", "a.jsonl.gz: is not a gzip file"),
        ("a.jsonl.gz", gzip.compress(b""), "a.jsonl.gz: has no rows"),
        ("a.jsonl.gz", gzip.compress(b'{"n": 1}\n{"n": \n'), "a.jsonl.gz, line 2, byte 9: broken JSON"),
        ("a.jsonl.zst", pyzstd.compress(lines(ROWS)), "a.jsonl.gz, and name that file"),
        ("a.jsonl.zst", seekable_zstd(lines(ROWS))[:-9], "a.jsonl.zst: has no seek points"),
        ("a.jsonl.zst", _flipped(seekable_zstd(lines(ROWS))), "a.jsonl.zst: cannot be decompressed"),
    ],
    ids=lambda value: "data" if isinstance(value, bytes) else None,  # gzip writes the time of day
)
def test_a_broken_file_is_refused_with_its_name(tmp_path: Path, name: str, data: bytes, problem: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(PrepareError) as caught:
        recipe_of(tmp_path, {"path": name, "length": "n"})
    assert problem in str(caught.value)


def test_the_command_for_an_ordinary_zstd_file_makes_it_readable(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.zst").write_bytes(pyzstd.compress(lines(ROWS)))
    with pytest.raises(PrepareError) as caught:
        recipe_of(tmp_path, {"path": "a.jsonl.zst", "length": "n"})
    (command,) = [line.split("to fix")[1] for line in str(caught.value).splitlines() if "zstd -dc" in line]
    shell = command.strip().removesuffix(", and name that file")
    unpack = "import pyzstd, sys; sys.stdout.buffer.write(pyzstd.decompress(open(sys.argv[1], 'rb').read()))"
    script = shell.replace("zstd -dc", f'{sys.executable} -c "{unpack}"', 1)  # no zstd need be installed
    subprocess.run(["bash", "-c", script], check=True, capture_output=True)  # noqa: S607
    assert prepare(recipe_of(tmp_path, {"path": "a.jsonl.gz", "length": "n"})).sources[0].num_rows == len(ROWS)


@pytest.mark.parametrize(
    ("path", "fix"),
    [
        ("a.tar.gz", "gunzip a.tar.gz"),
        ("a.tgz", "gunzip a.tgz"),
        ("a.tar.zst", "zstd -d a.tar.zst"),
        ("pipe:curl -s https://host/a.tar", "curl -s https://host/a.tar > part-0.tar"),
    ],
)
def test_what_has_a_beginning_and_an_end_only_is_refused_with_a_command(path: str, fix: str) -> None:
    for where, source in {
        r"sources\[0\]": {"path": path},
        r"sources\[0\].options.tar": {"format": "nemo_tarred", "path": "a.json", "options": {"tar": path}},
        r"sources\[0\].options.fields": {"format": "lhotse_shar", "options": {"fields": {"cuts": ["a", path]}}},
    }.items():
        with pytest.raises(RecipeError, match=rf"{where}.*in any order") as caught:
            Recipe.parse({"sources": [{"name": "s", **source}], "batching": {"type": "fixed", "size": 1}})
        assert fix in str(caught.value)


@pytest.mark.parametrize(("name", "package"), [("a.jsonl.gz", "rapidgzip"), ("a.jsonl.zst", "pyzstd")])
def test_a_missing_package_is_named_with_its_extra(
    tmp_path: Path, name: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / name).write_bytes(PACKERS[name[7:]](lines(ROWS)))
    monkeypatch.setitem(sys.modules, package, None)
    extra = "gzip" if package == "rapidgzip" else "zstd"
    with pytest.raises(PrepareError, match=rf"pip install 'playhead\[{extra}\]'"):
        recipe_of(tmp_path, {"path": name})


SCRIPT = """
import playhead, sys
recipe = playhead.Recipe.load("recipe.json")
playhead.prepare_recipe(recipe)
loader = playhead.Loader(recipe)
batch = next(iter(loader))
if sys.argv[1] == "error":
    raise SystemExit(3)
"""


@pytest.mark.parametrize(("ending", "code"), [("normal", 0), ("error", 3)])
def test_a_process_that_ends_with_files_open_ends_as_it_should(tmp_path: Path, ending: str, code: int) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(lines(ROWS)))
    values = {"sources": [{"name": "s", "path": "a.jsonl.gz"}], "batching": {"type": "fixed", "size": 2}}
    (tmp_path / "recipe.json").write_text(json.dumps(values))
    done = subprocess.run([sys.executable, "-c", SCRIPT, ending], cwd=tmp_path, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (code, b"")
