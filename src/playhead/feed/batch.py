"""What a training loop is given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from playhead.feed.tasks import Task
from playhead.read import Incident
from playhead.types import IntArray


@dataclass(frozen=True, repr=False)
class Batch(Mapping[str, Any]):
    """A micro-batch: a mapping of its fields, with where it stands in the run beside them.

    `idle` batches repeat another one and count nothing (`num_samples` 0, weights 0): feed them, ignore their loss.
    `sources`, `epochs` and `rows` say for each slot which sample was planned there; a slot whose sample could be
    neither read nor replaced is empty, has weight 0 and is not in `num_samples`.
    """

    data: dict[str, Any]
    num_samples: int
    task: Task
    source_names: tuple[str, ...]

    @property
    def step(self) -> int:
        return self.task.work.step

    @property
    def lane(self) -> int:
        return self.task.work.lane

    @property
    def idle(self) -> bool:
        return self.task.work.idle

    @property
    def is_last_in_step(self) -> bool:
        return self.task.is_last_in_step

    @property
    def sources(self) -> tuple[str, ...]:
        return tuple([self.source_names[i] for i in self.task.work.picks.source.tolist()])

    @property
    def epochs(self) -> IntArray:
        return self.task.work.picks.epoch

    @property
    def rows(self) -> IntArray:
        return self.task.work.picks.row

    def __repr__(self) -> str:
        about = f"step={self.step}, lane={self.lane}, num_samples={self.num_samples}"
        return f"Batch({about}{', idle' if self.idle else ''}, fields: {', '.join(self.data) or 'none'})"

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
    num_empty = sum(incident.substitute is None for incident in incidents) if incidents else 0
    num_empty += sum(row is None for row in work.known.values()) if work.known else 0
    return Batch(data, 0 if work.idle else len(work.picks) - num_empty, task, source_names)
