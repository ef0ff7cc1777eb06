"""Prepared indexes copied to another `cache_dir`, so that a recipe opens where the first one cannot be read."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from playhead.errors import NotPreparedError
from playhead.feed.ledger import ledger_file
from playhead.feed.quarantine import quarantine_folder
from playhead.index.integrity import damaged_arrays
from playhead.index.table import Table
from playhead.prepare.fetch_jobs import FetchedFile, FetchOptions
from playhead.prepare.fetch_steps import StepFiles
from playhead.recipe.values import Recipe
from playhead.store import compression_of, fresh_directory, replacing, swap_directory, writing_to
from playhead.store.compressed import DIRECTORY, points_path

_SELECTION = "selection-"
_POINTS = ".points"


def fetch_prepared(
    recipe: Recipe, found: StepFiles, paths: Iterable[str], cache_dir: Path, options: FetchOptions
) -> list[FetchedFile]:
    """Copy what `prepare` made, and what runs recorded, to another `cache_dir`.

    That is the index and the selection of each source, seek points of the gzip files among `paths`, records of bad
    samples, and ledgers. Law: an index there is whole, or missing.
    """
    fetched: list[FetchedFile] = []
    for source in found.sources:
        targets = {file.copy for file in fetched}  # training and evaluation may share one
        fetched += _index(source.table, cache_dir / source.table.index.directory.name, targets, options)
    for origin in _records(recipe, found.fingerprints, paths):
        target = cache_dir / origin.relative_to(recipe.cache_dir)
        fetched.append(_file(origin, target, options))
    return fetched


def _index(table: Table, target: Path, done: Collection[str | None], options: FetchOptions) -> Iterator[FetchedFile]:
    """The index of a source and its selection: two units, for an index may have other selections beside this one.

    What is `done` is not copied again: a new copy of an index would be without its selections.
    """
    index, selection = table.index, table.selection
    if str(target) not in done:
        own = [path for path in _files_in(index.directory) if not path.parts[0].startswith(_SELECTION)]
        yield _directory(index.directory, target, own, index.meta.digests, options)
    chosen, place = _files_in(selection.directory), target / selection.directory.name
    if str(place) not in done:
        yield _directory(selection.directory, place, chosen, selection.meta.digests, options)


def _directory(
    origin: Path, target: Path, names: list[Path], digests: Mapping[str, str], options: FetchOptions
) -> FetchedFile:
    num_bytes = sum((origin / name).stat().st_size for name in names)
    present = _is_there(origin, target, names) and not options.force
    if present and options.verify:
        present = origin == target or not damaged_arrays(target, digests, everything=True)
    if present or options.dry_run:
        return FetchedFile(str(origin), "prepared", "present" if present else "to copy", num_bytes, str(target))
    new = fresh_directory(target.with_name(f".{target.name}.fetching"))
    for name in names:
        _copy(origin / name, new / name)
    damage = damaged_arrays(new, digests, everything=True)
    if damage:
        shutil.rmtree(new)
        raise NotPreparedError(
            f"{origin}: the index is damaged, or was prepared again while it was copied",
            found=f"{', '.join(damage[:3])} without the digest it was written with",
            fix="run `playhead prepare --verify` on the recipe, and fetch again",
        )
    _keep_selections(target, new)
    swap_directory(new, target)
    return FetchedFile(str(origin), "prepared", "copied", num_bytes, str(target))


def _keep_selections(old: Path, new: Path) -> None:
    """The selections of an index stay valid when it is replaced by the same one, also those of other recipes."""
    meta = old / "meta.json"
    if meta.is_file() and meta.read_bytes() == (new / "meta.json").read_bytes():
        for selection in old.glob(f"{_SELECTION}*"):
            for name in _files_in(selection):
                _copy(selection / name, new / selection.name / name)


def _is_there(origin: Path, target: Path, names: list[Path]) -> bool:
    """Whether all files are there, of the same sizes, with the same meta.json: it has the digests of all others."""
    if not all((target / name).is_file() for name in names):
        return False
    same = all((target / name).stat().st_size == (origin / name).stat().st_size for name in names)
    return same and (target / "meta.json").read_bytes() == (origin / "meta.json").read_bytes()


def _records(recipe: Recipe, fingerprints: Iterable[str], paths: Iterable[str]) -> Iterator[Path]:
    """Single files of a `cache_dir`: seek points, records of bad samples, ledgers."""
    for path in paths:
        if compression_of(path) == ".gz":
            points = points_path(f"{recipe.cache_dir}/{DIRECTORY}", path)
            if points.is_file():  # media that rows name have none
                yield points
    for fingerprint in fingerprints:
        folder, ledger = quarantine_folder(recipe, fingerprint), ledger_file(recipe, fingerprint)
        yield from (path for path in (ledger, *sorted(folder.glob("rank-*.jsonl"))) if path.is_file())


def _file(origin: Path, target: Path, options: FetchOptions) -> FetchedFile:
    """Ledgers and records of bad samples are appended to: what a run added to a copy is kept."""
    content = origin.read_bytes()
    there = target.read_bytes() if target.is_file() else b""
    if target.is_file() and (there == content or (target.suffix != _POINTS and not content.startswith(there))):
        return FetchedFile(str(origin), "prepared", "present", len(content), str(target))
    if options.dry_run:
        return FetchedFile(str(origin), "prepared", "to copy", len(content), str(target))
    with writing_to(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    with replacing(target) as file:
        file.write(content)
    return FetchedFile(str(origin), "prepared", "copied", len(content), str(target))


def _files_in(directory: Path) -> list[Path]:
    return sorted(path.relative_to(directory) for path in directory.rglob("*") if path.is_file())


def _copy(origin: Path, target: Path) -> None:
    with writing_to(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        with origin.open("rb") as source, target.open("wb") as file:
            shutil.copyfileobj(source, file, 1 << 20)
            file.flush()
            os.fsync(file.fileno())
