"""The audio of windows as WebDataset tars: `audio-00000.tar`, ..., each sample `<id>.wav` (or `.flac`) and `<id>.json`.

Laws: the bytes depend on the manifest, the recordings and the settings, not on workers, engines or kills; a tar that
is finished is not cut again; one that is no longer wanted is removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

import msgspec

from playhead.curate.clips import Kind, import_soundfile
from playhead.curate.shard_job import Rejected, ShardJob, ShardSummary, summary_path
from playhead.errors import PlayheadError, RecipeError
from playhead.jobs import Engine, run_jobs
from playhead.jobs.lock import only_one
from playhead.jobs.shared_disk import expect_file
from playhead.store import open_file, replacing, writing_to

_READ_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class ShardConfig:
    """`audio_root` is where relative audio paths begin; by default in the folder of a row's own manifest."""

    kind: Kind = "wav"
    windows_per_shard: int = 1000
    audio_root: str | None = None
    on_error: Literal["stop", "reject"] = "stop"

    def __post_init__(self) -> None:
        """A config that is there can be used."""
        if self.kind not in {"wav", "flac"}:
            raise RecipeError("shards: audio of this kind is not written", found=str(self.kind), expected="wav or flac")
        if self.windows_per_shard < 1:
            raise RecipeError("windows_per_shard: too few", found=str(self.windows_per_shard), expected="1 or more")
        if self.on_error not in {"stop", "reject"}:
            raise RecipeError("on_error: is not known", found=str(self.on_error), expected="stop or reject")


@dataclass(frozen=True)
class ShardsProgress:
    shard: str
    num_windows: int
    done_shards: int


@dataclass(frozen=True)
class ShardsReport:
    """What is there now; `kept_shards` of the shards were there before. `rejected` is in the order of the lines."""

    num_shards: int
    kept_shards: int
    num_windows: int
    seconds: float
    num_bytes: int
    rejected: tuple[Rejected, ...]


def write_shards(
    manifest: str | Path,
    out: str | Path,
    config: ShardConfig,
    engine: Engine | int = 1,
    progress: Callable[[ShardsProgress], None] | None = None,
) -> ShardsReport:
    """Cut the windows of a manifest, one job for each tar. A second run does nothing.

    With `on_error: stop` the first window that cannot be cut is raised; else all such are listed in
    `audio-rejected.jsonl`. The engine is not closed.
    """
    import_soundfile()
    directory = Path(out)
    with writing_to(directory):
        directory.mkdir(parents=True, exist_ok=True)
    with only_one(directory / "audio"):
        for left in directory.glob(".audio-*.tmp"):
            left.unlink()
        run = _Run(progress)
        run_jobs(_jobs(Path(manifest), directory, config), engine, run.done)
        _remove_others(directory, run.summaries)
        rejected = tuple(sorted(run.rejected, key=lambda one: one.line))
        _list_rejected(directory / "audio-rejected.jsonl", rejected)
    found = list(run.summaries.values())
    return ShardsReport(
        num_shards=sum(summary.num_windows > 0 for summary in found),
        kept_shards=run.kept,
        num_windows=sum(summary.num_windows for summary in found),
        seconds=sum(run.summaries[path].seconds for path in sorted(run.summaries)),
        num_bytes=sum(summary.num_bytes for summary in found),
        rejected=rejected,
    )


class _Run:
    def __init__(self, progress: Callable[[ShardsProgress], None] | None) -> None:
        self.summaries: dict[Path, ShardSummary] = {}
        self.rejected: list[Rejected] = []
        self.kept = 0
        self._progress = progress

    def done(self, job: ShardJob, outcome: tuple[ShardSummary, bool] | PlayheadError) -> None:
        if isinstance(outcome, PlayheadError):
            raise outcome
        summary, kept = outcome
        expect_file(summary_path(job.target))
        self.summaries[job.target] = msgspec.structs.replace(summary, rejected=())
        self.rejected += summary.rejected
        self.kept += kept
        if self._progress is not None:
            self._progress(ShardsProgress(job.name, summary.num_windows, len(self.summaries)))


def _jobs(manifest: Path, directory: Path, config: ShardConfig) -> Iterator[ShardJob]:
    lines = _lines(manifest)
    number, first = 0, 1
    while group := tuple(islice(lines, config.windows_per_shard)):
        target = directory.absolute() / f"audio-{number:05d}.tar"
        yield ShardJob(str(manifest), first, group, target, config.audio_root, config.kind, config.on_error)
        number, first = number + 1, first + len(group)


def _lines(manifest: Path) -> Iterator[bytes]:
    """The lines with their ends, a piece of the file at a time."""
    with open_file(str(manifest)) as file:
        rest = b""
        for position in range(0, file.size, _READ_BYTES):
            *whole, rest = (rest + file.read(position, _READ_BYTES)).split(b"\n")
            yield from whole
        if rest:
            yield rest


def _remove_others(directory: Path, wanted: dict[Path, ShardSummary]) -> None:
    """Tars of a run with more of them would be read as if they belonged here. Only what we described is ours."""
    for described in directory.absolute().glob("audio-*.tar.done"):
        target = described.with_suffix("")
        if target not in wanted:
            target.unlink(missing_ok=True)
            described.unlink()


def _list_rejected(path: Path, rejected: tuple[Rejected, ...]) -> None:
    if not rejected:
        path.unlink(missing_ok=True)
        return
    with replacing(path) as file:
        for one in rejected:
            file.write(msgspec.json.encode(one) + b"\n")
