"""Sidecars copied to the directory of `fetch`: those that are valid for their file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from playhead.errors import DataError
from playhead.formats import sidecar
from playhead.formats.contract import ScanLimits
from playhead.prepare.fetch_jobs import FetchedFile, FetchOptions
from playhead.store import Files, LocalFiles, Stamp, open_file, replacing, writing_to
from playhead.store.addresses import without_query
from playhead.store.copies import NoCopyError
from playhead.store.files import Buffer, File, Ranges

INDEXES = "indexes"
_LOCAL = LocalFiles()


def fetch_sidecar(path: str, storage: Files, indexes_root: str | None, root: str, options: FetchOptions) -> FetchedFile:
    """Copy the sidecar of a file to a directory. `indexes_root` is that of the recipe."""
    origins, copies = ScanLimits(indexes_root=indexes_root), ScanLimits(indexes_root=f"{root}/{INDEXES}")
    file = open_file(storage, path)
    place = sidecar.sidecar_path(path, indexes_root)
    try:
        origin = open_file(storage, place)
    except (DataError, NoCopyError):
        return FetchedFile(path, "index", "missing")
    if not sidecar.is_valid(file, origins):
        return FetchedFile(path, "index", "invalid", origin.size)
    target = Path(sidecar.sidecar_path(path, f"{root}/{INDEXES}"))
    _check_inside(target, root, path)
    with_own = File(_WithOwn(storage, root), path, file.stamp)
    content = b"".join(origin.pieces())
    if not options.force and target.is_file() and target.read_bytes() == content and sidecar.is_valid(with_own, copies):
        return FetchedFile(path, "index", "present", origin.size, str(target))
    if options.dry_run:
        return FetchedFile(path, "index", "to copy", origin.size, str(target))
    _write(target, content)
    if not sidecar.is_valid(with_own, copies):
        target.unlink()
        raise DataError(f"{without_query(place)}: the file changed while its sidecar was copied", fix="run it again")
    return FetchedFile(path, "index", "copied", origin.size, str(target))


class _WithOwn:
    """Storage in which files under a local directory are there, also if the storage has nothing but copies."""

    def __init__(self, files: Files, root: str) -> None:
        self.files, self._root = files, root

    def list(self, pattern: str) -> Sequence[str]:
        return self._of(pattern).list(pattern)

    def stamp(self, path: str) -> Stamp:
        return self._of(path).stamp(path)

    def read(
        self, path: str, stamp: Stamp | None, ranges: Ranges, into: Sequence[memoryview] | None = None
    ) -> Sequence[Buffer]:
        return self._of(path).read(path, stamp, ranges, into)

    def _of(self, path: str) -> Files:
        return _LOCAL if Path(path).is_relative_to(self._root) else self.files


def _write(target: Path, content: bytes) -> None:
    with writing_to(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    with replacing(target) as file:
        file.write(content)


def _check_inside(target: Path, root: str, path: str) -> None:
    if ".." in target.parts or not target.is_relative_to(root):
        raise DataError(
            f"{without_query(path)}: its sidecar cannot be copied under this name",
            expected="a path without `..`",
        )
