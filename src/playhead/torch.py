"""The loader for torch: the workers and the shared memory of `playhead.Loader`, tensors, and torch's option names."""

from __future__ import annotations

import multiprocessing
import pickle
import random
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import starmap
from multiprocessing.context import BaseContext
from types import NoneType
from typing import Any

import numpy as np
from msgspec.structs import replace

from playhead.errors import RecipeError, SampleError
from playhead.feed.batch import applied, in_collections
from playhead.feed.delivery import Delivery
from playhead.feed.finishing import Finishing
from playhead.feed.loader import fetch_threads_of, whole_number
from playhead.feed.pool import Inline, Pool, Results
from playhead.feed.processes import Processes, WorkerOptions
from playhead.feed.produce import Blueprint, Produced
from playhead.feed.rank_stream import RankStream
from playhead.feed.tasks import Task
from playhead.recipe.values import Recipe
from playhead.store import Files
from playhead.types import Array

try:
    import torch
    from torch.utils.data._utils import worker as torch_worker
except ImportError as error:
    raise RecipeError(
        "playhead.torch needs PyTorch, which is not installed", fix="pip install 'playhead[torch]'"
    ) from error

__all__ = ["DataLoader"]

_DECIDED = {"batch_size", "shuffle", "sampler", "batch_sampler", "collate_fn", "drop_last", "dataset"}
_DEFAULTS = {"in_order": True, "pin_memory_device": ""}  # torch options that have no equivalent here
_PLAIN = {str, bytes, bool, int, float, NoneType}
_PREFETCH_FACTOR = 2
_LONGEST_TIMEOUT_SECONDS = 1e6  # 11 days: systems cannot wait much longer


class _OptionError(RecipeError, ValueError):
    """An option with an invalid value: also a ValueError, as torch's DataLoader raises."""


class DataLoader(Delivery):
    """The batches of one rank, with arrays as tensors.

    Takes what `playhead.Loader` takes, and the options of torch's DataLoader with their meaning there: `num_workers`
    processes make `prefetch_factor` batches ahead each, are started by `multiprocessing_context`, call `worker_init_fn`
    with their number, and outlive an iteration if `persistent_workers`. A batch that takes a worker longer than
    `timeout` seconds is an error. `pin_memory` copies tensors to pinned memory, in a thread. `generator` seeds torch's,
    numpy's and Python's global random numbers in workers; a map that takes a generator needs none of them. The options
    of workers are attributes, too.
    """

    def __init__(
        self,
        recipe: Recipe,
        *,
        split: str | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        map: Callable[..., Any] | None = None,  # noqa: A002  # the recipe's word for it
        collate: Callable[..., Any] | None = None,
        files: Files | None = None,
        num_workers: int = 0,
        pin_memory: bool = False,
        persistent_workers: bool = False,
        prefetch_factor: int | None = None,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: str | BaseContext | None = None,
        generator: torch.Generator | None = None,
        fetch_threads: int | None = None,
        decode_threads: int = 0,
        **others: Any,
    ) -> None:
        workers = TorchWorkers(
            num_workers=num_workers,
            pin_memory=pin_memory,
            persistent_workers=persistent_workers,
            prefetch_factor=prefetch_factor,
            timeout=timeout,
            worker_init_fn=worker_init_fn,
            multiprocessing_context=multiprocessing_context,
            generator=generator,
            fetch_threads=fetch_threads,
            **others,
        )
        stream = RankStream(recipe, split, rank, world_size, files)
        decode_threads = whole_number("decode_threads", decode_threads, 0, _OptionError)
        blueprint = Blueprint(recipe, split, map, collate, files, decode_threads=decode_threads)
        self.num_workers, self.prefetch_factor, self.timeout = workers.num, workers.prefetch_factor, timeout
        self.persistent_workers, self.pin_memory = persistent_workers, pin_memory
        ahead = workers.num * (workers.prefetch_factor or 0)
        super().__init__(stream, blueprint, workers.pool(blueprint, stream), ahead=ahead)


