"""A tar on a network is read in blocks: the same bytes, each block once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from playhead.formats.tar_blocks import TarBlocks
from playhead.store import CountingFiles, MemoryFiles, open_file

DATA = bytes(range(256)) * 40


@given(st.lists(st.tuples(st.integers(0, len(DATA) + 50), st.integers(0, 4_000)), max_size=20), st.integers(1, 3_000))
def test_any_reads_give_the_bytes_of_the_file(reads: list[tuple[int, int]], block_bytes: int) -> None:
    memory = MemoryFiles()
    blocks = TarBlocks(open_file(memory, memory.write("memory://a", DATA)), block_bytes)
    for offset, size in reads:
        assert blocks.read(offset, size) == DATA[offset : offset + size]


def test_reads_in_order_ask_for_every_block_once_and_for_no_other() -> None:
    memory = MemoryFiles()
    files = CountingFiles(memory)
    blocks = TarBlocks(open_file(files, memory.write("memory://a", DATA)), 1_000)
    for offset in (0, 100, 990, 500, 1_500, 9_000, 9_999):
        blocks.read(offset, 20)
    assert files.counts["read"] == 4
