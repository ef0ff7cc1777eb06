"""Rules about one source: its paths, length, and which rows it keeps."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from string import Formatter
from typing import Any

from playhead.errors import RecipeError
from playhead.recipe.by_format import path_options
from playhead.recipe.imports import check_function_name
from playhead.recipe.tree import Leaf
from playhead.recipe.values import PLANNED_COLUMNS, KeepRule, Length, Source, Tokenize
from playhead.recipe.words import nearest
from playhead.store import is_url

_DEFAULT_SHUFFLE_GROUP = 8
_SOURCES_OF_LENGTH = ("field", "function", "measure", "tokenizer", "audio", "image")
_UNPACKED = {".tar.gz": "gunzip", ".tgz": "gunzip", ".tar.zst": "zstd -d", ".tar.bz2": "bunzip2", ".tar.xz": "unxz"}


def check_source(leaf: Leaf) -> None:
    source = leaf.source
    where = f'{leaf.path} "{source.name}"'
    if not source.path and not path_options(source):
        raise RecipeError(
            f"{where}: `path` is missing", fix="give a `path` for a source, or `sources` for a group of them"
        )
    if not all(source.path):
        raise RecipeError(f"{where}: `path` is empty", found=str(source.path))
    _check_readable(source.path, where)
    for option in path_options(source):
        _check_readable(_texts(source.options[option]), f"{leaf.path}.options.{option}")
    if source.shuffle_group != _DEFAULT_SHUFFLE_GROUP and source.shuffle != "shards":
        raise RecipeError(
            f"{where}: `shuffle_group` requires `shuffle: shards`",
            found=f"shuffle: {source.shuffle}",
            fix="write `shuffle: shards`, or remove `shuffle_group`",
        )
    if source.shuffle_unit != "shard" and source.shuffle != "shards":
        raise RecipeError(
            f"{where}: `shuffle_unit` requires `shuffle: shards`",
            found=f"shuffle: {source.shuffle}",
            fix="write `shuffle: shards`, or remove `shuffle_unit`",
        )
    for field, length in (("length", source.length), ("output_length", source.output_length)):
        if length is not None:
            _check_length(length, f"{leaf.path}.{field}")
    if source.output_length is not None and (source.output_length.measure or source.output_length.from_headers):
        raise RecipeError(
            f"{leaf.path}.output_length: only `length` can be measured",
            found="`measure: true`" if source.output_length.measure else "the length of audio or of an image",
            expected="`field`, `function` or `tokenizer`",
        )
    if source.tokenize is not None:
        check_tokenize(source.tokenize, f"{leaf.path}.tokenize")
    if source.map is not None:
        check_function_name(source.map, f"{leaf.path}.map")
    for key, rule in source.keep.items():
        _check_rule(key, rule, f"{leaf.path}.keep.{key}")
        _check_planned_columns(key, rule, leaf.source, f"{leaf.path}.keep.{key}")


def _check_readable(paths: Iterable[str], where: str) -> None:
    """Refuse paths that can only be read sequentially, with the command that makes them indexable."""
    for path in paths:
        if path.startswith("pipe:"):
            raise RecipeError(
                f"{where}: the output of a command cannot be read in any order",
                found=path,
                expected="files, or the addresses of objects (s3://, gs://, az://, https://)",
                fix=f"give the address itself, or write the output to a file: {path[5:].strip()} > part-0.tar",
            )
        for ending, command in _UNPACKED.items():
            if path.endswith(ending):
                raise RecipeError(
                    f"{where}: a compressed tar cannot be read in any order",
                    found=path,
                    expected="a tar that is not compressed; its members may be",
                    fix=f"{command} {path}, and name what it writes",
                )


def _texts(value: Any) -> Iterator[str]:
    """The paths in an option: one path, a list, or a mapping to paths; other values are refused elsewhere."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)


