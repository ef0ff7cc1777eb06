"""Near ranges read together: always what the storage behind it reads, in fewer requests."""

from __future__ import annotations

import random
from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from playhead.store import CountingFiles, JoiningFiles, MemoryFiles, Ranges
from playhead.store.joining import MOST_JOINED_BYTES, NEAR_BYTES, STRAIGHT_BYTES, join_ranges

SIZE = 300_000
PATH = "memory://joining/data"
MEMORY = MemoryFiles()
DATA = random.Random(0).randbytes(SIZE)  # noqa: S311 - no secret
MEMORY.write(PATH, DATA)

_NEAR = st.integers(0, 200)
_FIRSTS = st.one_of(st.integers(0, SIZE), _NEAR, _NEAR.map(lambda n: SIZE - n))
_SIZES = st.one_of(_NEAR, st.integers(0, 40_000), st.just(0), st.integers(STRAIGHT_BYTES - 1, STRAIGHT_BYTES + 1))
_PAIRS = st.one_of(
    st.lists(st.tuples(_FIRSTS, _SIZES), max_size=14),
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 6)), max_size=14),
)
_WANTED = _PAIRS.map(
    lambda pairs: Ranges([first for first, _ in pairs], [min(first + size, SIZE) for first, size in pairs])
)
_NEAR_BYTES = st.one_of(st.integers(0, 8), st.sampled_from([100, 5_000, NEAR_BYTES]))
_MOST_BYTES = st.one_of(st.integers(0, 30), st.sampled_from([300, 5_000, MOST_JOINED_BYTES]))


@given(_WANTED, _NEAR_BYTES, _MOST_BYTES)
def test_runs_hold_their_ranges_and_are_neither_too_long_nor_full_of_gaps(
    ranges: Ranges, near_bytes: int, most_bytes: int
) -> None:
    joined, run_of = join_ranges(ranges, near_bytes, most_bytes)
    assert joined.firsts == sorted(joined.firsts)
    assert sorted(set(run_of)) == list(range(len(joined.firsts)))
    for run, (begin, stop) in enumerate(zip(*joined, strict=True)):
        inside = [wanted for wanted, own in zip(zip(*ranges, strict=True), run_of, strict=True) if own == run]
        some = sorted(wanted for wanted in inside if wanted[0] < wanted[1])
        assert begin == min(first for first, _ in inside)
        assert stop == max((end for _, end in some), default=begin)
        assert stop - begin <= max(most_bytes, *(end - first for first, end in inside))
        covered = begin
        for first, end in some:
            assert first <= covered + near_bytes
            covered = max(covered, end)


def test_the_last_byte_decides_whether_two_ranges_are_near_and_a_run_too_long() -> None:
    for first, near_bytes, most_bytes, expected in [(13, 8, 20, 1), (14, 8, 20, 2), (13, 8, 19, 2), (5, 0, 20, 1)]:
        joined, _ = join_ranges(Ranges([first, 0], [20, 5]), near_bytes, most_bytes)
        assert len(joined.firsts) == expected


@given(_WANTED, _NEAR_BYTES, _MOST_BYTES, st.booleans())
def test_ranges_are_what_plain_reads_give_in_the_order_asked(
    ranges: Ranges, near_bytes: int, most_bytes: int, into: bool
) -> None:
    wanted = list(zip(*ranges, strict=True))
    expected = [DATA[first:end] for first, end in wanted]
    buffers = [memoryview(bytearray(end - first)) for first, end in wanted] if into else None
    found = JoiningFiles(MEMORY, near_bytes, most_bytes).read(PATH, MEMORY.stamp(PATH), ranges, buffers)
    assert [bytes(part) for part in found] == expected
    if buffers is not None:
        assert [bytes(buffer) for buffer in buffers] == expected


def test_near_ranges_are_one_request_and_far_ones_are_not() -> None:
    files = CountingFiles(MEMORY)
    JoiningFiles(files).read(PATH, None, Ranges([400, 0, 100, 90_000], [500, 100, 150, 90_010]))
    assert (files.counts["read"], files.counts["ranges"], files.counts["bytes"]) == (1, 2, 510)
    files = CountingFiles(MEMORY)
    buffers = [memoryview(bytearray(100)) for _ in range(20)]
    JoiningFiles(files).read(PATH, None, Ranges(list(range(0, 2000, 100)), list(range(100, 2100, 100))), buffers)
    assert (files.counts["ranges"], files.counts["bytes"]) == (1, 2000)
    assert b"".join(buffers) == DATA[:2000]


def test_large_ranges_go_straight_into_their_buffers_and_small_ones_are_joined() -> None:
    class Seeing(CountingFiles):
        straight: list[memoryview]

        def read(self, path, stamp, ranges, into=None):
            self.straight += into or ()
            return super().read(path, stamp, ranges, into)

    files = Seeing(MEMORY)
    files.straight = []
    sizes = [100, 200, STRAIGHT_BYTES, 0, 400, STRAIGHT_BYTES + 1, 500]
    ends = list(accumulate(sizes))
    firsts = [end - size for end, size in zip(ends, sizes, strict=True)]
    buffers = [memoryview(bytearray(size)) for size in sizes]
    assert JoiningFiles(files).read(PATH, None, Ranges(firsts, ends), buffers) is buffers
    assert b"".join(buffers) == DATA[: ends[-1]]
    assert [id(buffer.obj) for buffer in files.straight] == [id(buffers[i].obj) for i in (2, 5)]
    assert files.counts["read"] == 2


def test_large_ranges_of_one_run_are_views_of_it() -> None:
    found = JoiningFiles(MEMORY).read(PATH, None, Ranges([0, 100_000], [100_000, 200_000]))
    assert all(isinstance(part, memoryview) for part in found)
    assert b"".join(found) == DATA[:200_000]
