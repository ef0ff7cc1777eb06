from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from playhead.index.bits import contains, count_blocks, pack_bits, rank, select, select_lengths

masks = st.one_of(
    st.lists(st.booleans(), min_size=1, max_size=1500),
    st.tuples(st.integers(1, 3000), st.sets(st.integers(0, 2999), min_size=1, max_size=4)).map(
        lambda drawn: [i in drawn[1] for i in range(drawn[0])]
    ),
)


@given(masks)
def test_rank_and_select_agree_with_counting(drawn: list[bool]) -> None:
    mask = np.array(drawn, dtype=np.bool_)
    words = pack_bits(mask)
    blocks = count_blocks(words)
    before = np.cumsum(blocks) - blocks
    raw = np.arange(mask.size + 1)
    slow = [sum(drawn[:i]) for i in range(mask.size + 1)]
    assert rank(words, before, raw).tolist() == slow
    assert contains(words, raw[:-1]).tolist() == drawn
    chosen = np.flatnonzero(mask)
    rows = np.arange(chosen.size)[::-1].copy()
    assert select(words, before, rows).tolist() == chosen[::-1].tolist()
    lengths = (np.arange(mask.size) * 7).astype(np.uint32)
    assert select_lengths(words, before, rows, lengths).tolist() == lengths[chosen[::-1]].tolist()


@given(st.lists(st.tuples(st.integers(1, 40_000), st.booleans()), min_size=1, max_size=8), st.integers(0, 1000))
def test_select_finds_rows_however_unevenly_they_lie(runs: list[tuple[int, bool]], seed: int) -> None:
    mask = np.concatenate([np.full(size, chosen) for size, chosen in runs])
    words = pack_bits(mask)
    blocks = count_blocks(words)
    before = np.cumsum(blocks) - blocks
    chosen = np.flatnonzero(mask)
    rows = np.random.default_rng(seed).integers(0, chosen.size, 200) if chosen.size else np.empty(0, np.int64)
    assert select(words, before, rows).tolist() == chosen[rows].tolist()
