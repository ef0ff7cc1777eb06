"""Files in memory: what tells them apart, and what a copy in another process says."""

from __future__ import annotations

import pickle

import pytest

from playhead.errors import DataError, StoreError
from playhead.store import MemoryFiles, Ranges


def test_contents_of_one_size_have_marks_of_their_own_in_every_process() -> None:
    first, second = MemoryFiles(), MemoryFiles()
    path = first.write("memory://a/x", b"one")
    second.write(path, b"two")
    assert first.stamp(path) != second.stamp(path)
    second.write(path, b"one")
    assert first.stamp(path) == second.stamp(path)  # so an index on disk serves the next run of a program


def test_a_copy_is_empty_and_says_that_no_other_process_sees_the_files() -> None:
    files = MemoryFiles()
    path = files.write("memory://a/x", b"one")
    copy = pickle.loads(pickle.dumps(files))  # noqa: S301
    with pytest.raises(DataError, match="no other process sees it"):
        copy.stamp(path)
    with pytest.raises(StoreError, match="no other process sees it"):
        copy.read(path, files.stamp(path), Ranges([0], [3]))
