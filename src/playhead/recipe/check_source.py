"""Rules about one source: its paths, length, and which rows it keeps."""

from __future__ import annotations

import re

from playhead.errors import RecipeError
from playhead.recipe.by_format import path_options
from playhead.recipe.imports import check_function_name
from playhead.recipe.tree import Leaf
from playhead.recipe.values import KeepRule, Length, Source

_JSON_LINES = (".jsonl", ".json", ".jsonl.gz", ".json.gz", ".jsonl.zst", ".json.zst")
_DEFAULT_SHUFFLE_GROUP = 8
_UNPACKED = {".tar.gz": "gunzip", ".tgz": "gunzip", ".tar.zst": "zstd -d", ".tar.bz2": "bunzip2", ".tar.xz": "unxz"}


def check_source(leaf: Leaf) -> None:
    source = leaf.source
    where = f'{leaf.path} "{source.name}"'
    if not source.path and not path_options(source):
        raise RecipeError(
            f"{where}: `path` is missing", fix="give a `path` for a source, or `sources` for a group of them"
        )
    if not all(source.path):
        raise RecipeError(f"{where}: `path` names no file", found=str(source.path))
    for path in source.path:
        _check_readable(path, where)
    if source.shuffle_group != _DEFAULT_SHUFFLE_GROUP and source.shuffle != "shards":
        raise RecipeError(
            f"{where}: `shuffle_group` counts shards, and the shuffle is not by shards",
            found=f"shuffle: {source.shuffle}",
            fix="write `shuffle: shards`, or remove `shuffle_group`",
        )
    for field, length in (("length", source.length), ("output_length", source.output_length)):
        if length is not None:
            _check_length(length, f"{leaf.path}.{field}")
    if source.output_length is not None and source.output_length.measure:
        raise RecipeError(
            f"{leaf.path}.output_length: only `length` can be measured",
            found="`measure: true`",
            expected="`field` or `function`",
        )
    if source.drop_ids and source.ids is None and _is_json_lines(source):
        raise RecipeError(
            f"{where}: `drop_ids` needs to know which field holds the id", fix="add a line such as `ids: id`"
        )
    if source.map is not None:
        check_function_name(source.map, f"{leaf.path}.map")
    for key, rule in source.keep.items():
        _check_rule(key, rule, f"{leaf.path}.keep.{key}")


def _check_readable(path: str, where: str) -> None:
    """Refuse what can only be read from its beginning to its end, with the command that makes it indexable."""
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


def _is_json_lines(source: Source) -> bool:
    if source.format is not None:
        return source.format == "jsonl"
    return all(path.endswith(_JSON_LINES) for path in source.path)


def _check_length(length: Length, where: str) -> None:
    given = [name for name in ("field", "function", "measure") if getattr(length, name)]
    if length.function is not None:
        check_function_name(length.function, f"{where}.function")
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