def _check_length(length: Length, where: str) -> None:
    if length.turns is not None:
        return
    if length.sum:
        _check_sum(length, where)
        return
    _check_media_length(length, where)
    if length.audio is not None or length.image is not None:
        return
    given = [name for name in ("field", "function", "measure") if getattr(length, name)]
    if length.function is not None:
        check_function_name(length.function, f"{where}.function")
    if length.tokenizer is not None:
        _check_tokens(length, given, where)
        return
    for name in ("template", "max", "special"):
        if getattr(length, name) not in (None, True):
            raise RecipeError(
                f"{where}.{name}: requires `tokenizer`",
                fix=f"add `tokenizer: tokenizer.json`, or remove `{name}`",
            )
    if length.unit == "characters" and (length.field is None or len(given) > 1):
        raise RecipeError(
            f"{where}: a length in characters is that of the text in a field",
            found=" and ".join(f"`{name}`" for name in given) or "no field",
            fix="for example `length: {unit: characters, field: text}`",
        )
    if length.unit == "bytes":
        if length.function is not None or length.measure:
            raise RecipeError(
                f"{where}: a length in bytes is the size of the sample, or a field",
                found=" and ".join(f"`{name}`" for name in given),
                fix="remove `function` and `measure`",
            )
    elif len(given) != 1:
        raise RecipeError(
            f"{where}: needs exactly one of `field`, `function` and `measure`",
            found=" and ".join(f"`{name}`" for name in given) or "none of them",
            fix="for example `length: num_tokens`, or `length: {unit: bytes}` for the size of the sample",
        )


def _check_sum(length: Length, where: str) -> None:
    """A sum is of terms that count the same."""
    others = [name for name in _SOURCES_OF_LENGTH if getattr(length, name)]
    if others:
        raise RecipeError(
            f"{where}: has both `sum` and {' and '.join(f'`{name}`' for name in others)}",
            fix="make it a term of the sum",
        )
    for i, term in enumerate(length.sum):
        at = f"{where}.sum[{i}]"
        if term.sum or term.measure:
            raise RecipeError(
                f"{at}: cannot be a term of a sum",
                found="a sum" if term.sum else "`measure: true`, which counts the whole sample",
                fix="write its terms beside the others" if term.sum else "measure the sum as a whole, in a map",
            )
        if (term.unit == "seconds") != (length.unit == "seconds"):
            raise RecipeError(
                f"{at}: the terms of a sum need one unit",
                found=f"{term.unit} in a sum of {length.unit}",
                fix="give the seconds of a term a `per_second`, or all terms `unit: seconds`",
            )
        _check_length(term, at)


def _check_media_length(length: Length, where: str) -> None:
    """Terms of audio and images: each needs its own options, and no others."""
    if length.per_second is not None:
        if length.unit != "tokens" or length.tokenizer or length.function or length.measure or length.image:
            raise RecipeError(
                f"{where}.per_second: turns seconds into a number of steps",
                found=f"`unit: {length.unit}`" if length.unit != "tokens" else "a length that is not in seconds",
                expected="`field` or `audio`, and no `unit`",
                fix="for example `{field: duration, per_second: 12.5}`",
            )
        if length.field is None and length.audio is None:
            raise RecipeError(f"{where}.per_second: needs seconds to count", fix="add `field: duration` or `audio`")
    elif length.audio is not None and length.unit != "seconds":
        raise RecipeError(
            f"{where}.audio: audio has seconds",
            found=f"`unit: {length.unit}`",
            fix="add `unit: seconds`, or `per_second` for steps of audio",
        )
    if (length.image is None) != (length.patch is None):
        raise RecipeError(
            f"{where}: an image has a length in patches",
            found="`image` without `patch`" if length.patch is None else "`patch` without `image`",
            fix="for example `{image: jpg, patch: 14}`",
        )
    beside = [name for name in _SOURCES_OF_LENGTH if getattr(length, name) and name not in ("audio", "image", "field")]
    if length.image is not None and (length.audio or length.field or beside or length.unit != "tokens"):
        raise RecipeError(f"{where}: an image has a length in patches alone", fix="add other terms with `sum: [...]`")
    if length.audio is not None and beside:
        raise RecipeError(
            f"{where}: has both `audio` and `{beside[0]}`", fix="keep one of them, or add them up with `sum: [...]`"
        )


