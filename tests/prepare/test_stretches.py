from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.formats.contract import Chunk
from playhead.formats.rows import Shard
from playhead.formats.schema import Track
from playhead.prepare import stretches
from playhead.prepare.stretches import Stretch, batches, cut

SHARD = Shard((("jsonl", "a.jsonl"),))
sizes = st.lists(st.integers(1, 60), min_size=1, max_size=60)


@pytest.fixture(autouse=True, scope="module")
def _small():  # a fixture of the module, because Hypothesis runs a test many times
    patch = pytest.MonkeyPatch()
    patch.setattr(stretches, "MOST_ROWS", 7)
    patch.setattr(stretches, "MOST_BYTES", 100)
    yield
    patch.undo()


def chunks(row_sizes: list[int], cuts: set[int], tracks: tuple[str, ...] = ("jsonl",)) -> list[Chunk]:
    """Rows of these sizes, cut into chunks before each of the rows in `cuts`."""
    bounds = np.cumsum([5, *row_sizes]).astype(np.uint64)
    found = []
    for low, high in pairwise(sorted({0, len(row_sizes), *(row for row in cuts if row < len(row_sizes))})):
        last = high + (high == len(row_sizes))
        found.append(Chunk(high - low, {Track(track).array("offsets"): bounds[low:last] for track in tracks}))
    return found


def cut_up(pieces: list[Chunk], tracks: tuple[str, ...] = ("jsonl",)) -> list[Stretch]:
    return list(cut(pieces, tuple(map(Track, tracks)), SHARD, (), 1000))


def plain(found: list[Stretch]) -> list[object]:
    return [(s.number, s.raw_row, s.num_rows, {t: p.ranges for t, p in s.places.items()}) for s in found]


@given(sizes, st.sets(st.integers(1, 59)), st.sets(st.integers(1, 59)))
def test_stretches_do_not_depend_on_how_rows_were_cut_into_chunks(row_sizes, cuts, others):
    assert plain(cut_up(chunks(row_sizes, cuts))) == plain(cut_up(chunks(row_sizes, others)))


@given(sizes, st.sets(st.integers(1, 59)))
def test_stretches_hold_every_row_once_and_keep_to_their_limits(row_sizes, cuts):
    found = cut_up(chunks(row_sizes, cuts))
    bounds = [5, *(5 + np.cumsum(row_sizes)).tolist()]
    number = 0
    for stretch in found:
        assert (stretch.number, stretch.raw_row) == (number, 1000 + number)
        firsts, ends = stretch.places["jsonl"].ranges
        assert [*firsts, ends[-1]] == bounds[number : number + stretch.num_rows + 1]
        assert ends[:-1] == firsts[1:]
        size = bounds[number + stretch.num_rows] - bounds[number]
        assert stretch.num_rows <= 7
        assert size <= 100 or stretch.num_rows == 1
        number += stretch.num_rows
    assert number == len(row_sizes)


@given(sizes, st.integers(1, 200), st.integers(1, 9))
def test_batches_hold_every_row_once_and_keep_to_their_limits(row_sizes, num_bytes, num_rows):
    for stretch in cut_up(chunks(row_sizes, set())):
        found = list(batches(stretch, num_bytes, num_rows))
        assert [row for low, high in found for row in range(low, high)] == [*range(stretch.num_rows)]
        places = stretch.places["jsonl"]
        for low, high in found:
            assert high - low <= num_rows
            assert int(places.ends[high - 1] - places.firsts[low]) <= num_bytes or high == low + 1


def test_rows_without_tracks_are_cut_by_number_alone():
    found = cut_up([Chunk(5), Chunk(5), Chunk(6)], ())
    assert [stretch.num_rows for stretch in found] == [7, 7, 2]
    assert [*batches(found[0], 10, 4)] == [(0, 4), (4, 7)]


def test_two_tracks_count_together():
    found = cut_up(chunks([20] * 6, set(), ("jsonl", "tar")), ("jsonl", "tar"))
    assert [stretch.num_rows for stretch in found] == [2, 2, 2]
