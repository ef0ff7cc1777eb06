"""Workers that wait for storage: is it latency or bandwidth?

A probe right after the run says what the same files give to a few large requests at once. A run that takes most of that
is limited by *storage bandwidth*. One that takes less waits for round trips, and more requests in flight would help, as
long as the settings leave room for more: *storage latency*. The rate of a probe that itself waited for round trips is
only a lower bound, and one far below what the run got says nothing. Without a probe, requests of less than 1 MB count
as latency.
"""

from __future__ import annotations

import math

from playhead.feed.look_ahead import default_threads
from playhead.inspect.bench.values import Bottleneck, RunFigures
from playhead.inspect.readable import readable_bytes, readable_seconds, readable_share

DEEPEST = 16  # look-ahead to recommend: batches in progress take memory
TAKEN_SHARE = 0.7  # of what a storage gives: a run that takes more has its bandwidth
_TAKEN_AT_MOST = 1 / 3  # the same, where the settings leave no room for more requests
_MOST_WORKERS = 16  # to recommend for more requests in flight
_LARGE_BYTES = 1e6  # a request of so many takes longer than most round trips


def storage_limit(run: RunFigures) -> Bottleneck:
    """The verdict on a run whose workers mostly wait for storage."""
    share = run.stages["storage"] / run.busy_seconds
    more = None if run.cache_bytes > run.num_bytes / 2 else _more_in_flight(run)
    gives_more = _gives_more(run, TAKEN_SHARE if more else _TAKEN_AT_MOST)
    if gives_more and run.cache_bytes > run.num_bytes / 2:
        return _cache_disk(run, share)
    got = _rate(run.stored_bytes / run.seconds)
    facts = f"workers wait for storage {readable_share(share)} of their time and get {got}"
    if _says_something(run):
        least = "at least " if run.probe.at_least else ""
        facts += (
            f"; large requests get {least}{_rate(run.probe.bytes_per_second)}, "
            f"a small one takes {readable_seconds(run.probe.latency_seconds)}"
        )
    less = less_to_read(run)
    if not gives_more:
        return Bottleneck("storage bandwidth", facts, less, ("more workers would share the same bandwidth",))
    if more is None:
        return Bottleneck("storage latency", facts, less)
    return Bottleneck("storage latency", facts, more, () if run.has_cache else (f"or {less}",))


def _rate(number: float) -> str:
    return f"{readable_bytes(number)}/s"


def _says_something(run: RunFigures) -> bool:
    """Whether there was a probe, and it got as much as the run did."""
    return run.probe.bytes_per_second > 0 and TAKEN_SHARE * run.stored_bytes / run.seconds <= run.probe.bytes_per_second


def _gives_more(run: RunFigures, taken_share: float) -> bool:
    """Whether the storage would give more than the run took: it took less than that share."""
    if not _says_something(run):
        return run.num_bytes < _LARGE_BYTES * run.num_requests
    return run.probe.at_least or run.stored_bytes / run.seconds < taken_share * run.probe.bytes_per_second


def less_to_read(run: RunFigures) -> str:
    """How to wait less for storage with the same settings of the loader."""
    if run.waits_for_media:
        return "copy the media to a local disk (`playhead fetch`), or store them compressed: no shard cache holds them"
    if run.has_cache:
        return "raise `max_bytes` and `look_ahead` of `shard_cache`, or let each node read its own `parts`"
    if not run.requests_cost:
        return "put the data on a faster disk, or store less of it"
    return "set `shard_cache` and `shuffle: shards`, so that every byte is read once, in large requests"


def _cache_disk(run: RunFigures, share: float) -> Bottleneck:
    """Most is read from the shard cache, and its filler takes less than the storage would give."""
    facts = (
        f"workers wait for bytes {readable_share(share)} of their time and get "
        f"{_rate(run.cache_bytes / run.seconds)} from the shard cache, into which "
        f"{_rate(run.copied_bytes / run.seconds)} are copied"
    )
    change = "put `shard_cache.dir` on a faster disk, or in memory if it fits"
    return Bottleneck("storage bandwidth", facts, change, ("the storage would give more",))


def _more_in_flight(run: RunFigures) -> str | None:
    """More requests at once: workers and what each fetches ahead, by the factor that is missing; None at the most.

    Of files on a disk nothing is fetched ahead: only workers read more at once. What a sweep has settled stays.
    """
    settings, factor = run.settings, max(2, missing_factor(run))
    if settings.workers and run.requests_cost:
        ahead = _further_ahead(run, factor)
        if ahead is not None:
            return ahead
    if "workers" in run.settled or settings.workers >= _MOST_WORKERS:
        return None
    if not settings.workers:
        return "raise workers from 0 to 4, so that requests overlap"
    return f"raise workers from {settings.workers} to {math.ceil(settings.workers * factor)}"


def _further_ahead(run: RunFigures, factor: float) -> str | None:
    """More look-ahead and threads that fetch, if they are not deep enough yet."""
    settings, deeper = run.settings, run.settings.lookahead
    threads = default_threads(settings.lookahead) if settings.threads is None else settings.threads
    if "lookahead" not in run.settled:
        deeper = max(deeper, min(DEEPEST, 2 ** math.ceil(math.log2(settings.lookahead * factor))))
    raised = []
    if deeper > settings.lookahead:
        raised.append(f"look-ahead from {settings.lookahead} to {deeper}")
    if deeper > threads and "threads" not in run.settled:
        raised.append(f"fetch threads from {threads} to {deeper}")
    return f"raise {' and '.join(raised)}" if raised else None


def missing_factor(run: RunFigures) -> float:
    """How many times faster the workers would have to be; 2 where no trainer says it."""
    if not run.is_trained:
        return 2.0
    return run.busy_seconds / run.num_batches / run.num_makers / run.pace_seconds
