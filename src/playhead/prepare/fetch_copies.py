"""Files of a recipe copied to a local directory, several at a time; what is there and unchanged is kept."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache
from heapq import nlargest
from pathlib import Path
from threading import Lock
from types import MappingProxyType
from typing import Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from playhead.errors import DataError, Failure, PlayheadError, PrepareError
from playhead.formats import sidecar
from playhead.formats.contract import ScanLimits
from playhead.prepare.partial_copy import copy_resumably, digest_of, num_copied, partials_in, remove_partials
from playhead.store import File, Files, LocalFiles, Stamp, compression_of, open_file, replacing, with_views, writing_to
from playhead.store.addresses import without_query
from playhead.store.copies import Copies, NoCopyError, copy_path, load_copies, save_copies
from playhead.store.files import Buffer, Ranges, changed

FetchKind = Literal["manifest", "index", "prepared", "shard", "media"]
Outcome = Literal["copied", "present", "to copy", "missing", "invalid"]

INDEXES = "indexes"
_LOCAL = LocalFiles()
_SAVE_SHARE = 20  # a list of finished copies takes so many times longer to become old than it took to write


class FetchedFile(Struct, frozen=True):
    """A file of the recipe, or its sidecar: what was done for it. `copy` is where it is now, if it was found."""

    path: str
    kind: FetchKind
    outcome: Outcome
    num_bytes: int = 0
    copy: str | None = None


class FetchProgress(NamedTuple):
    done_files: int
    total_files: int
    done_bytes: int


class FetchJob(NamedTuple):
    """A file to copy; `stamp` is the one that it had when it was indexed, None if any is right."""

    kind: FetchKind
    path: str
    stamp: Stamp | None = None


@dataclass(frozen=True)
class FetchOptions:
    """How files are copied. `verify` compares the bytes of copies that are present with their digests."""

    workers: int = 8
    force: bool = False
    verify: bool = False
    dry_run: bool = False
    progress: Callable[[FetchProgress], None] | None = None


class Fetching:
    """Copies files to a directory, several at a time. `cache_dir` and `indexes_root` are those of the recipe."""

    def __init__(
        self, root: str, storage: Files, cache_dir: str, indexes_root: str | None, options: FetchOptions
    ) -> None:
        self._root, self._storage, self._options = root, storage, options
        self._views = with_views(storage, cache_dir, "refuse")
        self._from, self._to = ScanLimits(indexes_root=indexes_root), ScanLimits(indexes_root=f"{root}/{INDEXES}")
        self._copies = load_copies(root) or Copies()
        self._lock = Lock()
        self._left_in = cache(partials_in)  # a directory may hold many copies, and is listed once
        self._stamps: dict[str, Stamp] = {}  # of what is copied and not on the list yet
        self._digests: dict[str, str] = {}
        self._absent: dict[str, None] = {}
        self._done_files = self._total_files = self._done_bytes = 0
        self._saved_at, self._save_seconds = time.monotonic(), 0.0

    def run(self, jobs: Sequence[FetchJob]) -> list[FetchedFile]:
        """Law: after an interruption or a failure the list of copies names those that are finished."""
        done: dict[int, FetchedFile] = {}
        failures: list[Failure] = []
        self._total_files += len(jobs)
        try:
            with ThreadPoolExecutor(max(1, self._options.workers), thread_name_prefix="playhead-fetch") as pool:
                pending = {pool.submit(self._one, job): i for i, job in enumerate(jobs)}
                try:
                    for future in as_completed(pending):
                        job = jobs[pending[future]]
                        try:
                            done[pending[future]] = future.result()
                        except PlayheadError as error:
                            failures.append(Failure(job.kind, without_query(job.path), str(error)))
                        self._advance(files=1)
                        self._save_sometimes()
                finally:
                    pool.shutdown(cancel_futures=True)
        finally:
            self._save()
        if failures:
            raise PrepareError(
                f"fetching could not finish: {len(failures):,} {'file' if len(failures) == 1 else 'files'}",
                fix="fix these and run it again; what was copied is kept",
                failures=tuple(failures),
            )
        return [done[i] for i in range(len(jobs))]

    def check_room(self, jobs: Sequence[FetchJob]) -> None:
        """Refuse, before anything is copied, files of shards for which the disk has no room.

        What interrupted copies have written is there already. An old copy that is replaced stays until the new one is
        whole: as many of them as are copied at a time take room twice, at worst the largest.
        """
        growth, doubled = 0, []
        for job in jobs:
            if job.stamp is None or compression_of(job.path) is not None:
                continue
            if self._is_there(job.path, job.stamp) and not self._options.force:
                continue
            target = copy_path(self._root, job.path)
            num_bytes = job.stamp.size - num_copied(File(self._storage, job.path, job.stamp), target)
            old = target.stat().st_size if target.is_file() else 0
            growth += max(0, num_bytes - old)
            doubled.append(min(num_bytes, old))
        needed = growth + sum(nlargest(self._options.workers, doubled))
        place = next(path for path in (Path(self._root), *Path(self._root).parents) if path.exists())
        free = shutil.disk_usage(place).free
        if needed > free:
            raise PrepareError(
                f"{self._root}: the disk has no room for the files of these shards",
                found=f"{free:,} bytes free",
                expected=f"{needed:,} for {len(doubled):,} {'file' if len(doubled) == 1 else 'files'}",
                fix="give a larger disk with --to, or copy what fewer steps need with --steps",
            )

    def found(self, listings: Mapping[str, list[str]], absent: Iterable[str]) -> None:
        """Put on the list what patterns listed, and which files did not exist, when files were looked for."""
        self._absent |= dict.fromkeys(absent)
        self._save(listings)

    def made_for(self, steps: str, indexed: Mapping[str, Stamp]) -> None:
        """Put on the list that everything is there for these steps: from now on nothing else is read.

        `indexed` are the stamps of files that the indexes were made of. Those of compressed files are left out: they
        are of what is in them, and the files are read to find them.
        """
        if self._options.dry_run:
            return
        known = self._copies
        stamps = {path: stamp for path, stamp in indexed.items() if compression_of(path) is None}
        self._copies = replace(
            known, steps=[*dict.fromkeys([*known.steps, steps])], indexed={**known.indexed, **stamps}
        )
        save_copies(self._root, self._copies)

    @property
    def is_for_steps(self) -> bool:
        """Whether the directory holds all that some steps need."""
        return bool(self._copies.steps)

    def _one(self, job: FetchJob) -> FetchedFile:
        return self._index(job.path) if job.kind == "index" else self._file(job)

    def _file(self, job: FetchJob) -> FetchedFile:
        kind, path, _ = job
        try:
            file = open_file(self._storage, path)
        except DataError:
            if kind != "media":
                raise
            self._absent[path] = None
            return FetchedFile(path, kind, "missing")
        if job.stamp is not None and (now := self._views.stamp(path)) != job.stamp:
            raise changed(path, now, job.stamp)
        target = copy_path(self._root, path)
        if not self._options.force and self._is_copied(path, file.stamp):
            if not self._options.dry_run:
                remove_partials(target, self._left_in)  # of a version that is not wanted any more
            self._stamps[path] = file.stamp
            return FetchedFile(path, kind, "present", file.size, str(target))
        if self._options.dry_run:
            return FetchedFile(path, kind, "to copy", file.size - num_copied(file, target), str(target))
        found = copy_resumably(
            file,
            target,
            self._left_in,
            lambda num_bytes: self._advance(num_bytes=num_bytes),
            lambda: self._forget_others(path, file.stamp),
        )
        self._stamps[path], self._digests[path] = file.stamp, found
        return FetchedFile(path, kind, "copied", file.size, str(target))

    def _index(self, path: str) -> FetchedFile:
        file = open_file(self._storage, path)
        place = sidecar.sidecar_path(path, self._from.indexes_root)
        try:
            origin = open_file(self._storage, place)
        except (DataError, NoCopyError):
            return FetchedFile(path, "index", "missing")
        if not sidecar.is_valid(file, self._from):
            return FetchedFile(path, "index", "invalid", origin.size)
        target = Path(sidecar.sidecar_path(path, self._to.indexes_root))
        _check_inside(target, self._root, path)
        with_own = File(_WithOwn(self._storage, self._root), path, file.stamp)
        content = b"".join(origin.pieces())
        if (
            not self._options.force
            and target.is_file()
            and target.read_bytes() == content
            and sidecar.is_valid(with_own, self._to)
        ):
            return FetchedFile(path, "index", "present", origin.size, str(target))
        if self._options.dry_run:
            return FetchedFile(path, "index", "to copy", origin.size, str(target))
        _write(target, content)
        if not sidecar.is_valid(with_own, self._to):
            target.unlink()
            raise DataError(
                f"{without_query(place)}: the file changed while its sidecar was copied", fix="run it again"
            )
        return FetchedFile(path, "index", "copied", origin.size, str(target))

    def _is_copied(self, path: str, stamp: Stamp) -> bool:
        known = self._copies.digests.get(path)
        if not self._is_there(path, stamp):
            return False
        return not self._options.verify or known is None or digest_of(copy_path(self._root, path)) == known

    def _is_there(self, path: str, stamp: Stamp) -> bool:
        copy = copy_path(self._root, path)
        return self._copies.files.get(path) == stamp and copy.is_file() and copy.stat().st_size == stamp.size

    def _forget_others(self, path: str, stamp: Stamp) -> None:
        """Before a copy is replaced, take it off the list, unless it is of the same version as the new one.

        A list never names a copy of another version. Until then the old copy is there and can be read.
        """
        with self._lock:
            if self._copies.files.get(path, stamp) != stamp:
                kept = {name: known for name, known in self._copies.files.items() if name != path}
                self._copies = replace(self._copies, files=kept)
                save_copies(self._root, self._copies)

    def _advance(self, files: int = 0, num_bytes: int = 0) -> None:
        with self._lock:
            self._done_files += files
            self._done_bytes += num_bytes
            done = FetchProgress(self._done_files, self._total_files, self._done_bytes)
            if self._options.progress is not None:
                self._options.progress(done)

    def _save_sometimes(self) -> None:
        """Rarely where the list is long: what a kill makes copy again is little, and so is the time for the list."""
        if time.monotonic() - self._saved_at > _SAVE_SHARE * self._save_seconds:
            begin = time.monotonic()
            self._save()
            self._saved_at = time.monotonic()
            self._save_seconds = self._saved_at - begin

    def _save(self, listings: Mapping[str, list[str]] = MappingProxyType({})) -> None:
        stamps, digests, absent = dict(self._stamps), dict(self._digests), dict(self._absent)
        if self._options.dry_run or not (stamps or listings or absent):
            return
        with self._lock:
            known = self._copies
            self._copies = replace(
                known,
                files={**known.files, **stamps},
                listings={**known.listings, **listings},
                digests={**known.digests, **digests},
                absent=[path for path in dict.fromkeys([*known.absent, *absent]) if path not in stamps],
            )
            save_copies(self._root, self._copies)


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
