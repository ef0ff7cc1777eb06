"""The files of an output directory."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from playhead.store import writing_to

_OWN = (
    "rows-[0-9]*.jsonl",
    "windows.jsonl",
    "windows.jsonl.idx",
    "rejected.jsonl",
    "summary.json",
    "report.html",
    "curate.json",
)
TIMED = ("summary.json", "report.html")  # these tell of times, so no two are the same
_HALF = (".rows-*.tmp", ".windows.*.tmp", ".rejected.*.tmp", ".summary.*.tmp", ".report.*.tmp", ".curate.*.tmp")


@dataclass(frozen=True)
class Layout:
    """Where things are. Parts and marks of shards are in `work`, which is removed when all is done."""

    out: Path

    @property
    def work(self) -> Path:
        return self.out / ".work"

    @property
    def ledger(self) -> Path:
        return self.out / "curate.json"

    @property
    def summary(self) -> Path:
        return self.out / "summary.json"

    @property
    def report(self) -> Path:
        return self.out / "report.html"

    @property
    def windows(self) -> Path:
        return self.out / "windows.jsonl"

    @property
    def rejected(self) -> Path:
        return self.out / "rejected.jsonl"

    @staticmethod
    def shard_name(number: int) -> str:
        return f"rows-{number:05d}.jsonl"

    def shard(self, number: int) -> Path:
        return self.out / self.shard_name(number)

    def mark(self, number: int) -> Path:
        return self.work / f"{number:05d}.json"

    def windows_part(self, number: int) -> Path:
        return self.work / f"windows-{number:05d}.jsonl"

    def rejected_part(self, number: int) -> Path:
        return self.work / f"rejected-{number:05d}.jsonl"

    def own_files(self) -> list[Path]:
        """What an earlier run left, finished or not."""
        return sorted(path for pattern in _OWN for path in self.out.glob(pattern))

    def make(self) -> None:
        with writing_to(self.work):
            self.work.mkdir(parents=True, exist_ok=True)

    def clear(self) -> None:
        """Remove what an earlier run left, the ledger last."""
        with writing_to(self.out):
            self.remove_work()
            for described in self.out.glob("audio-*.tar.done"):  # tars of other windows would be taken for these
                described.with_suffix("").unlink(missing_ok=True)
                described.unlink()
            for path in sorted(self.own_files(), key=lambda path: path == self.ledger):
                path.unlink()

    def remove_half_files(self) -> None:
        """Remove what a kill left half written."""
        with writing_to(self.out):
            for pattern in _HALF:
                for path in self.out.glob(pattern):
                    path.unlink()
            for path in self.work.glob(".*.tmp"):
                path.unlink()

    def remove_work(self) -> None:
        if self.work.exists():
            shutil.rmtree(self.work)
