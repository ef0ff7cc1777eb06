"""The columns of a file: which are read, which hold media, their types; and whether all files of a source agree.

Media are found by the features that Hugging Face writes into a schema, or by the options of the source.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, get_args

import msgspec
from msgspec import Struct, field

from playhead.errors import DataError
from playhead.formats.arrow_types import NULLS, check_type, delivered_type, is_text_or_bytes, load_pyarrow
from playhead.formats.media import Media, MediaKind
from playhead.recipe.values import Count, ImageMode

_FEATURES = b"huggingface"
_KINDS: dict[str, MediaKind] = {"Audio": "audio", "Image": "image"}  # by the type of a feature
_SETTINGS = ("decode", "sampling_rate", "num_channels", "mode")
_MODES = get_args(ImageMode)

MediaMaker = Callable[[Any], Media | None]


class ColumnFeature(Struct, frozen=True, forbid_unknown_fields=True):
    """A column of media, in the terms of `datasets`. The recipe's settings for audio and images take precedence."""

    type: Literal["Audio", "Image"]
    decode: bool = True
    sampling_rate: Count | None = None
    num_channels: Count | None = None
    mode: str | None = None

    def __str__(self) -> str:
        rate = "" if self.sampling_rate is None else f" at {self.sampling_rate:,} Hz"
        mode = "" if self.mode is None else f" in {self.mode}"
        return f"{self.type}{rate}{mode}{', mono' if self.num_channels == 1 else ''}"


class ColumnOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """`columns` are the ones to read, all by default; `audio` are those that hold recordings, `image` images.

    Columns of Hugging Face's types Audio and Image are detected. `features` replace those in the files.
    """

    columns: list[str] | None = None
    audio: list[str] = field(default_factory=list)
    image: list[str] = field(default_factory=list)
    features: dict[str, ColumnFeature] | None = None


def chosen_columns(path: str, schema: Any, options: ColumnOptions) -> list[str]:
    """The names of the columns to read, each of a type that can be read. Names that are missing are refused."""
    names: list[str] = list(schema.names)
    if len({*names}) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f'{path}: duplicate column name "{twice}"', expected="unique column names")
    for name in (*(options.columns or ()), *options.audio, *options.image, *(options.features or ())):
        if name not in names:
            raise missing_column(path, name, names, "the columns that the recipe names")
    chosen = names if options.columns is None else [name for name in names if name in options.columns]
    for name in chosen:
        check_type(path, name, schema.field(name).type)
    if not chosen:
        raise DataError(f"{path}: has no columns", expected="at least one")
    return chosen


def missing_column(path: str, name: str, names: Iterable[str], expected: str) -> DataError:
    return DataError(
        f'{path}: there is no column "{name}"',
        found=f"columns: {', '.join(names) or 'none'}"[:300],
        expected=expected,
        fix="correct the names in `options: {columns: [...]}`, or write the file again with the column",
    )


def types_of(path: str, schema: Any, names: Iterable[str], options: ColumnOptions) -> dict[str, str]:
    """The type in samples of each of some columns of a file."""
    media = media_columns(path, schema, options)
    return {name: str(media[name]) if name in media else delivered_type(schema.field(name).type) for name in names}


def common_types(files: Iterable[tuple[str, Mapping[str, str]]]) -> dict[str, str]:
    """The columns of all files, each with its type.

    Law: every file has every column, of one type; a column of nulls agrees with any.
    """
    first: tuple[str, Mapping[str, str]] | None = None
    found: dict[str, tuple[str, str]] = {}
    for path, types in files:
        first = first or (path, types)
        for name in sorted(first[1].keys() ^ types.keys()):
            (without, columns), (other, _) = ((path, types), first) if name in first[1] else (first, (path, types))
            raise missing_column(without, name, columns, f"the same columns in every file of a source: {other} has it")
        for name, kind in types.items():
            known, where = found.get(name, (NULLS, path))
            if NULLS not in (kind, known) and kind != known:
                raise DataError(
                    f'{path}: column "{name}" has another type than in {where}',
                    found=kind[:300],
                    expected=f"{known[:300]}, as there",
                    fix="write the files with one type for the column, or leave it out: `options: {columns: [...]}`",
                )
            if known == NULLS:
                found[name] = kind, path
    return {name: found[name][0] for name in sorted(found)}