def _check_tokens(length: Length, given: list[str], where: str) -> None:
    if length.unit != "tokens" or set(given) - {"field"}:
        found = [f"`unit: {length.unit}`"] if length.unit != "tokens" else [f"`{name}`" for name in given]
        raise RecipeError(
            f"{where}: a tokenizer counts the tokens of a text",
            found=" and ".join(found),
            expected="`field` or `template` beside `tokenizer`",
        )
    check_text(length, where)


def check_tokenize(given: Tokenize | bool, where: str) -> None:
    if given is True:
        raise RecipeError(
            f"{where}: needs a tokenizer",
            found="true",
            expected="a mapping such as `{tokenizer: tokenizer.json, field: text}`, or false for none",
        )
    if isinstance(given, Tokenize):
        check_text(given, where)


def check_text(given: Length | Tokenize, where: str) -> None:
    """The text is one field, or a template with fields in plain braces."""
    if is_url(given.tokenizer or ""):
        raise RecipeError(
            f"{where}.tokenizer: must be on a local disk",
            found=given.tokenizer,
            fix="download the file, and give its path",
        )
    if given.template is None:
        return
    if given.field is not None:
        raise RecipeError(f"{where}: has both `field` and `template`", fix="keep one of them")
    try:
        pieces = list(Formatter().parse(given.template))
    except ValueError as error:
        pieces, problem = [], str(error)
    else:
        problem = "no field in braces" if all(field is None for _, field, _, _ in pieces) else ""
    if any(field == "" or form or conversion for _, field, form, conversion in pieces):
        problem = "a field without a name, or with a format"
    if problem:
        raise RecipeError(
            f"{where}.template: is not a template",
            found=f"{given.template}: {problem}",
            expected='text with the names of fields in braces, such as "{title} {text}"',
        )


def _check_rule(key: str, rule: KeepRule, where: str) -> None:
    parts = key.split("/")
    if not all(part.strip() for part in parts) or len(parts) > 2:
        raise RecipeError(
            f"{where}: is not a column or a ratio of two", found=key, expected="`column`, or `column/column`"
        )
    numbers = not isinstance(rule, str) and all(not isinstance(item, str) for item in rule)
    if isinstance(rule, str):
        _check_pattern(rule, where)
    elif numbers and len(rule) == 2:
        _check_range(rule[0], rule[1], where)
    elif not rule or not all(isinstance(item, str) for item in rule):
        raise RecipeError(
            f"{where}: is neither a range nor a list of words",
            found=str(rule).replace("None", "null"),
            expected="[low, high] with null for an open end, or a list of words",
        )
    if len(parts) == 2 and not numbers:
        raise RecipeError(f"{where}: a ratio of columns can only be kept by a range", expected="[low, high]")


def _check_planned_columns(key: str, rule: KeepRule, source: Source, where: str) -> None:
    """A rule on a planned length needs that length, and is a range."""
    for name in (part.strip() for part in key.split("/") if part.strip().startswith("@")):
        near = nearest(name, PLANNED_COLUMNS)
        if not near:
            continue  # a field of the rows may begin with @, too
        if name not in PLANNED_COLUMNS:
            raise RecipeError(f"{where}: is not a planned length", found=name, fix=f"did you mean `{near[0]}`?")
        if isinstance(rule, str) or any(isinstance(item, str) for item in rule):
            raise RecipeError(f"{where}: a length can only be kept by a range", expected="[low, high]")
        if getattr(source, PLANNED_COLUMNS[name]) is None:
            raise RecipeError(
                f'{where}: source "{source.name}" has no `{PLANNED_COLUMNS[name]}`',
                fix=f"add `{PLANNED_COLUMNS[name]}:` to the source, or remove the rule",
            )


def _check_range(low: object, high: object, where: str) -> None:
    if isinstance(low, float) and isinstance(high, float) and low > high:
        raise RecipeError(f"{where}: the range is empty", found=f"[{low:g}, {high:g}]", expected="the lower end first")


def _check_pattern(rule: str, where: str) -> None:
    if not rule.startswith("re:"):
        return
    try:
        re.compile(rule[3:])
    except re.error as error:
        raise RecipeError(f"{where}: is not a regular expression", found=f"{rule[3:]} ({error})") from None
