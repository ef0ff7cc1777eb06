"""What tests of formats share."""

from __future__ import annotations

import importlib
from typing import Any

import pytest


@pytest.fixture
def datasets(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    found = importlib.import_module("datasets")
    found.disable_progress_bars()
    return found
