"""The folder that the records of a verification are kept in."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playhead.errors import RecipeError
from playhead.jobs.lock import only_one
from playhead.store import writing_to

_MARK = ".playhead-verify"


@contextmanager
def records_in(folder: Path) -> Iterator[Path]:
    """The folder, emptied of an earlier verification, for one at a time. Anything else in it is left alone: refused."""
    with only_one(folder, "verified into", "one `playhead verify` at a time for each folder of records"):
        if folder.exists() and not (folder / _MARK).exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise RecipeError(
                f"--records {folder}: there is something in it already",
                expected="a folder of an earlier `playhead verify`, an empty one, or none",
                fix="name another folder, or remove this one",
            )
        with writing_to(folder):
            if folder.exists():
                shutil.rmtree(folder)
            folder.mkdir(parents=True)
            (folder / _MARK).touch()
        yield folder
