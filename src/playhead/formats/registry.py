"""Formats by name: built-in ones, those of other packages (entry points), and those a program registers itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import PurePosixPath
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from playhead.errors import RecipeError
from playhead.formats.contract import Format
from playhead.recipe.shape import fit
from playhead.recipe.values import Length, Source
from playhead.store import compression_of

ENTRY_POINTS = "playhead.formats"
_NAMES = (
    "arrow jsonl lhotse lhotse_shar megatron messages multimodal_conversation nemo nemo_sft nemo_tarred nemotron_text "
    "parquet share_gpt share_gpt_webdataset text text_jsonl text_pair webdataset"
)
_OURS = tuple(f"playhead.formats.{name}" for name in _NAMES.split())

F = TypeVar("F", bound=Callable[[], Format])
S = TypeVar("S", bound=Struct)


class NoOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """The options of a format that has none."""


@dataclass(frozen=True)
class Registered:
    """A format under its name, with the endings of file names it is assumed for and the id its samples always have.

    `raw_members` says whether samples hold bytes that are to be decoded by their names. `default_length` applies to a
    source without `length`, and `default_sequence` is the field that it counts. `path_options` are the options
    that are paths, or mappings to paths: patterns like those of `path`, which the format receives expanded, as lists.
    `conversations` says that its samples hold a `Conversation`.
    """

    name: str
    format: Format
    extensions: tuple[str, ...] = ()
    default_id: str | None = None
    raw_members: bool = True
    options: type[Struct] = NoOptions
    default_length: Length | None = None
    path_options: tuple[str, ...] = ()
    default_sequence: str | None = None
    conversations: bool = False


_known: dict[str, Registered] = {}


def register(
    name: str,
    *,
    extensions: tuple[str, ...] = (),
    default_id: str | None = None,
    raw_members: bool = True,
    options: type[Struct] = NoOptions,
    default_length: Length | None = None,
    path_options: tuple[str, ...] = (),
    default_sequence: str | None = None,
    conversations: bool = False,
) -> Callable[[F], F]:
    """Make a class a format. Another package names the module that does so in the group `playhead.formats`.

    `options` is the struct that a source's `options` are checked against; `options_of` returns them as one.
    """

    def add(kind: F) -> F:
        about = (extensions, default_id, raw_members, options, default_length, path_options, default_sequence)
        _known[name] = Registered(name, kind(), *about, conversations)
        return kind

    return add


def known_format(source: Source) -> Registered | None:
    """The format of a source; None if it names an unknown one, and its files do not tell."""
    try:
        return _infer(source, "") if source.format is None else _named(source.format, "")
    except RecipeError:
        return None


def format_named(name: str) -> Format:
    """A format of ours that another one reads files with."""
    return _named(name, "").format


def format_of(source: Source, path: str) -> Registered:
    """The format a source names, or the one of its files' extension; `path` is its place in the recipe."""
    found = _infer(source, path) if source.format is None else _named(source.format, path)
    if source.options:
        _converted(found.options, source.options, f"{path}.options")
    return found


def options_of(kind: type[S], options: Mapping[str, Any]) -> S:
    """Options that were checked, as the struct of their format."""
    return _converted(kind, options, "options")


def _converted(kind: type[S], options: Mapping[str, Any], path: str) -> S:
    fitted = fit(options, msgspec.inspect.type_info(kind), path)
    try:
        return msgspec.convert(fitted, kind)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$")
        raise RecipeError(f"{path}{where.rstrip('`')}: is not valid", expected=what.removeprefix("Expected ")) from None


def _named(name: str, path: str) -> Registered:
    if name not in _known:
        _load_all()
    if name in _known:
        return _known[name]
    near = get_close_matches(name, _known, n=1)
    raise RecipeError(
        f'{path}.format: unknown format "{name}"',
        expected=f"one of: {', '.join(sorted(_known))}",
        fix=f'did you mean "{near[0]}"?' if near else None,
    )


def _infer(source: Source, path: str) -> Registered:
    _load_all()
    found = {_name_by_ending(pattern) for pattern in source.path}
    if len(found) == 1 and (name := found.pop()) is not None:
        return _known[name]
    endings = {_ending(pattern) for pattern in source.path}
    raise RecipeError(
        f'{path} "{source.name}": the format cannot be inferred from the path',
        found=f"extensions: {', '.join(sorted(ending or '(none)' for ending in endings))}",
        expected=f"one of: {', '.join(sorted(end for known in _known.values() for end in known.extensions))}",
        fix=f"add `format:`, one of {', '.join(sorted(_known))}",
    )


def _name_by_ending(pattern: str) -> str | None:
    """The format of a file name, by its longest known ending."""
    file = pattern.removesuffix(compression_of(pattern) or "")
    endings = {ending: known.name for known in reversed(_known.values()) for ending in known.extensions}
    found = max((ending for ending in endings if file.endswith(ending)), key=len, default=None)
    return None if found is None else endings[found]


def _ending(pattern: str) -> str:
    """The extension that determines the format, without that of the compression."""
    compressed = compression_of(pattern)
    found = PurePosixPath(pattern if compressed is None else pattern.removesuffix(compressed)).suffix
    return found or compressed or ""


@cache
def _load_all() -> None:
    """Import every format, once: searching all installed packages takes milliseconds, for every source."""
    for module in _OURS:
        import_module(module)
    for entry in entry_points(group=ENTRY_POINTS):
        entry.load()
