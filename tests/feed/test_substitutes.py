"""Bad samples: replaced where the recipe says so, written down, and the same again in every replay."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corpora import lengths_of
from deliveries import Seen, deliver, numpy_loader, rounds, stream, woven, write_tokens
from playhead import DataError, Loader, PlayheadError, Recipe, SampleError
from playhead.feed.quarantine import Quarantine
from playhead.prepare import prepare
from playhead.read import Incident

NUM_BATCHES = 32
SUBSTITUTE = {"on_error": "substitute", "max_bad": 1.0}


def rot(path: Path, line: int) -> None:
    """Break a line without a trace in size or mark, as a failing disk does."""
    mark = path.stat()
    lines = path.read_bytes().split(b"\n")
    lines[line] = b"#" + lines[line][1:]
    path.write_bytes(b"\n".join(lines))
    os.utime(path, ns=(mark.st_atime_ns, mark.st_mtime_ns))


def delivered(recipe: Recipe, count: int = NUM_BATCHES, **how: Any) -> list[tuple[Seen, str]]:
    return [(batch, state) for batch, state, _ in deliver(Loader(recipe, **how), count)]


def entries(folder: Path) -> list[dict[str, Any]]:
    files = sorted(folder.glob(".playhead/quarantine/*/rank-*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def weights(batch: Seen) -> list[float]:
    kind, _, data = dict(batch.payload)["weights"]
    return np.frombuffer(data, kind).tolist()


def test_a_broken_row_is_named_with_file_byte_and_row(tmp_path: Path) -> None:
    recipe = stream(tmp_path, "fixed")
    rot(tmp_path / "text-001.jsonl", 4)
    first = len(b"\n".join((tmp_path / "text-001.jsonl").read_bytes().split(b"\n")[:4])) + 1
    with pytest.raises(DataError) as caught:
        delivered(recipe)
    assert caught.value.problem.startswith(
        f'source "text", row 18: {tmp_path}/text-001.jsonl, byte {first:,}: broken JSON'
    )


def test_substitutes_move_no_step_lane_pick_or_receipt(tmp_path: Path) -> None:
    recipe = stream(tmp_path, "fixed", **SUBSTITUTE)
    clean = delivered(recipe, 80)
    assert entries(tmp_path) == []
    rot(tmp_path / "text-001.jsonl", 4)
    found = delivered(recipe, 80)
    assert [batch[:6] for batch, _ in found] == [batch[:6] for batch, _ in clean]
    assert [state for _, state in found] == [state for _, state in clean]
    bad = [i for i, (batch, _) in enumerate(clean) if any(pick[::2] == ("text", 18) for pick in batch.picks)]
    assert len(bad) > 1
    assert [i for i, (new, old) in enumerate(zip(found, clean, strict=True)) if new != old] == bad
    assert all(weights(found[i][0]) == [1, 1, 1] for i in bad)
    written = entries(tmp_path)
    assert [(entry["source"], entry["row"], entry["step"], entry["lane"]) for entry in written] == [
        ("text", 18, found[i][0].step, found[i][0].lane) for i in bad
    ]
    assert all("text-001.jsonl" in entry["reason"] for entry in written)
    lengths = [n for shard in lengths_of(1, 3, 14, 60) for n in shard]
    assert all(entry["substitute"] != 18 and lengths[entry["substitute"]] <= lengths[18] for entry in written)


@pytest.mark.parametrize("how", [{"workers": 3, "worker_kind": "thread"}, {"workers": 2}])
def test_what_stands_in_does_not_depend_on_workers_or_ranks(tmp_path: Path, how: dict[str, Any]) -> None:
    """The map fails by luck: in one epoch and not in another, so a worker's memory would show."""
    recipe = stream(tmp_path, "bucket", map="loader_maps:by_luck", **SUBSTITUTE)
    alone = delivered(recipe, 64)
    alone_entries = entries(tmp_path)
    assert len(alone_entries) > 5
    for file in tmp_path.glob(".playhead/quarantine/*/*"):
        file.unlink()
    dealt = rounds(numpy_loader(recipe, **how), 2, num_batches=32)
    assert woven(dealt) == [batch for batch, _ in alone]
    assert {tuple(sorted(e.items())) for e in entries(tmp_path)} == {
        tuple(sorted(e.items())) for e in entries(tmp_path)
    }


