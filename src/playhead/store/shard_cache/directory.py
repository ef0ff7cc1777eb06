"""The directory of a shard cache: copies of files, and the ranks and processes that use them.

    <dir>/playhead-cache.json                        what marks it as a cache, and its generation
    <dir>/units/<generation>/<key>/<first>-<end>        a unit: a copy of some bytes of a file, its digest behind them
    <dir>/units/<generation>/<key>/<first>-<end>.part   one that is being copied: its bytes so far
    <dir>/units/<generation>/<key>/origin.json          the file that the units are copies of
    <dir>/jobs/<digest>.json                         the recipe of some ranks
    <dir>/ranks/<name>                               a rank, and where it stands; locked while it lives
    <dir>/counters/<name>                            the counters of a process; locked while it lives
    <dir>/status, <dir>/direct, <dir>/queue          what the filler has copied, what readers read past it, its queue
    <dir>/filler.lock, <dir>/register.lock

A new generation begins when a rank registers and no other is alive. A unit of an earlier one is used again only after
its digest was compared. So whatever is read was checked, and nothing depends on what reached the disk before a crash.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from playhead.errors import RecipeError
from playhead.fingerprint import digest
from playhead.store.files import Stamp
from playhead.store.shard_cache.refusals import naming_the_directory, not_usable
from playhead.store.writing import sync_directory

MARKER = "playhead-cache.json"
PART = ".part"
ORIGIN = "origin.json"
REGISTER_LOCK = "register.lock"
FILLER_LOCK = "filler.lock"
STATUS = "status"
DIRECT = "direct"
QUEUE = "queue"
_FOLDERS = ("units", "jobs", "ranks", "counters")
_FILES = (REGISTER_LOCK, FILLER_LOCK, STATUS, DIRECT, QUEUE)
_VERSION = 1
_MAGIC = b"playhd1\n"
TRAILER_BYTES = hashlib.sha256().digest_size + len(_MAGIC)
_PIECE_BYTES = 1 << 22
_MOST_NAMED = 3
_OUR_NAMES = {
    "jobs": re.compile(r"[0-9a-f]{32}\.json|\.[0-9a-f]{32}\.json\.[0-9]+\.part"),
    "ranks": re.compile(r"[0-9]+-[0-9]+-[0-9a-f]{8}"),
    "counters": re.compile(r"[0-9]+-[0-9a-f]{8}|total"),
}
_NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
_GENERATION = re.compile(r"[0-9]+")
_KEY = re.compile(r"[0-9a-f]{32}")


class Unit(NamedTuple):
    """Some bytes of a file that are copied and evicted together."""

    path: str
    stamp: Stamp
    first: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.first

    @property
    def key(self) -> str:
        return key_of(self.path, self.stamp)

    @property
    def name(self) -> str:
        return f"{self.first:x}-{self.end:x}"


class Origin(msgspec.Struct, frozen=True):
    """The file that units are copies of."""

    path: str
    size: int
    mark: int


class Marker(msgspec.Struct, frozen=True):
    version: int = _VERSION
    generation: int = 0


def key_of(path: str, stamp: Stamp) -> str:
    return digest([path, stamp.size, stamp.mark])


def span_of(name: str) -> tuple[int, int] | None:
    """The first byte and the end of the unit in a file of this name; None for other files."""
    first, _, end = name.partition("-")
    try:
        return int(first, 16), int(end, 16)
    except ValueError:
        return None


def new_digest() -> Any:
    """SHA-256: with the instructions that most processors have for it, it takes the least time of a copy."""
    return hashlib.sha256()


def trailer(found: Any) -> bytes:
    """What stands behind the bytes of a finished unit."""
    value: bytes = found.digest()
    return value + _MAGIC


def is_intact(path: str | Path, size: int) -> bool:
    """Whether a unit has all its bytes and they have the digest behind them."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        if os.fstat(descriptor).st_size != size + TRAILER_BYTES:
            return False
        found, offset = new_digest(), 0
        while offset < size:
            piece = os.pread(descriptor, min(_PIECE_BYTES, size - offset), offset)
            if not piece:
                return False
            found.update(piece)
            offset += len(piece)
        return os.pread(descriptor, TRAILER_BYTES, size) == trailer(found)
    except OSError:
        return False
    finally:
        os.close(descriptor)


