"""The loader of a rank: Playhead's own, for numpy or torch, or the one that a function of the user's makes."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import to_builtins
from msgspec.structs import replace

from playhead.errors import RecipeError
from playhead.feed.delivery import Delivery
from playhead.feed.loader import Loader
from playhead.feed.padding import Empty
from playhead.feed.pool import Inline, Pool, Threads
from playhead.feed.processes import Processes, WorkerOptions
from playhead.feed.produce import Blueprint, Produced
from playhead.feed.rank_stream import RankStream
from playhead.feed.tasks import Work
from playhead.recipe.imports import resolve_function, search_directory
from playhead.recipe.values import Recipe
from playhead.verify.job import LoaderOptions, RankJob

_OPTION = "--loader"
_WORKERS_AHEAD = 2
VARIED = ("workers", "worker_kind", "start_method", "arrays")  # what a function may take beside rank and world_size
_METHODS = ("__iter__", "state_dict", "load_state_dict")


def make_loader(job: RankJob, recipe: Recipe, rank: int, options: LoaderOptions) -> Any:
    """A loader of this rank. Without payload, and unless it is the user's, it makes batches without fields."""
    place: dict[str, Any] = {"rank": rank, "world_size": job.world_size}
    if job.loader is not None:
        return _users_loader(job, recipe, place, options)
    if not job.payload:
        return _picks_loader(recipe, rank, job.world_size, options)
    if options.arrays == "torch":
        from playhead.torch import DataLoader

        return DataLoader(recipe, **place, num_workers=options.workers)
    kind, method = options.worker_kind, options.start_method
    return Loader(recipe, **place, workers=options.workers, worker_kind=kind, start_method=method)


def users_function(name: str, recipe_path: Path) -> Callable[..., Any]:
    """The function that `--loader` names: of an installed module, or of one here or beside the recipe."""
    for directory in (Path.cwd(), recipe_path.absolute().parent):
        search_directory(directory)
    return resolve_function(name, _OPTION)


def accepted(function: Callable[..., Any], names: tuple[str, ...]) -> tuple[str, ...]:
    """Which options a function takes."""
    parameters = inspect.signature(function).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return names
    return tuple(name for name in names if name in parameters)


def _users_loader(job: RankJob, recipe: Recipe, place: dict[str, int], options: LoaderOptions) -> Any:
    assert job.loader is not None
    function = users_function(job.loader, Path(job.recipe))
    given = {**place, **to_builtins(options)}
    loader = function(recipe, **{name: given[name] for name in accepted(function, tuple(given))})
    missing = [name for name in _METHODS if not hasattr(loader, name)]
    if missing:
        raise RecipeError(
            f"{_OPTION} {job.loader}: what it returned is not a loader",
            found=f"a {type(loader).__name__} without {', '.join(missing)}",
            expected="a loader of Playhead, or an object with its methods that delivers its batches",
        )
    return loader


def _picks_loader(recipe: Recipe, rank: int, world_size: int, options: LoaderOptions) -> Delivery:
    """Plan, workers, delivery and states as ever, and nothing read: what is delivered are picks."""
    recipe = replace(recipe, shard_cache=None)
    stream = RankStream(recipe, None, rank, world_size)
    blueprint = _NothingRead(recipe)
    new_pool: Callable[[], Pool] = partial(Inline, blueprint)
    if options.workers and options.worker_kind == "thread":
        new_pool = partial(Threads, blueprint, options.workers, _WORKERS_AHEAD)
    elif options.workers:
        workers = WorkerOptions(options.workers, _WORKERS_AHEAD, options.start_method)
        new_pool = partial(Processes, blueprint, workers, stream.describe)
    return Delivery(stream, blueprint, new_pool)


class _NothingRead(Blueprint):
    """A blueprint of workers that read nothing."""

    def build(self) -> Any:
        return _EmptyBatches()


class _EmptyBatches:
    """Makes empty batches, as a Producer is called."""

    looks_ahead = False

    def __call__(self, work: Work, empty: Empty = np.empty, worker: int = 0, take: Any = None) -> Produced:  # noqa: ARG002
        return Produced({}, [], threading.get_native_id())
