"""What a training loop is given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from playhead.feed.tasks import Task
from playhead.read import Incident
from playhead.types import IntArray


@dataclass(frozen=True)
class Batch(Mapping[str, Any]):
    """A micro-batch: a mapping of its fields, with where it stands in the run beside them.

    `idle` batches repeat another one and count nothing (`num_samples` 0, weights 0): feed them, ignore their loss.
    `sources`, `epochs` and `rows` say for each slot which sample was planned there; a slot whose sample could be
    neither read nor replaced is empty, has weight 0 and is not in `num_samples`.
    """

    data: dict[str, Any]
    step: int
    lane: int
    idle: bool
    is_last_in_step: bool
    num_samples: int
    sources: tuple[str, ...]
    epochs: IntArray
    rows: IntArray
    task: Task = field(repr=False)

    def __getitem__(self, name: str) -> Any:
        return self.data[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.data)

    def __len__(self) -> int:
        return len(self.data)

    def to(self, *where: Any, **how: Any) -> Batch:
        """The batch with its tensors on another device, as trainers ask for it; what is no tensor stays."""
        moved = {name: value.to(*where, **how) if hasattr(value, "to") else value for name, value in self.data.items()}
        return replace(self, data=moved)


def batch_of(
    task: Task, data: dict[str, Any], source_names: tuple[str, ...], incidents: Sequence[Incident] = ()
) -> Batch:
    work = task.work
    num_empty = sum(incident.substitute is None for incident in incidents)
    num_empty += sum(row is None for row in (work.known or {}).values())
    return Batch(
        data=data,
        step=work.step,
        lane=work.lane,
        idle=work.idle,
        is_last_in_step=task.is_last_in_step,
        num_samples=0 if work.idle else len(work.picks) - num_empty,
        sources=tuple([source_names[i] for i in work.picks.source.tolist()]),
        epochs=work.picks.epoch,
        rows=work.picks.row,
        task=task,
    )
