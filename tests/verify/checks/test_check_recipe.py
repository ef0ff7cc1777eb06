"""All checks together: their order, what is accepted, what fails, and lines of the recipe."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from checked_recipes import report_on, rows, sound, source, written

from playhead.verify.checks import CHECKS, CheckOptions, check_recipe, run
from playhead.verify.checks.lines import line_of
from playhead.verify.checks.options import Ignored

DOCS = Path(__file__).parents[3] / "docs" / "check.md"


def test_every_check_has_a_code_of_its_own_and_there_are_enough() -> None:
    codes = [check.code for check in CHECKS]
    assert codes == sorted(set(codes))
    assert len(codes) >= 24


def test_the_page_names_every_check_as_it_is() -> None:
    table = re.findall(r"^\| (PH\d{3}) \| (\w+) \| (.+?) \|", DOCS.read_text(), re.MULTILINE)
    assert table == [(check.code, check.severity, check.title) for check in CHECKS]
    assert f"[{len(CHECKS)} checks](docs/check.md)" in (DOCS.parent.parent / "README.md").read_text()


def test_every_check_is_tested() -> None:
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    assert [check.code for check in CHECKS if f'"{check.code}"' not in tests] == []


def test_the_worst_findings_come_first(tmp_path: Path) -> None:
    report = report_on(sound(tmp_path, seed=None), worlds=(3,))
    severities = [finding.severity for finding in report.findings]
    assert severities == sorted(severities, key=["error", "warning", "note"].index)
    assert {"error", "warning", "note"} == {*severities}


def test_a_check_that_fails_is_reported_and_stops_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_context: object) -> None:
        raise ZeroDivisionError("of a check")

    broken = tuple(replace(check, look=fails) if check.code == "PH030" else check for check in CHECKS)
    monkeypatch.setattr(run, "CHECKS", broken)
    report = check_recipe(sound(tmp_path, seed=None), CheckOptions(worlds=(4,)))
    (finding,) = [each for each in report.findings if each.code == "PH030"]
    assert finding.severity == "warning"
    assert finding.problem == "this check could not be made: ZeroDivisionError: of a check"
    assert finding.found.startswith(f"in {__file__}, line ")
    assert "PH002" in [each.code for each in report.findings]


def test_findings_are_accepted_by_their_code_or_at_one_place(tmp_path: Path) -> None:
    doubled = [*rows("a", 9), *rows("a", 2)]
    path = written(tmp_path, source(tmp_path, "a", doubled), source(tmp_path, "b", [*rows("b", 9), *rows("b", 1)]))

    def places(*ignored: Ignored) -> tuple[list[str], int]:
        report = report_on(path, ignored=ignored)
        return [each.place for each in report.findings if each.code == "PH027"], len(report.ignored)

    assert places() == (["sources[0]", "sources[1]"], 0)
    assert places(Ignored("PH027")) == ([], 2)
    assert places(Ignored("PH027", "sources[1]")) == (["sources[0]"], 1)


RECIPE = """\
seed: 1   # a comment
defaults: &defaults
  length: n
sources:
  - name: a
    path: [one.jsonl,
           two.jsonl]
    <<: *defaults
    keep: {json.duration: [0, 1]}
  - {name: b, weight: 3}
evaluation:
  dev:
    lanes: 4
"""


@pytest.mark.parametrize(
    ("place", "line"),
    [
        ("seed", 1),
        ("sources", 4),
        ("sources[0]", 5),
        ("sources[0].path[1]", 7),
        ("sources[0].length", 3),
        ("sources[0].keep.json.duration", 9),
        ("sources[0].weight", 5),
        ("sources[1].weight", 10),
        ("evaluation.dev.lanes", 13),
        ("evaluation.dev.batching.size", 12),
        ("batching", None),
        ("sources[7].weight", 4),
        ("", None),
    ],
)
def test_a_place_is_found_on_its_line_or_on_that_of_what_is_around_it(place: str, line: int | None) -> None:
    assert line_of(RECIPE, place) == line


def test_a_place_in_json_is_found_too() -> None:
    assert line_of('{"seed": 1,\n "sources": [\n  {"name": "a"}]}', "sources[0].name") == 3
