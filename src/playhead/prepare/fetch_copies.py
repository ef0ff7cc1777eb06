"""Manifests and sidecars copied to a local directory, several at a time; what is there and unchanged is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from playhead.errors import DataError, Failure, PlayheadError, PrepareError
from playhead.formats import sidecar
from playhead.formats.contract import ScanLimits
from playhead.store import Files, Stamp, open_file, replacing, writing_to
from playhead.store.addresses import without_query
from playhead.store.copies import Copies, copy_path, load_copies, save_copies

FetchKind = Literal["manifest", "index"]
Outcome = Literal["copied", "present", "to copy", "missing", "invalid"]

INDEXES = "indexes"


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


class Fetching:
    """Copies files to a directory, several at a time."""

    def __init__(self, root: str, storage: Files, indexes_root: str | None, force: bool, dry_run: bool) -> None:
        self._root, self._storage, self._force, self._dry_run = root, storage, force, dry_run
        self._from, self._to = ScanLimits(indexes_root=indexes_root), ScanLimits(indexes_root=f"{root}/{INDEXES}")
        self._copies = load_copies(root) or Copies()
        self._stamps: dict[str, Stamp] = {}

    def run(
        self,
        jobs: list[tuple[FetchKind, str]],
        listings: dict[str, list[str]],
        workers: int,
        progress: Callable[[FetchProgress], None] | None,
    ) -> list[FetchedFile]:
        """Law: after an interruption or a failure the list of copies names those that are finished."""
        done: dict[int, FetchedFile] = {}
        failures: list[Failure] = []
        try:
            self._forget_stale([path for kind, path in jobs if kind == "manifest"])
            with ThreadPoolExecutor(max(1, workers), thread_name_prefix="playhead-fetch") as pool:
                pending = {pool.submit(self._one, kind, path): i for i, (kind, path) in enumerate(jobs)}
                try:
                    for future in as_completed(pending):
                        kind, path = jobs[pending[future]]
                        try:
                            done[pending[future]] = future.result()
                        except PlayheadError as error:
                            failures.append(Failure(kind, without_query(path), str(error)))
                        if progress is not None:
                            num_bytes = sum(found.num_bytes for found in done.values() if found.outcome == "copied")
                            progress(FetchProgress(len(done) + len(failures), len(jobs), num_bytes))
                finally:
                    pool.shutdown(cancel_futures=True)
        finally:
            self._save(listings if len(done) == len(jobs) else {})
        if failures:
            raise PrepareError(
                f"fetching could not finish: {len(failures):,} {'file' if len(failures) == 1 else 'files'}",
                fix="fix these and run it again; what was copied is kept",
                failures=tuple(failures),
            )
        return [done[i] for i in range(len(jobs))]

    def _one(self, kind: FetchKind, path: str) -> FetchedFile:
        return self._manifest(path) if kind == "manifest" else self._index(path)

    def _manifest(self, path: str) -> FetchedFile:
        file = open_file(self._storage, path)
        target = copy_path(self._root, path)
        if not self._force and self._is_copied(path, file.stamp):
            self._stamps[path] = file.stamp
            return FetchedFile(path, "manifest", "present", file.size, str(target))
        if self._dry_run:
            return FetchedFile(path, "manifest", "to copy", file.size, str(target))
        _write(target, file.pieces(), file.size, path)
        self._stamps[path] = file.stamp
        return FetchedFile(path, "manifest", "copied", file.size, str(target))

    def _index(self, path: str) -> FetchedFile:
        file = open_file(self._storage, path)
        place = sidecar.sidecar_path(path, self._from.indexes_root)
        try:
            origin = open_file(self._storage, place)
        except DataError:
            return FetchedFile(path, "index", "missing")
        if not sidecar.is_valid(file, self._from):
            return FetchedFile(path, "index", "invalid", origin.size)
        target = Path(sidecar.sidecar_path(path, self._to.indexes_root))
        _check_inside(target, self._root, path)
        content = b"".join(origin.pieces())
        if not self._force and target.is_file() and target.read_bytes() == content and sidecar.is_valid(file, self._to):
            return FetchedFile(path, "index", "present", origin.size, str(target))
        if self._dry_run:
            return FetchedFile(path, "index", "to copy", origin.size, str(target))
        _write(target, [content], origin.size, place)
        if not sidecar.is_valid(file, self._to):
            target.unlink()
            raise DataError(
                f"{without_query(place)}: the file changed while its sidecar was copied", fix="run it again"
            )
        return FetchedFile(path, "index", "copied", origin.size, str(target))

    def _is_copied(self, path: str, stamp: Stamp) -> bool:
        copy = copy_path(self._root, path)
        return self._copies.files.get(path) == stamp and copy.is_file() and copy.stat().st_size == stamp.size

    def _forget_stale(self, paths: list[str]) -> None:
        """Before copies are replaced, take them off the list: a list never names a copy of another version."""
        if self._dry_run or not self._copies.files:
            return
        stale = {path for path in paths if path in self._copies.files and self._is_stale(path)}
        if stale:
            kept = {path: stamp for path, stamp in self._copies.files.items() if path not in stale}
            self._copies = replace(self._copies, files=kept)
            save_copies(self._root, self._copies)

    def _is_stale(self, path: str) -> bool:
        try:
            return self._force or not self._is_copied(path, self._storage.stamp(path))
        except PlayheadError:
            return True  # reported when it is copied

    def _save(self, listings: dict[str, list[str]]) -> None:
        if self._dry_run or not (self._stamps or listings):
            return
        files = {**self._copies.files, **self._stamps}
        save_copies(self._root, Copies(files, {**self._copies.listings, **listings}))


def _write(target: Path, pieces: Iterable[bytes], size: int, origin: str) -> None:
    with writing_to(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    with replacing(target) as file:
        written = sum(map(file.write, pieces))
        if written != size:
            raise DataError(
                f"{without_query(origin)}: could not be copied whole",
                found=f"{written:,} bytes",
                expected=f"{size:,}",
                fix="run it again",
            )


def _check_inside(target: Path, root: str, path: str) -> None:
    if ".." in target.parts or not target.is_relative_to(root):
        raise DataError(
            f"{without_query(path)}: its sidecar cannot be copied under this name",
            expected="a path without `..`",
        )
