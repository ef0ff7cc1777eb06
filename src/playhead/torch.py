"""The loader for torch: torch's own DataLoader inside, with its workers, pinning and prefetching.

The plan stays in this process, as the sampler: torch asks it for the next piece of work, sends that to a worker as if
it were an index, and gives results back in order. Each is then joined with its task, which knows the state after it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from playhead.errors import PlayheadError, RecipeError, SampleError
from playhead.feed.delivery import Delivery
from playhead.feed.main_guard import refuse_in_bootstrap, without_main_guard
from playhead.feed.pool import Results
from playhead.feed.processes import worker_died
from playhead.feed.produce import Blueprint, Produced, Producer
from playhead.feed.rank_stream import RankStream
from playhead.feed.tasks import Task, Work
from playhead.read import Incident
from playhead.recipe.values import Recipe
from playhead.store import Files

try:
    import torch
    from torch.utils import data as torch_data
except ImportError as error:
    raise RecipeError(
        "playhead.torch needs PyTorch, which is not installed", fix="pip install 'playhead[torch]'"
    ) from error

__all__ = ["DataLoader"]

_Made = tuple[dict[str, Any], list[Incident]] | PlayheadError


class DataLoader(Delivery):
    """The batches of one rank, with arrays as tensors.

    Takes what `playhead.Loader` takes, and torch's own options: `num_workers`, `pin_memory`, `persistent_workers`,
    `prefetch_factor`, `multiprocessing_context`, `timeout`, `worker_init_fn`.
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
        **torch_options: Any,
    ) -> None:
        _check_options(torch_options)
        stream = RankStream(recipe, split, rank, world_size)
        blueprint = Blueprint(recipe, split, map, collate, files)
        if torch_options.get("num_workers"):
            blueprint.check_picklable()
        # Else torch draws from the global generator when an iteration begins, and dropout changes with every resume.
        torch_options.setdefault("generator", torch.Generator().manual_seed(torch.initial_seed()))
        super().__init__(stream, blueprint, partial(_TorchPool, blueprint, stream.describe, torch_options))


def _check_options(options: dict[str, Any]) -> None:
    fixed = {"batch_size", "shuffle", "sampler", "batch_sampler", "collate_fn", "drop_last", "dataset"} & options.keys()
    if fixed:
        raise RecipeError(
            f"{', '.join(sorted(fixed))}: decided by the recipe, not by the loader",
            fix="remove it here; see `batching`, `shuffle` and `collate` in docs/recipe.md",
        )
    workers = options.get("num_workers", 0)
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 0:
        raise RecipeError(
            "num_workers: this number cannot be used", found=repr(workers), expected="a whole number from 0"
        )


class _TorchPool:
    """A pool whose workers are torch's: they end with an iteration, unless torch is to keep them."""

    def __init__(self, blueprint: Blueprint, describe: Callable[[Work], str], options: dict[str, Any]) -> None:
        self._describe = describe
        self._sampler = _Sampler()
        self._loader = torch_data.DataLoader(
            _Dataset(blueprint), sampler=self._sampler, batch_size=None, collate_fn=_as_it_is, **options
        )

    def results(self, tasks: Iterator[Task]) -> Results:
        if self._loader.num_workers:
            refuse_in_bootstrap()
        self._sampler.tasks = tasks
        found = iter(self._loader)
        while True:
            try:
                made = next(found)
            except StopIteration:
                return
            except (RuntimeError, OSError, EOFError) as error:
                explained = self._explained(error, getattr(found, "_workers", ()))
                self._end(found)
                raise explained from error
            if isinstance(made, PlayheadError):
                raise made
            yield self._sampler.under_way.popleft(), Produced(*made)

    def close(self) -> None:
        self._end(self._loader._iterator)  # noqa: SLF001  # torch has no public way to end persistent workers

    def _end(self, found: Any) -> None:
        """Let torch end its workers, and forget dead ones: it would report them whenever any child process ends."""
        self._loader._iterator = None  # noqa: SLF001
        if hasattr(found, "_shutdown_workers"):
            found._shutdown_workers()  # noqa: SLF001

    def _explained(self, error: Exception, workers: Sequence[Any]) -> Exception:
        """Torch's error about a dead worker, or the broken pipe it left, with what was under way."""
        for worker in workers:
            if (unguarded := without_main_guard(worker.exitcode)) is not None:
                return unguarded
        if isinstance(error, RuntimeError) and "DataLoader worker" not in str(error):
            return error
        waiting = [self._describe(task.work) for task in self._sampler.under_way]
        return worker_died(f"a worker died: {error}", f"under way were {'; '.join(waiting)}")


class _Sampler:
    """Gives torch the next work, and remembers which task it is of."""

    def __init__(self) -> None:
        self.tasks: Iterator[Task] = iter(())
        self.under_way: deque[Task] = deque()

    def __iter__(self) -> Iterator[Work]:
        self.under_way.clear()
        for task in self.tasks:
            self.under_way.append(task)
            yield task.work


class _Dataset(torch_data.Dataset[_Made]):
    """Makes work into tensors, in whichever process torch calls it.

    A mistake of the user's is given back, not raised: torch would raise a copy of it with a traceback for a problem.
    """

    def __init__(self, blueprint: Blueprint) -> None:
        self._blueprint = blueprint
        self._producer: Producer | None = None

    def __getitem__(self, work: Work) -> _Made:
        try:
            if self._producer is None:
                self._producer = self._blueprint.build()
            produced = self._producer(work)
            return {name: _tensor(name, value) for name, value in produced.payload.items()}, produced.incidents
        except PlayheadError as error:
            return error

    def __getstate__(self) -> dict[str, Any]:
        """Each process opens files and maps of its own."""
        return {"_blueprint": self._blueprint, "_producer": None}


def _tensor(name: str, value: Any) -> Any:
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "biufc":
        return value
    # Torch takes neither foreign byte orders nor views that run backwards, and warns of arrays it may not write to. Of
    # two dtypes that are the same on this machine (numpy makes "unsigned long long" of large numbers) it knows one.
    ready = np.require(value, value.dtype.newbyteorder("="), ["C", "W"])
    try:
        return torch.from_numpy(ready.view(ready.dtype.str))
    except TypeError as error:
        raise SampleError(
            f'field "{name}" has a dtype that torch {torch.__version__} has no tensors of',
            found=str(value.dtype),
            fix=f"declare another in the recipe (`dtypes: {{{name}: ...}}`), or convert it in `map`",
        ) from error


def _as_it_is(value: Any) -> Any:
    return value
