from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.index.keys import KeySorter, find_hashes

hashes = st.one_of(st.integers(0, 2**64 - 1), st.sampled_from([0, 1, 2**63, 2**64 - 1]))


@given(st.lists(hashes, min_size=1, max_size=60), st.integers(1, 3000), st.integers(1, 20))
def test_sorting_by_ranges_gives_what_sorting_in_memory_gives(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[int], memory: int, step: int
) -> None:
    folder = tmp_path_factory.mktemp("keys")
    values = np.array(drawn, dtype=np.uint64)
    sorter = KeySorter(folder, len(drawn), memory)
    for low in range(0, len(drawn), step):
        sorter.add(values[low : low + step], np.arange(low, min(low + step, len(drawn))))
    sorter.write(folder / "keys.npy")
    found = np.load(folder / "keys.npy")
    assert found.tolist() == [list(pair) for pair in sorted(zip(drawn, range(len(drawn)), strict=True))]
    assert [path.name for path in folder.iterdir()] == ["keys.npy"]
    wanted = np.array(sorted({*drawn, 5}), dtype=np.uint64)
    first, last = find_hashes(found, wanted)
    for value, low, high in zip(wanted.tolist(), first.tolist(), last.tolist(), strict=True):
        assert found[low:high, 1].tolist() == [i for i, other in enumerate(drawn) if other == value]
