"""Times the making of one micro-batch: storage and maps by their spans, decoding and collation by what is left."""

from __future__ import annotations

import os
from time import monotonic

from playhead.feed.stats import Timed
from playhead.read import Request
from playhead.store import SPANS, Span

_ENABLED = True  # benchmarks/bench_counters.py measures without


class Stopwatch:
    """Runs from its construction to `stop`, in one thread; requests and maps report their spans to it until `leave`."""

    __slots__ = ("_ahead", "_before", "_began", "_made", "_spans", "_taken")

    def __init__(self) -> None:
        self._spans: list[Span] = []
        self._ahead: tuple[list[Span], float, float] | None = None
        if _ENABLED:
            self._before = SPANS.set(self._spans)
        self._began = self._taken = self._made = monotonic()

    def was_fetched(self, spans: list[Span], began: float, ended: float) -> None:
        """Bytes were fetched ahead, with these requests; until now the worker waited for them."""
        self._ahead = spans, began, ended
        self._taken = monotonic()

    def samples_made(self) -> None:
        """Samples are made; what follows is collation."""
        self._made = monotonic()

    def leave(self) -> None:
        """Collect no further spans."""
        if _ENABLED:
            SPANS.reset(self._before)

    def stop(self, request: Request, worker: int) -> Timed:
        """The fields of a BatchTiming."""
        if not _ENABLED:
            return ()
        ended, began, taken, made = monotonic(), self._began, self._taken, self._made
        opened, read, mapped, collating, requests, num_bytes, slowest, path = _added_up(self._spans, taken, made)
        waited = opened + read
        decode = made - taken - opened - read - mapped + collating
        collate = ended - made - collating
        ahead = fetch_began = fetch_ended = 0.0
        hits, misses, cached = _cache_counts(self._spans)
        if self._ahead is not None:
            spans, fetch_began, fetch_ended = self._ahead
            before = _added_up(spans, fetch_began, fetch_ended)
            in_storage = before[0] + before[1]
            ahead = max(0.0, fetch_ended - fetch_began - (taken - began))
            decode += fetch_ended - fetch_began - in_storage  # rows are parsed by the thread that reads them
            if fetch_began < began:  # of what the worker waited for, some may have been parsing
                after = _added_up(spans, began, fetch_ended)
                waited += min(after[0] + after[1], taken - began)
            else:
                waited += min(in_storage, taken - began)
            opened, read, requests, num_bytes = (
                opened + before[0], read + before[1], requests + before[4], num_bytes + before[5]
            )  # fmt: skip
            if before[6] > slowest:
                slowest, path = before[6:]
            if spans:
                more = _cache_counts(spans)
                hits, misses, cached = hits + more[0], misses + more[1], cached + more[2]
        return (
            os.getpid(), worker, request.step, request.lane, began, ended, opened, read, decode, mapped, collate,
            ahead, waited, requests, num_bytes, path, slowest, hits, misses, cached, fetch_began, fetch_ended,
        )  # fmt: skip


def _added_up(
    spans: list[Span], began: float, made: float
) -> tuple[float, float, float, float, int, int, float, str | None]:
    """The spans of one thread's work from `began` on; requests in flight together count once.

    Seconds in "open", "read" and "map"; those of them after `made`; requests, bytes; the slowest request, and its file.
    One pass over local names: it runs for every micro-batch.
    """
    opened = read = mapped = after = slowest = 0.0
    num_requests = num_bytes = 0
    slowest_path: str | None = None
    if len(spans) > 1:
        spans.sort(key=_beginning)
    for stage, first, last, path, span_bytes, span_requests in spans:
        if last > began:  # from here on, `began` is how far the spans so far reach
            seconds = last - (first if first > began else began)
            began = last
            if stage == "read":
                read += seconds
            elif stage == "open":
                opened += seconds
            else:
                mapped += seconds
            if first >= made:
                after += seconds
        if path is not None:
            num_requests += span_requests
            num_bytes += span_bytes
            if last - first > slowest:
                slowest, slowest_path = last - first, path
    return opened, read, mapped, after, num_requests, num_bytes, slowest, slowest_path


def _cache_counts(spans: list[Span]) -> tuple[int, int, int]:
    """The hits and misses of the shard cache, and the bytes that it gave."""
    hits = misses = cached = 0
    for stage, _, _, _, first, second in spans:
        if stage == "cache":
            hits, misses = hits + first, misses + second
        elif stage == "cached":
            cached += first
    return hits, misses, cached


def _beginning(span: Span) -> float:
    return span[1]
