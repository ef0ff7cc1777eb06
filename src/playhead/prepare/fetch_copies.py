"""Files of a recipe copied to a local directory, several at a time; what is there and unchanged is kept."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import cache
from heapq import nlargest
from pathlib import Path
from threading import Lock
from types import MappingProxyType

from msgspec.structs import replace

from playhead.errors import DataError, Failure, PlayheadError, PrepareError
from playhead.prepare.fetch_jobs import FetchedFile, FetchJob, FetchOptions, FetchProgress
from playhead.prepare.fetch_sidecars import fetch_sidecar
from playhead.prepare.partial_copy import copy_resumably, digest_of, num_copied, partials_in, remove_partials
from playhead.store import File, Files, Stamp, compression_of, open_file, with_views, writing_to
from playhead.store.addresses import without_query
from playhead.store.copies import Copies, copy_path, load_copies, save_copies
from playhead.store.files import changed

_SAVE_SHARE = 20  # a list of finished copies takes so many times longer to become old than it took to write


class Fetching:
    """Copies files to a directory, several at a time. `cache_dir` and `indexes_root` are those of the recipe."""

    def __init__(
        self, root: str, storage: Files, cache_dir: str, indexes_root: str | None, options: FetchOptions
    ) -> None:
        self._root, self._storage, self._options = root, storage, options
        self._views = with_views(storage, cache_dir, "refuse")
        self._indexes_root = indexes_root
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
        if job.kind == "index":
            return fetch_sidecar(job.path, self._storage, self._indexes_root, self._root, self._options)
        return self._file(job)

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
                with writing_to(target):
                    remove_partials(target, self._left_in)  # what an interrupted fetch with `force` has left
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
            self._stamps.pop(path, None)
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
        with self._lock:
            stamps, digests, absent = dict(self._stamps), dict(self._digests), dict(self._absent)
            if self._options.dry_run or not (stamps or listings or absent):
                return
            known = self._copies
            self._copies = replace(
                known,
                files={**known.files, **stamps},
                listings={**known.listings, **listings},
                digests={**known.digests, **digests},
                absent=[path for path in dict.fromkeys([*known.absent, *absent]) if path not in stamps],
            )
            save_copies(self._root, self._copies)
