"""Orders are frozen: a job that resumes tomorrow, on another machine, must be dealt what it would have been today."""

from __future__ import annotations

import json

import freeze
import pytest

from playhead.resolve.fingerprints import PLAN_VERSION

_frozen = json.loads(freeze.FILE.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def orders() -> dict:
    return freeze.orders()


@pytest.mark.parametrize("name", _frozen)
def test_the_order_is_as_it_was_frozen(name: str, orders: dict) -> None:
    assert orders[name] == _frozen[name], "raise PLAN_VERSION and run tests/golden/freeze.py in the same commit"


def test_nothing_is_left_unfrozen(orders: dict) -> None:
    assert orders.keys() == _frozen.keys()
    assert _frozen["plan version"] == PLAN_VERSION
