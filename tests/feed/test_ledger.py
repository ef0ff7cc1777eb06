"""The ledger: any step is a look-up and a few steps, and gives what planning from the start gives."""

from __future__ import annotations

import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpora import lengths_of, prepared, recipe_in, take, write_speech, write_text
from playhead import Loader
from playhead.errors import DataError, EndOfStreamError
from playhead.feed import ledger as ledgers
from playhead.feed.ledger import Ledger, ledger_of, seek, write_ahead
from playhead.plan.cursor import Cursor
from playhead.plan.plan import Plan
from playhead.recipe.values import Recipe
from playhead.resolve import open_plan

KINDS: dict[str, dict[str, Any]] = {
    "fixed": {"batching": {"type": "fixed", "size": 2}, "window_size": 40},
    "bucket": {"batching": {"type": "bucket", "num": 3, "budget": 900}, "window_size": 40},
    "pack": {"batching": {"type": "pack", "max_length": 400}, "window_size": 40},
    "passes": {"batching": {"type": "pack", "max_length": 400}, "window_size": 40, "epochs": 20},
    "by weight": {"fuse": {"speech": 1, "text": 2}, "window_size": 24},
    "zip": {"fuse": "zip", "window_size": 24},
}


def recipe_of(folder: Path, kind: str) -> Recipe:
    text = write_text(folder, "a", lengths_of(1, 3, 20))
    fields = {**KINDS[kind], "sequence": None, "collate": "list"}  # rows have lengths and no tokens
    if "fuse" not in fields:
        return recipe_in(folder, text, lanes=4, **fields)
    own = {"lanes": 2} if fields["fuse"] == "zip" else {}
    speech = write_speech(folder, "calls", [[0.5 + 0.1 * i for i in range(25)]])
    groups = [
        {"name": "speech", "batching": {"type": "budget", "budget": 5}, "sources": [speech], **own},
        {"name": "text", "batching": {"type": "pack", "max_length": 400}, "sources": [text], **own},
    ]
    return recipe_in(folder, *groups, lanes=4, **fields)


