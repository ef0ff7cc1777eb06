from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from measured_data import measured, recipe_of, refusal, shards
from playhead import Loader, open_plan
from playhead.errors import NotPreparedError
from playhead.prepare import MeasureProgress, prepare, stretches
from playhead.recipe.values import Recipe
from small_data import all_lengths, bytes_of, table_of, write_jsonl, write_tar


@pytest.fixture(autouse=True)
def small_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four rows to a stretch, so that small files have several."""
    monkeypatch.setattr(stretches, "MOST_ROWS", 4)


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "calls.txt"
    path.touch()
    monkeypatch.setenv("CALLS", str(path))
    return path


def test_lengths_are_those_of_the_samples_after_the_map(tmp_path: Path) -> None:
    recipe = recipe_of(shards(tmp_path))
    assert measured(recipe) == 30
    assert all_lengths(table_of(recipe)) == [n + 1 for n in range(30)]
    assert table_of(recipe).length_sum == sum(range(1, 31))


def test_a_plan_and_a_loader_use_them_as_any_others(tmp_path: Path) -> None:
    batching = {"type": "pack", "max_length": 25, "overlong": "drop"}
    recipe = recipe_of(shards(tmp_path), batching=batching, epochs=1)
    report = prepare(recipe, measure=True).sources[0]
    assert (report.selected_rows, report.losses[0].num_rows, report.losses[0].length) == (25, 5, 140)
    table = table_of(recipe)
    assert table.histogram is not None
    assert table.histogram.length_sum == sum(range(1, 26))
    packs = list(Loader(recipe))
    assert max(int(pack["cu_seqlens"][-1]) for pack in packs) <= 25
    assert sorted(size for pack in packs for size in np.diff(pack["cu_seqlens"])) == [*range(1, 26)]


def test_the_bytes_do_not_depend_on_workers_memory_or_stretches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = recipe_of(shards(tmp_path), "random")
    prepare(recipe, measure=True, workers=1)
    expected = bytes_of(tmp_path / "cache")
    for how in ({"workers": 3, "processes": True}, {"memory_mb": 8}, {"rows": 3}, {"rows": 1000}):
        shutil.rmtree(tmp_path / "cache")
        monkeypatch.setattr(stretches, "MOST_ROWS", how.pop("rows", 4))
        prepare(recipe, measure=True, **how)
        assert bytes_of(tmp_path / "cache") == expected


def test_without_measuring_the_command_to_run_is_named_and_what_is_up_to_date_is_left_alone(tmp_path: Path) -> None:
    recipe = recipe_of(shards(tmp_path))
    assert "playhead prepare --measure" in refusal(recipe)
    with pytest.raises(NotPreparedError, match="playhead prepare --measure"):
        open_plan(recipe)
    with pytest.raises(NotPreparedError, match="playhead prepare --measure"):
        Loader(recipe)
    prepare(recipe, measure=True)
    assert not prepare(recipe).changed
    assert not prepare(recipe, measure=True).changed
    shards(tmp_path, 1)
    assert "playhead prepare --measure" in refusal(recipe)
    assert "playhead prepare --measure" in refusal(recipe, force=True)


def test_another_selection_needs_no_measuring(tmp_path: Path) -> None:
    prepare(recipe_of(shards(tmp_path)), measure=True)
    shorter = recipe_of(tmp_path, batching={"type": "fixed", "size": 2, "max_length": 20, "overlong": "drop"})
    assert prepare(shorter).sources[0].selected_rows == 20


def test_only_what_changed_is_measured_again_and_the_bytes_are_those_of_a_fresh_index(
    tmp_path: Path, calls: Path
) -> None:
    recipe = recipe_of(shards(tmp_path), "noted")
    prepare(recipe, measure=True)
    calls.write_text("")
    shards(tmp_path, 1)
    write_jsonl(tmp_path / "3.jsonl", [{"n": 77, "id": "x"}])
    assert measured(recipe) == 11
    assert sorted(map(int, calls.read_text().split())) == [*range(10, 20), 77]
    again = bytes_of(tmp_path / "cache")
    shutil.rmtree(tmp_path / "cache")
    assert measured(recipe) == 31
    assert bytes_of(tmp_path / "cache") == again
    assert measured(recipe, force=True) == 31


@pytest.mark.parametrize(
    ("change", "again"),
    [
        ({"decode": False}, 30),
        ({"sequence": "id"}, 0),
        ({"seed": 7}, 0),
        ({"sequence_rate": 8000}, 0),
        ({"collate": "list", "pad_to": 64}, 0),
        ({"image": {"shortest": 64}}, 30),
    ],
)
def test_what_decides_measured_lengths_makes_them_out_of_date(
    tmp_path: Path, change: dict[str, Any], again: int
) -> None:
    prepare(recipe_of(shards(tmp_path)), measure=True)
    changed = recipe_of(tmp_path, **change)
    if "sequence" in change:
        assert 'field "id" has no length' in refusal(changed, measure=True)
    elif again:
        assert "prepare --measure" in refusal(changed)
        assert measured(changed) == again
    else:
        assert not prepare(changed).changed


def test_a_map_of_its_own_name_or_of_the_source_is_another_map(tmp_path: Path) -> None:
    prepare(recipe_of(shards(tmp_path)), measure=True)
    assert measured(recipe_of(tmp_path, "random")) == 30
    own = recipe_of(tmp_path, source={"map": "measured_maps:random"})
    assert not prepare(own).changed


def test_random_lengths_are_those_of_epoch_0_and_of_the_seed(tmp_path: Path) -> None:
    recipe = recipe_of(shards(tmp_path), "random", epochs=1, lanes=1)
    prepare(recipe, measure=True)
    assert len(set(all_lengths(table_of(recipe)))) > 20
    assert len(list(Loader(recipe))) == 15  # no sample is of another length than planned
    other = recipe_of(tmp_path, "random", seed=1)
    with pytest.raises(NotPreparedError, match="another `seed`"):
        table_of(other)
    assert "prepare --measure" in refusal(other)
    before = all_lengths(table_of(recipe))
    assert measured(other) == 30
    assert all_lengths(table_of(other)) != before


def test_random_lengths_of_a_shard_that_moved_are_measured_again(tmp_path: Path) -> None:
    recipe = recipe_of(shards(tmp_path, 1, 2), "random")
    prepare(recipe, measure=True)
    shards(tmp_path, 3)
    assert measured(recipe) == 10
    shards(tmp_path, 0)
    assert measured(recipe) == 40
    again = bytes_of(tmp_path / "cache")
    shutil.rmtree(tmp_path / "cache")
    prepare(recipe, measure=True)
    assert bytes_of(tmp_path / "cache") == again


def test_random_lengths_left_by_a_failed_run_are_not_used_for_another_seed(tmp_path: Path) -> None:
    shards(tmp_path)
    (tmp_path / "3.jsonl").write_text('{"n": -1}\n')
    assert "a bad row" in refusal(recipe_of(tmp_path, "random"), measure=True)
    (tmp_path / "3.jsonl").write_text('{"n": 1}\n')
    other = recipe_of(tmp_path, "random", seed=1)
    assert measured(other) == 31
    again = bytes_of(tmp_path / "cache")
    shutil.rmtree(tmp_path / "cache")
    prepare(other, measure=True)
    assert bytes_of(tmp_path / "cache") == again


def test_seconds_go_through_the_rate_of_the_sequence(tmp_path: Path) -> None:
    shards(tmp_path)
    length = {"measure": True, "unit": "seconds"}
    recipe = recipe_of(tmp_path, "wave", source={"length": length}, sequence="audio", sequence_rate=16000)
    prepare(recipe, measure=True)
    assert all_lengths(table_of(recipe)) == [n * 10 + 1 for n in range(30)]  # milliseconds, rounded up
    faster = recipe_of(tmp_path, "wave", source={"length": length}, sequence="audio", sequence_rate=8000)
    assert measured(faster) == 30
    assert all_lengths(table_of(faster)) == [n * 20 + 1 for n in range(30)]


def test_without_a_map_the_decoded_member_is_measured(tmp_path: Path) -> None:
    members = []
    for j in range(9):
        np.save(tmp_path / "a.npy", np.zeros(j, np.int64))
        members += [(f"{j}.npy", (tmp_path / "a.npy").read_bytes()), (f"{j}.json", json.dumps({"j": j}).encode())]
    write_tar(tmp_path / "a.tar", members)
    recipe = recipe_of(tmp_path, None, source={"path": "*.tar", "ids": "__key__"}, sequence="npy")
    prepare(recipe, measure=True)
    assert all_lengths(table_of(recipe)) == [*range(9)]
    assert table_of(recipe).find("7").tolist() == [7]
    undecoded = recipe_of(tmp_path, None, source={"path": "*.tar"}, sequence="json", decode=False)
    prepare(undecoded, measure=True)
    assert all_lengths(table_of(undecoded)) == [len(b'{"j": 0}')] * 9


def test_ids_columns_and_rules_stand_beside_measured_lengths(tmp_path: Path) -> None:
    source = {"ids": "id", "columns": ["n"], "keep": {"n": [5, None], "id": "*-[0-7]"}}
    recipe = recipe_of(shards(tmp_path), source=source)
    prepare(recipe, measure=True)
    kept = [n for n in range(5, 30) if n % 10 < 8]
    assert all_lengths(table_of(recipe)) == [n + 1 for n in kept]
    assert table_of(recipe).find("2-3").tolist() == [kept.index(23)]


def test_a_training_and_an_evaluation_source_share_what_is_measured(tmp_path: Path, calls: Path) -> None:
    source = {"name": "s", "path": "*.jsonl", "length": {"measure": True}}
    fixed = {"type": "fixed", "size": 2}
    recipe = recipe_of(
        shards(tmp_path), "noted", evaluation={"dev": {"sources": [source], "batching": fixed, "lanes": 1}}
    )
    reports = prepare(recipe, measure=True).sources
    assert [report.measured_rows for report in reports] == [30, 0]
    assert reports[0].directory == reports[1].directory
    assert len(calls.read_text().split()) == 30
    assert len(list(Loader(recipe, split="dev"))) == 15


def test_sources_that_are_not_measured_are_prepared_all_the_same(tmp_path: Path) -> None:
    plain = {"name": "plain", "path": "*.jsonl", "length": "n"}
    found = recipe_of(shards(tmp_path))
    recipe = Recipe.parse({**found.to_dict(), "sources": [*found.to_dict()["sources"], plain]}, tmp_path)
    assert "1 problem" in refusal(recipe)
    alone = Recipe.parse({**found.to_dict(), "sources": [plain]}, tmp_path)
    assert not prepare(alone, measure=True).changed


def test_progress_tells_rows_measured_up_to_all_of_them(tmp_path: Path) -> None:
    events: list[Any] = []
    prepare(recipe_of(shards(tmp_path)), measure=True, progress=events.append)
    rows = [(event.done_rows, event.total_rows) for event in events if isinstance(event, MeasureProgress)]
    assert rows == [(n, 30) for n in (4, 8, 10, 14, 18, 20, 24, 28, 30)]


def test_a_dry_run_says_how_many_rows_would_be_measured_and_runs_no_map(tmp_path: Path, calls: Path) -> None:
    recipe = recipe_of(shards(tmp_path), "noted")
    report = prepare(recipe, measure=True, dry_run=True).sources[0]
    assert abs(report.measured_rows - 30) <= 2
    assert not (tmp_path / "cache").exists()
    assert calls.read_text() == ""
