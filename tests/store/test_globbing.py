from __future__ import annotations

import glob
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.store.globbing import fixed_part, matches

_NAMES = st.sampled_from(["a", "b", "ab", "a1", ".h", "x.jsonl", "[1]"])
_PATTERNS = st.sampled_from(["*", "**", "a*", "?", "[ab]", "*.jsonl", "a", "x.jsonl", ".*", "[!a]"])
_KEYS = st.lists(_NAMES, min_size=1, max_size=3).map(tuple)
# Whether `x/**` names the file x itself differs between releases of Python: `**` stands last only where it is alone.
_PARTS = st.lists(_PATTERNS, min_size=1, max_size=3).filter(lambda parts: parts[-1] != "**" or len(parts) == 1)


@given(st.sets(_KEYS, max_size=8), _PARTS)
def test_keys_match_as_files_of_the_same_names_do(keys: set[tuple[str, ...]], parts: list[str]) -> None:
    names = {key for key in keys if not any(key == other[: len(key)] for other in keys if other != key)}
    pattern = "/".join(parts)
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            path = Path(folder, *name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        found = glob.glob(pattern, root_dir=folder, recursive=True)  # noqa: PTH207 - the twin
        expected = {name for name in found if Path(folder, name).is_file()}
    assert {"/".join(name) for name in names if matches("/".join(name), pattern)} == expected


@pytest.mark.parametrize(
    ("pattern", "fixed"),
    [("a/b/c*.x", "a/b"), ("a/*/c", "a"), ("**/x", ""), ("*", ""), ("a/b", "a"), ("a/b[0]/c/*", "a")],
)
def test_a_store_is_asked_for_what_comes_before_the_first_wildcard(pattern: str, fixed: str) -> None:
    assert fixed_part(pattern) == fixed
