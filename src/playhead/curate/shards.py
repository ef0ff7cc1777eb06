"""The audio of windows as WebDataset tars: `audio-00000.tar`, ..., each sample `<id>.wav` (or `.flac`) and `<id>.json`.

Laws: the bytes depend on the manifest, the recordings and the settings, not on workers, engines or kills; a tar that
is finished is not cut again; one that is no longer needed is removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import msgspec

from playhead.curate.shard_job import RejectedWindow, ShardConfig, ShardJob, ShardSummary, summary_path
from playhead.errors import PlayheadError
from playhead.jobs import Engine, Local
from playhead.jobs.lock import only_one
from playhead.jobs.shared_disk import expect_file
from playhead.read.codecs import import_soundfile
from playhead.read.media_rules import MediaRules, media_rules
from playhead.store import File, Files, all_files, open_file, replacing, writing_to

__all__ = ["ShardConfig", "ShardsProgress", "ShardsReport", "write_shards"]

_READ_BYTES = 1 << 20
_THIS_PROCESS = Local(1)


@dataclass(frozen=True)
class ShardsProgress:
    shard: str
    num_windows: int
    done_shards: int


@dataclass(frozen=True)
class ShardsReport:
    """The finished shards; `kept_shards` of them existed before. `rejected` is in the order of the lines."""

    num_shards: int
    kept_shards: int
    num_windows: int
    seconds: float
    num_bytes: int
    rejected: tuple[RejectedWindow, ...]


def write_shards(
    manifest: str | Path,
    out: str | Path,
    config: ShardConfig,
    engine: Engine = _THIS_PROCESS,
    progress: Callable[[ShardsProgress], None] | None = None,
    *,
    files: Files | None = None,
    origins: Sequence[str] = (),
) -> ShardsReport:
    """Cut the windows of a manifest, one job for each tar. A second run does nothing.

    With `on_error: stop` the first window that cannot be cut is raised; otherwise they are listed in
    `audio-rejected.jsonl`. The engine is not closed. Recordings may be URLs: under `audio_root`, or in the buckets of
    the manifest and of the `origins`, the files that its windows were cut from.
    """
    if config.kind == "flac":
        import_soundfile()
    files = files or all_files()
    roots = [*origins, str(manifest), *([] if config.audio_root is None else [f"{config.audio_root}/"])]
    rules = replace(media_rules(roots), allowed_by="audio_root (--audio-root)")
    directory = Path(out)
    with writing_to(directory):
        directory.mkdir(parents=True, exist_ok=True)
    with only_one(directory / "audio"):
        _sweep(directory)
        run = _ShardRun(progress)
        engine.run(_jobs(files, rules, str(manifest), directory, config), run.done)
        _remove_others(directory, run.summaries)
        rejected = tuple(sorted(run.rejected, key=lambda one: one.line))
        _list_rejected(directory / "audio-rejected.jsonl", rejected)
        _sweep(directory)  # the workers of a killed run end a moment after it
    found = list(run.summaries.values())
    return ShardsReport(
        num_shards=sum(summary.num_windows > 0 for summary in found),
        kept_shards=run.kept,
        num_windows=sum(summary.num_windows for summary in found),
        seconds=sum(run.summaries[path].seconds for path in sorted(run.summaries)),
        num_bytes=sum(summary.num_bytes for summary in found),
        rejected=rejected,
    )


def _sweep(directory: Path) -> None:
    """Remove what killed runs left half written."""
    for left in directory.glob(".audio-*.tmp"):
        left.unlink(missing_ok=True)


class _ShardRun:
    def __init__(self, progress: Callable[[ShardsProgress], None] | None) -> None:
        self.summaries: dict[Path, ShardSummary] = {}
        self.rejected: list[RejectedWindow] = []
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


def _jobs(files: Files, rules: MediaRules, manifest: str, directory: Path, config: ShardConfig) -> Iterator[ShardJob]:
    lines = _lines(open_file(files, manifest))
    number, first = 0, 1
    while group := tuple(islice(lines, config.windows_per_shard)):
        target = directory.absolute() / f"audio-{number:05d}.tar"
        yield ShardJob(files, rules, manifest, first, group, target, config)
        number, first = number + 1, first + len(group)


def _lines(manifest: File) -> Iterator[bytes]:
    """The lines without line endings, reading a piece of the file at a time."""
    rest = b""
    for piece in manifest.pieces(_READ_BYTES):
        *whole, rest = (rest + piece).split(b"\n")
        yield from whole
    if rest:
        yield rest


def _remove_others(directory: Path, wanted: dict[Path, ShardSummary]) -> None:
    """Remove surplus tars of an earlier run, found by their descriptions: they would be read as well."""
    for described in directory.absolute().glob("audio-*.tar.done"):
        target = described.with_suffix("")
        if target not in wanted:
            target.unlink(missing_ok=True)
            described.unlink()


def _list_rejected(path: Path, rejected: tuple[RejectedWindow, ...]) -> None:
    if not rejected:
        path.unlink(missing_ok=True)
        return
    with replacing(path) as file:
        for one in rejected:
            file.write(msgspec.json.encode(one) + b"\n")
