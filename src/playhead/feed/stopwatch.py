"""Times the making of one micro-batch: storage and maps by their spans, decoding and collation by what is left."""

from __future__ import annotations

import os
from array import array
from time import monotonic

from playhead.feed.stats import DOUBLES, Timed
from playhead.read import Request
from playhead.store import SPANS, Span

_process = os.getpid()
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

    def stop(self, request: Request, worker: int) -> Timed | None:
        """The packed BatchTiming. It runs for every micro-batch: plain arithmetic on local names."""
        if not _ENABLED:
            return None
        ended, began, taken, made = monotonic(), self._began, self._taken, self._made
        opened, read, mapped, collating, requests, size, hits, misses, cached, slowest, path = _added_up(
            self._spans, taken, made
        )
        waited = opened + read
        decode = made - taken - waited - mapped + collating
        collate = ended - made - collating
        ahead = fetch_began = fetch_ended = 0.0
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
            opened, read, requests, size, hits, misses, cached = (
                opened + before[0], read + before[1], requests + before[4], size + before[5],
                hits + before[6], misses + before[7], cached + before[8],
            )  # fmt: skip
            if before[9] > slowest:
                slowest, path = before[9:]
        numbers = (
            _process, worker, request.step, request.lane, began, ended, opened, read, decode, mapped, collate,
            ahead, waited, requests, size, slowest, hits, misses, cached, fetch_began, fetch_ended,
        )  # fmt: skip
        return array(DOUBLES, numbers).tobytes(), path  # measured: struct.pack slows down what follows by 15 us


def _added_up(
    spans: list[Span], began: float, made: float
) -> tuple[float, float, float, float, int, int, int, int, int, float, str | None]:
    """The spans of one thread's work from `began` on; requests in flight together count once.

    Seconds in "open", "read" and "map"; those of them after `made`; requests, bytes; hits and misses of the shard cache
    and the bytes that it gave; the slowest request, and its file.
    """
    opened = read = mapped = after = slowest = 0.0
    num_requests = num_bytes = hits = misses = cached = 0
    slowest_path: str | None = None
    if len(spans) > 1:
        spans.sort(key=_beginning)
    for stage, first, last, path, size, count in spans:
        if last > began:  # from here on, `began` is how far the spans so far reach
            seconds = last - (first if first > began else began)
            began = last
            if stage == "read":
                read += seconds
            elif stage == "open":
                opened += seconds
            elif stage == "map":
                mapped += seconds
            if first >= made:
                after += seconds
        if path is not None:
            num_requests += count
            num_bytes += size
            if last - first > slowest:
                slowest, slowest_path = last - first, path
        elif stage == "cache":
            hits, misses = hits + size, misses + count
        elif stage == "cached":
            cached += size
    return opened, read, mapped, after, num_requests, num_bytes, hits, misses, cached, slowest, slowest_path


def _beginning(span: Span) -> float:
    return span[1]


def _forked() -> None:
    global _process  # noqa: PLW0603  # asking the system for every micro-batch would cost more than all the rest
    _process = os.getpid()


os.register_at_fork(after_in_child=_forked)
