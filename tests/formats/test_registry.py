from __future__ import annotations

from typing import Any

import pytest

import toy_format  # noqa: F401 - registers the format
from playhead.errors import RecipeError
from playhead.formats import registry
from playhead.formats.registry import format_of
from playhead.formats.spec import Match, Range, rules_of, spec_of
from playhead.recipe.values import Length, Source


def source(**fields: Any) -> Source:
    return Source(**({"name": "s", "path": ["a.jsonl"]} | fields))


@pytest.mark.parametrize(
    ("path", "name"),
    [
        (["a.jsonl"], "jsonl"),
        (["a.json", "b.json"], "jsonl"),
        (["x/{0..3}.tar"], "webdataset"),
        (["a.parquet"], "parquet"),
        (["s3://b/*.arrow"], "arrow"),
        (["a.toc"], "toy"),
    ],
)
def test_the_format_follows_from_the_extension(path: Any, name: str) -> None:
    assert format_of(source(path=path), "sources[0]").name == name


@pytest.mark.parametrize("path", [["a.orc"], ["a"], ["a.jsonl", "b.tar"]])
def test_an_extension_that_tells_no_format_is_refused(path: Any) -> None:
    with pytest.raises(RecipeError, match=r"sources\[3\].*format cannot be inferred") as caught:
        format_of(source(path=path), "sources[3]")
    assert "jsonl" in str(caught.value)


def test_an_unknown_format_is_refused_with_the_nearest() -> None:
    with pytest.raises(RecipeError, match=r"sources\[1\].format") as caught:
        format_of(source(format="jsnl"), "sources[1]")
    assert 'did you mean "jsonl"?' in str(caught.value)
    assert "webdataset" in str(caught.value)


def test_installed_packages_are_looked_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    format_of(source(), "sources[0]")
    monkeypatch.setattr(registry, "entry_points", None)
    assert format_of(source(), "sources[0]").name == "jsonl"


@pytest.mark.parametrize(
    ("path", "options", "problem"),
    [
        ("a.jsonl", {"speed": 11}, "sources[0].options.speed: unknown key"),
        ("a.tar", {"allow_no_ending": True}, "sources[0].options.allow_no_ending: unknown key"),
        ("a.tar", {"allow_no_end": "perhaps"}, "sources[0].options.allow_no_end: invalid value"),
    ],
)
def test_options_are_checked_like_the_rest_of_the_recipe(path: str, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(RecipeError) as caught:
        format_of(source(path=[path], options=options), "sources[0]")
    assert caught.value.problem == problem


def test_rules_are_told_apart_by_what_they_hold() -> None:
    keep = {"duration": [1, 40], "tokens/duration": [None, 25.5], "lang": ["pl", "en"], "path": "*.wav"}
    tests = [rule.test for rule in rules_of(source(keep=keep), "sources[0]")]
    assert tests == [
        Range(("duration",), 1.0, 40.0),
        Range(("tokens", "duration"), None, 25.5),
        Match("lang", any_of=("en", "pl")),
        Match("path", pattern="*.wav"),
    ]


@pytest.mark.parametrize("rule", [[], [1], [1, 2, 3], [1, "a"], [None, None], [40, 1], "re:("])
def test_a_rule_that_is_none_is_refused_with_its_place(rule: Any) -> None:
    with pytest.raises(RecipeError, match=r"sources\[0\].keep.x"):
        rules_of(source(keep={"x": rule}), "sources[0]")


def test_a_scan_collects_what_rules_and_columns_need() -> None:
    keep = {"a/b": [1, 2], "lang": ["en"]}
    spec = spec_of(source(keep=keep, columns=["c", "a"], length=Length(field="n")), "sources[0]", None)
    assert spec.columns == ("a", "b", "c")
    assert [match.name for match in spec.matches] == ["lang"]


def test_dropping_ids_needs_ids_unless_the_format_has_them() -> None:
    with pytest.raises(RecipeError, match="no ids"):
        spec_of(source(drop_ids=["bad.txt"]), "sources[0]", None)
    assert spec_of(source(drop_ids=["bad.txt"]), "sources[0]", "__key__").ids == "__key__"


@pytest.mark.parametrize("length", [Length(), Length(field="a", function="b:c")])
def test_a_length_must_say_where_it_comes_from(length: Length) -> None:
    with pytest.raises(RecipeError, match=r"sources\[0\].length"):
        spec_of(source(length=length), "sources[0]", None)
