"""Segments: a run may change weights, sources, lanes, window size and batching; nothing is repeated or lost."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import combinations

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st
from strategies import rules, single, streams

from playhead.order.blend import resolve
from playhead.order.exhaustion import Mixture, blend_key, pieces_of
from playhead.order.source_order import rows_between
from playhead.plan.rules import FixedRule
from playhead.plan.segments import Stream, amended, counters_before, round_end, segment_at, window_draws
from playhead.plan.window import plan_window
from playhead.seeds import key


@st.composite
def amended_streams(draw: st.DrawFn) -> Stream:
    """An endless stream that changed its mind once or twice, each time about everything."""
    stream = draw(streams(policies=("repeat",)))
    window = 0
    for number in range(1, draw(st.integers(1, 2)) + 1):
        window += draw(st.integers(1, 3))
        members = sorted(draw(st.sets(st.integers(0, len(stream.orders) - 1), min_size=1)))
        weights = tuple(Fraction(draw(st.integers(1, 9))) for _ in members)
        rows = np.array([stream.orders[m].num_rows for m in members])
        mixture = Mixture(np.array(members), weights, rows, blend_key(stream.seed, stream.name, number))
        first_draw, _ = window_draws(segment_at(stream, window), window)
        pieces = pieces_of(mixture, "repeat", None, first_draw, counters_before(stream, window))
        rule = draw(rules())
        lanes = draw(st.integers(1, 6))
        unit = lanes * (rule.size if isinstance(rule, FixedRule) else 1)
        size = unit * draw(st.integers(1, 6))
        stream = amended(stream, window, 0, pieces=pieces, rule=rule, lanes=lanes, balance=1, window_size=size)
    return stream


def drawn(stream: Stream, windows: int) -> list[list[tuple[int, int]]]:
    """For each source the (epoch, row) pairs in the order in which the windows draw them."""
    found: list[list[tuple[int, int]]] = [[] for _ in stream.orders]
    for number in range(windows):
        picks = plan_window(stream, number).picks
        for s, epoch, row in zip(picks.source.tolist(), picks.epoch.tolist(), picks.row.tolist(), strict=True):
            found[s].append((epoch, row))
    return found


@given(amended_streams())
def test_draw_counters_are_contiguous_across_segments(stream: Stream) -> None:
    """Every source goes on in its own order, as if nothing around it had changed."""
    for order, seen in zip(stream.orders, drawn(stream, 8), strict=True):
        epochs, rows = rows_between(order, 0, len(seen))
        assert seen == list(zip(epochs.tolist(), rows.tolist(), strict=True))


@given(amended_streams())
def test_windows_are_contiguous_and_hold_whole_steps_across_segments(stream: Stream) -> None:
    at = 0
    for number in range(8):
        window = plan_window(stream, number)
        assert window.first_draw == at
        at = window.stop_draw
        assert len(window.groups) == window.num_steps * segment_at(stream, number).lanes
        assert sorted(window.groups.members.tolist()) == list(range(window.stop_draw - window.first_draw))
        assert (window.groups.sizes() > 0).all()


@given(st.integers(0, 2**63), st.sampled_from(["repeat", "drop"]))
def test_the_segment_and_the_piece_are_in_the_key_of_a_blend(seed: int, policy: str) -> None:
    """Blocks are numbered anew in each segment; the same shares must not give the same order again."""
    blends = []
    for segment in range(3):
        mixture = Mixture(np.arange(3), (Fraction(1),) * 3, np.array([40, 70, 90]), blend_key(seed, "main", segment))
        pieces = pieces_of(mixture, policy, None, 0, np.zeros(3, np.int64))
        assert [piece.blend.key for piece in pieces] == [
            key(seed, "blend", "main", segment, number) for number in range(len(pieces))
        ]
        blends.append(resolve(pieces[0].blend, 0, 1024)[0])
    assert not any(np.array_equal(a, b) for a, b in combinations(blends, 2))
    assert all(np.array_equal(np.bincount(blend), np.bincount(blends[0])) for blend in blends)


@given(streams(epochs=st.integers(1, 3)), st.data())
def test_lanes_window_and_batching_may_change_in_the_middle_of_a_pass(stream: Stream, data: st.DataObject) -> None:
    last = round_end(stream, 0)
    assume(last > 1)
    at = data.draw(st.integers(1, last - 1))
    lanes = data.draw(st.integers(1, 5))
    rule = data.draw(rules())
    size = lanes * (rule.size if isinstance(rule, FixedRule) else 1) * data.draw(st.integers(1, 9))
    changed = amended(stream, at, 0, lanes=lanes, rule=rule, window_size=size, balance=1)
    seen = Counter(
        (source, epoch, row)
        for step, _ in single(changed).steps()
        for batch in step.micro_batches
        if not batch.idle
        for source, epoch, row in zip(
            batch.picks.source.tolist(), batch.picks.epoch.tolist(), batch.picks.row.tolist(), strict=True
        )
    )
    assert seen == Counter(
        (s, e, r) for s, order in enumerate(stream.orders) for e in range(stream.epochs) for r in range(order.num_rows)
    )
    pass_draws = stream.segments[0].pieces[0].blend.pass_draws
    ends = range(pass_draws, pass_draws * stream.epochs, pass_draws)
    for number in range(round_end(changed, 0)):
        first, stop = window_draws(segment_at(changed, number), number)
        assert not any(first < end < stop for end in ends)


@given(streams(policies=("repeat", "stop_all")), st.data())
def test_an_excluded_row_is_a_hole_and_moves_no_other_draw(stream: Stream, data: st.DataObject) -> None:
    source = data.draw(st.integers(0, len(stream.orders) - 1))
    rows = np.array(sorted(data.draw(st.sets(st.integers(0, stream.orders[source].num_rows - 1), max_size=12))))
    rows = rows.astype(np.int64)
    changed = amended(stream, 0, 0, excluded={source: rows})
    for number in range(min(4, round_end(stream, 0) or 4)):
        before, after = plan_window(stream, number).picks, plan_window(changed, number)
        keep = ~((before.source == source) & np.isin(before.row, rows))
        assert np.array_equal(after.picks.row, before.row[keep])
        assert np.array_equal(after.picks.epoch, before.epoch[keep])
        assert len(after.groups) % after.lanes == 0
        assert sorted(after.groups.members.tolist()) == list(range(int(keep.sum())))


@given(streams(policies=("repeat",), max_sources=1, shuffles=("none",), rule=st.just(FixedRule(1)), lanes=st.just(2)))
def test_a_window_of_holes_only_has_no_step_and_the_stream_goes_on(stream: Stream) -> None:
    assume(stream.orders[0].num_rows > 6)
    changed = amended(stream, 0, 0, window_size=2, excluded={0: np.arange(6)})
    steps = [step for (step, _), _ in zip(single(changed).steps(), range(3), strict=False)]
    assert [step.number for step in steps] == [0, 1, 2]
    assert int(steps[0].micro_batches[0].picks.row[0]) == 6
