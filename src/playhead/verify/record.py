"""What a rank was delivered, written down line by line as it came: readable after a kill."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from playhead.feed.batch import Batch
from playhead.verify.payload import digests_of

if TYPE_CHECKING:
    from typing import Self

Pick = tuple[str, int, int]  # source, epoch, row


class BatchLine(Struct, frozen=True, tag_field="kind", tag="batch", omit_defaults=True):
    """A micro-batch as it was delivered: its place, its picks in order, who made it, and digests of its fields.

    `ids` are the ids in its payload, `stream` is the sub-stream it is of.
    """

    step: int
    lane: int
    sources: list[str]
    epochs: list[int]
    rows: list[int]
    stream: int = 0
    idle: bool = False
    worker: int | None = None
    ids: list[str] | None = None
    payload: dict[str, str] | None = None

    @property
    def picks(self) -> list[Pick]:
        return list(zip(self.sources, self.epochs, self.rows, strict=True))

    def sample(self, slot: int) -> str:
        """A sample, human-readable."""
        text = f"{self.sources[slot]}, row {self.rows[slot]:,} of epoch {self.epochs[slot]}"
        return text if self.ids is None else f"{text}, id {self.ids[slot]}"


def line_of(batch: Batch, id_field: str = "id", *, payload: bool = True) -> BatchLine:
    """A batch as it is written down; without payload there are no digests."""
    return BatchLine(
        batch.step,
        batch.lane,
        list(batch.sources),
        batch.epochs.tolist(),
        batch.rows.tolist(),
        batch.task.work.request.stream,
        batch.idle,
        batch.worker,
        _ids_of(batch, id_field),
        digests_of(batch) if payload else None,
    )


def _ids_of(batch: Batch, field: str) -> list[str] | None:
    """The ids in a payload, one for each slot; None where it has no such field."""
    found = batch.get(field)
    if found is None and "samples" in batch and isinstance(batch["samples"], list):  # `collate: list`
        found = [sample.get(field) if isinstance(sample, dict) else None for sample in batch["samples"]]
    if found is None:
        return None
    found = found.tolist() if hasattr(found, "tolist") else found
    if not isinstance(found, (list, tuple)) or len(found) != len(batch.rows):
        return None
    return [str(one) for one in found] if all(isinstance(one, (str, int)) for one in found) else None


class StepLine(Struct, frozen=True, tag_field="kind", tag="step"):
    """The end of a step: how long the loop waited for its batches, the memory in use, and the state after it."""

    step: int
    waited_seconds: float
    memory_bytes: int
    state: str
    receipt: str | None = None


class SaveLine(Struct, frozen=True, tag_field="kind", tag="save"):
    """A state that was saved, and how many batches had been delivered before."""

    name: str
    num_batches: int
    digest: str


class FaultLine(Struct, frozen=True, tag_field="kind", tag="fault"):
    """A worker that was killed: what the loader said of it, and after how many seconds; None where it said nothing."""

    worker: int
    problem: str | None = None
    seconds: float = 0.0


class EndLine(Struct, frozen=True, tag_field="kind", tag="end"):
    """The end of a run that nothing happened to. `finished` says whether the stream ended."""

    finished: bool
    seconds: float
    seconds_to_first: float | None


Line = BatchLine | StepLine | SaveLine | FaultLine | EndLine
_DECODER: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)


class RecordWriter:
    """Writes lines to a file, each by one call: what was written outlives the process."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)

    def write(self, line: Line) -> None:
        data = msgspec.json.encode(line) + b"\n"
        while data:
            data = data[os.write(self._descriptor, data) :]

    def close(self) -> None:
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True)
class RankRecord:
    """What one rank wrote down, in order."""

    rank: int
    lines: Sequence[Line]

    @cached_property
    def batches(self) -> list[BatchLine]:
        return [line for line in self.lines if isinstance(line, BatchLine)]

    @cached_property
    def steps(self) -> list[StepLine]:
        return [line for line in self.lines if isinstance(line, StepLine)]

    @cached_property
    def saves(self) -> dict[str, SaveLine]:
        return {line.name: line for line in self.lines if isinstance(line, SaveLine)}

    @property
    def end(self) -> EndLine | None:
        return next((line for line in self.lines if isinstance(line, EndLine)), None)

    @property
    def faults(self) -> list[FaultLine]:
        return [line for line in self.lines if isinstance(line, FaultLine)]


def read_record(path: Path, rank: int) -> RankRecord:
    """The whole lines of a record; a last one torn by a kill is left out. No file is an empty record."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        data = b""
    return RankRecord(rank, [_DECODER.decode(line) for line in data.split(b"\n")[:-1]])
