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
