"""Stretches of time in whole ticks, as sorted lists of disjoint (start, end)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Span(NamedTuple):
    start: int
    end: int

    @property
    def length(self) -> int:
        return self.end - self.start


def union(spans: Iterable[Span], nearer_than: int = 0) -> list[Span]:
    """What any of the spans covers, and the gaps nearer than so much. Spans that only touch stay apart."""
    found: list[Span] = []
    for span in sorted(spans):
        if found and span.start - found[-1].end < nearer_than:
            found[-1] = Span(found[-1].start, max(found[-1].end, span.end))
        else:
            found.append(span)
    return found


def minus(spans: Sequence[Span], others: Sequence[Span]) -> list[Span]:
    """What of the spans none of the others covers. Both sorted; the others may overlap."""
    found = []
    first = 0
    for span in spans:
        position = span.start
        while first < len(others) and others[first].end <= span.start:
            first += 1
        for other in others[first:]:
            if other.start >= span.end:
                break
            if other.start > position:
                found.append(Span(position, other.start))
            position = max(position, other.end)
        if position < span.end:
            found.append(Span(position, span.end))
    return found
