"""PH070 to PH073: a saved state against the recipe as it is now."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from checked_recipes import Row, found, report_on, rows, sound, source, the_one, write_json, written

from playhead import Loader, Recipe


def saved(path: Path, batches: int = 12) -> Path:
    """A state after some batches of one rank of four lanes."""
    loader = Loader(Recipe.load(path))
    for _ in islice(loader, batches):
        pass
    return write_json(path.parent / "state.json", loader.state_dict())


def two(folder: Path, name: str = "b", count: int = 50, **fields: Any) -> Path:
    return written(folder, source(folder, "a", rows("a", 60)), source(folder, name, rows(name, count)), **fields)


def test_a_state_of_the_recipe_has_nothing_wrong_about_it(tmp_path: Path) -> None:
    path = two(tmp_path)
    report = report_on(path, state=saved(path), worlds=(1, 2, 4))
    assert [each.code for each in report.findings if each.code >= "PH070"] == []
    assert not report.not_checked.keys() - {"PH032", "PH033", "PH034"}


@pytest.mark.parametrize("content", ["", "{", '{"version": 2}', "[]"])
def test_a_state_that_cannot_be_read_is_found(tmp_path: Path, content: str) -> None:
    (tmp_path / "state.json").write_text(content)
    assert the_one("PH070", two(tmp_path), state=tmp_path / "state.json").severity == "error"


def test_a_state_that_is_not_there_or_was_edited_is_found(tmp_path: Path) -> None:
    path = two(tmp_path)
    assert "No such file" in the_one("PH070", path, state=tmp_path / "nowhere.json").found
    state = saved(path)
    assert found("PH070", path, state=state) == []
    write_json(state, {**json.loads(state.read_text()), "step": 5})
    assert "checksum" in the_one("PH070", path, state=state).problem


CHANGES: dict[str, tuple[Row, str, list[str]]] = {
    "seed": ({"seed": 2}, "seed", ["the seed: every order is another (was 1, is 2)"]),
    "lanes": ({"lanes": 8}, "lanes", ["a step has another number of micro-batches (was 4, is 8)"]),
    "batching": ({"batching": {"type": "fixed", "size": 3}}, "batching", ["the batching: its type, size"]),
    "a source renamed": ({"name": "c"}, "sources", ["one was added, removed or renamed"]),
    "rows": ({"count": 49}, "sources", ["the number of selected rows of a source"]),
    "the policy": ({"exhaustion": "stop_all"}, "sources", ["`exhaustion` or `epochs`"]),
    "window": ({"window_size": 80}, "window_size", ["the window size, which follows from"]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_changed_since_a_state_was_saved_is_said_in_words(tmp_path: Path, change: str) -> None:
    fields, place, words = CHANGES[change]
    path = two(tmp_path)
    state = saved(path)
    assert found("PH071", path, state=state) == []
    finding = the_one("PH071", two(tmp_path, **fields), state=state)
    assert (finding.severity, finding.place) == ("error", place)
    assert finding.found.startswith("saved at step 3; since then changed: ")
    assert all(word in finding.found for word in words)


def test_lengths_that_changed_alone_are_said_in_words(tmp_path: Path) -> None:
    path = two(tmp_path)
    state = saved(path)
    other = rows("b", 50)
    other[0] = {**other[0], "n": 7, "tokens": [1] * 7}
    written(tmp_path, source(tmp_path, "a", rows("a", 60)), source(tmp_path, "b", other))
    assert "the lengths of the samples alone" in the_one("PH071", path, state=state).found


def test_a_map_that_changed_since_a_state_was_saved_is_a_warning(tmp_path: Path) -> None:
    path = two(tmp_path)
    state = saved(path)
    assert found("PH072", path, state=state) == []
    (tmp_path / "maps_added_later.py").write_text("def f(sample):\n    return sample\n")
    report = report_on(two(tmp_path, map="maps_added_later:f"), state=state)
    assert [(each.code, each.severity) for each in report.findings if each.code >= "PH070"] == [("PH072", "warning")]


def test_ranks_that_cannot_take_over_in_the_middle_of_a_step_are_found(tmp_path: Path) -> None:
    path = sound(tmp_path)
    middle = saved(path, batches=14)
    finding = the_one("PH073", path, state=middle, worlds=(1, 2, 4))
    assert finding.problem == "the state is in the middle of a step, where 4 ranks cannot take over"
    assert finding.expected == "a world size of 1, 2"
    assert found("PH073", path, state=saved(path), worlds=(1, 2, 4)) == []
