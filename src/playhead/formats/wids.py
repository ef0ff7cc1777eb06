"""`wids-meta.json`: the tars of a WebDataset by name, each with the number of its samples."""

from __future__ import annotations

import posixpath
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct, field

from playhead.errors import DataError
from playhead.store import Files, is_url, open_file
from playhead.store.addresses import without_query
from playhead.store.globbing import has_magic

NAME = "wids-meta.json"


class _Shard(Struct, frozen=True):
    url: str
    nsamples: int | None = None


class _Meta(Struct, frozen=True):
    """`base` is where relative names begin, if not beside the file; `datasets` are other such files."""

    shardlist: list[_Shard] = field(default_factory=list)
    base: str | None = None
    datasets: list[Any] = field(default_factory=list)


def expand_lists(patterns: list[str], files: Files) -> dict[str, int | None]:
    """The patterns, with the tars that a list names in place of each list, or directory that holds one.

    Each is given with the number of rows that it must have, where a list says so.
    """
    found: dict[str, int | None] = {}
    for pattern in patterns:
        lists = _lists(pattern, files)
        named = [(tar, num_rows, path) for path in lists for tar, num_rows in _tars(path, files)]
        for tar, num_rows, path in named if lists else [(pattern, None, pattern)]:
            if tar in found:
                raise DataError(f"{path}: names {tar} twice", fix="name it once")
            found[tar] = num_rows
    return found


def _lists(pattern: str, files: Files) -> list[str]:
    """The lists that a pattern names: itself, those that match it, or that of a directory."""
    if pattern.endswith(NAME):
        return list(files.list(pattern))
    if pattern.endswith(".tar") or has_magic(pattern):
        return []
    inside = f"{pattern.rstrip('/')}/{NAME}"
    try:
        files.stamp(inside)
    except DataError:
        return []
    return [inside]


def _tars(path: str, files: Files) -> list[tuple[str, int | None]]:
    file = open_file(files, path)
    try:
        meta = msgspec.json.decode(b"".join(file.pieces()), type=_Meta)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(
            f"{path}: is not a list of shards", found=str(error), expected="`shardlist`, with a `url` for each shard"
        ) from None
    if meta.datasets or not meta.shardlist:
        raise DataError(
            f"{path}: lists {'datasets' if meta.datasets else 'no shards'}",
            expected="`shardlist`, with a `url` for each shard",
            fix=f"name the `{NAME}` of each dataset in `path`" if meta.datasets else "write the list again",
        )
    base = _placed(meta.base, path.rpartition("/")[0], path) if meta.base else path.rpartition("/")[0]
    return [(_placed(shard.url, base, path), shard.nsamples) for shard in meta.shardlist]


def _placed(named: str, base: str, path: str) -> str:
    """The path of a name in a list. Law: in a remote list it stays in its store; elsewhere it may be anywhere."""
    if named.startswith("pipe:"):
        raise DataError(
            f"{path}: the output of a command cannot be read in any order", found=named, fix="name the files themselves"
        )
    local = named.removeprefix("file:")
    named = f"/{local.lstrip('/')}" if local != named else named
    if not is_url(named) and (not is_url(base) or named.startswith("/")):
        found = posixpath.normpath(posixpath.join(base, named))
    else:
        scheme, _, rest = (named if is_url(named) else f"{base.rstrip('/')}/{named}").partition("://")
        store, _, key = rest.partition("/")
        found = f"{scheme}://{store}/{posixpath.normpath(key)}"
    if is_url(path) and (_store(found) != _store(path) or "/../" in found):
        raise DataError(
            f"{without_query(path)}: a list in a store names a file outside that store",
            found=without_query(named),
            expected=f"names that begin with {_store(path)}, or relative ones",
            fix="if you trust it, name the tars in `path`",
        )
    return found


def _store(path: str) -> str:
    parts = urlsplit(path)
    return f"{parts.scheme}://{parts.netloc}/".lower()