class TorchWorkers:
    """The options of torch's DataLoader, checked, as the pool that a loader makes its batches with."""

    def __init__(
        self,
        *,
        num_workers: int = 0,
        pin_memory: bool = False,
        persistent_workers: bool = False,
        prefetch_factor: int | None = None,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: str | BaseContext | None = None,
        generator: torch.Generator | None = None,
        fetch_threads: int | None = None,
        **others: Any,
    ) -> None:
        _check_others(others)
        _check_timeout(timeout)
        self.num = whole_number("num_workers", num_workers, 0, _OptionError)
        if not self.num:
            _check_without_workers(prefetch_factor, timeout, persistent_workers, multiprocessing_context, fetch_threads)
        elif prefetch_factor is None:
            prefetch_factor = _PREFETCH_FACTOR
        else:
            prefetch_factor = whole_number("prefetch_factor", prefetch_factor, 1, _OptionError)
        self.prefetch_factor = prefetch_factor
        self._options: WorkerOptions | None = None
        if prefetch_factor is not None:
            start_method = _start_method(multiprocessing_context)
            if start_method != "fork":
                _check_picklable(worker_init_fn)
            seed = (torch.default_generator if generator is None else generator).initial_seed()
            self._options = WorkerOptions(
                self.num,
                prefetch_factor,
                start_method,
                persistent_workers,
                timeout if 0 < timeout <= _LONGEST_TIMEOUT_SECONDS else None,
                _Setup(self.num, seed, worker_init_fn),
                fetch_threads_of(fetch_threads, prefetch_factor, _OptionError),
                may_spawn=multiprocessing_context is None,
            )
        self._pin = bool(pin_memory) and _can_pin()

    def pool(self, blueprint: Blueprint, stream: RankStream) -> Callable[[], Pool]:
        if self._options is not None and self._options.start_method != "fork":
            blueprint.check_picklable()
        return partial(_new_pool, blueprint, stream, self._options, self._pin)


def _new_pool(blueprint: Blueprint, stream: RankStream, options: WorkerOptions | None, pin: bool) -> Pool:
    as_they_are = blueprint.collate is None and blueprint.recipe.collate == "list"
    if options is None:
        return _Tensors(Inline(blueprint), as_they_are, pin)
    pool = _Tensors(Processes(blueprint, options, stream.describe), as_they_are)
    return Finishing(pool, options.num * options.lookahead, _pinned) if pin else pool


class _Tensors:
    """A pool whose results are tensors, which share memory with the arrays they are made of.

    Samples that the recipe delivers `as_they_are` stay so.
    """

    def __init__(self, pool: Pool, as_they_are: bool, pin: bool = False) -> None:
        self._pool, self._as_they_are, self._pin = pool, as_they_are, pin

    def results(self, tasks: Iterator[Task]) -> Results:
        with closing(self._pool.results(tasks)) as found:
            yield from starmap(self._made, found)

    def close(self) -> None:
        self._pool.close()

    def _made(self, task: Task, produced: Produced) -> tuple[Task, Produced]:
        if not self._as_they_are:
            payload = {name: _tensors(name, value) for name, value in produced.payload.items()}
            produced = replace(produced, payload=payload)
        return task, _pinned(produced) if self._pin else produced


def _pinned(produced: Produced) -> Produced:
    return replace(produced, payload=applied(produced.payload, "pin_memory", lambda value: value.pin_memory()))


def _tensors(name: str, value: Any) -> Any:
    """A value of a field with tensors for its arrays of numbers, in collections too."""
    if isinstance(value, np.ndarray):
        return _tensor(name, value) if value.dtype.kind in "biufc" else value
    if type(value) is list and {*map(type, value)} <= _PLAIN:
        return value
    return in_collections(value, partial(_tensors, name))