@pytest.fixture
def moody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Recipe, list[Seen], Loader]:
    """Samples that failed for a while: a run through it on two ranks, and one of its loaders; now all is well."""
    recipe = stream(tmp_path, "bucket", map="loader_maps:moody", **SUBSTITUTE)
    mark = tmp_path / "mood"
    mark.touch()
    monkeypatch.setenv("MOOD", str(mark))
    loaders = [Loader(recipe, rank=rank, world_size=2) for rank in range(2)]
    dealt = [[*deliver(loader, NUM_BATCHES // 2)] for loader in loaders]
    mark.unlink()
    return recipe, woven(dealt), loaders[0]


def test_a_replay_is_identical_on_other_ranks_after_the_cause_is_gone(
    tmp_path: Path, moody: tuple[Recipe, list[Seen], Loader]
) -> None:
    recipe, before, _ = moody
    written = entries(tmp_path)
    assert len(written) > 5
    assert all("in a bad mood" in entry["reason"] for entry in written)
    replayed = delivered(recipe)
    assert [batch for batch, _ in replayed] == before
    assert entries(tmp_path) == written  # nothing new to say
    after = delivered(recipe, NUM_BATCHES + 12)[NUM_BATCHES:]  # what comes later is good again
    assert entries(tmp_path) == written
    for file in tmp_path.glob(".playhead/quarantine/*/*"):
        file.unlink()
    assert delivered(recipe, NUM_BATCHES + 12)[NUM_BATCHES:] == after


def test_a_replay_of_the_same_loader_is_identical_too(moody: tuple[Recipe, list[Seen], Loader]) -> None:
    recipe, before, loader = moody
    loader.load_state_dict(Loader(recipe).state_dict())
    again = [batch._replace(is_last=False) for batch, _, _ in deliver(loader, NUM_BATCHES // 2)]
    assert again == [batch._replace(is_last=False) for batch in before[::2]]


def test_the_record_is_not_asked_when_errors_are_to_be_raised(
    tmp_path: Path, moody: tuple[Recipe, list[Seen], Loader]
) -> None:
    recipe, before, _ = moody
    strict = Recipe.parse({**recipe.to_dict(), "on_error": "raise"}, tmp_path)
    assert [batch for batch, _ in delivered(strict)] != before


def test_a_line_torn_by_a_kill_costs_nothing_but_itself(tmp_path: Path) -> None:
    recipe = stream(tmp_path, "fixed", **SUBSTITUTE)
    first, second, third = (Incident("text", 0, row, 1, "why") for row in (5, 6, 7))
    Quarantine(recipe, "f", 0, {"text": 50}).record([first])
    (file,) = tmp_path.glob(".playhead/quarantine/f/rank-00000.jsonl")
    file.write_bytes(file.read_bytes() + b'{"source":"text","epo')
    Quarantine(recipe, "f", 0, {"text": 50}).record([second])
    Quarantine(recipe, "f", 1, {"text": 50}).record([third])
    opened = Quarantine(recipe, "f", 2, {"text": 50})
    assert {row for _, row in opened._bad} == {5, 6, 7}
    assert file.read_bytes().count(b"\n") == 3  # only ever added to
    opened.record([first, second])
    assert not (file.parent / "rank-00002.jsonl").exists()


@pytest.mark.parametrize(
    ("num_rows", "max_bad", "allowed"),
    [
        (170, 0.01, 10),  # a tenth would be 17, and the floor is 10
        (51, 0.01, 5),  # a tenth
        (9, 0.01, 0),
        (9, 0.5, 4),
        (5_000, 0.01, 50),
        (170, 0, 0),
    ],
)
def test_a_few_bad_rows_are_allowed_however_small_the_source(
    tmp_path: Path, num_rows: int, max_bad: float, allowed: int
) -> None:
    recipe = stream(tmp_path, "fixed", on_error="substitute", max_bad=max_bad)
    quarantine = Quarantine(recipe, "f", 0, {"text": num_rows})
    for row in range(allowed):
        quarantine.record([Incident("text", epoch, row, 1, "why") for epoch in range(2)])  # a row counts once
    with pytest.raises(SampleError, match="too many bad samples") as caught:
        quarantine.record([Incident("text", 0, allowed, 1, "why")])
    assert caught.value.expected == f"at most {allowed:,} (`max_bad: {max_bad:g}`)"


def test_too_many_bad_rows_stop_the_run(tmp_path: Path) -> None:
    recipe = stream(tmp_path, "fixed", on_error="substitute", max_bad=0.02)
    for line in range(6):
        rot(tmp_path / "text-002.jsonl", line)
    with pytest.raises(SampleError) as caught:
        delivered(recipe, 200)
    error = caught.value
    assert error.problem == 'source "text" has too many bad samples'
    assert str(error.found).startswith('6 of 51 rows; the last: source "text", row ')
    assert error.expected == "at most 5 (`max_bad: 0.02`)"
    assert str(tmp_path / ".playhead" / "quarantine") in str(error.fix)


@pytest.mark.parametrize("batching", [{"type": "fixed", "size": 2}, {"type": "pack", "max_length": 40}])
def test_where_nothing_can_stand_in_the_slot_is_empty_and_weighs_nothing(tmp_path: Path, batching: Any) -> None:
    source = write_tokens(tmp_path, "a", [[20, 1, 20, 20, 20, 20]])  # row 1 is the shortest
    recipe = Recipe.parse({"sources": [source], "batching": batching, "epochs": 1, **SUBSTITUTE}, tmp_path)
    prepare(recipe, workers=1)
    rot(tmp_path / "a-000.jsonl", 1)
    found = [batch for batch, _ in delivered(recipe)]
    (batch,) = [batch for batch in found if any(row == 1 for _, _, row in batch.picks)]
    slot = [row for _, _, row in batch.picks].index(1)
    assert weights(batch) == [float(i != slot) for i in range(len(batch.picks))]
    assert [entry["substitute"] for entry in entries(tmp_path)] == [None]
    assert [batch for batch, _ in delivered(recipe)] == found


@pytest.mark.parametrize("batching", [{"type": "fixed", "size": 1}, {"type": "pack", "max_length": 40}])
def test_a_batch_of_empty_slots_alone_has_the_shape_of_others_and_weighs_nothing(tmp_path: Path, batching: Any) -> None:
    source = write_tokens(tmp_path, "a", [[40, 3, 40, 40, 40]])
    recipe = Recipe.parse({"sources": [source], "batching": batching, "epochs": 1, **SUBSTITUTE}, tmp_path)
    prepare(recipe, workers=1)
    rot(tmp_path / "a-000.jsonl", 1)
    (batch,) = [batch for batch in Loader(recipe) if batch.rows.tolist() == [1]]
    assert batch["weights"].tolist() == [0]
    assert batch.num_samples == 0
    if batching["type"] == "fixed":
        assert batch["tokens"].shape == (1, 3)  # not longer than planned
    else:
        assert batch["tokens"].tolist() == [0] * 40


def test_nothing_readable_at_all_stops_the_run(tmp_path: Path) -> None:
    recipe = stream(tmp_path, "fixed", map="loader_maps:nothing", **SUBSTITUTE)
    with pytest.raises(PlayheadError, match="neither the samples of the micro-batch nor") as caught:
        delivered(recipe)
    assert "the map loader_maps:nothing returned None" in str(caught.value.found)
