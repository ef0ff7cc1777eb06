"""Transparent decompression of files of lines (`.jsonl.gz`, `.txt.zst`): a wrapper around any storage.

gzip has no seek points: rapidgzip finds some when it reads a file whole, once, and they are kept in a directory. zstd
has them if a file is in the seekable format. Tars are not decompressed: a compressed one is refused.
"""

from __future__ import annotations

import atexit
import io
import os
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import Any, Literal
from weakref import WeakSet

import msgspec

from playhead.errors import DataError, PlayheadError, RecipeError, StoreError
from playhead.fingerprint import digest, digest_bytes
from playhead.store.ahead import ReadingAhead
from playhead.store.files import (
    Buffer,
    File,
    Files,
    Ranges,
    Stamp,
    changed,
    check_buffers,
    check_ranges,
    open_file,
    too_short,
    vanished,
)
from playhead.store.writing import replacing, writing_to

Compression = Literal[".gz", ".zst"]
OnMissing = Literal["write", "build", "refuse"]

DIRECTORY = "compressed"  # under the recipe's `cache_dir`
_GZIP_MAGIC = b"\x1f\x8b"
_MARK_DIGITS = 15  # 60 bits: a mark is a signed 64-bit number
_MOST_OPEN = 8
_CHUNK_BYTES = 1 << 19  # between points: a third of the time a read, and a tenth of the memory, that 4 MiB take
_PIECE_BYTES = 1 << 20
_MOST_AHEAD_BYTES = 4 << 20  # of each open file, some of these are kept
_ATTEMPTS = 8
_VERSION = 2


def compression_of(path: str) -> Compression | None:
    """The compression of a file of lines, by its name; None for other files."""
    base, dot, ending = path.rpartition(".")
    if dot and ending in ("gz", "zst") and not base.endswith(".tar"):
        return ".gz" if ending == "gz" else ".zst"
    return None


class _View(msgspec.Struct, frozen=True):
    """A compressed file: its stamp, its decompressed size, and its seek points."""

    version: int
    compressed: Stamp
    size: int
    points: bytes = b""

    @property
    def stamp(self) -> Stamp:
        """The stamp of the decompressed file: it changes whenever the compressed file does."""
        return Stamp(self.size, _mark(self.compressed))


def _mark(compressed: Stamp) -> int:
    return int(digest(compressed)[:_MARK_DIGITS], 16)


