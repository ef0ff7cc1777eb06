"""Local copies of files, read in their place: a wrapper around any storage.

    <root>/copies.json                  which files have a copy, with their stamps; and what patterns listed
    <root>/files/<scheme>/<path>        the copies

A file keeps its name and its stamp: indexes, relative paths and rules about paths are those of the file itself.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from threading import Lock

import msgspec

from playhead.errors import DataError, RecipeError, StoreError
from playhead.store.access import ON_DISK, Access, access_of
from playhead.store.addresses import is_url, without_query
from playhead.store.files import Buffer, Files, Ranges, Stamp, changed
from playhead.store.local import LocalFiles
from playhead.store.mapped import load_bytes
from playhead.store.writing import replacing, writing_to

_NAME = "copies.json"
_VERSION = 1
_LOCAL = LocalFiles()


class Copies(msgspec.Struct, frozen=True):
    """The files that have a copy, each with the stamp that it had; and the files that patterns listed."""

    files: dict[str, Stamp] = {}
    listings: dict[str, list[str]] = {}
    version: int = _VERSION


def copy_path(root: str, path: str) -> Path:
    """Where the copy of a file is. Law: below the root, whatever the name of the file."""
    scheme, _, rest = path.partition("://") if is_url(path) else ("local", "", path.lstrip("/"))
    parts = [scheme.lower(), *rest.split("/")]
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise DataError(
            f"{without_query(path)}: cannot be copied under this name",
            expected="a path without empty parts, `.` and `..`",
        )
    return Path(root, "files", *parts)


def load_copies(root: str) -> Copies | None:
    """What was copied; None if there is no list that this version can read."""
    try:
        found = msgspec.json.decode(load_bytes(os.path.join(root, _NAME)).tobytes(), type=Copies)  # noqa: PTH118
    except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    return found if found.version == _VERSION else None


def save_copies(root: str, copies: Copies) -> None:
    with writing_to(root):
        Path(root).mkdir(parents=True, exist_ok=True)
    with replacing(Path(root, _NAME)) as file:
        file.write(msgspec.json.encode(copies))


class CopiedFiles:
    """Storage in which files that have a copy under `root` are read from there, and patterns list what they did."""

    def __init__(self, files: Files, root: str) -> None:
        self.files, self.root = files, root
        found = load_copies(root)
        if found is None:
            raise RecipeError(
                f"copies: {root} holds no copies",
                expected=f"a directory that `playhead fetch` wrote, with {_NAME} in it",
                fix="run `playhead fetch` again, or remove `copies` from the recipe",
            )
        self._copies = found
        self._stamps: dict[str, Stamp] = {}  # of copies, as they were when this process first used them
        self._lock = Lock()

    def __reduce__(self) -> tuple[object, ...]:
        return CopiedFiles, (self.files, self.root)

    def list(self, pattern: str) -> Sequence[str]:
        known = self._copies.listings.get(pattern)
        return self.files.list(pattern) if known is None else known

    def stamp(self, path: str) -> Stamp:
        known = self._copies.files.get(path)
        if known is None:
            return self.files.stamp(path)
        self._stamp_of_copy(path, known)
        return known

    def read(
        self, path: str, stamp: Stamp | None, ranges: Ranges, into: Sequence[memoryview] | None = None
    ) -> Sequence[Buffer]:
        known = self._copies.files.get(path)
        if known is None:
            return self.files.read(path, stamp, ranges, into)
        if stamp is not None and stamp != known:
            raise changed(path, known, stamp)
        return _LOCAL.read(str(copy_path(self.root, path)), self._stamp_of_copy(path, known), ranges, into)

    def access(self, path: str) -> Access:
        return ON_DISK if path in self._copies.files else access_of(self.files, path)

    def _stamp_of_copy(self, path: str, known: Stamp) -> Stamp:
        with self._lock:
            if path not in self._stamps:
                self._stamps[path] = _checked(path, self.root, known)
            return self._stamps[path]


def _checked(path: str, root: str, known: Stamp) -> Stamp:
    """The stamp of a copy; one of another size than its file is an error."""
    copy = copy_path(root, path)
    try:
        found = _LOCAL.stamp(str(copy))
    except DataError:
        found = None
    if found is None or found.size != known.size:
        raise StoreError(
            f"{copy}: the copy of {without_query(path)} is {'missing' if found is None else 'damaged'}",
            found="no such file" if found is None else f"{found.size:,} bytes",
            expected=f"{known.size:,} bytes",
            fix="run `playhead fetch` again",
        )
    return found