def facts(plan: Plan, cursor: Cursor, count: int = 3) -> list[tuple]:
    """What the next steps hold, from a plan that remembers nothing."""
    fresh = Plan(plan.streams, plan.fuse, plan.chain)
    return [
        (step.number, step.receipt, [(b.stream, b.idle, b.picks.row.tolist()) for b in step.micro_batches])
        for step, _ in islice(fresh.steps(cursor), count)
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_sought_from_the_ledger_is_the_one_planned_to(tmp_path: Path, kind: str) -> None:
    recipe = recipe_of(tmp_path, kind)
    plan = prepared(recipe)
    reached = write_ahead(recipe, plan, 60)
    assert reached.step == 60
    cursor = plan.start()
    for number in range(62):
        assert facts(plan, seek(recipe, plan, number)) == facts(plan, cursor)
        if number == 60:
            assert reached.receipt == cursor.receipt
        cursor = plan.advance(cursor)


@pytest.mark.parametrize("kind", KINDS)
def test_the_records_are_the_starts_of_windows(tmp_path: Path, kind: str) -> None:
    recipe = recipe_of(tmp_path, kind)
    plan = prepared(recipe)
    write_ahead(recipe, plan, 60)
    records = [Cursor.from_record(record.tolist()) for record in ledger_of(recipe, plan).records()]
    assert len(records) >= 4
    assert records[0] == plan.start()
    for record in records:
        assert any(place.step == 0 for place in record.places)
    for stream in range(len(plan.streams)):
        windows = [record.places[stream].window for record in records]
        assert windows == sorted(windows)
        assert set(windows) == set(range(windows[-1] + 1))


def test_writing_ahead_again_changes_nothing_and_further_goes_on(tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path, "pack")
    plan = prepared(recipe)
    path = ledger_of(recipe, plan).path
    first = write_ahead(recipe, plan, 50)
    data, mark = path.read_bytes(), path.stat().st_mtime_ns
    assert write_ahead(recipe, open_plan(recipe), 50) == first
    assert write_ahead(recipe, open_plan(recipe), 20).step == 20
    assert (path.read_bytes(), path.stat().st_mtime_ns) == (data, mark)
    further = write_ahead(recipe, open_plan(recipe), 120)
    assert path.read_bytes().startswith(data)
    path.unlink()
    assert write_ahead(recipe, open_plan(recipe), 120) == further


@pytest.mark.parametrize("keep", [1, 17, 40 * 2, 40 * 3 + 7])
def test_an_interrupted_run_goes_on_and_a_torn_record_is_not_seen(tmp_path: Path, keep: int) -> None:
    recipe = recipe_of(tmp_path, "pack")
    plan = prepared(recipe)
    write_ahead(recipe, plan, 60)
    path = ledger_of(recipe, plan).path
    whole = path.read_bytes()
    assert len(whole) > 40 * 4  # records of five numbers
    path.write_bytes(whole[:keep])
    assert facts(plan, seek(recipe, plan, 33)) == facts(plan, plan.seek(33))
    write_ahead(recipe, plan, 60)
    assert path.read_bytes() == whole


def test_records_are_saved_on_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = recipe_of(tmp_path, "fixed")
    plan = prepared(recipe)
    monkeypatch.setattr(ledgers, "_RECORDS_AT_A_TIME", 3)

    def interrupt(step: int) -> None:
        if step >= 40:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_ahead(recipe, plan, 100, interrupt)
    assert ledger_of(recipe, plan).records()[:, 0].tolist() == [0, 5, 10, 15, 20, 25]


def test_a_ledger_is_of_one_plan(tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path, "pack")
    plan = prepared(recipe)
    write_ahead(recipe, plan, 30)
    other = prepared(recipe_in(tmp_path, write_text(tmp_path, "a", lengths_of(1, 3, 20)), seed=9))
    assert ledger_of(recipe, other).path != ledger_of(recipe, plan).path
    assert len(ledger_of(recipe, other).records()) == 0


@pytest.mark.parametrize("kind", ["stop_first", "passes"])
def test_writing_ahead_stops_where_the_stream_does_and_seeking_past_it_is_refused(tmp_path: Path, kind: str) -> None:
    source = write_text(tmp_path, "a", lengths_of(1, 2, 20))
    fields = {"epochs": 2} if kind == "passes" else {"exhaustion": kind}
    recipe = recipe_in(tmp_path, source, lanes=2, window_size=16, **fields)
    plan = prepared(recipe)
    num_steps = len(take(plan))
    for _ in range(2):
        assert write_ahead(recipe, plan, 1000).step == num_steps
        assert facts(plan, seek(recipe, plan, num_steps - 1)) == facts(plan, plan.seek(num_steps - 1))
        for past in (num_steps, num_steps + 1, 10**9):
            with pytest.raises(EndOfStreamError, match=f"{num_steps:,} steps in all"):
                seek(recipe, plan, past)


@pytest.mark.parametrize("kind", KINDS)
def test_a_running_loader_adds_what_planning_ahead_would(tmp_path: Path, kind: str) -> None:
    recipe = recipe_of(tmp_path, kind)
    plan = prepared(recipe)
    steps = 45
    with Loader(recipe, rank=0, world_size=1, collate=len) as loader:
        for batch in loader:
            if batch.step == steps - 1 and batch.is_last_in_step:
                break
        state = loader.state_dict()
    ledger = ledger_of(recipe, plan)
    recorded = ledger.records().tolist()
    assert len(recorded) > 2
    ledger.path.unlink()
    write_ahead(recipe, plan, steps)
    assert ledger.records().tolist() == recorded

    resumed = Loader(recipe, rank=0, world_size=1, collate=len)
    resumed.load_state_dict(state)
    for batch in resumed:
        if batch.step == 2 * steps - 1 and batch.is_last_in_step:
            break
    grown = ledger.records().tolist()
    assert grown[: len(recorded)] == recorded
    assert len(grown) > len(recorded)


def test_a_run_from_a_state_the_ledger_does_not_know_leaves_no_gap(tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path, "pack")
    plan = prepared(recipe)
    loader = Loader(recipe, rank=0, world_size=1, collate=len)
    for batch in loader:
        if batch.step == 30 and batch.is_last_in_step:
            break
    state = loader.state_dict()
    ledger_of(recipe, plan).path.unlink()
    loader.load_state_dict(state)
    for batch in loader:
        if batch.step == 60:
            break
    assert len(ledger_of(recipe, plan).records()) == 0


def test_a_ledger_that_cannot_be_written_costs_a_warning_and_not_the_run(tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path, "pack")
    plan = prepared(recipe)
    ledger_of(recipe, plan).path.parent.write_text("in the way")
    with pytest.warns(UserWarning, match="cannot write the ledger"):
        steps = {
            batch.step for batch, _ in zip(Loader(recipe, rank=0, world_size=1, collate=len), range(90), strict=False)
        }
    assert max(steps) > 20


def records(*firsts: int) -> np.ndarray:
    return np.array([[first, first * 10] for first in firsts], dtype=np.uint64).reshape(-1, 2)


@given(st.sets(st.integers(0, 40)), st.sets(st.integers(0, 40)), st.integers(0, 45))
def test_a_look_up_finds_the_last_record_at_or_before(
    tmp_path_factory: pytest.TempPathFactory, first: set[int], second: set[int], wanted: int
) -> None:
    ledger = Ledger(tmp_path_factory.mktemp("ledger") / "a.ledger", 2)
    later = {value + 41 for value in second}
    ledger.append(records(*sorted(first)))
    ledger.append(records(*sorted(first | later)))
    assert ledger.records()[:, 0].tolist() == sorted(first | later)
    below = [value for value in first | later if value <= wanted]
    found = ledger.at_or_before(wanted)
    assert (None if found is None else found.tolist()) == ([max(below), max(below) * 10] if below else None)


def test_appending_what_is_there_changes_nothing(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "a.ledger", 2)
    assert ledger.append(records(1, 5)) == 2
    before = ledger.path.read_bytes()
    assert ledger.append(records(1, 5)) == 0
    assert ledger.path.read_bytes() == before


def test_a_record_that_differs_is_refused(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "a.ledger", 2)
    ledger.append(records(1, 5))
    with pytest.raises(DataError, match="a different record for 5"):
        ledger.append(np.array([[5, 51]], dtype=np.uint64))


@pytest.mark.parametrize("torn", range(1, 16))
def test_a_torn_record_is_not_seen_and_is_overwritten(tmp_path: Path, torn: int) -> None:
    ledger = Ledger(tmp_path / "a.ledger", 2)
    ledger.append(records(1, 5, 9))
    with ledger.path.open("r+b") as file:
        file.truncate(2 * 16 + torn)
    assert ledger.at_or_before(100).tolist() == [5, 50]
    ledger.append(records(7))
    assert ledger.records().tolist() == [[1, 10], [5, 50], [7, 70]]


def test_processes_that_append_at_once_leave_every_record_once(tmp_path: Path) -> None:
    path = tmp_path / "a.ledger"
    code = (
        "import sys; import numpy as np; from pathlib import Path; from playhead.feed.ledger import Ledger\n"
        "ledger = Ledger(Path(sys.argv[1]), 2)\n"
        "for i in range(200): ledger.append(np.array([[j, j * 10] for j in range(i + 1)], dtype=np.uint64))\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", code, str(path)]) for _ in range(3)]
    assert [process.wait() for process in running] == [0, 0, 0]
    assert Ledger(path, 2).records().tolist() == records(*range(200)).tolist()
