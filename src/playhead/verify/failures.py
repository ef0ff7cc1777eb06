"""The failure of a rank on its way to the process that started it."""

from __future__ import annotations

import json
import traceback
from pathlib import Path

import playhead.errors
from playhead.errors import PlayheadError, WorkerError

_FIELDS = ("problem", "found", "expected", "fix")
_LAST_LINES = 15


def write_failure(path: Path, error: BaseException) -> None:
    if isinstance(error, PlayheadError):
        about = {name: getattr(error, name) for name in _FIELDS}
        kinds = [kind.__name__ for kind in type(error).__mro__]
    else:
        place = traceback.extract_tb(error.__traceback__)[-1]
        about = {
            "problem": f"the loader raised {type(error).__name__}: {error}",
            "found": f"in {place.filename}, line {place.lineno}, in {place.name}",
        }
        kinds = [WorkerError.__name__]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"kinds": kinds, **about}))


def read_failure(path: Path) -> PlayheadError | None:
    """The error that a rank wrote down, of the kind it was; None where it wrote none."""
    try:
        about = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return None
    kinds = [getattr(playhead.errors, name, None) for name in about.pop("kinds")]
    kind = next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, PlayheadError)), PlayheadError)
    return kind(about.pop("problem"), **about)


def last_lines(path: Path) -> str:
    """The end of what a process printed."""
    try:
        lines = path.read_text(errors="replace").strip().splitlines()
    except FileNotFoundError:
        lines = []
    return "\n".join(["its last output was", *lines[-_LAST_LINES:]]) if lines else "no output from it"
