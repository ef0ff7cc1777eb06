"""Every test that docs/guarantees.md names exists, and every law on the page names one."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`(tests/\S+\.py)::(\w+)`", PAGE)
LAWS = re.findall(r"^\*\*[^*]+\.\*\*.*?(?=^\*\*|^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)


def functions(file: Path) -> set[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("file", sorted({file for file, _ in NAMED}))
def test_every_test_that_the_page_names_exists(file: str) -> None:
    found = functions(ROOT / file)
    assert [name for named, name in NAMED if named == file and name not in found] == []


def test_every_law_on_the_page_names_a_test_that_keeps_it() -> None:
    assert len(LAWS) > 20
    assert [law[:40] for law in LAWS if "`tests/" not in law] == []


def test_every_name_on_the_page_is_read_as_one() -> None:
    assert len(NAMED) == PAGE.count(".py::")
    assert len(NAMED) == len(set(NAMED))
