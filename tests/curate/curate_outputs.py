"""What a curating run left, without what tells the time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_TIMED = ("slowest", "wall_seconds")


def outputs(out: Path) -> dict[str, Any]:
    """Every file by name but the report; of the summary, the values that time does not enter."""
    found: dict[str, Any] = {path.name: path.read_bytes() for path in sorted(out.iterdir()) if path.is_file()}
    if "summary.json" in found:
        found["summary.json"] = untimed(json.loads(found["summary.json"]))
    found.pop("report.html", None)
    return found


def untimed(summary: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in summary.items() if key not in _TIMED and not key.endswith("_per_second")}
    kept["metrics"] = {key: value for key, value in summary["metrics"].items() if not key.endswith("_time")}
    kept["largest"] = [{**row, "seconds": None} for row in summary["largest"]]
    return kept
