"""A loader's state in a file: JSON, written atomically."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import typer

from playhead.errors import StateError
from playhead.feed.loader import Loader
from playhead.feed.state import PayloadWarning
from playhead.store import replacing


def restore_from(path: Path, loader: Loader) -> None:
    """Resume from the state in a file; every error names the file. A changed map or collate is a note on stderr."""
    state = read_state_file(path)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", PayloadWarning)
        try:
            loader.load_state_dict(state)
        except StateError as error:
            error.at(str(path))
            raise
    for warning in caught:
        typer.echo(f"note: {path}: {warning.message}", err=True)


def save_to(path: Path, state: dict[str, Any]) -> None:
    with replacing(path) as file:
        file.write(json.dumps(state).encode() + b"\n")


def read_state_file(path: Path) -> Any:
    """The plain values of a state; a file that holds none is refused."""
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise StateError(
            f"{path}: not valid JSON, or truncated",
            found=f"{path.stat().st_size:,} bytes; {error}",
            expected="a complete state from `playhead run --state` or `state_dict()`",
            fix="use an older copy, or remove the file to start again from step 0",
        ) from error
    except OSError as error:
        raise StateError(f"{path}: cannot be read", found=error.strerror or str(error)) from error
