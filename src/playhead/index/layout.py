"""The layout of an index on disk, and its name.

    <cache_dir>/<source name>-<key>/
        meta.json           shard table, counts, digests
        <array>.npy         every array of the schema (formats/schema.py), ids aside, shards end to end
        keys.npy            uint64 pairs (hash of id, row), sorted
        selection-<key>/    what `keep` and the rest leave, see selection.py

The offset of raw row r in shard s is at r + s, for each shard before it has left one sentinel.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from playhead.errors import RecipeError
from playhead.fingerprint import digest
from playhead.formats.chat import ChatSpec, chat_spec
from playhead.formats.message_parts import MESSAGES
from playhead.formats.registry import Registered, format_of
from playhead.formats.rows import Shard
from playhead.formats.schema import Track, file_name
from playhead.formats.spec import Rule, Spec, rules_of, spec_of
from playhead.formats.tokens import by_digest, tokenizer_digest
from playhead.recipe.by_format import holds_conversations
from playhead.recipe.imports import source_digest
from playhead.recipe.plain import to_plain
from playhead.recipe.storage import files_of
from playhead.recipe.tree import (
    Leaf,
    audio_conversations,
    length_changes,
    map_of,
    sample_key,
    template_of,
    tokenize_of,
)
from playhead.recipe.values import ImageOptions, Recipe, Template
from playhead.store import Files, Stamp, load_bytes, unreadable

VERSION = 4
_KEY_CHARACTERS = 16
_NAME_CHARACTERS = 80

M = TypeVar("M", bound=Struct)


class FileEntry(Struct, frozen=True):
    """A file of a shard as it was when it was scanned."""

    path: str
    size: int
    mark: int

    @property
    def stamp(self) -> Stamp:
        return Stamp(self.size, self.mark)


class ShardEntry(Struct, frozen=True):
    """A shard in an index. `num_skipped` counts what is in its files and belongs to no row."""

    files: tuple[FileEntry, ...]
    num_rows: int
    num_skipped: int = 0

    @property
    def name(self) -> str:
        return self.files[0].path

    def shard(self, roles: tuple[str, ...]) -> Shard:
        return Shard(tuple((role, file.path) for role, file in zip(roles, self.files, strict=True)))


class Meta(Struct, frozen=True):
    """Everything about an index that is not one per row.

    `generator_key` is what the random generators of a map that takes one were keyed by when lengths were measured.
    `types` are the types of the columns of the files, the same in all shards.
    """

    version: int
    fingerprint: str
    format: str
    patterns: tuple[str, ...]
    roles: tuple[str, ...]
    tracks: tuple[Track, ...]
    shards: tuple[ShardEntry, ...]
    num_rows: int
    length_sum: int
    output_sum: int
    spec: Spec
    digests: dict[str, str]
    generator_key: int | None = None
    types: dict[str, str] = {}


@dataclass(frozen=True)
class Layout:
    """A source of a recipe, resolved: its format, what is collected of it, and the location of its index.

    `files` is the storage of the lists used by its selection; None: the default.
    """

    leaf: Leaf
    registered: Registered
    spec: Spec
    rules: tuple[Rule, ...]
    directory: Path
    generator_key: int
    files: Files | None = None

    @property
    def measured(self) -> bool:
        """Whether lengths come from measuring, a later stage."""
        return self.spec.measured is not None

    def draws_alike(self, meta: Meta) -> bool:
        """Whether lengths that a map made with random numbers are the same with this recipe's seed."""
        return meta.generator_key in (None, self.generator_key)

    @property
    def fingerprint(self) -> str:
        """A digest of what the index holds for each row. Paths are not in it."""
        return fingerprint_of(self.registered.name, self.spec)

    @property
    def patterns(self) -> tuple[str, ...]:
        return tuple(self.leaf.source.path)


def layout_of(leaf: Leaf, recipe: Recipe, files: Files | None = None) -> Layout:
    source = leaf.source
    if recipe.copies is not None:
        files = files_of(recipe, "build", files)
    _check_vocabulary(recipe, leaf)
    registered = format_of(source, leaf.path)
    spec = spec_of(source, leaf.path, registered.default_id, measured_by(leaf, recipe))
    if source.length is not None and any(term.in_seconds for term in source.length.terms):
        spec = msgspec.structs.replace(spec, audio_changes=length_changes(recipe, leaf))
    if source.length is not None and any(term.image for term in source.length.terms):
        resized = msgspec.structs.replace(source.image or recipe.image, mode=None)
        spec = msgspec.structs.replace(spec, image=resized)
    spec = _with_chat(spec, leaf, recipe)
    # Sources of one name over other files (a training and an evaluation set, two recipes) must not evict each other.
    key = digest([fingerprint_of(registered.name, spec), source.path])[:_KEY_CHARACTERS]
    directory = Path(recipe.cache_dir) / f"{file_name(source.name)[:_NAME_CHARACTERS]}-{key}"
    if files is None and (source.drop_ids or source.drop_rows):
        files = files_of(recipe, "build")
    return Layout(leaf, registered, spec, rules_of(source, leaf.path), directory, sample_key(recipe, leaf), files)


