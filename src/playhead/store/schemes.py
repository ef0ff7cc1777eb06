"""Files by the scheme of their path: local paths, URLs of object stores, `memory://`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from playhead.store.access import Access, access_of
from playhead.store.addresses import is_url
from playhead.store.aistore import AistoreFiles
from playhead.store.clients import Stores
from playhead.store.compressed import CompressedFiles, OnMissing, with_views
from playhead.store.files import Buffer, Files, Ranges, Stamp
from playhead.store.joining import JoiningFiles
from playhead.store.local import LocalFiles
from playhead.store.memory import MEMORY, SCHEME
from playhead.store.mounts import network_mount
from playhead.store.queueing import QueuedFiles
from playhead.store.remote import RemoteFiles


@dataclass(frozen=True)
class SchemeFiles:
    """Any path that Playhead can read; `mounted` are local paths on a file server, if these are read apart."""

    local: Files = field(default_factory=LocalFiles)
    mounted: Files | None = None
    remote: Files = field(default_factory=RemoteFiles)
    aistore: Files = field(default_factory=AistoreFiles)

    def list(self, pattern: str) -> Sequence[str]:
        return self._of(pattern).list(pattern)

    def stamp(self, path: str) -> Stamp:
        return self._of(path).stamp(path)

    def read(
        self, path: str, stamp: Stamp | None, ranges: Ranges, into: Sequence[memoryview] | None = None
    ) -> Sequence[Buffer]:
        return self._of(path).read(path, stamp, ranges, into)

    def access(self, path: str) -> Access:
        return access_of(self._of(path), path)

    def _of(self, path: str) -> Files:
        if not is_url(path):
            return self.local if self.mounted is None or network_mount(path) is None else self.mounted
        if path.startswith(SCHEME):
            return MEMORY
        return self.aistore if path[:6].lower() == "ais://" else self.remote


def scheme_files(stores: Stores, *, queued: bool = True) -> SchemeFiles:
    """Any path, with the options of some stores; requests wait in the queue of the node if `queued`."""
    local, remote, aistore = LocalFiles(), RemoteFiles(stores), AistoreFiles(stores)
    if not queued:
        return SchemeFiles(local, remote=remote, aistore=aistore)
    return SchemeFiles(local, QueuedFiles(local), QueuedFiles(remote), QueuedFiles(aistore))


def all_files(cache_dir: str | None = None, on_missing: OnMissing = "build") -> Files:
    """Every kind of path, with near ranges read together and files of lines decompressed.

    `cache_dir` is that of a recipe, where `prepare` keeps the seek points of gzip files; `on_missing` says how a file
    without them is handled.
    """
    files = SchemeFiles()
    return JoiningFiles(CompressedFiles(files) if cache_dir is None else with_views(files, cache_dir, on_missing))
