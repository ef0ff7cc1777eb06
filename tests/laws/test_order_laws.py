"""The laws of the order: bijections, orders, blends, pieces, each with its inverse and its slow twin."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import twins
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import orders, streams

from playhead import seeds
from playhead.order import blend as blending
from playhead.order import picks as picking
from playhead.order.blend import Blend
from playhead.order.hashing import fold64, fold_each, mix64, mix_each
from playhead.order.permute import SMALL, permute, unpermute
from playhead.order.shares import LARGEST_BLOCK, SHARE_UNITS, fixed_point, passes, weighted
from playhead.order.source_order import SourceOrder, draw_of, rows_between
from playhead.plan.segments import Stream

keys = st.integers(0, 2**64 - 1)
sizes = st.integers(1, 300) | st.integers(SMALL - 2, SMALL + 3000)


@given(keys, st.integers(0, 2**64 - 1))
def test_the_kernels_fold_keys_as_seeds_do(key: int, value: int) -> None:
    assert int(fold64(np.uint64(key), np.uint64(value))) == seeds.fold(key, value)
    assert int(mix64(np.uint64(value))) == seeds.mix(value)
    assert fold_each(key, np.array([value, 7], np.uint64)).tolist() == [seeds.fold(key, value), seeds.fold(key, 7)]
    assert mix_each(np.array([key, value], np.uint64)).tolist() == [seeds.mix(key), seeds.mix(value)]


@given(st.lists(st.integers(0, 2**63) | st.text(max_size=5), max_size=4), st.integers(0, 2**63))
def test_a_key_can_be_extended_part_by_part(path: list, number: int) -> None:
    assert seeds.key(*path, number) == seeds.fold(seeds.key(*path), number)
    assert seeds.key(*path, "x", number) == seeds.extend(seeds.key(*path), "x", number)


def test_keys_of_like_paths_differ() -> None:
    paths = [(1, 2), (2, 1), (12,), ("1", 2), ("12",), (1, "2"), ("ab", "c"), ("a", "bc"), (0,), (), (0, 0), ("",)]
    assert len({seeds.key(*path) for path in paths}) == len(paths)


@given(keys, sizes)
@settings(max_examples=25)
def test_a_permutation_is_a_bijection_and_has_its_inverse(key: int, n: int) -> None:
    places = np.arange(n)
    gone = permute(key, places, n)
    assert np.array_equal(np.sort(gone), places)
    assert np.array_equal(unpermute(key, gone, n), places)


@given(keys, st.integers(1, 300))
def test_a_small_permutation_agrees_with_its_twin(key: int, n: int) -> None:
    assert permute(key, np.arange(n), n).tolist() == twins.permutation(key, n)


@given(keys, st.integers(SMALL, 2**45), st.lists(st.integers(0, 2**45), min_size=1, max_size=20))
def test_a_large_permutation_agrees_with_its_twin_and_has_its_inverse(key: int, n: int, indices: list[int]) -> None:
    asked = np.array(indices) % n
    gone = permute(key, asked, n)
    assert gone.tolist() == [twins.permuted(key, int(i), n) for i in asked]
    assert np.array_equal(unpermute(key, gone, n), asked)


def test_permutations_mix_well() -> None:
    """Neighbours land anywhere: mean distance n / 3, and no more fixed points than chance allows."""
    for n in (1000, SMALL - 1, SMALL, 3 * SMALL, 10 * SMALL):
        distances, fixed = [], []
        for seed in range(8):
            gone = permute(seeds.key(seed, "mix"), np.arange(n), n)
            distances.append(float(np.abs(np.diff(gone)).mean()) / n)
            fixed.append(int((gone == np.arange(n)).sum()))
        assert abs(np.mean(distances) - 1 / 3) < 0.01
        assert sum(fixed) < 30  # expected 8


@given(orders("a"), st.integers(0, 3))
def test_every_epoch_of_a_source_gives_every_row_once(order: SourceOrder, epoch: int) -> None:
    epochs, rows = rows_between(order, epoch * order.num_rows, (epoch + 1) * order.num_rows)
    assert set(epochs.tolist()) == {epoch}
    assert sorted(rows.tolist()) == list(range(order.num_rows))


@given(orders("a"), st.integers(0, 200), st.integers(0, 60))
def test_an_order_can_be_entered_anywhere_and_has_its_inverse(order: SourceOrder, first: int, count: int) -> None:
    epochs, rows = rows_between(order, first, first + count)
    from_start = rows_between(order, 0, first + count)
    assert np.array_equal(epochs, from_start[0][first:])
    assert np.array_equal(rows, from_start[1][first:])
    for i in range(count):
        assert draw_of(order, int(epochs[i]), int(rows[i])) == first + i


@given(orders("a", ("shards",)), st.integers(0, 2))
def test_a_shard_shuffle_finishes_a_group_of_shards_before_the_next(order: SourceOrder, epoch: int) -> None:
    _, rows = rows_between(order, epoch * order.num_rows, (epoch + 1) * order.num_rows)
    shard_of = np.repeat(np.arange(len(order.shard_rows)), order.shard_rows)[rows]
    seen_until = [int(np.flatnonzero(shard_of == s).max()) for s in np.unique(shard_of)]
    begun_at = [int(np.flatnonzero(shard_of == s).min()) for s in np.unique(shard_of)]
    for i in range(order.num_rows):
        in_use = sum(begin <= i <= end for begin, end in zip(begun_at, seen_until, strict=True))
        assert in_use <= order.group


def test_shuffles_differ_between_epochs_sources_and_seeds() -> None:
    orders = {
        tuple(rows_between(SourceOrder(50, shuffle, seeds.key(seed, "shuffle", name), np.array([25, 25])), 0, 100)[1])
        for shuffle in ("global", "shards")
        for seed in (0, 1)
        for name in ("a", "b")
    }
    assert len(orders) == 8
    assert all(order[:50] != order[50:] for order in orders)


def test_a_part_of_a_source_has_its_own_rows() -> None:
    for shuffle in ("none", "global", "shards"):
        order = SourceOrder(30, shuffle, 5, np.array([10, 20]), 1, first_row=100)
        epochs, rows = rows_between(order, 0, 60)
        assert sorted(rows[:30]) == list(range(100, 130))
        assert [draw_of(order, int(e), int(r)) for e, r in zip(epochs, rows, strict=True)] == list(range(60))


weights = st.lists(st.fractions(Fraction(1, 500), 1000), min_size=1, max_size=6)


@given(st.lists(st.fractions(Fraction(1, 10**6), 10**6), min_size=1, max_size=50))
def test_fixed_point_shares_add_up_and_are_within_a_unit_of_exact(parts: list[Fraction]) -> None:
    shares = fixed_point(parts).tolist()
    assert sum(shares) == SHARE_UNITS
    for share, part in zip(shares, parts, strict=True):
        assert abs(share - part * SHARE_UNITS / sum(parts)) < 1


@given(st.lists(st.integers(2**41, 2**58), min_size=2, max_size=5), keys, st.integers(0, 3), st.integers(0, 2**50))
@settings(max_examples=50)
def test_a_blend_is_exact_where_64_bits_would_overflow(rows: list[int], key: int, passed: int, block: int) -> None:
    """A block anywhere in a pass draws each member exactly its count, and numbers go on over the end of the pass."""
    blend, _ = passes(rows, key)
    start = passed * blend.total + min(block, (blend.total - 1) // blend.block) * blend.block
    end = min(start + blend.block, (passed + 1) * blend.total)
    before, after = exact_counts(blend, start), exact_counts(blend, end)
    members, numbers = blending.resolve(blend, start, start + 3 * blend.block)
    assert np.bincount(members[: end - start], minlength=len(rows)).tolist() == (after - before).tolist()
    for member, first in enumerate(before.tolist()):
        found = numbers[members == member]
        assert found.tolist() == list(range(first, first + len(found)))


def exact_counts(blend: Blend, draw: int) -> np.ndarray:
    """Each member's draws before a block, in Python's own integers."""
    done, inside = divmod(draw, blend.total)
    return np.diff([done * c + inside * c // blend.total for c in blend.cumulative.tolist()])


@given(weights, keys, st.integers(1, 3000))
@settings(max_examples=30)
def test_a_blend_agrees_with_its_twin(parts: list[Fraction], key: int, num_draws: int) -> None:
    blend = weighted(parts, key)
    members, numbers = blending.resolve(blend, 0, num_draws)
    assert list(zip(members.tolist(), numbers.tolist(), strict=True)) == twins.blended(blend, num_draws)


@given(st.lists(st.integers(1, 900), min_size=1, max_size=5), keys)
@settings(max_examples=30)
def test_passes_agree_with_their_twin_and_take_each_row_count_exactly(rows: list[int], key: int) -> None:
    blend, order = passes(rows, key)
    assert blend.tail is None
    members, numbers = blending.resolve(blend, 0, 2 * sum(rows))
    assert list(zip(members.tolist(), numbers.tolist(), strict=True)) == twins.blended(blend, 2 * sum(rows))
    counts = np.bincount(members[: sum(rows)], minlength=len(rows))
    assert [int(counts[order.index(i)]) for i in range(len(rows))] == rows


@given(weights, keys, st.integers(0, 2**40))
def test_blend_counts_are_within_one_of_exact_at_every_block_boundary(
    parts: list[Fraction], key: int, block: int
) -> None:
    blend = weighted(parts, key)
    draw = block * blend.block
    counts = blending.counts_at(blend, draw)
    assert counts.sum() == draw
    for count, share in zip(counts.tolist(), blend.shares.tolist(), strict=True):
        assert abs(count - Fraction(draw * share, SHARE_UNITS)) < 1
    assert (blending.counts_at(blend, draw + blend.block) >= counts).all()


@given(weights | st.just([Fraction(1), Fraction(1, LARGEST_BLOCK)]), keys, st.integers(0, 2**40), st.integers(0, 3000))
@settings(max_examples=40)
def test_a_blend_can_be_entered_anywhere_and_has_its_inverse(
    parts: list[Fraction], key: int, first: int, size: int
) -> None:
    blend = weighted(parts, key)
    members, numbers = blending.resolve(blend, first, first + size)
    counts = blending.counts_at(blend, first)
    for member in range(len(parts)):
        mine = numbers[members == member]
        assert np.array_equal(mine, counts[member] + np.arange(len(mine)))
    for i in range(0, size, 500):
        assert blending.draw_of(blend, int(members[i]), int(numbers[i])) == first + i


def test_a_pass_takes_every_row_of_sources_far_too_small_for_a_block() -> None:
    rows = [3 * LARGEST_BLOCK, 1, 2]
    blend, order = passes(rows, seeds.key(3, "blend"))
    assert blend.tail is not None
    total = sum(rows)
    members, numbers = blending.resolve(blend, 0, 2 * total)
    for position, source in enumerate(order):
        places = np.flatnonzero(members == position)
        assert np.array_equal(numbers[places], np.arange(2 * rows[source]))
        assert (places < total).sum() == rows[source]
        for place in places[:3]:
            assert blending.draw_of(blend, position, int(numbers[place])) == place
    middle = total + 12345
    assert np.array_equal(blending.counts_at(blend, middle), np.bincount(members[:middle], minlength=3))


@given(streams(epochs=st.none() | st.integers(1, 3)), st.integers(0, 300), st.integers(1, 40))
def test_picks_have_their_inverse_and_can_be_entered_anywhere(stream: Stream, first: int, count: int) -> None:
    pieces = stream.segments[0].pieces
    stop = pieces[-1].stop_draw
    end = first + count if stop is None else min(first + count, stop)
    if end <= first:
        return
    found = picking.picks_between(pieces, stream.orders, first, end)
    whole = picking.picks_between(pieces, stream.orders, 0, end)
    assert np.array_equal(found.row, whole.row[first:])
    assert np.array_equal(found.source, whole.source[first:])
    for i in range(end - first):
        pick = int(found.source[i]), int(found.epoch[i]), int(found.row[i])
        assert picking.draw_of(pieces, stream.orders, *pick) == first + i


def test_a_pick_past_a_finite_end_has_no_draw() -> None:
    order = SourceOrder(10, "none", 0)
    blend = Blend(np.array([1]), 1024, 0, 0)
    piece = picking.Piece(0, 10, np.array([0]), np.array([0]), blend)
    assert picking.draw_of((piece,), (order,), 0, 0, 9) == 9
    assert picking.draw_of((piece,), (order,), 0, 1, 0) is None
