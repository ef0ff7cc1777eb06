from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import toy_format  # noqa: F401 - registers the format
from playhead.errors import PrepareError, RecipeError
from playhead.formats.registry import format_of
from playhead.formats.rows import Fetch
from playhead.prepare import Compiling, Progress, prepare
from playhead.prepare.report import Event
from playhead.recipe.tree import leaves
from playhead.recipe.values import Evaluation, Fixed, Length, Recipe, Source
from playhead.store import all_files
from small_data import all_lengths, bytes_of, recipe_over, table_of, write_jsonl, write_tar


def shards(folder: Path, num_shards: int = 4, num_rows: int = 50) -> Path:
    folder.mkdir(exist_ok=True)
    for i in range(num_shards):
        rows = [{"n": i * 100 + j, "id": f"{i}-{j}", "lang": "en" if j % 3 else "pl"} for j in range(num_rows)]
        write_jsonl(folder / f"{i}.jsonl", rows)
    return folder


def full_recipe(folder: Path, **fields: Any) -> Recipe:
    everything = {"ids": "id", "columns": ["n"], "keep": {"lang": ["en"], "n": [3, 300]}}
    return recipe_over(folder, **(everything | fields))


def marks(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*")}


def test_the_bytes_do_not_depend_on_workers_memory_or_chunks(tmp_path: Path) -> None:
    recipe = full_recipe(shards(tmp_path))
    prepare(recipe, workers=1)
    expected = bytes_of(tmp_path / "cache")
    assert len(expected) >= 8
    for how in ({"workers": 3, "processes": True}, {"memory_mb": 8}, {"workers": 2, "memory_mb": 16}):
        shutil.rmtree(tmp_path / "cache")
        prepare(recipe, **how)
        assert bytes_of(tmp_path / "cache") == expected


def test_nothing_is_written_when_nothing_changed(tmp_path: Path) -> None:
    recipe = full_recipe(shards(tmp_path))
    assert prepare(recipe).changed
    before = marks(tmp_path / "cache")
    report = prepare(recipe)
    assert not report.changed
    assert report.sources[0].reused_shards == 4
    assert marks(tmp_path / "cache") == before
    assert prepare(recipe, force=True).sources[0].scanned_shards == 4


edits = st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["rewrite", "remove", "touch"])), max_size=4)


@settings(max_examples=25)
@given(edits)
def test_unchanged_shards_are_reused_and_the_bytes_are_those_of_a_fresh_index(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[tuple[int, str]]
) -> None:
    folder = shards(tmp_path_factory.mktemp("edits"), num_rows=7)
    recipe = full_recipe(folder)
    prepare(recipe)
    changed = set()
    for number, edit in drawn:
        path = folder / f"{number}.jsonl"
        if edit == "rewrite" or not path.exists():
            write_jsonl(path, [{"n": number + 5 + j, "id": f"new{number}-{j}", "lang": "en"} for j in range(3)])
            changed.add(number)
        elif edit == "remove" and number != 0:
            path.unlink()
            changed.discard(number)
        else:
            os.utime(path, ns=(number, number))
            changed.add(number)
    report = prepare(recipe)
    assert report.sources[0].scanned_shards == len(changed)
    after = bytes_of(folder / "cache")
    shutil.rmtree(folder / "cache")
    prepare(recipe)
    # Selections and their files are among the bytes; leftovers of earlier states are not.
    assert after == bytes_of(folder / "cache")


def test_shards_indexed_under_other_paths_of_the_source_are_reused(tmp_path: Path) -> None:
    shards(tmp_path)
    prepare(recipe_over(tmp_path, "[012].jsonl"))
    report = prepare(recipe_over(tmp_path, "*.jsonl")).sources[0]
    assert (report.scanned_shards, report.reused_shards) == (1, 3)
    old = table_of(recipe_over(tmp_path, "[012].jsonl"))
    assert all_lengths(old) == [i * 100 + j for i in range(3) for j in range(50)]


def test_a_training_and_an_evaluation_source_of_one_name_stand_side_by_side(tmp_path: Path) -> None:
    train, dev = shards(tmp_path / "train"), shards(tmp_path / "dev", num_shards=1)
    length = Length(field="n")

    def source(folder: Path) -> Source:
        return Source(name="s", path=[str(folder / "*.jsonl")], length=length)

    recipe = Recipe(
        sources=[source(train)],
        batching=Fixed(size=2),
        evaluation={name: Evaluation(sources=[source(folder)], batching=Fixed(size=2)) for name, folder in
                    (("dev", dev), ("again", train))},
        cache_dir=str(tmp_path / "cache"),
    )  # fmt: skip
    reports = prepare(recipe).sources
    assert [report.num_rows for report in reports] == [200, 50, 200]
    assert [report.changed for report in reports] == [True, True, False]
    assert not prepare(recipe).changed


def test_progress_tells_every_shard_once_and_ends_at_the_total(tmp_path: Path) -> None:
    told: list[Event] = []
    prepare(full_recipe(shards(tmp_path)), progress=told.append)
    events = [event for event in told if isinstance(event, Progress)]
    assert told == [*events, Compiling()]
    assert sorted(Path(event.shard).name for event in events) == [f"{i}.jsonl" for i in range(4)]
    assert [event.done_shards for event in events] == [1, 2, 3, 4]
    assert events[-1].done_bytes == events[-1].total_bytes == sum(p.stat().st_size for p in tmp_path.glob("*.jsonl"))


