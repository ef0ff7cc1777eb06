"""Jobs that note what they do in files, for the tests of engines; they travel to workers by name."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from playhead.errors import DataError


@dataclass(frozen=True)
class Square:
    """The square of a number; one that is not to be had raises."""

    number: int
    refused: int = -1

    @property
    def name(self) -> str:
        return f"number {self.number}"

    def run(self) -> int:
        if self.number == self.refused:
            raise DataError(f"{self.name}: refused", found=str(self.number))
        return self.number**2


@dataclass(frozen=True)
class Deadly:
    """A job that kills its worker as often as told, noting each try in a file."""

    number: int
    notes: Path
    deaths: int

    @property
    def name(self) -> str:
        return f"deadly {self.number}"

    def run(self) -> int:
        notes = self.notes / f"{self.number}"
        with notes.open("a") as file:
            file.write(f"{os.getpid()}\n")
        if len(notes.read_text().splitlines()) <= self.deaths:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.number


@dataclass(frozen=True)
class Waiting:
    """A job that tells its process in a file, then waits until another file is there."""

    number: int
    folder: Path

    @property
    def name(self) -> str:
        return f"waiting {self.number}"

    def run(self) -> int:
        (self.folder / f"pid-{self.number}").write_text(str(os.getpid()))
        while not (self.folder / "go").exists():
            time.sleep(0.01)
        return self.number
