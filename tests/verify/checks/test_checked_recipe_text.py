"""PH001 to PH004: the recipe as written, and its seed."""

from __future__ import annotations

from pathlib import Path

import pytest
from checked_recipes import found, report_on, rows, sound, source, the_one, written


def test_a_sound_recipe_has_no_errors_and_no_warnings(tmp_path: Path) -> None:
    report = report_on(sound(tmp_path), worlds=(2, 4), steps=10)
    assert [each for each in report.findings if each.severity != "note"] == []
    assert report.not_checked == dict.fromkeys(("PH070", "PH071", "PH072", "PH073"), "needs --state")
    assert not report.failed(strict=True)


@pytest.mark.parametrize(
    ("fields", "place", "words"),
    [
        ({"seed": "randomized"}, "seed", "invalid value"),
        ({"batching": {"type": "fixed", "size": 0}}, "batching.size", "invalid value"),
        ({"fuse": "zip"}, "fuse", "needs several sub-streams"),
        ({"windowsize": 8}, "windowsize", "unknown key"),
        ({"lanes": 3, "balance": 2}, "balance", "must divide the lanes"),
    ],
)
def test_a_recipe_that_cannot_be_used_is_an_error_at_its_line(
    tmp_path: Path, fields: dict[str, object], place: str, words: str
) -> None:
    path = written(tmp_path, source(tmp_path, "a", rows("a", 5)), ready=False, **fields)
    report = report_on(path)
    assert report.not_checked["PH010"] == "the recipe cannot be used"
    finding = next(each for each in report.findings if each.code == "PH001")
    assert (finding.severity, finding.place) == ("error", place)
    assert words in finding.problem
    assert path.read_text().splitlines()[finding.line - 1].strip().startswith(place.rpartition(".")[2])


def test_a_file_that_is_not_yaml_is_an_error_at_its_line(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text("seed: 1\nsources: [\n")
    finding = next(each for each in report_on(path).findings if each.code == "PH001")
    assert finding.line == 3
    assert "not valid YAML" in finding.problem


def test_a_recipe_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    assert "no such recipe file" in the_one("PH001", tmp_path / "recipe.yaml").problem


def test_a_seed_that_is_not_set_is_found(tmp_path: Path) -> None:
    assert the_one("PH002", sound(tmp_path, seed=None)).severity == "warning"
    assert found("PH002", sound(tmp_path, seed=0)) == []


def test_a_seed_from_the_environment_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUN_SEED", "7")
    finding = the_one("PH003", sound(tmp_path, seed="${RUN_SEED}"))
    assert (finding.place, finding.line) == ("seed", 1)
    assert finding.fix == "write the number itself: `seed: 7`"
    assert found("PH003", sound(tmp_path, seed=7)) == []


def test_a_plan_that_cannot_be_made_is_found(tmp_path: Path) -> None:
    few = source(tmp_path, "a", rows("a", 60), weight=1e-9)
    finding = the_one("PH004", written(tmp_path, few, source(tmp_path, "b", rows("b", 50), weight=1)))
    assert finding.place == "sources[0]"
    assert "its weight rounds to no sample in a block" in finding.problem
    assert found("PH004", sound(tmp_path)) == []