def test_a_dry_run_says_what_would_be_done_and_writes_nothing(tmp_path: Path) -> None:
    recipe = full_recipe(shards(tmp_path))
    report = prepare(recipe, dry_run=True)
    assert not (tmp_path / "cache").exists()
    source = report.sources[0]
    assert report.dry_run
    assert (source.scanned_shards, source.reused_shards) == (4, 0)
    assert source.scanned_bytes == sum(path.stat().st_size for path in tmp_path.glob("*.jsonl"))
    assert abs(source.num_rows - 200) <= 5
    assert source.index_bytes == round(source.num_rows * (8 + 4 + 4 + 1 + 16 + 0.2))
    prepare(recipe)
    write_jsonl(tmp_path / "4.jsonl", [{"n": 4, "id": "x"}])
    before = marks(tmp_path / "cache")
    source = prepare(recipe, dry_run=True).sources[0]
    assert (source.scanned_shards, source.reused_shards) == (1, 4)
    assert marks(tmp_path / "cache") == before


def test_a_format_of_two_tracks_that_we_do_not_know_is_prepared_opened_and_read(tmp_path: Path) -> None:
    contents = [[bytes([65 + i]) * (j + 1) for j in range(5)] for i in range(3)]
    for i, blobs in enumerate(contents):
        (tmp_path / f"{i}.toc").write_text("".join(f"{i}-{j} {len(blob)}\n" for j, blob in enumerate(blobs)))
        (tmp_path / f"{i}.blob").write_bytes(b"".join(blobs))
    (tmp_path / "bad.txt").write_text("1-2\n")
    recipe = recipe_over(tmp_path, "*.toc", drop_ids=[str(tmp_path / "bad.txt")])
    prepare(recipe, processes=True, workers=2)
    table = table_of(recipe)
    assert {track.name for track in table.index.meta.tracks} == {"toc", "blob"}
    assert table.num_rows == 14
    toy = format_of(recipe.sources[0], "sources[0]").format
    order = np.arange(14)[::-1].copy()
    files = all_files()
    rows = table.locate(order, Fetch(files, table.index.stamps))
    samples = list(toy.open(recipe.sources[0], files).read(rows))
    expected = [{"id": f"{i}-{j}", "blob": blob} for i, blobs in enumerate(contents) for j, blob in enumerate(blobs)]
    assert samples == [sample for sample in expected if sample["id"] != "1-2"][::-1]
    assert table.find("2-4").tolist() == [13]
    assert table.place(0).count(", byte 0") == 2
    (tmp_path / "1.blob").write_bytes(b"")
    with pytest.raises(PrepareError, match=r"1\.blob: a row ends after the file does"):
        prepare(recipe)
    (tmp_path / "1.blob").write_bytes(b"x" * 15)
    assert prepare(recipe).sources[0].scanned_shards == 1


def test_tars_and_many_chunks_are_indexed_the_same_in_processes(tmp_path: Path) -> None:
    for i in range(2):
        write_tar(tmp_path / f"{i}.tar", [(f"{i}/k{j:05d}.txt", b"x" * (j % 7)) for j in range(5000)])
    recipe = recipe_over(tmp_path, "*.tar", length=Length(field="txt", unit="bytes"))
    prepare(recipe, processes=True)
    assert all_lengths(table_of(recipe)) == [j % 7 for j in range(5000)] * 2


def test_source_names_of_any_kind_make_directories_of_their_own(tmp_path: Path) -> None:
    shards(tmp_path, num_shards=1)
    names = ["a/b", "..", "ż ó", "a%2Fb", "x" * 300, ".hidden"]
    directories = set()
    for name in names:
        recipe = recipe_over(tmp_path, name=name)
        prepare(recipe)
        directory = table_of(recipe).index.directory
        assert directory.parent == tmp_path / "cache"
        directories.add(directory)
    assert len(directories) == len(names)
    assert leaves(recipe)[0].source.name == ".hidden"


def test_too_little_memory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="memory"):
        prepare(full_recipe(shards(tmp_path)), memory_mb=1)


def test_the_same_files_under_another_pattern_are_not_scanned_again(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", [{"n": 1}, {"n": 2}])
    prepare(recipe_over(tmp_path, "*.jsonl"), workers=1)
    other = recipe_over(tmp_path, "a*.jsonl")
    (report,) = prepare(other, workers=1).sources
    assert (report.changed, report.scanned_shards, report.num_rows) == (True, 0, 2)
    assert all_lengths(table_of(other)) == [1, 2]


def test_a_script_without_a_main_guard_is_told_so(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a-0.jsonl", [{"n": 1}])
    write_jsonl(tmp_path / "a-1.jsonl", [{"n": 2}])
    lines = [
        "import playhead",
        'source = {"name": "a", "path": "a-*.jsonl", "length": "n"}',
        'fields = {"sources": [source], "batching": {"type": "fixed", "size": 1}}',
        f'recipe = playhead.Recipe.parse(fields, "{tmp_path}")',
        "playhead.prepare_recipe(recipe, workers=2, processes=True)",
    ]
    script = tmp_path / "make.py"
    script.write_text("\n".join(lines))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.count("Traceback") == 1
    assert "a worker process ran the script that starts workers" in done.stderr
    assert 'under `if __name__ == "__main__":`' in done.stderr
    script.write_text("\n".join([*lines[:-1], 'if __name__ == "__main__":', f"    {lines[-1]}"]))
    subprocess.run([sys.executable, script], check=True)
