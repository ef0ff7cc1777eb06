"""PH027 to PH029: samples that are there twice."""

from __future__ import annotations

from pathlib import Path

import pytest
from checked_recipes import found, rows, sound, source, the_one, written

from playhead.verify.checks import ids


def test_an_id_that_occurs_twice_in_a_source_is_found(tmp_path: Path) -> None:
    some = rows("a", 30)
    some[20]["id"] = "a-3"
    finding = the_one("PH027", written(tmp_path, source(tmp_path, "a", some)))
    assert (finding.severity, finding.place) == ("warning", "sources[0]")
    assert finding.found.startswith('1 of 30: row 3 of "a" (')
    assert 'row 20 of "a" (' in finding.found
    assert found("PH027", sound(tmp_path)) == []


def test_an_id_twice_is_no_matter_where_one_of_the_rows_is_left_out(tmp_path: Path) -> None:
    some = rows("a", 30)
    some[20]["id"] = "a-3"
    (tmp_path / "rows.txt").write_text("20\n")
    assert found("PH027", written(tmp_path, source(tmp_path, "a", some, drop_rows="rows.txt"))) == []


def test_sources_without_ids_are_a_note(tmp_path: Path) -> None:
    bare = source(tmp_path, "a", rows("a", 30))
    del bare["ids"]
    finding = the_one("PH027", written(tmp_path, bare, source(tmp_path, "b", rows("b", 30))))
    assert (finding.severity, finding.found) == ("note", "no `ids` in 1 of 2 sources")
    assert finding.fix.startswith("add `ids: id` ")
    assert 'its longest is "a-' in the_one("PH043", written(tmp_path, bare)).found


def test_ids_that_two_sources_share_are_found(tmp_path: Path) -> None:
    path = written(tmp_path, source(tmp_path, "a", rows("a", 30)), source(tmp_path, "b", rows("a", 7)))
    finding = the_one("PH028", path)
    assert finding.problem == '"b" and "a" share ids'
    assert finding.found.startswith("7 ids: row ")
    assert found("PH028", sound(tmp_path)) == []


def test_files_that_two_sources_share_are_found_without_ids(tmp_path: Path) -> None:
    a = source(tmp_path, "a", rows("a", 30))
    del a["ids"]
    finding = the_one("PH028", written(tmp_path, a, {**a, "name": "b"}))
    assert finding.problem == '"b" and "a" share rows of a file'
    assert finding.found == str(tmp_path / "a.jsonl")


def test_evaluation_rows_that_are_trained_on_are_found_by_their_ids(tmp_path: Path) -> None:
    leaked = source(tmp_path, "dev", [*rows("dev", 20), *rows("b", 3)])
    evaluation = {"dev": {"sources": [leaked], "batching": {"type": "fixed", "size": 2}}}
    finding = the_one("PH029", sound(tmp_path, evaluation=evaluation))
    assert (finding.severity, finding.place) == ("error", "evaluation.dev.sources[0]")
    assert finding.problem == 'rows of "dev" (dev) are also trained on, in "b"'
    assert finding.found.startswith("3 ids: ")
    assert "`drop_ids` of sources[1]" in finding.fix
    clean = source(tmp_path, "dev", rows("dev", 20))
    evaluation = {"dev": {"sources": [clean], "batching": {"type": "fixed", "size": 2}}}
    assert found("PH029", sound(tmp_path, evaluation=evaluation)) == []


def test_evaluation_files_that_are_trained_on_are_found_without_ids(tmp_path: Path) -> None:
    bare = source(tmp_path, "a", rows("a", 30))
    del bare["ids"]
    evaluation = {"dev": {"sources": [{**bare, "name": "dev"}], "batching": {"type": "fixed", "size": 2}}}
    assert the_one("PH029", written(tmp_path, bare, evaluation=evaluation)).found == str(tmp_path / "a.jsonl")


def test_of_very_many_ids_equal_ones_still_meet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids, "_MOST_IDS", 150)
    path = written(tmp_path, source(tmp_path, "a", rows("a", 300)), source(tmp_path, "b", rows("a", 300)))
    finding = the_one("PH028", path)
    assert 30 < int(finding.found.split()[0]) < 120


def test_one_file_may_be_two_sources_of_other_rows(tmp_path: Path) -> None:
    a = source(tmp_path, "a", rows("a", 30))
    del a["ids"]
    short, long = {**a, "keep": {"n": [0, 20]}}, {**a, "name": "b", "keep": {"n": [21, None]}}
    assert found("PH028", written(tmp_path, short, long)) == []
    long["keep"] = {"n": [15, None]}
    assert the_one("PH028", written(tmp_path, short, long)).found == str(tmp_path / "a.jsonl")
    dev = {**a, "name": "dev", "keep": {"n": [21, None]}}
    evaluation = {"dev": {"sources": [dev], "batching": {"type": "fixed", "size": 2}}}
    assert found("PH029", written(tmp_path, short, evaluation=evaluation)) == []
