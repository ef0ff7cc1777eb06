"""The oracle warns about packages it would like to have, which is no failure of ours, and makes a process group."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def no_process_group_is_left() -> Iterator[None]:
    yield
    if "oracle" in sys.modules:
        sys.modules["oracle"].stop()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        item.add_marker(pytest.mark.filterwarnings("ignore::UserWarning"))
        item.add_marker(pytest.mark.filterwarnings("ignore::DeprecationWarning"))
