"""The output directory: its files, and the request of the run that wrote them.

A later run of the same request resumes; any other is refused with what differs.
"""

from __future__ import annotations

import shutil
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from playhead.curate.inputs import CurateInput
from playhead.errors import PrepareError
from playhead.store import replacing, writing_to

_OWN = (
    "rows-[0-9]*.jsonl",
    "windows.jsonl",
    "windows.jsonl.idx",
    "rejected.jsonl",
    "summary.json",
    "report.html",
    "curate.json",
)
_AUDIO = ("audio-[0-9]*.tar", "audio-[0-9]*.tar.done", "audio-rejected.jsonl")
_VERSION = 1
_SHOWN = 5
TIMED = ("summary.json", "report.html")  # these contain times, so they differ between runs
_HALF = (".rows-*.tmp", ".windows.*.tmp", ".rejected.*.tmp", ".summary.*.tmp", ".report.*.tmp", ".curate.*.tmp")


class CurateLayout:
    """Paths of the outputs. Parts and marks of shards are in `work`, which is removed when all is done."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.work = out / ".work"
        self.ledger = out / "curate.json"
        self.summary = out / "summary.json"
        self.report = out / "report.html"
        self.windows = out / "windows.jsonl"
        self.rejected = out / "rejected.jsonl"

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
        """The files of an earlier run, finished or not."""
        return sorted(path for pattern in _OWN for path in self.out.glob(pattern))

    def audio_files(self) -> list[Path]:
        """The tars of windows, each after what describes it, and the windows that could not be cut."""
        return sorted(path for pattern in _AUDIO for path in self.out.glob(pattern))

    def make(self) -> None:
        with writing_to(self.work):
            self.work.mkdir(parents=True, exist_ok=True)

    def clear(self) -> None:
        """Remove the files of an earlier run, the ledger last."""
        with writing_to(self.out):
            self.remove_work()
            for described in self.out.glob("audio-*.tar.done"):  # tars of other windows would be mistaken for these
                described.with_suffix("").unlink(missing_ok=True)
                described.unlink()
            for path in sorted(self.own_files(), key=lambda path: path == self.ledger):
                path.unlink()

    def remove_half_files(self) -> None:
        """Remove partial files left by a kill."""
        with writing_to(self.out):
            for pattern in _HALF:
                for path in self.out.glob(pattern):
                    path.unlink()
            for path in self.work.glob(".*.tmp"):
                path.unlink()

    def remove_work(self) -> None:
        if self.work.exists():
            shutil.rmtree(self.work)


class CurateRequest(Struct, frozen=True):
    """Everything that the outputs depend on."""

    stage: str
    parameters: dict[str, Any]
    loss_details: bool
    rows_per_shard: int
    repeat: int
    inputs: tuple[CurateInput, ...]
    version: int = _VERSION


class CurateLedger(Struct, frozen=True):
    """A request, and once it is done the size of each output, if it is always the same."""

    request: CurateRequest
    outputs: dict[str, int | None] | None = None


def is_output(name: str) -> bool:
    """Whether a name is that of an output."""
    return any(fnmatchcase(name, pattern) for pattern in (*_OWN, *_AUDIO))


def ledger_bytes(ledger: CurateLedger) -> bytes:
    return msgspec.json.format(msgspec.json.encode(ledger), indent=1)


def write_ledger(layout: CurateLayout, ledger: CurateLedger) -> None:
    with replacing(layout.ledger) as file:
        file.write(ledger_bytes(ledger))


def read_ledger(layout: CurateLayout, request: CurateRequest) -> CurateLedger | None:
    """The ledger of an earlier run of the same request; None if there was no run. Any other run is refused."""
    if not layout.ledger.exists():
        left = layout.own_files()
        if left:
            raise refusal(layout.out, [f"{left[0].name} exists, but no curate.json describes it"])
        return None
    found = checked_ledger(layout.out, layout.ledger.read_bytes(), request)
    for name, size in (found.outputs or {}).items():
        path = layout.out / name
        if not path.exists() or size not in (None, path.stat().st_size):
            raise refusal(layout.out, [f"{name} is missing, or has been changed since it was written"])
    return found


def checked_ledger(out: str | Path, data: bytes, request: CurateRequest) -> CurateLedger:
    """A ledger, which must be of the same request."""
    try:
        found = msgspec.json.decode(data, type=CurateLedger)
    except msgspec.DecodeError as error:
        raise refusal(out, [f"curate.json cannot be read: {error}"]) from error
    differences = differences_of(found.request, request)
    if differences:
        raise refusal(out, differences)
    return found


def differences_of(before: CurateRequest, now: CurateRequest) -> list[str]:
    """The differences between two requests, as text."""
    if before.stage != now.stage:
        return [f"`curate {before.stage}` before, `curate {now.stage}` now"]
    pairs = [(name, before.parameters.get(name), value) for name, value in now.parameters.items()]
    pairs += [(name, getattr(before, name), getattr(now, name)) for name in ("version", "rows_per_shard", "repeat")]
    pairs.append(("loss details", before.loss_details, now.loss_details))
    found = [f"{name}: {was} before, {is_now} now" for name, was, is_now in pairs if was != is_now]
    return found + _input_differences(before.inputs, now.inputs)


def _input_differences(before: tuple[CurateInput, ...], now: tuple[CurateInput, ...]) -> list[str]:
    was, is_now = ({each.path: each.stamp for each in inputs} for inputs in (before, now))
    found = [f"{path}: not among the inputs any more" for path in was if path not in is_now]
    found += [f"{path}: a new input" for path in is_now if path not in was]
    found += [f"{path}: has changed since" for path in was if path in is_now and was[path] != is_now[path]]
    return found or (["the inputs: in another order"] if [*was] != [*is_now] else [])


def refusal(out: str | Path, differences: list[str]) -> PrepareError:
    """The error for a place that this run cannot resume, because of these differences."""
    more = f"; and {len(differences) - _SHOWN:,} more" if len(differences) > _SHOWN else ""
    return PrepareError(
        f"{out}: holds the outputs of another run",
        found="; ".join(differences[:_SHOWN]) + more,
        expected="an empty directory, or a run of the same inputs and parameters to resume",
        fix="choose another --out, or write it again with --force",
    )
