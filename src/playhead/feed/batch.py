"""What a training loop is given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from playhead.feed.tasks import Task
from playhead.types import IntArray


@dataclass(frozen=True)
class Batch(Mapping[str, Any]):
    """A micro-batch: a mapping of its fields, with where it stands in the run beside them.

    `idle` batches repeat another one and count nothing (`num_samples` 0, weights 0): feed them, ignore their loss.
    `sources`, `epochs` and `rows` say for each slot which sample was planned there.
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


def batch_of(task: Task, data: dict[str, Any], source_names: tuple[str, ...]) -> Batch:
    work = task.work
    return Batch(
        data=data,
        step=work.step,
        lane=work.lane,
        idle=work.idle,
        is_last_in_step=task.is_last_in_step,
        num_samples=0 if work.idle else len(work.picks),
        sources=tuple([source_names[i] for i in work.picks.source.tolist()]),
        epochs=work.picks.epoch,
        rows=work.picks.row,
        task=task,
    )
