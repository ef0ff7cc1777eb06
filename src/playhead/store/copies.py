"""Local copies of files, read in their place: a wrapper around any storage.

    <root>/copies.json                  which files have a copy, with their stamps and digests; what patterns listed
    <root>/files/<scheme>/<path>        the copies

A file keeps its name and its stamp: indexes, relative paths and rules about paths are those of the file itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from threading import Lock

import msgspec

from playhead.errors import DataError, RecipeError, StoreError
from playhead.fingerprint import digest_bytes
from playhead.store.access import ON_DISK, Access, access_of
from playhead.store.addresses import is_url, without_query
from playhead.store.files import Buffer, Files, Ranges, Stamp, changed, missing
from playhead.store.globbing import has_magic
from playhead.store.local import LocalFiles
from playhead.store.mapped import load_bytes
from playhead.store.writing import replacing, writing_to

_NAME = "copies.json"
_VERSION = 1
_NAME_BYTES = 255  # of a name in a directory
_LOCAL = LocalFiles()


class Copies(msgspec.Struct, frozen=True):
    """The files that have a copy, each with the stamp that it had; and the files that patterns listed.

    `digests` are those of the bytes of copies. `steps` describe the steps that copies were made for; where there are
    any, the copies are all that is read, so that nothing depends on a network. `absent` are files that did not exist;
    `indexed` are the stamps of files that indexes were made of, with or without a copy, so that indexes can be checked.
    `recipes` are the digests of the recipes that `fetch` wrote beside them: the one that is there is among them.
    """

    files: dict[str, Stamp] = {}
    listings: dict[str, list[str]] = {}
    version: int = _VERSION
    digests: dict[str, str] = {}
    steps: list[str] = []
    absent: list[str] = []
    recipes: list[str] = []
    indexed: dict[str, Stamp] = {}


def copy_path(root: str, path: str) -> Path:
    """Where the copy of a file is. Law: below the root, whatever the name of the file."""
    scheme, _, rest = path.partition("://") if is_url(path) else ("local", "", path.lstrip("/"))
    parts = [scheme.lower(), *rest.split("/")]
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise DataError(
            f"{without_query(path)}: cannot be copied under this name",
            expected="a path without empty parts, `.` and `..`",
        )
    return Path(root, "files", *map(_file_name, parts))


def _file_name(part: str) -> str:
    """A part of a path; one that is too long for a file system, as keys of objects may be, is cut and gets a digest."""
    name = os.fsencode(part)
    if len(name) <= _NAME_BYTES:
        return part
    mark = digest_bytes(name)
    return f"{name[: _NAME_BYTES - len(mark) - 1].decode(errors='ignore')}-{mark}"


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
        file.write(msgspec.json.encode(copies, order="deterministic"))


class NoCopyError(StoreError):
    """A file is needed that was not copied: it belongs to other steps than those that copies were made for."""


class CopiedFiles:
    """Storage in which files that have a copy under `root` are read from there, and patterns list what they did.

    Other files are read from `files`, unless the copies were made for certain steps: then they are refused.
    """

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
        self._absent = frozenset(found.absent)
        self._stamps: dict[str, Stamp] = {}  # of copies, as they were when this process first used them
        self._lock = Lock()

    def __reduce__(self) -> tuple[object, ...]:
        return CopiedFiles, (self.files, self.root)

    def list(self, pattern: str) -> Sequence[str]:
        known = self._copies.listings.get(pattern)
        if known is not None:
            return known
        return [pattern] if pattern in self._copies.files else self._originals(pattern).list(pattern)

    def stamp(self, path: str) -> Stamp:
        """Of a file that was not copied, too, if an index was made of it: it need not be read to open the index."""
        known = self._copies.files.get(path)
        if known is None:
            indexed = self._copies.indexed.get(path) if self.is_for_steps else None
            return self._originals(path).stamp(path) if indexed is None else indexed
        self._stamp_of_copy(path, known)
        return known

    def read(
        self, path: str, stamp: Stamp | None, ranges: Ranges, into: Sequence[memoryview] | None = None
    ) -> Sequence[Buffer]:
        known = self._copies.files.get(path)
        if known is None:
            return self._originals(path).read(path, stamp, ranges, into)
        if stamp is not None and stamp != known:
            raise changed(path, known, stamp)
        return _LOCAL.read(str(copy_path(self.root, path)), self._stamp_of_copy(path, known), ranges, into)

    def access(self, path: str) -> Access:
        return ON_DISK if path in self._copies.files or self._copies.steps else access_of(self.files, path)

    @property
    def is_for_steps(self) -> bool:
        """Whether the copies were made for certain steps, and are all that can be read."""
        return bool(self._copies.steps)

    def has(self, path: str) -> bool:
        """Whether a file can be read."""
        return path in self._copies.files or not self.is_for_steps

    def _originals(self, path: str) -> Files:
        """The storage of files without a copy. What else is in the directory of the copies, as sidecars, is there."""
        if not self._copies.steps or os.path.normpath(path).startswith(f"{self.root}/"):
            return self.files
        if path in self._absent:
            raise missing(path)
        found = f"copies for {'; '.join(self._copies.steps)}"
        if has_magic(path):
            raise NoCopyError(
                f"{without_query(path)}: what matches this pattern is not known in {self.root}",
                found=f"{found}, of a recipe without this pattern",
                fix="run `playhead fetch` again where the data is, with the recipe as it is now",
            )
        raise NoCopyError(
            f"{without_query(path)}: has no copy in {self.root}",
            found=found,
            fix="run `playhead fetch` again where the data is, with the steps that are needed now: --steps, with "
            "--from-step or --state, and --split for an evaluation set",
        )

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


def readable_of(files: object, paths: Iterable[str]) -> list[str]:
    """Those of some files that a storage can read: all of them, or, of copies for certain steps, those with a copy."""
    copied = _copied_files(files)
    return [path for path in paths if copied is None or copied.has(path)]


def has_copies_for_steps(files: object) -> bool:
    """Whether a storage can read nothing but the copies that were made for certain steps."""
    copied = _copied_files(files)
    return copied is not None and copied.is_for_steps


def _copied_files(files: object) -> CopiedFiles | None:
    while files is not None and not isinstance(files, CopiedFiles):
        files = getattr(files, "files", None)
    return files
