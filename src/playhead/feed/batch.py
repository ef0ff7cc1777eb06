"""The batch that the loader delivers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from playhead.errors import PlayheadError
from playhead.feed.tasks import Task
from playhead.read import Incident
from playhead.types import IntArray

_Value = TypeVar("_Value")


class Batch(Mapping[str, Any]):
    """A micro-batch: a mapping of its fields, which also carries its position in the run.

    `idle` batches repeat another one and count nothing (`num_samples` 0, weights 0): feed them, ignore their loss.
    `sources`, `epochs` and `rows` say for each slot which sample was planned there; a slot whose sample could be
    neither read nor replaced is empty, has weight 0 and is not in `num_samples`. `worker` is the system's id of the
    thread that made the batch: for a worker process that is its process id.

    `to`, `pin_memory`, copies and pickles keep all of it. Trainers also rebuild mappings, as `type(batch)(fields)`:
    such a batch has the same fields but no position, and raises PlayheadError when asked for it.
    """

    __slots__ = ("_num_samples", "_source_names", "_task", "_worker", "data")

    def __init__(
        self,
        data: Mapping[str, Any],
        num_samples: int | None = None,
        task: Task | None = None,
        source_names: tuple[str, ...] = (),
        worker: int | None = None,
    ) -> None:
        self.data = dict(data)
        self._num_samples, self._task, self._source_names, self._worker = num_samples, task, source_names, worker

    @property
    def task(self) -> Task:
        return _known(self._task)

    @property
    def num_samples(self) -> int:
        return _known(self._num_samples)

    @property
    def worker(self) -> int:
        return _known(self._worker)

    @property
    def step(self) -> int:
        return self.task.work.request.step

    @property
    def lane(self) -> int:
        return self.task.work.request.lane

    @property
    def idle(self) -> bool:
        return self.task.work.idle

    @property
    def is_last_in_step(self) -> bool:
        return self.task.is_last_in_step

    @property
    def sources(self) -> tuple[str, ...]:
        return tuple([self._source_names[i] for i in self.task.work.request.picks.source.tolist()])

    @property
    def epochs(self) -> IntArray:
        return self.task.work.request.picks.epoch

    @property
    def rows(self) -> IntArray:
        return self.task.work.request.picks.row

    def __repr__(self) -> str:
        fields = f"fields: {', '.join(self.data) or 'none'}"
        if self._task is None:
            return f"Batch(rebuilt, {fields})"
        about = f"step={self.step}, lane={self.lane}, num_samples={self.num_samples}"
        return f"Batch({about}{', idle' if self.idle else ''}, {fields})"

    def __getitem__(self, name: str) -> Any:
        return self.data[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.data)

    def __len__(self) -> int:
        return len(self.data)

    def to(self, *where: Any, **how: Any) -> Batch:
        """The batch with its tensors on another device; other values are unchanged."""
        return self._with(applied(self.data, "to", lambda value: value.to(*where, **how)))

    def pin_memory(self) -> Batch:
        """The batch with its tensors in pinned memory; other values are unchanged."""
        return self._with(applied(self.data, "pin_memory", lambda value: value.pin_memory()))

    def place_as(self, other: Batch) -> None:
        """Give a rebuilt batch the position of the batch it was rebuilt from. For adapters."""
        self._num_samples, self._task = other._num_samples, other._task
        self._source_names, self._worker = other._source_names, other._worker

    def emptied(self) -> Batch:
        """The batch without its fields: only its position in the run."""
        return self._with({})

    def _with(self, data: Mapping[str, Any]) -> Batch:
        return Batch(data, self._num_samples, self._task, self._source_names, self._worker)


def _known(value: _Value | None) -> _Value:
    if value is None:
        raise PlayheadError(
            "this batch was rebuilt from its fields and has lost its position in the run",
            fix="use the batch that the loader delivered, or move it with `batch.to(...)`, which keeps its position",
        )
    return value


def applied(value: Any, method: str, function: Callable[[Any], Any]) -> Any:
    """A value with `function` applied to every object in it that has `method`, also inside collections."""
    if hasattr(value, method):
        return function(value)
    return in_collections(value, lambda item: applied(item, method, function))


def in_collections(value: Any, function: Callable[[Any], Any]) -> Any:
    """A dictionary, list or tuple with `function` applied to its items; any other value unchanged."""
    if isinstance(value, dict):
        return {name: function(item) for name, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(function, value))
    if isinstance(value, (list, tuple)):
        return type(value)(map(function, value))
    return value


def batch_of(
    task: Task,
    data: dict[str, Any],
    source_names: tuple[str, ...],
    incidents: Sequence[Incident] = (),
    worker: int | None = None,
) -> Batch:
    request = task.work.request
    num_empty = sum(incident.substitute is None for incident in incidents) if incidents else 0
    num_empty += sum(row is None for row in request.known.values()) if request.known else 0
    return Batch(data, 0 if task.work.idle else len(request.picks) - num_empty, task, source_names, worker)
