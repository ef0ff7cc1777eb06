"""A tar on a network for a scan from one end to the other: asked for in large blocks, each of them once."""

from __future__ import annotations

from collections import OrderedDict

from playhead.store import File

_BLOCK_BYTES = 4 << 20  # a small request takes as long
_KEPT = 4  # a sample whose members are in more blocks is rare, and costs a second request


class TarBlocks:
    """Law: it reads the same bytes as the file; a block of which nothing is read is not asked for."""

    def __init__(self, file: File, block_bytes: int = _BLOCK_BYTES) -> None:
        self._file, self._block_bytes = file, block_bytes
        self._kept: OrderedDict[int, bytes] = OrderedDict()

    @property
    def path(self) -> str:
        return self._file.path

    @property
    def size(self) -> int:
        return self._file.size

    def read(self, offset: int, size: int) -> bytes:
        """The bytes from `offset`, fewer than `size` only at the end of the file."""
        end = min(offset + size, self.size)
        if end <= offset:
            return b""
        first, last = offset // self._block_bytes, (end - 1) // self._block_bytes
        if last - first >= _KEPT:  # a large member, wanted whole
            return self._file.read(offset, end - offset)
        begin = first * self._block_bytes
        data = [self._block(number) for number in range(first, last + 1)]
        joined = data[0] if len(data) == 1 else b"".join(data)
        return joined[offset - begin : end - begin]

    def _block(self, number: int) -> bytes:
        if number not in self._kept:
            self._kept[number] = self._file.read(number * self._block_bytes, self._block_bytes)
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(number)
        return self._kept[number]
