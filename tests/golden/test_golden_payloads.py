"""Payloads are frozen: whatever is done for speed, batches are bit for bit what they were."""

from __future__ import annotations

import json
from pathlib import Path

import freeze_payloads
import pytest
from freeze_payloads import Case

_frozen = json.loads(freeze_payloads.FILE.read_text(encoding="utf-8"))

# A few of each kind, for every one starts its own processes.
_IN_PROCESSES = (
    "rows, fixed, numbers of many kinds",
    "rows, pack, alone, substitutes",
    "arrays of <f4, 30000 x (), C, fixed",
    "arrays of <i2, 30000 x (2,), C, pack, cut",
    "arrays of >f4, 30000 x (2,), F, list",
)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Case]]:
    folder = tmp_path_factory.mktemp("golden")
    return folder, freeze_payloads.cases(folder)


@pytest.mark.parametrize("name", _frozen)
def test_the_payload_is_as_it_was_frozen(name: str, written: tuple[Path, dict[str, Case]]) -> None:
    folder, cases = written
    assert freeze_payloads.digest(cases[name], folder) == _frozen[name]


@pytest.mark.parametrize("name", [name for name in _frozen if name.endswith(("fixed", "pack", "as it is", "list"))])
def test_the_payload_is_the_same_from_threads(name: str, written: tuple[Path, dict[str, Case]]) -> None:
    folder, cases = written
    options = {"workers": 2, "worker_kind": "thread"}
    assert freeze_payloads.digest(cases[name], folder, **options) == _frozen[name]


@pytest.mark.parametrize("name", _IN_PROCESSES)
def test_the_payload_is_the_same_from_processes(name: str, written: tuple[Path, dict[str, Case]]) -> None:
    folder, cases = written
    assert freeze_payloads.digest(cases[name], folder, workers=2, start_method="forkserver") == _frozen[name]


def test_no_payload_is_left_unfrozen(written: tuple[Path, dict[str, Case]]) -> None:
    assert written[1].keys() == _frozen.keys()
