"""The oracle warns about packages it would like to have; that is no failure of ours."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        item.add_marker(pytest.mark.filterwarnings("ignore::UserWarning"))
        item.add_marker(pytest.mark.filterwarnings("ignore::DeprecationWarning"))
