"""Small recipes over real files, prepared, and what checks find of them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from playhead import Recipe
from playhead.prepare import prepare
from playhead.verify.checks import CheckOptions, CheckReport, Finding, check_recipe
from small_data import write_jsonl

Row = dict[str, Any]


def rows(name: str, count: int, shortest: int = 5) -> list[Row]:
    """Rows with an id, a text and tokens, and their number in `n`."""
    lengths = [shortest + i * i * 7919 % 40 for i in range(count)]
    return [
        {"id": f"{name}-{i}", "n": length, "tokens": [(i + j) % 50 for j in range(length)], "text": f"row {i}"}
        for i, length in enumerate(lengths)
    ]


def source(folder: Path, name: str, found: Iterable[Row], **fields: Any) -> Row:
    """A source of one JSONL file with these rows."""
    write_jsonl(folder / f"{name}.jsonl", found)
    return {"name": name, "path": f"{name}.jsonl", "length": "n", "ids": "id", **fields}


def written(folder: Path, *sources: Row, ready: bool = True, **fields: Any) -> Path:
    """A recipe file of these sources, with nothing wrong about it but what they and the fields bring; prepared."""
    path = folder / "recipe.yaml"
    defaults: Row = {"seed": 1, "lanes": 4, "batching": {"type": "fixed", "size": 2, "max_length": 100}}
    values = {name: value for name, value in (defaults | fields).items() if value is not None}
    path.write_text(yaml.safe_dump({**values, "sources": list(sources)}, sort_keys=False))
    if ready:
        prepare(Recipe.load(path), workers=1)
    return path


def sound(folder: Path, **fields: Any) -> Path:
    """A recipe with nothing wrong about it, unless the fields bring it."""
    return written(folder, source(folder, "a", rows("a", 60)), source(folder, "b", rows("b", 50)), **fields)


def report_on(path: Path, **options: Any) -> CheckReport:
    """The report of all checks, none of which failed itself."""
    report = check_recipe(path, CheckOptions(**options))
    assert [each for each in (*report.findings, *report.ignored) if "could not be made" in each.problem] == []
    return report


def found(code: str, path: Path, **options: Any) -> list[Finding]:
    """What one check finds; it must have been made."""
    report = report_on(path, only=(code,), **options)
    assert code in report.checked, report.not_checked
    return [*report.findings]


def the_one(code: str, path: Path, **options: Any) -> Finding:
    (finding,) = found(code, path, **options)
    return finding


def write_json(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value))
    return path
