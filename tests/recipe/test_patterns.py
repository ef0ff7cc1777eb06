from __future__ import annotations

import re

import pytest
from braceexpand import braceexpand
from hypothesis import given
from hypothesis import strategies as st

from playhead import RecipeError
from playhead.recipe.patterns import expand_braces


@pytest.mark.parametrize(
    ("pattern", "paths"),
    [
        ("plain.jsonl", ["plain.jsonl"]),
        ("a{0..2}", ["a0", "a1", "a2"]),
        ("a{08..11}", ["a08", "a09", "a10", "a11"]),
        ("{998..1001}", ["998", "999", "1000", "1001"]),
        ("{b,a}.tar", ["b.tar", "a.tar"]),
        ("{a,b}{0..1}", ["a0", "a1", "b0", "b1"]),
        ("{a,b{1..2}}", ["a", "b1", "b2"]),
        ("x{,_extra}", ["x", "x_extra"]),
        ("audio__OP_0..1_CL_.tar", ["audio_0.tar", "audio_1.tar"]),
        ("bucket_OP_1..2_CL_/a__OP_0..1_CL_", ["bucket1/a_0", "bucket1/a_1", "bucket2/a_0", "bucket2/a_1"]),
        ("a(0..1)", ["a0", "a1"]),
        ("a[0..1]", ["a0", "a1"]),
        ("a<0..1>", ["a0", "a1"]),
        ("a[0-9]*.tar", ["a[0-9]*.tar"]),
        ("a (copy).jsonl", ["a (copy).jsonl"]),
        ("{single}", ["{single}"]),
        ("{", ["{"]),
        ("}{", ["}{"]),
        ("{}", ["{}"]),
        ("", [""]),
    ],
)
def test_patterns_stand_for_these_paths(pattern, paths):
    assert expand_braces(pattern, "path") == paths


def test_a_range_that_runs_backwards_is_refused():
    with pytest.raises(RecipeError, match=r"sources\[0\].path: a range of paths is descending") as caught:
        expand_braces("{9..0}", "sources[0].path")
    assert caught.value.fix == "write 0..9"


@pytest.mark.parametrize("pattern", ["{0..1000000}", "{0..9999999999999}", "{0..999}{0..1000}", "{0..999}" * 9])
def test_patterns_of_more_than_a_million_paths_are_refused_at_once(pattern):
    with pytest.raises(RecipeError, match="too many paths"):
        expand_braces(pattern, "path")


def slow_twin(pattern: str) -> list[str]:
    """Replace the first innermost brace by each of its choices, again and again."""
    found = re.search(r"\{(\d+)\.\.(\d+)\}|\{([^{}]*,[^{}]*)\}", pattern)
    if found is None:
        return [pattern]
    if found[3] is not None:
        choices = found[3].split(",")
    else:
        padded = any(len(end) > 1 and end[0] == "0" for end in (found[1], found[2]))
        width = max(len(found[1]), len(found[2])) if padded else 0
        choices = [str(number).zfill(width) for number in range(int(found[1]), int(found[2]) + 1)]
    return [
        path for choice in choices for path in slow_twin(pattern[: found.start()] + choice + pattern[found.end() :])
    ]


ranges = st.builds(
    lambda low, size, width: f"{{{low:0{width}d}..{low + size:0{width}d}}}",
    st.integers(0, 120),
    st.integers(0, 4),
    st.integers(0, 5),
)
pieces = st.recursive(
    st.one_of(st.text("ab/_.-", max_size=3), ranges),
    lambda inner: st.lists(inner, min_size=2, max_size=3).map(lambda choices: "{" + ",".join(choices) + "}"),
    max_leaves=6,
)
flat = st.lists(st.one_of(st.text("ab/_.-", max_size=3), ranges, st.just("{x,yy}")), max_size=4).map("".join)


@given(flat)
def test_braces_expand_as_in_the_slow_twin(pattern):
    assert expand_braces(pattern, "path") == slow_twin(pattern)


@given(st.lists(pieces, max_size=3).map("".join))
def test_nested_braces_expand_as_in_the_library_webdataset_uses(pattern):
    assert expand_braces(pattern, "path") == list(braceexpand(pattern))
