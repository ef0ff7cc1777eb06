"""Ranges cut into pieces, and these into calls: every byte once, no request too long, small calls left whole."""

from __future__ import annotations

from itertools import chain, pairwise

from hypothesis import given
from hypothesis import strategies as st

from playhead.store import Ranges, Stamp
from playhead.store.pieces import MOST_AT_ONCE, calls_of, parts_of, pieces_of

SIZE = 400
starts = st.lists(st.tuples(st.integers(0, SIZE), st.integers(0, 60)), max_size=80)


@given(starts, st.integers(1, 50))
def test_calls_ask_for_every_byte_and_never_for_more_than_allowed_at_once(
    places: list[tuple[int, int]], most_bytes: int
) -> None:
    ranges = Ranges([first for first, _ in places], [min(first + size, SIZE) for first, size in places])
    pieces = pieces_of("s3://bucket/key", Stamp(SIZE, 1), ranges, most_bytes)
    for number, (first, end) in enumerate(zip(*ranges, strict=True)):
        mine = [piece for piece in pieces if piece.range_number == number]
        assert list(chain(*(range(piece.first, piece.end) for piece in mine))) == [*range(first, end)]
        assert all(piece.offset == piece.first - first and 0 < piece.size <= most_bytes for piece in mine)
    calls = calls_of(pieces, most_bytes)
    assert sorted(chain(*calls)) == sorted(pieces)
    for call in [*calls, *chain(*map(parts_of, calls))]:
        begin = call[0].first
        for before, piece in pairwise(call):
            begin = begin if piece.first <= before.end else piece.first  # a client joins ranges that touch
            assert max(before.end, piece.end) - begin <= most_bytes


@given(st.integers(1, 3 * MOST_AT_ONCE))
def test_a_large_call_is_cut_into_a_few(num_ranges: int) -> None:
    ranges = Ranges([3 * i for i in range(num_ranges)], [3 * i + 1 for i in range(num_ranges)])
    (call,) = calls_of(pieces_of("s3://bucket/key", Stamp(SIZE, 1), ranges, 50), 50)
    parts = parts_of(call)
    assert list(chain(*parts)) == call
    assert len(parts) == min(MOST_AT_ONCE // 10, max(1, num_ranges // 10))
