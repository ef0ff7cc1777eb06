"""`fetch`: local copies of the manifests and sidecars of a recipe, and the recipe that uses them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import yaml
from msgspec import Struct
from msgspec.structs import replace

from playhead.errors import RecipeError
from playhead.formats import sidecar
from playhead.formats.contract import WithOtherFiles, WithSidecars
from playhead.formats.registry import format_of
from playhead.prepare.fetch_copies import INDEXES, FetchedFile, Fetching, FetchKind, FetchProgress
from playhead.recipe.by_format import holds_conversations
from playhead.recipe.tree import Leaf, leaves, map_of, template_of
from playhead.recipe.values import Recipe
from playhead.store import Files, SchemeFiles, Stamp, compression_of, is_url, replacing, with_views, writing_to
from playhead.store.addresses import without_query
from playhead.store.files import Buffer, Ranges

RECIPE = "recipe.yaml"
_MANIFEST_ENDINGS = (".jsonl", ".json")
_TAR = ".tar"


class FetchReport(Struct, frozen=True):
    """All files. `recipe` is the recipe that uses the copies; `notes` are what its user should know."""

    recipe: str
    files: tuple[FetchedFile, ...]
    notes: tuple[str, ...] = ()
    dry_run: bool = False


def fetch(
    recipe: Recipe,
    to: str | Path,
    *,
    manifests: bool = True,
    indexes: bool = True,
    workers: int = 8,
    force: bool = False,
    dry_run: bool = False,
    progress: Callable[[FetchProgress], None] | None = None,
    files: Files | None = None,
) -> FetchReport:
    """Copy the manifests of a recipe and valid sidecars to a local directory, and write the recipe that uses them.

    What is there already and unchanged is not copied again, unless `force`. Law: the recipe that is written gives the
    same stream, from the same indexes: files keep their names, and only the place they are read from changes.
    """
    if is_url(str(to)):
        raise RecipeError(f"{to}: copies are made in a local directory", found="a URL")
    if not (manifests or indexes):
        raise RecipeError("nothing to fetch", expected="manifests, indexes, or both")
    root = str(Path(to).expanduser().absolute())
    storage = SchemeFiles() if files is None else files
    needed = _survey(recipe, storage)
    fetching = Fetching(root, storage, recipe.indexes_root, force, dry_run)
    jobs: list[tuple[FetchKind, str]] = [("manifest", path) for path in needed.manifests if manifests]
    jobs += [("index", path) for path in needed.indexed if indexes]
    _refuse_collisions(path for kind, path in jobs if kind == "index")
    fetched = fetching.run(jobs, needed.listings if manifests else {}, workers, progress)
    written = Path(root, RECIPE)
    if not dry_run:
        _write_recipe(recipe, written, root if manifests else recipe.copies, f"{root}/{INDEXES}" if indexes else None)
    return FetchReport(str(written), tuple(fetched), tuple(_notes(recipe, written)), dry_run)


class _Needed(NamedTuple):
    """Files of a recipe: its manifests and lists, those that may have a sidecar, and what patterns listed."""

    manifests: list[str]
    indexed: list[str]
    listings: dict[str, list[str]]


def _survey(recipe: Recipe, storage: Files) -> _Needed:
    """Law: each path once, whatever sources name it."""
    recorder = _Recorder(storage)
    views = with_views(recorder, recipe.cache_dir, "build")
    manifests: dict[str, None] = {}
    indexed: dict[str, None] = {}
    for leaf in leaves(recipe):
        known = format_of(leaf.source, leaf.path).format
        paths = [path for shard in known.discover(leaf.source, views) for _, path in shard.files]
        others = known.other_files(leaf.source) if isinstance(known, WithOtherFiles) else ()
        manifests |= dict.fromkeys([path for path in paths if _is_manifest(path)] + list(others))
        if isinstance(known, WithSidecars):
            indexed |= dict.fromkeys(path for path in paths if _may_have_sidecar(path))
    manifests |= dict.fromkeys(path for path in recorder.read_paths if _is_manifest(path))
    return _Needed(list(manifests), list(indexed), recorder.listings)


def _is_manifest(path: str) -> bool:
    return path.removesuffix(compression_of(path) or "").endswith(_MANIFEST_ENDINGS)


def _may_have_sidecar(path: str) -> bool:
    return path.endswith((*_MANIFEST_ENDINGS, _TAR))


class _Recorder:
    """Storage that remembers what was listed and which files were read: what finding shards depends on."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self.listings: dict[str, list[str]] = {}
        self.read_paths: dict[str, None] = {}

    def list(self, pattern: str) -> Sequence[str]:
        found = self.files.list(pattern)
        if found:
            self.listings[pattern] = [*found]
        return found

    def stamp(self, path: str) -> Stamp:
        return self.files.stamp(path)

    def read(
        self, path: str, stamp: Stamp | None, ranges: Ranges, into: Sequence[memoryview] | None = None
    ) -> Sequence[Buffer]:
        self.read_paths[path] = None
        return self.files.read(path, stamp, ranges, into)


def _refuse_collisions(paths: Iterable[str]) -> None:
    """In lhotse's layout the sidecars of `s3://b/k` and `/b/k` are one file."""
    seen: dict[str, str] = {}
    for path in paths:
        other = seen.setdefault(sidecar.sidecar_path(path, "/"), path)
        if other != path:
            raise RecipeError(
                "the sidecars of two files would be one",
                found=f"{without_query(other)} and {without_query(path)}",
                fix="fetch the recipe without --indexes",
            )


def _write_recipe(recipe: Recipe, target: Path, copies: str | None, indexes_root: str | None) -> None:
    written = replace(recipe, copies=copies, indexes_root=indexes_root or recipe.indexes_root)
    with writing_to(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    with replacing(target) as file:
        file.write(yaml.safe_dump(written.to_dict(), sort_keys=False, allow_unicode=True, width=120).encode())


def _notes(recipe: Recipe, written: Path) -> Iterator[str]:
    if any(_names_function(recipe, leaf) for leaf in leaves(recipe)):
        yield (
            f"the recipe names functions: they are looked for beside {written}; "
            "put their modules there, or on PYTHONPATH"
        )


def _names_function(recipe: Recipe, leaf: Leaf) -> bool:
    lengths = [length for length in (leaf.source.length, leaf.source.output_length) if length is not None]
    named = [term.function for length in lengths for term in length.terms]
    if holds_conversations(leaf.source) and (found := template_of(recipe, leaf)) is not None:
        template, _ = found
        named += [template.function, *(how.function for how in (template.image, template.video) if how is not None)]
    named += [recipe.video, recipe.collate if ":" in recipe.collate else None]
    return map_of(recipe, leaf) is not None or any(name is not None for name in named)
