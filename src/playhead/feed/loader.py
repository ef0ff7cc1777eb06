"""The loader: numpy batches in order, made ahead of time, exactly resumable."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, get_args

import numpy as np

from playhead.errors import RecipeError
from playhead.feed.delivery import Delivery
from playhead.feed.look_ahead import default_threads
from playhead.feed.pool import Inline, Pool, Threads
from playhead.feed.processes import Processes, StartMethod, WorkerOptions
from playhead.feed.produce import Blueprint
from playhead.feed.rank_stream import RankStream
from playhead.recipe.values import Recipe
from playhead.store import Files

WorkerKind = Literal["process", "thread"]


class Loader(Delivery):
    """The batches of one rank.

    Rank and world size are detected where they are not given. `workers` 0 makes batches in this process; otherwise
    `worker_kind` selects processes or threads, and `lookahead` is the number of batches that each prepares ahead.
    Where storage is remote, `fetch_threads` threads in each fetch the bytes of those batches meanwhile: one for each
    batch by default, at most 4. `decode_threads` threads in each help to decode audio and images. These numbers never
    change what is delivered. `map` and `collate` are functions that replace those of the recipe; `files` replaces the
    default storage.
    """

    def __init__(
        self,
        recipe: Recipe,
        *,
        split: str | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        workers: int = 0,
        worker_kind: WorkerKind = "process",
        start_method: StartMethod = "spawn",
        lookahead: int = 2,
        fetch_threads: int | None = None,
        decode_threads: int = 0,
        map: Callable[..., Any] | None = None,  # noqa: A002  # the recipe's word for it
        collate: Callable[..., Any] | None = None,
        files: Files | None = None,
    ) -> None:
        _check_kind(worker_kind, start_method)
        workers, lookahead = whole_number("workers", workers, 0), whole_number("lookahead", lookahead, 1)
        threads = fetch_threads_of(fetch_threads, lookahead)
        decoding = whole_number("decode_threads", decode_threads, 0)
        if worker_kind == "thread":  # they share one reader
            decoding *= max(1, workers)
        stream = RankStream(recipe, split, rank, world_size, files)
        blueprint = Blueprint(recipe, split, map, collate, files, decode_threads=decoding)
        options = WorkerOptions(workers, lookahead, start_method, fetch_threads=threads)
        maker = pool_maker(blueprint, stream, worker_kind, options)
        super().__init__(stream, blueprint, maker, ahead=workers * lookahead)


def pool_maker(
    blueprint: Blueprint, stream: RankStream, kind: WorkerKind, options: WorkerOptions
) -> Callable[[], Pool]:
    """Makes the pool of a loader: none, threads or processes."""
    if not options.num:
        return partial(Inline, blueprint)
    if kind == "thread":
        return partial(Threads, blueprint, options.num, options.lookahead, options.fetch_threads)
    return partial(Processes, blueprint, options, stream.describe)


def fetch_threads_of(given: int | None, lookahead: int, refusal: type[RecipeError] = RecipeError) -> int:
    """The number of threads that fetch ahead in a worker."""
    return default_threads(lookahead) if given is None else whole_number("fetch_threads", given, 0, refusal)


def whole_number(name: str, value: Any, least: int, refusal: type[RecipeError] = RecipeError) -> int:
    """The value of an integer option; any other value is refused."""
    if isinstance(value, int | np.integer) and not isinstance(value, bool) and value >= least:
        return int(value)
    raise refusal(f"{name}: invalid value", found=repr(value), expected=f"a whole number from {least}")


def _check_kind(kind: str, start_method: str) -> None:
    if kind not in get_args(WorkerKind) or start_method not in get_args(StartMethod):
        raise RecipeError(
            "unknown worker_kind or start_method",
            found=f"worker_kind {kind!r}, start_method {start_method!r}",
            expected=f"worker_kind one of: {', '.join(get_args(WorkerKind))}; "
            f"start_method one of: {', '.join(get_args(StartMethod))}",
        )