class StoredUnit(NamedTuple):
    """A unit in the directory: its file, its generation and its size there. `span` is None where it is a part."""

    path: Path
    generation: int
    key: str
    span: tuple[int, int] | None
    num_bytes: int


@dataclass(frozen=True)
class CacheDirectory:
    """The paths in the directory of a cache, and what is in it."""

    root: Path

    @property
    def units(self) -> Path:
        return self.root / "units"

    def place(self, generation: int, key: str, name: str) -> Path:
        return self.units / str(generation) / key / name

    def marker(self) -> Marker | None:
        """What marks the directory as a cache of this version; None if it is not one."""
        found = _read_marker(self.root / MARKER)
        return found if found is not None and found.version == _VERSION else None

    def files(self, folder: str) -> list[Path]:
        """The jobs, ranks or counters, sorted; other entries are left out. None where all is gone."""
        names = _OUR_NAMES[folder]
        return [Path(entry.path) for entry in regular_files(self.root / folder) if names.fullmatch(entry.name)]

    def missing(self) -> list[str]:
        """What every cache has and this one has not: it was removed, or a part of it."""
        found = [name for name in (*_FOLDERS, *_FILES) if not (self.root / name).exists()]
        return found if self.marker() is not None else [MARKER, *found]

    def stored(self) -> Iterator[StoredUnit]:
        """The units and parts in the directory, and what was left of an `origin.json` that was being written."""
        for generation, folder in self._folders():
            for file in regular_files(folder):
                span = span_of(file.name)
                if span is None and not file.name.endswith(PART):
                    continue
                with suppress(OSError):
                    yield StoredUnit(Path(file.path), generation, folder.name, span, file.stat().st_size)

    def _folders(self) -> Iterator[tuple[int, Path]]:
        """The folders of units, with their generations."""
        for generation in _entries(self.units):
            if _GENERATION.fullmatch(generation.name):
                for folder in _entries(generation.path):
                    if _KEY.fullmatch(folder.name):
                        yield int(generation.name), Path(folder.path)

    def origin(self, generation: int, key: str) -> Origin | None:
        try:
            return msgspec.json.decode(self.place(generation, key, ORIGIN).read_bytes(), type=Origin)
        except (OSError, msgspec.DecodeError):
            return None

    def remove_empty(self) -> None:
        """Remove folders in which no unit is left."""
        for _, folder in self._folders():
            files = [Path(file.path) for file in _entries(folder)]
            if all(file.name == ORIGIN for file in files):
                with suppress(OSError):
                    for file in files:
                        file.unlink()
                    folder.rmdir()
        for generation in _entries(self.units):
            if _GENERATION.fullmatch(generation.name):
                with suppress(OSError):
                    os.rmdir(generation.path)  # noqa: PTH106 - fails where something is in it


