"""Prepares a folder again and again, killed for real before the n-th rename or fsync, for every n; then resumes.

Run as `python killed_everywhere.py FOLDER`, where FOLDER/old and FOLDER/new hold *.jsonl of the same names. The
cache is prepared over the old files, the new files put in their place, and the second `prepare` is killed.
Prints how many kills there were; any other state than old, new or re-doable ends it with an error.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path

import numpy as np

from playhead.errors import NotPreparedError, StoreError
from playhead.formats.rows import Fetch
from playhead.prepare import prepare
from playhead.recipe.values import Recipe
from playhead.store import all_files
from small_data import all_lengths, bytes_of, recipe_over, table_of

NUM_SHARDS = 4


def in_child(recipe: Recipe, kill_before: int | None) -> int | None:
    """Prepare in a forked process; the number of shards it scanned, None if it was killed."""
    child = os.fork()
    if child == 0:
        if kill_before is not None:
            kill_at_call(kill_before)
        os._exit(prepare(recipe).sources[0].scanned_shards)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return None
    assert os.WEXITSTATUS(status) <= NUM_SHARDS
    return os.WEXITSTATUS(status)


def kill_at_call(number: int) -> None:
    calls = 0

    def watched(real):  # type: ignore[no-untyped-def]
        def call(*args, **kwargs):  # type: ignore[no-untyped-def]
            nonlocal calls
            calls += 1
            if calls == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **kwargs)

        return call

    os.fsync, os.rename, os.replace = watched(os.fsync), watched(os.rename), watched(os.replace)


def put(files: Path, work: Path) -> None:
    for path in files.iterdir():
        shutil.copy2(path, work / path.name)


def main(folder: Path) -> None:
    work = folder / "work"
    work.mkdir()
    recipe = recipe_over(work, ids="id", keep={"n": [1, None]})
    put(folder / "new", work)
    in_child(recipe, None)
    expected, lengths = bytes_of(work / "cache"), all_lengths(table_of(recipe))
    number, left_to_scan = 0, NUM_SHARDS - 1
    killed = True
    while killed:
        number += 1
        shutil.rmtree(work / "cache")
        put(folder / "old", work)
        in_child(recipe, None)
        old = all_lengths(table_of(recipe))
        put(folder / "new", work)
        killed = in_child(recipe, number) is None
        try:
            table = table_of(recipe)
            found = all_lengths(table)
            assert found in (old, lengths), f"kill {number}: a mixture"
            rows = table.locate(np.arange(table.num_rows), Fetch(all_files(), table.index.stamps))
            rows.payloads("jsonl")
            assert found == lengths, f"kill {number}: new rows read by the old index"
        except (StoreError, NotPreparedError):
            assert killed
        # One shard is the same in both; and the later the kill, the less there is left to scan.
        scanned = in_child(recipe, None)
        assert scanned is not None
        assert scanned <= left_to_scan, f"kill {number}: scanned again"
        left_to_scan = scanned
        assert bytes_of(work / "cache") == expected, f"kill {number}: other bytes"
    print(number - 1)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
