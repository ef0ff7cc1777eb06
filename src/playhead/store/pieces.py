"""Byte ranges cut into the pieces that are asked for, and the answers put together again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from playhead.store.files import Buffer, Ranges, Stamp, changed, too_short

MOST_BYTES = 8 << 20  # per request: it must finish before the time-out
_MOST_HELD_BYTES = 64 << 20  # of answers, while buffers are filled
_CALL_PIECES = 10  # of one call of obstore are requested at once
_MOST_CALLS = 4
MOST_AT_ONCE = _CALL_PIECES * _MOST_CALLS  # pieces of one object that are requested at once


class Piece(NamedTuple):
    """Bytes that one request asks for, and the range that they are a part of."""

    first: int
    end: int
    range_number: int
    offset: int  # in the range

    @property
    def size(self) -> int:
        return self.end - self.first


def pieces_of(url: str, stamp: Stamp, ranges: Ranges, most_bytes: int) -> list[Piece]:
    """Law: the pieces of a range are its bytes in order, each at most `most_bytes`; an empty range has none.

    A range past the end of the file is a StoreError.
    """
    found = []
    for number, (first, end) in enumerate(zip(*ranges, strict=True)):
        if end > max(first, stamp.size):
            raise too_short(url, first, end, max(0, stamp.size - first))
        for low in range(first, end, most_bytes):
            found.append(Piece(low, min(low + most_bytes, end), number, low - first))  # noqa: PERF401 - two loops
    return found


def calls_of(pieces: Sequence[Piece], most_bytes: int) -> list[list[Piece]]:
    """The pieces in as few calls as it takes for none to ask for more than `most_bytes` in one request.

    A client joins the ranges of a call that touch: that is good for small ones, and would undo the cut of a long one.
    """
    calls: list[list[Piece]] = []
    begins: list[int] = []  # of what a call asks for in its last request
    for piece in sorted(pieces):
        for i, call in enumerate(calls):
            if call[-1].end < piece.first:
                begins[i] = piece.first
            elif piece.end - begins[i] > most_bytes:
                continue
            call.append(piece)
            break
        else:
            calls.append([piece])
            begins.append(piece.first)
    return calls


def parts_of(call: list[Piece]) -> list[list[Piece]]:
    """A call cut into a few that can be made at once. A small one is left as it is."""
    num_parts = max(1, min(_MOST_CALLS, len(call) // _CALL_PIECES))
    size = -(-len(call) // num_parts)
    return [call[first : first + size] for first in range(0, len(call), size)]


def groups(pieces: Sequence[Piece], most_bytes: int) -> Iterator[list[Piece]]:
    """Consecutive pieces of at most so many bytes together, one at least."""
    group: list[Piece] = []
    size = 0
    for piece in pieces:
        if group and size + piece.size > most_bytes:
            yield group
            group, size = [], 0
        group.append(piece)
        size += piece.size
    if group:
        yield group


def joined(ranges: Ranges, pieces: Sequence[Piece], answers: Sequence[Buffer]) -> list[Buffer]:
    """The bytes of each range from those of its pieces."""
    parts: list[list[Buffer]] = [[] for _ in ranges.firsts]
    for piece, answer in zip(pieces, answers, strict=True):
        parts[piece.range_number].append(answer)
    return [found[0] if len(found) == 1 else b"".join(found) for found in parts]


def filled(into: Sequence[memoryview], pieces: Sequence[Piece], answers: Sequence[Buffer]) -> Sequence[memoryview]:
    """The buffers, with the bytes of these pieces in them."""
    for piece, answer in zip(pieces, answers, strict=True):
        into[piece.range_number][piece.offset : piece.offset + piece.size] = answer
    return into


def read_pieces(
    path: str,
    stamp: Stamp,
    ranges: Ranges,
    into: Sequence[memoryview] | None,
    fetch: Callable[[Sequence[Piece]], Sequence[Buffer]],
    stamp_now: Callable[[], Stamp],
) -> Sequence[Buffer]:
    """Ranges of a store whose answers do not say of which object they are: it is asked for after the last of them.

    An object that is replaced and put back in the course of one call, with the same mark, is not noticed.
    """
    pieces = pieces_of(path, stamp, ranges, MOST_BYTES)
    held: Sequence[Buffer] = []
    for group in [pieces] if into is None else groups(pieces, _MOST_HELD_BYTES):
        held = fetch(group)
        if into is not None:
            filled(into, group, held)
    if pieces and (now := stamp_now()) != stamp:
        raise changed(path, now, stamp)
    return joined(ranges, pieces, held) if into is None else into
