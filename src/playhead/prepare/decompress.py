"""Compressed files read whole, once, to find their seek points: by all workers, before anything else."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from playhead.errors import PlayheadError
from playhead.formats.rows import Shard
from playhead.prepare.options import PrepareOptions
from playhead.store import Files, compressed_files


@dataclass(frozen=True)
class DecompressJob:
    """A file to read whole."""

    path: str
    files: Files

    @property
    def name(self) -> str:
        return self.path

    def run(self) -> None:
        self.files.stamp(self.path)


def decompress_new(shards: Sequence[Shard], options: PrepareOptions) -> None:
    """Read the files without seek points. Failures are left to the survey, which reports them with their shard."""
    view = compressed_files(options.files)
    sizes: dict[str, int] = {}
    for shard in shards if view is not None else ():
        for _, path in shard.files:
            with suppress(PlayheadError):
                assert view is not None
                sizes[path] = view.num_unread_bytes(path)
    jobs = [DecompressJob(path, options.files) for path, size in sizes.items() if size]
    if len(jobs) > 1:
        options.engine_for(len(jobs), sum(sizes.values()), sizes).run(jobs, lambda _job, _outcome: None)