class CompressedFiles:
    """Storage in which compressed files of lines have the size and the bytes that they have decompressed.

    `directory` is where the points of gzip files are kept. Where those of a file are not there, `on_missing` says
    whether the file is read whole and they are written, are kept in memory only, or that it is an error.
    """

    def __init__(self, files: Files, directory: str | None = None, on_missing: OnMissing = "build") -> None:
        self.files = files
        self._directory, self._on_missing = directory, on_missing
        self._built: dict[str, _View] = {}
        self.close()
        _all.add(self)

    def __reduce__(self) -> tuple[object, ...]:
        return CompressedFiles, (self.files, self._directory, self._on_missing)

    def close(self) -> None:
        """Close everything. In a fork another thread may have held the lock: it is replaced."""
        self._open: OrderedDict[str, _Opened] = OrderedDict()
        self._lock = Lock()

    def list(self, pattern: str) -> Sequence[str]:
        return self.files.list(pattern)

    def stamp(self, path: str) -> Stamp:
        kind = compression_of(path)
        return self.files.stamp(path) if kind is None else self._current(path, kind)[1].stamp

    def read(
        self, path: str, stamp: Stamp | None, ranges: Ranges, into: Sequence[memoryview] | None = None
    ) -> Sequence[Buffer]:
        kind = compression_of(path)
        if kind is None:
            return self.files.read(path, stamp, ranges, into)
        check_ranges(ranges)
        if into is not None:
            check_buffers(ranges, into)
        found = self._opened(path, stamp, kind).read(ranges)
        if into is None:
            return found
        for buffer, data in zip(into, found, strict=True):
            buffer[:] = data
        return into

    def num_unread_bytes(self, path: str) -> int:
        """How many bytes are to be read before the points of a file are written; 0 where they are, or need not be."""
        if compression_of(path) != ".gz" or self._directory is None or self._on_missing != "write":
            return 0
        file = open_file(self.files, path)
        return 0 if self._known(file) is not None else file.size

    def _opened(self, path: str, stamp: Stamp | None, kind: Compression) -> _Opened:
        with self._lock:
            opened = self._open.get(path)
            if opened is not None:
                self._open.move_to_end(path)
        if opened is not None and stamp == opened.stamp:
            return opened
        if stamp is None:
            return _Opened(kind, *self._current(path, kind))
        try:
            file = open_file(self.files, path)
        except DataError as error:
            raise vanished(path) from error
        if _mark(file.stamp) != stamp.mark:
            raise StoreError(
                f"{path}: changed since it was indexed",
                found=f"{file.size:,} compressed bytes, modification mark {file.stamp.mark}",
                fix="run `playhead prepare` on the recipe again, or restore the file",
            )
        view = self._view(file, kind)
        if view.stamp != stamp:
            raise changed(path, view.stamp, stamp)
        opened = _Opened(kind, file, view)
        with self._lock:
            self._open[path] = opened
            self._open.move_to_end(path)
            while len(self._open) > _MOST_OPEN:
                self._open.popitem(last=False)
        return opened

    def _current(self, path: str, kind: Compression) -> tuple[File, _View]:
        """A file as it is now, and its decompressed view; a file that is replaced meanwhile is opened once more."""
        for _ in range(_ATTEMPTS - 1):
            file = open_file(self.files, path)
            try:
                return file, self._view(file, kind)
            except StoreError:
                if self.files.stamp(path) == file.stamp:
                    raise
        file = open_file(self.files, path)
        return file, self._view(file, kind)

    def _view(self, file: File, kind: Compression) -> _View:
        if kind == ".zst":
            return _View(_VERSION, file.stamp, _zstd_size(file))
        known = self._known(file)
        if known is not None:
            return known
        if self._on_missing == "refuse":
            raise StoreError(
                f"{file.path}: its gzip index is missing, or belongs to another file",
                found=f"no match under {self._directory}",
                fix="run `playhead prepare` on the recipe again",
            )
        view = _read_whole(file)
        if self._directory is not None and self._on_missing == "write":
            self._write(file.path, view)
        else:
            self._built[file.path] = view
        return view

    def _known(self, file: File) -> _View | None:
        view = self._built.get(file.path)
        if view is None and self._directory is not None:
            try:
                view = msgspec.msgpack.decode(points_path(self._directory, file.path).read_bytes(), type=_View)
            except (OSError, msgspec.DecodeError):
                return None
        return view if view is not None and (view.version, view.compressed) == (_VERSION, file.stamp) else None

    def _write(self, path: str, view: _View) -> None:
        place = points_path(self._directory, path)
        with writing_to(place):
            place.parent.mkdir(parents=True, exist_ok=True)
        with replacing(place) as file:
            file.write(msgspec.msgpack.encode(view))


def points_path(directory: str | None, path: str) -> Path:
    """Where the seek points of a gzip file are kept."""
    assert directory is not None
    return Path(directory) / f"{digest_bytes(path.encode('utf-8', 'surrogatepass'))}.points"


def compressed_files(files: Files) -> CompressedFiles | None:
    """The decompressing wrapper among the wrappers around a storage."""
    found: Any = files
    while found is not None and not isinstance(found, CompressedFiles):
        found = getattr(found, "files", None)
    return found


def with_views(files: Files, cache_dir: str, on_missing: OnMissing) -> Files:
    """The storage wrapped to decompress files, unless it does so already."""
    if compressed_files(files) is not None:
        return files
    return CompressedFiles(files, os.path.join(cache_dir, DIRECTORY), on_missing)  # noqa: PTH118 - a text is kept


class _Opened:
    """A decompressor of one file. It has a position, so one thread at a time reads."""

    def __init__(self, kind: Compression, file: File, view: _View) -> None:
        self.stamp = view.stamp
        self._path, self._size = file.path, view.size
        self._lock = Lock()
        self._raw = _RawFile(file)
        self._decompressor = _gzip_file(self._raw) if kind == ".gz" else _zstd_file(self._raw)
        _decompressors.add(self)
        if kind == ".gz" and view.size:
            with self._raw.naming_problems():
                self._decompressor.import_index(io.BytesIO(view.points))

    def close(self) -> None:
        self._decompressor.close()
        self._raw.release()

    def __del__(self) -> None:
        if hasattr(self, "_decompressor"):
            self.close()

    def read(self, ranges: Ranges) -> list[Buffer]:
        found: list[Buffer] = [b""] * len(ranges.firsts)
        with self._lock, self._raw.naming_problems():
            for i in sorted(range(len(found)), key=ranges.firsts.__getitem__):
                first, end = ranges.firsts[i], ranges.ends[i]
                if first == end:
                    continue
                if end > self._size:
                    raise too_short(self._path, first, end, max(0, self._size - first))
                self._decompressor.seek(first)
                found[i] = _exactly(self._decompressor, end - first)
                if len(found[i]) < end - first:
                    raise too_short(self._path, first, end, len(found[i]))
        return found


