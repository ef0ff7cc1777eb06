"""What the ranks of a run are to do, as it travels to their processes."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from playhead.feed.loader import WorkerKind
from playhead.feed.processes import StartMethod

Arrays = Literal["numpy", "torch"]


class LoaderOptions(Struct, frozen=True):
    """How a loader is made, beyond its recipe and its rank. Law: none of it changes what is delivered."""

    workers: int = 0
    worker_kind: WorkerKind = "process"
    start_method: StartMethod = "spawn"
    arrays: Arrays = "numpy"

    def __str__(self) -> str:
        if not self.workers:
            text = "no workers"
        elif self.worker_kind == "thread":
            text = f"{self.workers} worker {'thread' if self.workers == 1 else 'threads'}"
        else:
            text = f"{self.workers} worker {'process' if self.workers == 1 else 'processes'}"
            text += f" ({'by torch' if self.arrays == 'torch' else self.start_method})"
        return f"{text}, tensors" if self.arrays == "torch" else text


class SavePlace(Struct, frozen=True):
    """Where a state is saved: after this many micro-batches of a step on each rank, or, with 0, at the end of the step.

    `name` is that of the file.
    """

    name: str
    step: int
    num_batches: int = 0


class Phase(Struct, frozen=True):
    """One run of a loader: from a state or the start, until a step or the end of the stream.

    `first` is the step it starts at, for those who watch. `essential` ends the process if it fails; the others go on
    with the next phase. `save_every` saves every this many steps. `together` lets the ranks begin at the same time,
    as those of a training do. The rest makes things go wrong: `pace_seconds` is waited after every step, so that there
    is time to be killed in; `dies_in_save` is the save in which the rank kills
    itself; `kills_worker_at` is the step after which it kills one of its workers. `capture` is the micro-batch (step,
    lane) of which the whole payload is written down.
    """

    name: str
    options: LoaderOptions
    cache_dir: str
    one_pass: bool = False
    state: str | None = None
    first: int = 0
    until: int | None = None
    saves: tuple[SavePlace, ...] = ()
    save_every: int = 0
    essential: bool = False
    together: bool = False
    pace_seconds: float = 0.0
    dies_in_save: int | None = None
    kills_worker_at: int | None = None
    capture: tuple[int, int] | None = None


class RankJob(Struct, frozen=True):
    """What all ranks of a launch are to do. Each takes its number from the environment, as under torchrun.

    With fewer processes than ranks a process is one rank after another. `loader` names a function of the user's.
    """

    recipe: str
    folder: str
    world_size: int
    num_processes: int
    phases: tuple[Phase, ...]
    payload: bool = True
    id_field: str = "id"
    loader: str | None = None

    @property
    def path(self) -> Path:
        return Path(self.folder) / "job.json"

    @property
    def lifeline(self) -> Path:
        """A file that the starter holds a lock on: ranks end when it is released."""
        return Path(self.folder) / "lifeline"

    def output(self, process: int) -> Path:
        """What a process prints."""
        return Path(self.folder) / f"process-{process}.txt"

    def pid(self, process: int) -> Path:
        return Path(self.folder) / f"process-{process}.pid"

    def record(self, phase: str, rank: int) -> Path:
        return Path(self.folder) / phase / f"rank-{rank}.jsonl"

    def state(self, phase: str, rank: int, name: str) -> Path:
        return Path(self.folder) / phase / f"rank-{rank}-{name}.json"

    def error(self, phase: str, rank: int) -> Path:
        return Path(self.folder) / phase / f"rank-{rank}-error.json"

    def ready(self, phase: str, rank: int) -> Path:
        """A file that says that a rank has its first batch."""
        return Path(self.folder) / phase / f"rank-{rank}-ready"

    def captured(self, phase: str, rank: int) -> Path:
        return Path(self.folder) / phase / f"rank-{rank}-captured"

    def write(self) -> None:
        self.path.write_bytes(msgspec.json.format(msgspec.json.encode(self)))

    @staticmethod
    def read(path: Path) -> RankJob:
        return msgspec.json.decode(path.read_bytes(), type=RankJob)