def _entries(path: Path | str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(path) as found:
            return sorted(found, key=attrgetter("name"))
    except (FileNotFoundError, NotADirectoryError):
        return []


def regular_files(path: Path | str) -> list[os.DirEntry[str]]:
    """A cache writes nothing else: a directory, a link or a pipe of one of its names is not its own."""
    return [entry for entry in _entries(path) if entry.is_file(follow_symlinks=False)]


def open_directory(path: str) -> CacheDirectory:
    """The directory of a cache, which only its owner can read; made if it does not exist.

    Law: a directory that holds something else is refused, and nothing in it is touched.
    """
    found = CacheDirectory(Path(path))
    with naming_the_directory(path):
        found.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = found.root.stat()
        if about.st_uid != os.geteuid():
            raise not_usable(
                path, "the directory of another user", "a directory of your own", "name another directory for each user"
            )
        if found.marker() is None and not all(map(_is_begun, _entries(path))) and found.marker() is None:
            raise _not_a_cache(path)
        _lay_out(found)
        if stat.S_IMODE(about.st_mode) & 0o077:
            found.root.chmod(0o700)
    return found


def _is_begun(entry: os.DirEntry[str]) -> bool:
    """Whether a process that was making a directory a cache, and was killed, has left something in it: it is empty."""
    if entry.name in _FOLDERS:
        return entry.is_dir(follow_symlinks=False) and not _entries(entry.path)
    if entry.name in _FILES:
        return entry.is_file(follow_symlinks=False) and not entry.stat().st_size
    return entry.name.startswith(f".{MARKER}.")


def _lay_out(directory: CacheDirectory) -> None:
    """Make a directory a cache; several processes may be about to. Nothing is made anew in a cache that was removed."""
    with locked(directory.root / REGISTER_LOCK, make=True):
        for name in _FOLDERS:
            (directory.root / name).mkdir(exist_ok=True)
        for name in _FILES:
            (directory.root / name).touch(0o600)
        remove_markers_begun(directory)
        if directory.marker() is None:
            write_whole(directory.root / MARKER, msgspec.json.encode(Marker()), durably=True)


def remove_markers_begun(directory: CacheDirectory) -> None:
    """Remove what a process left that was killed while it wrote the marker. Call it with `register.lock`."""
    for left in directory.root.glob(f".{MARKER}.*"):
        left.unlink(missing_ok=True)


def write_whole(path: Path, data: bytes, *, durably: bool = False) -> None:
    """Write a small file in one piece, `durably` where it must outlive a crash. Raises OSError, and leaves nothing.

    Only its owner can read it: a recipe may have secrets in it.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}{PART}")
    try:
        with open(os.open(temporary, _NEW, 0o600), "wb") as file:  # noqa: PTH123 - Path.open takes no permissions
            file.write(data)
            file.flush()
            if durably:
                os.fsync(file.fileno())
        temporary.replace(path)
        if durably:
            sync_directory(path.parent)
    except OSError:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def what_is_there(root: Path) -> tuple[str, str]:
    """What a directory without the marker of a cache of this version holds, and what to do about it."""
    names = [entry.name for entry in _entries(root) if not entry.name.startswith(f".{MARKER}.")]
    is_old = MARKER in names or ({"units", FILLER_LOCK}.issubset(names) and {*_FOLDERS, *_FILES}.issuperset(names))
    if not is_old:
        return f"among others {', '.join(names[:_MOST_NAMED])}", "name another directory"
    found = f"what looks like a shard cache, without its {MARKER}"
    if MARKER in names:
        marker = _read_marker(root / MARKER)
        found = f"a {MARKER} that is damaged" if marker is None else f"a shard cache of version {marker.version}"
    return found, "if it is an old cache, delete it: it holds nothing but copies; otherwise name another directory"


def _read_marker(path: Path) -> Marker | None:
    """The marker of a cache, of any version; None where there is none, or it is damaged."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Marker)
    except (OSError, msgspec.DecodeError):
        return None


def _not_a_cache(path: str) -> RecipeError:
    found, fix = what_is_there(Path(path))
    return RecipeError(
        f"shard_cache.dir: {path} holds something that is not a cache",
        found=found,
        expected="an empty directory, or one that a shard cache made: what it evicts is deleted",
        fix=fix,
    )


@contextmanager
def locked(path: Path, *, make: bool = False) -> Iterator[int]:
    """Hold the lock of a file, waiting for it: its descriptor. The system releases the lock of a killed process."""
    descriptor = lock_file(path, make=make)
    try:
        yield descriptor
    finally:
        release(descriptor)


@contextmanager
def locked_to_read(path: Path) -> Iterator[None]:
    """Keep others from holding the lock of a file, also where nothing can be written; without the file, nobody can."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        release(descriptor)


def is_locked(path: Path) -> bool:
    """Whether a process that lives holds the lock of a file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return True
    release(descriptor)
    return False


def lock_file(path: Path, *, make: bool = False) -> int:
    """A descriptor that holds the lock of a file, waiting for it."""
    descriptor = _open(path, make=make)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def release(descriptor: int) -> None:
    """Give a lock back and close its file: a fork that was made meanwhile has it open, too."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


def try_lock(path: Path, *, make: bool = False) -> int | None:
    """A descriptor that holds the lock of a file; None if another process holds it."""
    descriptor = _open(path, make=make)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def write_in_place(path: Path, data: bytes) -> None:
    """Write the first bytes of a file, which exists, in one call. Raises OSError."""
    descriptor = _open(path)
    try:
        os.pwrite(descriptor, data, 0)
    finally:
        os.close(descriptor)


def _open(path: Path, *, make: bool = False) -> int:
    return os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if make else 0), 0o600)