_all: WeakSet[CompressedFiles] = WeakSet()
_decompressors: WeakSet[_Opened] = WeakSet()
_left_by_forks: list[object] = []


@atexit.register
def _close_all() -> None:
    """Close open files at exit: rapidgzip aborts the process if one is still open."""
    for opened in list(_decompressors):
        opened.close()


def _after_fork() -> None:
    """Drop decompressors in a fork without closing them: their threads do not exist there, so closing would hang."""
    _left_by_forks.extend(_decompressors)
    _decompressors.clear()
    for files in _all:
        files.close()


os.register_at_fork(after_in_child=_after_fork)


class _RawFile(io.RawIOBase):
    """The compressed bytes, as decompressors want to read them: the file that was stamped, or an error."""

    def __init__(self, file: File) -> None:
        self.path = file.path
        self._size, self._position = file.size, 0
        self._ahead = ReadingAhead(file, most_bytes=_MOST_AHEAD_BYTES)
        self._problem: PlayheadError | None = None

    def release(self) -> None:
        """Release the storage: rapidgzip keeps a reference to this object."""
        self.__dict__.pop("_ahead", None)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = 0) -> int:
        self._position = offset + (0, self._position, self._size)[whence]
        return self._position

    def read(self, size: int = -1) -> bytes:
        try:
            data = self._ahead.read(self._position, self._size if size < 0 else size)
        except PlayheadError as error:
            self._problem = error
            raise
        self._position += len(data)
        return data

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def naming_problems(self) -> _NamedProblems:
        return _NamedProblems(self)

    def problem(self, error: Exception) -> PlayheadError:
        """The meaning of a decompressor's error: the storage failed, or the bytes are broken."""
        if self._problem is not None:
            return self._problem
        return DataError(
            f"{self.path}: cannot be decompressed",
            found=str(error)[:200] or type(error).__name__,
            expected="a whole file, as it was compressed",
            fix="copy the file again, or write it again",
        )


@dataclass
class _NamedProblems:
    """Convert any exception of a decompressor to an error that names its file."""

    raw: _RawFile

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, PlayheadError):
            raise self.raw.problem(error) from error


def _read_whole(file: File) -> _View:
    """A gzip file read once, from its beginning to its end, its checksums compared.

    Law: the points depend only on the bytes of the file; with more than one thread they would not.
    """
    if file.read(0, len(_GZIP_MAGIC)) != _GZIP_MAGIC:
        raise DataError(
            f"{file.path}: is not a gzip file",
            found="an empty file" if file.size == 0 else f"first bytes {file.read(0, 8)!r}",
            fix="compress it with `gzip`, or rename it to match its contents",
        )
    raw = _RawFile(file)
    decompressor = _gzip_file(raw)
    try:
        with raw.naming_problems():
            size = 0
            while piece := decompressor.read(_PIECE_BYTES):
                size += len(piece)
            points = io.BytesIO()
            decompressor.export_index(points, _rapidgzip().IndexFormat.GZTOOL)
    finally:
        decompressor.close()
        raw.release()
    return _View(_VERSION, file.stamp, size, points.getvalue())


def _gzip_file(raw: _RawFile) -> Any:
    package = _rapidgzip()
    with raw.naming_problems():
        return package.RapidgzipFile(raw, parallelization=1, chunk_size=_CHUNK_BYTES)


def _zstd_file(raw: _RawFile) -> Any:
    package = _installed("pyzstd", "zstd")
    with raw.naming_problems():
        try:
            return package.SeekableZstdFile(raw, "r")
        except package.SeekableFormatError as error:
            path = raw.path
            raise DataError(
                f"{path}: has no seek points",
                found="an ordinary zstd file, or one that is truncated",
                expected="zstd in the seekable format, or gzip",
                fix=f"zstd -dc {path} | gzip > {path.removesuffix('.zst')}.gz, and name that file",
            ) from error


def _zstd_size(file: File) -> int:
    raw = _RawFile(file)
    opened = _zstd_file(raw)
    try:
        with raw.naming_problems():
            return int(opened.seek(0, os.SEEK_END))
    finally:
        opened.close()


def _exactly(decompressor: Any, size: int) -> bytes:
    """`size` bytes, or all up to the end."""
    data: bytes = decompressor.read(size)
    while len(data) < size:
        more = decompressor.read(size - len(data))
        if not more:
            break
        data += more
    return data


def _rapidgzip() -> Any:
    return _installed("rapidgzip", "gzip")


def _installed(package: str, extra: str) -> Any:
    try:
        return import_module(package)
    except ImportError as error:
        raise RecipeError(
            f"reading {'.gz' if extra == 'gzip' else '.zst'} files needs the package {package}",
            fix=f"pip install 'playhead[{extra}]'",
        ) from error
