"""`fetch`: local copies of files of a recipe, and the recipe that uses them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from playhead.errors import DataError, RecipeError
from playhead.formats import sidecar
from playhead.formats.contract import WithOtherFiles, WithSidecars
from playhead.formats.registry import format_of
from playhead.jobs.lock import only_one
from playhead.prepare.fetch_copies import Fetching
from playhead.prepare.fetch_jobs import FetchedFile, FetchJob, FetchOptions, FetchProgress
from playhead.prepare.fetch_media import named_media
from playhead.prepare.fetch_prepared import fetch_prepared
from playhead.prepare.fetch_recipe import CACHE, RECIPE, check_place, write_recipe
from playhead.prepare.fetch_steps import StepFiles, StepsWanted, step_files
from playhead.recipe.by_format import holds_conversations
from playhead.recipe.storage import files_of, with_copies
from playhead.recipe.stores import stores_of
from playhead.recipe.tree import Leaf, leaves, map_of, template_of, tokenize_of
from playhead.recipe.values import Recipe
from playhead.store import Files, Stamp, compression_of, is_url, scheme_files, with_views
from playhead.store.addresses import without_query
from playhead.store.copies import has_copies_for_steps
from playhead.store.files import Buffer, Ranges

_MANIFEST_ENDINGS = (".jsonl", ".json")
_TAR = ".tar"


class FetchReport(Struct, frozen=True):
    """All files. `recipe` is the recipe that uses the copies; `notes` are what its user should know.

    `steps` describes the steps that files were copied for; `problems` are rows that cannot be read, and media that
    they name but may not.
    """

    recipe: str
    files: tuple[FetchedFile, ...]
    notes: tuple[str, ...] = ()
    dry_run: bool = False
    steps: str | None = None
    problems: tuple[str, ...] = ()


def fetch(
    recipe: Recipe,
    to: str | Path,
    *,
    steps: StepsWanted | None = None,
    manifests: bool = False,
    indexes: bool = False,
    workers: int = 8,
    force: bool = False,
    verify: bool = False,
    dry_run: bool = False,
    progress: Callable[[FetchProgress], None] | None = None,
    files: Files | None = None,
) -> FetchReport:
    """Copy files of a recipe to a local directory, and write the recipe that uses them.

    With `steps`, all that these steps need: shards, media, lists and prepared indexes; the recipe that is written
    reads nothing else. `manifests` and `indexes` copy all manifests, and all valid sidecars. With none of the three,
    all that any step needs is copied. What is there already and unchanged is not copied again, unless `force`;
    `verify` also compares the bytes of copies with their digests. A recipe that `fetch` wrote is read through its
    copies. Law: the recipe that is written gives the same
    stream, from the same indexes: files keep their names, and only the place they are read from changes.
    """
    if is_url(str(to)):
        raise RecipeError(f"{to}: copies are made in a local directory", found="a URL")
    if not (manifests or indexes or steps):
        steps = StepsWanted(splits=tuple(recipe.evaluation))
    root = str(Path(to).expanduser().resolve())
    storage = with_copies(recipe, scheme_files(stores_of(recipe)) if files is None else files)
    _refuse_part_of_copies(manifests and steps is None, storage)
    options = FetchOptions(workers, force, verify, dry_run, progress)
    planned = None if steps is None else step_files(recipe, steps, files)
    needed = _survey(recipe, storage)
    problems: list[str] = []
    with _alone(root, options):
        check_place(recipe, root)
        fetching = Fetching(root, storage, recipe.cache_dir, recipe.indexes_root, options)
        jobs = _jobs(needed, planned, manifests, indexes)
        if not dry_run:
            fetching.check_room(jobs)
        fetched = fetching.run(jobs)
        if manifests or planned is not None:
            fetching.found(needed.listings, needed.absent)
        if planned is not None:
            reading = files_of(recipe if dry_run else replace(recipe, copies=root), "refuse", storage)
            media, problems = named_media(recipe, planned.sources, reading)
            fetched += fetching.run([FetchJob("media", path) for path in media])
            paths = [file.path for file in fetched]
            fetched += fetch_prepared(recipe, planned, paths, Path(root, CACHE), options)
            fetching.made_for(planned.description, planned.indexed)
        if not dry_run:
            for_steps = fetching.is_for_steps
            write_recipe(recipe, root, copies=manifests or for_steps, indexes=indexes, cache=for_steps)
    written = Path(root, RECIPE)
    notes = [*_notes(recipe, written), *(() if steps is None else _step_notes(recipe, steps, planned))]
    description = None if planned is None else planned.description
    return FetchReport(str(written), tuple(fetched), tuple(notes), dry_run, description, tuple(problems))


def _refuse_part_of_copies(manifests_alone: bool, storage: Files) -> None:
    """A recipe has one directory of copies: with its manifests in another one, the other files would be unreachable."""
    if manifests_alone and has_copies_for_steps(storage):
        raise RecipeError(
            "the recipe reads copies that were made for its steps: manifests alone cannot be copied from them",
            fix="copy steps (--steps), or everything, or the manifests of the recipe that was fetched first",
        )


def _alone(root: str, options: FetchOptions) -> AbstractContextManager[None]:
    """Two fetches to one directory would write the same files."""
    if options.dry_run:
        return nullcontext()
    return only_one(Path(root), "fetched to", "one `playhead fetch` at a time for each directory", inside=True)


class _Needed(NamedTuple):
    """Files of a recipe: lists and other files that sources depend on, manifests, files that may have a sidecar; what
    patterns listed, and files that were looked for and do not exist.
    """

    lists: list[str]
    manifests: list[str]
    indexed: list[str]
    listings: dict[str, list[str]]
    absent: list[str]


def _jobs(needed: _Needed, planned: StepFiles | None, manifests: bool, indexes: bool) -> list[FetchJob]:
    """Law: each file once; those that steps need with the stamp that they were indexed with, and first."""
    shards = {} if planned is None else planned.files
    jobs = [FetchJob("shard", path, stamp) for path, stamp in shards.items()]
    lists = needed.lists if planned is not None or manifests else []
    others = dict.fromkeys([*(needed.manifests if manifests else []), *lists])
    jobs += [FetchJob("manifest", path) for path in others if path not in shards]
    if indexes:
        _refuse_collisions(needed.indexed)
        jobs += [FetchJob("index", path) for path in needed.indexed]
    return jobs


def _survey(recipe: Recipe, storage: Files) -> _Needed:
    """Law: each path once, whatever sources name it."""
    recorder = _Recorder(storage)
    views = with_views(recorder, recipe.cache_dir, "build")
    lists: dict[str, None] = {}
    manifests: dict[str, None] = {}
    indexed: dict[str, None] = {}
    for leaf in leaves(recipe):
        known = format_of(leaf.source, leaf.path).format
        paths = [path for shard in known.discover(leaf.source, views) for _, path in shard.files]
        others = known.other_files(leaf.source) if isinstance(known, WithOtherFiles) else ()
        lists |= dict.fromkeys([*others, *leaf.source.drop_ids, *leaf.source.drop_rows])
        manifests |= dict.fromkeys(path for path in paths if _is_manifest(path))
        if isinstance(known, WithSidecars):
            indexed |= dict.fromkeys(path for path in paths if _may_have_sidecar(path))
    lists |= dict.fromkeys(path for path in recorder.read_paths if _is_manifest(path) and path not in manifests)
    return _Needed(list(lists), list(manifests), list(indexed), recorder.listings, list(recorder.absent))


def _is_manifest(path: str) -> bool:
    return path.removesuffix(compression_of(path) or "").endswith(_MANIFEST_ENDINGS)


def _may_have_sidecar(path: str) -> bool:
    return path.endswith((*_MANIFEST_ENDINGS, _TAR))


class _Recorder:
    """Storage that remembers what was listed, which files were read and which do not exist: what finding shards
    depends on.
    """

    def __init__(self, files: Files) -> None:
        self.files = files
        self.listings: dict[str, list[str]] = {}
        self.read_paths: dict[str, None] = {}
        self.absent: dict[str, None] = {}

    def list(self, pattern: str) -> Sequence[str]:
        with self._noticing(pattern):
            found = self.files.list(pattern)
        self.listings[pattern] = [*found]
        return found

    def stamp(self, path: str) -> Stamp:
        with self._noticing(path):
            return self.files.stamp(path)

    def read(
        self, path: str, stamp: Stamp | None, ranges: Ranges, into: Sequence[memoryview] | None = None
    ) -> Sequence[Buffer]:
        self.read_paths[path] = None
        return self.files.read(path, stamp, ranges, into)

    @contextmanager
    def _noticing(self, path: str) -> Iterator[None]:
        try:
            yield
        except DataError:
            self.absent[path] = None
            raise


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


def _notes(recipe: Recipe, written: Path) -> Iterator[str]:
    if any(_names_function(recipe, leaf) for leaf in leaves(recipe)):
        yield (
            f"the recipe names functions: they are looked for beside {written}; "
            "put their modules there, or on PYTHONPATH"
        )


def _step_notes(recipe: Recipe, wanted: StepsWanted, planned: StepFiles | None) -> Iterator[str]:
    found = None if planned is None else planned.steps
    if found is not None and wanted.count is not None and len(found) < wanted.count:
        yield f"the stream ends after step {found[-1]:,}: {len(found):,} steps were fetched"
    if any(_uses_tokenizer(recipe, leaf) for leaf in leaves(recipe)):
        yield "tokenizers and chat templates are not copied: they must be at the same paths where the recipe runs"
    if recipe.shard_cache is not None:
        yield "`shard_cache` is left out of the recipe that is written: it reads copies on a local disk"
    if recipe.media is False:
        yield "`media: false`: files that a map opens itself are not copied"
    if "substitute" in (recipe.on_error, recipe.on_length_mismatch):
        yield (
            "the recipe replaces bad samples: a row that replaces one may be in a shard that is not copied, "
            "which is an error then"
        )


def _uses_tokenizer(recipe: Recipe, leaf: Leaf) -> bool:
    lengths = [length for length in (leaf.source.length, leaf.source.output_length) if length is not None]
    named = any(length.tokenizer or any(term.tokenizer for term in length.terms) for length in lengths)
    conversations = holds_conversations(leaf.source) and template_of(recipe, leaf) is not None
    return named or conversations or tokenize_of(recipe, leaf) is not None


def _names_function(recipe: Recipe, leaf: Leaf) -> bool:
    lengths = [length for length in (leaf.source.length, leaf.source.output_length) if length is not None]
    named = [term.function for length in lengths for term in length.terms]
    if holds_conversations(leaf.source) and (found := template_of(recipe, leaf)) is not None:
        template, _ = found
        named += [template.function, *(how.function for how in (template.image, template.video) if how is not None)]
    named += [recipe.video, recipe.collate if ":" in recipe.collate else None]
    return map_of(recipe, leaf) is not None or any(name is not None for name in named)