def _with_chat(spec: Spec, leaf: Leaf, recipe: Recipe) -> Spec:
    """What is collected of a source whose lengths count the tokens of conversations."""
    lengths = (leaf.source.length, leaf.source.output_length)
    if not any(length is not None and length.turns for length in lengths):
        return spec
    chat = chat_of(recipe, leaf)
    assert chat is not None, "the recipe check requires a template"
    tokenizers = spec.tokenizers | tokenizer_digests(recipe, leaf)
    image = msgspec.structs.replace(leaf.source.image or recipe.image, mode=None) if chat.template.image else None
    return msgspec.structs.replace(spec, chat=chat, tokenizers=tokenizers, image=image)


def chat_of(recipe: Recipe, leaf: Leaf) -> ChatSpec | None:
    """How conversations of a source become tokens; None if they do not."""
    found = template_of(recipe, leaf) if holds_conversations(leaf.source) else None
    if found is None:
        return None
    made = chat_spec(found[0], audio_conversations(leaf.source), leaf.source.tags, found[1])
    return msgspec.structs.replace(made, messages=leaf.source.options.get("field", MESSAGES))


def measured_by(leaf: Leaf, recipe: Recipe) -> str | None:
    """A digest of what decides measured lengths; None for lengths that are not measured.

    That is the map's name and the text of the module it is named in, so that an edited map is noticed (what that module
    imports does not count); whether samples are decoded, how images are, and texts are tokenized; the sequence field
    and, for seconds, its rate.
    """
    length = leaf.source.length
    if length is None or not length.measure:
        return None
    named = map_of(recipe, leaf)
    rate = recipe.sequence_rate if length.unit == "seconds" else None
    made: list[Any] = [named and [named[0], source_digest(*named)], recipe.decode, recipe.media, recipe.sequence, rate]
    tokens = tokens_by_digest(recipe, leaf)
    image = leaf.source.image or recipe.image
    made += [] if image == ImageOptions() else [image]
    return digest([*made, tokens] if tokens else made)


def tokens_by_digest(recipe: Recipe, leaf: Leaf) -> list[Any]:
    """The settings that turn texts of a source into tokens, with the digests of tokenizers: `tokenize`, and lengths."""
    digests = tokenizer_digests(recipe, leaf)
    chat = chat_of(recipe, leaf)
    made = [chat.content(digests)] if chat is not None else []
    settings = [given for given, _ in _token_settings(recipe, leaf) if not isinstance(given, Template)]
    return [to_plain(given) for given in [*made, *(by_digest(given, digests) for given in settings)]]


def tokenizer_digests(recipe: Recipe, leaf: Leaf) -> dict[str, str]:
    """The digests of the tokenizers that make tokens of a source, or count them, by their paths."""
    return {
        term.tokenizer: tokenizer_digest(term.tokenizer, f"{at}.tokenizer")
        for given, at in _token_settings(recipe, leaf)
        for term in getattr(given, "terms", [given])
        if term.tokenizer is not None
    }


def _token_settings(recipe: Recipe, leaf: Leaf) -> list[tuple[Any, str]]:
    """`tokenize`, and the lengths that are counted in samples, each with its place in the recipe."""
    found = tokenize_of(recipe, leaf)
    template = template_of(recipe, leaf) if holds_conversations(leaf.source) else None
    lengths = (("length", leaf.source.length), ("output_length", leaf.source.output_length))
    given: list[tuple[Any, str]] = [each for each in (found, template) if each is not None]
    return given + [
        (length, f"{leaf.path}.{name}")
        for name, length in lengths
        if length is not None and (length.tokenizer or length.by_terms)
    ]


def _check_vocabulary(recipe: Recipe, leaf: Leaf) -> None:
    """Refuse tokens of another vocabulary than the one that their length is counted with; a map may change them."""
    length, found = leaf.source.length, tokenize_of(recipe, leaf)
    if length is None or length.tokenizer is None or found is None or map_of(recipe, leaf) is not None:
        return
    tokenize, place = found
    digests = tokenizer_digests(recipe, leaf)
    if tokenize.to == recipe.sequence and digests[tokenize.tokenizer] != digests[length.tokenizer]:
        raise RecipeError(
            f"{place}.tokenizer: differs from the tokenizer that counts the lengths of {leaf.path}",
            found=tokenize.tokenizer,
            expected=f"the contents of {length.tokenizer}, as in {leaf.path}.length",
            fix="name the same `tokenizer.json` in both",
        )


def fingerprint_of(format_name: str, spec: Spec) -> str:
    """Defaults are left out, so that new options do not change it."""
    return digest([VERSION, format_name, to_plain(spec.content)])


def files_now(shard: Shard, files: Files) -> tuple[FileEntry, ...]:
    """The files of a shard as they are now."""
    stamps = [(path, files.stamp(path)) for _, path in shard.files]
    return tuple(FileEntry(path, found.size, found.mark) for path, found in stamps)


def decode_file(path: str, kind: type[M]) -> M | None:
    """A meta.json; None if there is none that this version can read."""
    try:
        return msgspec.json.decode(load_bytes(path).tobytes(), type=kind)
    except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    except OSError as error:
        raise unreadable(path, error) from error