def media_columns(path: str, schema: Any, options: ColumnOptions) -> dict[str, ColumnFeature]:
    """The columns that are decoded, by the options or by the features in the schema."""
    found = {name: ColumnFeature("Audio") for name in options.audio}
    found |= {name: ColumnFeature("Image") for name in options.image}
    for name, feature in (_features_of(schema) if options.features is None else options.features).items():
        if feature.decode:
            found.setdefault(name, feature)
    for name, feature in found.items():
        _check_media(path, schema.field(name), feature)
    return found


def _check_media(path: str, column: Any, feature: ColumnFeature) -> None:
    if not _holds_media(column.type):
        raise DataError(
            f'{path}: column "{column.name}" holds no {_KINDS[feature.type]}',
            found=str(column.type)[:200],
            expected="bytes, a path, or a struct of `bytes` and `path`",
            fix=f"correct `options: {{{_KINDS[feature.type]}: [...]}}`, or `features` there",
        )
    if feature.num_channels not in (None, 1) or feature.mode not in (None, *_MODES):
        is_audio = feature.type == "Audio"
        raise DataError(
            f'{path}: column "{column.name}" has an unknown delivery setting',
            found=f"Audio(num_channels={feature.num_channels})" if is_audio else f'Image(mode="{feature.mode}")',
            expected="1, the mean of all channels, or unset" if is_audio else f"{', '.join(_MODES)}, or unset",
            fix=f"set another: `options: {{features: {{{column.name}: {{type: {feature.type}}}}}}}`",
        )


def _holds_media(kind: Any) -> bool:
    if load_pyarrow().types.is_struct(kind):
        return not {"bytes", "path"}.isdisjoint(kind.field(i).name for i in range(kind.num_fields))
    return is_text_or_bytes(kind)


def _features_of(schema: Any) -> dict[str, ColumnFeature]:
    """The media features in a schema; none if the metadata were not written by Hugging Face."""
    try:
        features = media_features(json.loads((schema.metadata or {})[_FEATURES])["info"]["features"])
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError, msgspec.ValidationError):
        return {}
    columns = {name: schema.field(name).type for name in features if name in schema.names}
    return {name: features[name] for name, kind in columns.items() if _holds_media(kind)}


def media_features(features: Mapping[str, Any]) -> dict[str, ColumnFeature]:
    """Hugging Face features that are media. Features inside a struct or a list are not decoded."""
    found = {}
    for name, about in features.items():
        if isinstance(about, dict) and about.get("_type") in _KINDS:
            given = {key: about[key] for key in _SETTINGS if key in about}
            if about.get("mono") is True:  # of versions before 4
                given["num_channels"] = 1
            found[name] = msgspec.convert({"type": about["_type"], **given}, ColumnFeature)
    return found


def media_makers(path: str, schema: Any, options: ColumnOptions) -> dict[str, MediaMaker]:
    """A function that makes media from the values of a column: bytes, paths, or structs of both."""
    base = path.rpartition("/")[0]
    return {name: _maker(feature, base) for name, feature in media_columns(path, schema, options).items()}


def _maker(feature: ColumnFeature, base: str) -> MediaMaker:
    kind, rate, mono = _KINDS[feature.type], feature.sampling_rate, feature.num_channels == 1

    def medium(value: Any) -> Media | None:
        if value is None:
            return None
        if isinstance(value, bytes):
            return Media(kind, data=value, rate=rate, mono=mono, mode=feature.mode)
        held: dict[str, Any] = {"path": value} if isinstance(value, str) else value
        data, path = held.get("bytes"), held.get("path")
        return Media(kind, data=data, path=path, base=base, rate=rate, mono=mono, mode=feature.mode)

    return medium
