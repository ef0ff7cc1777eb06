"""A collate function that keeps keys and audio as they are."""

from __future__ import annotations

from typing import Any


def keys(samples: list[dict[str, Any]]) -> dict[str, Any]:
    return {"keys": [sample["__key__"] for sample in samples], "audio": [sample["wav"] for sample in samples]}
