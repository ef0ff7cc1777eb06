"""Small reads that follow one another are few requests of a store, and give the bytes of the file."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from playhead.store import MEMORY, CountingFiles, File, ReadingAhead, open_file
from playhead.testing import FaultyFiles

DATA = random.Random(0).randbytes(100_000)  # noqa: S311 - no secret
MOST_BYTES = 4_000


def counted(*, costly: bool = True) -> tuple[File, CountingFiles]:
    path = MEMORY.write("memory://ahead", DATA)
    counting = CountingFiles(FaultyFiles(MEMORY, latency_seconds=1e-9 if costly else 0))
    return open_file(counting, path), counting


@given(st.lists(st.tuples(st.integers(0, 100_100), st.integers(0, 9_000))))
def test_any_reads_give_the_bytes_of_the_file(reads: list[tuple[int, int]]) -> None:
    ahead = ReadingAhead(counted()[0], most_bytes=MOST_BYTES)
    for offset, size in reads:
        assert ahead.read(offset, size) == DATA[offset : offset + size]


def test_what_follows_is_read_once_in_pieces_that_double_up_to_a_bound() -> None:
    file, counting = counted()
    ahead = ReadingAhead(file, 50_000, MOST_BYTES)
    for offset in range(0, 50_000, 100):
        assert ahead.read(max(0, offset - 30), 130) == DATA[max(0, offset - 30) : max(0, offset - 30) + 130]
    assert ahead.read(49_900, 100) == DATA[49_900:50_000]
    assert counting.counts["bytes"] == 50_000
    assert counting.counts["read"] <= 6 + 50_000 // MOST_BYTES + 1


def test_reads_here_and_there_are_no_larger_than_they_were_asked_for() -> None:
    file, counting = counted()
    ahead = ReadingAhead(file, most_bytes=MOST_BYTES)
    for offset in (90_000, 10_000, 50_000, 30_000, 70_000):
        ahead.read(offset, 100)
    assert counting.counts["bytes"] == 500


def test_a_file_on_a_disk_is_read_as_it_is_asked_for() -> None:
    file, counting = counted(costly=False)
    ahead = ReadingAhead(file, most_bytes=MOST_BYTES)
    for offset in range(0, 10_000, 100):
        ahead.read(offset, 100)
    assert counting.counts["read"] == 100
    assert counting.counts["bytes"] == 10_000