def _tensor(name: str, value: Array) -> torch.Tensor:
    # Torch takes neither foreign byte orders nor negative strides, and warns about read-only arrays. Of
    # two dtypes that are the same on this machine (numpy makes "unsigned long long" of large numbers) it knows one.
    ready = np.require(value, value.dtype.newbyteorder("="), ["C", "W"])
    try:
        return torch.from_numpy(ready.view(ready.dtype.str))
    except TypeError as error:
        raise SampleError(
            f'field "{name}" has a dtype that torch {torch.__version__} does not support',
            found=str(value.dtype),
            fix=f"declare another in the recipe (`dtypes: {{{name}: ...}}`), or convert it in `map`",
        ) from error


@dataclass(frozen=True)
class _Setup:
    """The setup that torch does in a worker before its first batch: one thread, seeds, worker info, user function."""

    num_workers: int
    seed: int
    init: Callable[[int], None] | None

    def __call__(self, number: int, num_starts: int) -> None:
        torch.set_num_threads(1)
        drawn = torch.empty((), dtype=torch.int64).random_(generator=torch.Generator().manual_seed(self.seed))
        seed = (int(drawn) + num_starts * self.num_workers + number) % (1 << 63)
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed % (1 << 32))  # noqa: NPY002  # for maps that use the global generator
        about: Any = {"id": number, "num_workers": self.num_workers, "seed": seed, "dataset": None}
        # What torch.utils.data.get_worker_info() returns.
        torch_worker._worker_info = torch_worker.WorkerInfo(**about)  # noqa: SLF001
        if self.init is not None:
            self.init(number)


def _start_method(context: str | BaseContext | None) -> str:
    """The start method named by a string or a context; by default that of Python, as in torch."""
    if isinstance(context, BaseContext):
        context = context.get_start_method()
    known = multiprocessing.get_all_start_methods()
    if context is not None and context not in known:
        raise _OptionError(
            "multiprocessing_context: unknown start method",
            found=repr(context),
            expected=f"one of: {', '.join(known)}; or a context of multiprocessing",
        )
    return context or multiprocessing.get_start_method()


def _can_pin() -> bool:
    if torch.cuda.is_available() or (hasattr(torch, "accelerator") and torch.accelerator.is_available()):
        return True
    warnings.warn("pin_memory is ignored: there is no accelerator to pin memory for", RuntimeWarning, stacklevel=4)
    return False


def _check_picklable(function: Callable[[int], None] | None) -> None:
    try:
        pickle.dumps(function)
    except Exception as error:
        raise RecipeError(
            "worker_init_fn: this function cannot be sent to worker processes",
            found=f"{type(error).__name__}: {error}",
            expected="a function at the top level of a module",
            fix='move it to a module, or fork the workers (multiprocessing_context="fork")',
        ) from error


def _check_others(others: dict[str, Any]) -> None:
    decided = _DECIDED & others.keys()
    if decided:
        raise RecipeError(
            f"{', '.join(sorted(decided))}: decided by the recipe, not by the loader",
            fix="remove it here; see `batching`, `shuffle` and `collate` in docs/recipe.md",
        )
    for name, value in others.items():
        if name not in _DEFAULTS:
            raise TypeError(f"DataLoader got an unexpected keyword argument {name!r}")
        if value != _DEFAULTS[name]:
            raise _OptionError(
                f"{name}: not supported by this loader", found=repr(value), expected=repr(_DEFAULTS[name])
            )


def _check_timeout(timeout: Any) -> None:
    if isinstance(timeout, bool) or not isinstance(timeout, int | float | np.number) or not 0 <= timeout < float("inf"):
        raise _OptionError(
            "timeout: invalid value", found=repr(timeout), expected="seconds; 0 waits as long as it takes"
        )


def _check_without_workers(
    prefetch_factor: Any, timeout: Any, persistent_workers: Any, context: Any, fetch_threads: Any
) -> None:
    given = {
        "prefetch_factor": (prefetch_factor, None),
        "timeout": (timeout, 0),
        "persistent_workers": (persistent_workers, False),
        "multiprocessing_context": (context, None),
        "fetch_threads": (fetch_threads, None),
    }
    for name, (value, default) in given.items():
        if value != default:
            raise _OptionError(
                f"{name}: requires worker processes",
                found=f"{name}={value!r}, num_workers=0",
                fix=f"give num_workers, or leave {name} out",
            )
