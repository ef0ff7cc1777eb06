"""Objects written to stores so that two writers cannot mix: created where there is none, or replaced if unchanged.

An object is written whole or not at all. A request whose answer was lost is sent again; an object that is there then,
with the bytes that were sent, is the one that was written.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from playhead.errors import DataError, RecipeError, StoreError
from playhead.store.addresses import Address, address_of, is_store_url
from playhead.store.clients import (
    FIRST_WAIT_SECONDS,
    LONGEST_WAIT_SECONDS,
    MOST_RETRIES,
    NO_STORES,
    RETRY_SECONDS,
    Stores,
    client_of,
)
from playhead.store.files import Files, open_file
from playhead.store.pieces import MOST_BYTES
from playhead.store.remote import RemoteFiles, list_remote
from playhead.store.remote_errors import NoAnswerError, asking

WRITABLE = ("s3", "gs", "az", "abfs", "abfss")
LARGE_BYTES = 1 << 28  # sent in parts, which no store can make conditional; smaller ones are held in memory

R = TypeVar("R")
Version = dict[str, str]  # by which a store distinguishes the versions of an object


def is_writable(url: str) -> bool:
    """Whether a URL is in a store that objects can be written to: not on a web server, in AIStore or in memory."""
    return is_store_url(url) and address_of(url).scheme in WRITABLE


def check_writable(url: str) -> Address:
    """The address of a place that objects can be written to; any other is refused by its name."""
    if not is_writable(url):
        raise RecipeError(
            f"{url}: cannot be written to",
            expected="a bucket or container, as in " + ", ".join(f"{scheme}://" for scheme in WRITABLE[:3]),
            fix="write to one of these, or to a directory and copy it",
        )
    return address_of(url)


def version_of(url: str, stores: Stores = NO_STORES) -> Version | None:
    """The version of an object as it is now; None if there is none."""
    address = check_writable(url)
    try:
        with asking(url, address, doing="write"):  # it is asked before it is written
            import obstore

            return _version(obstore.head(client_of(address, stores), address.key))
    except DataError:
        return None


def read_object(url: str, stores: Stores = NO_STORES) -> tuple[bytes, Version] | None:
    """The bytes of a small object and the version that they are of; None if there is none."""
    address = check_writable(url)
    try:
        with asking(url, address, doing="write"):  # it is asked before it is written
            import obstore

            answer = obstore.get(client_of(address, stores), address.key)
            return answer.bytes().to_bytes(), _version(answer.meta)
    except DataError:
        return None


def create(url: str, content: bytes | Path, stores: Stores = NO_STORES) -> bool:
    """Write an object where there is none; whether it was written. One with the same bytes counts as written.

    A large file is sent in parts if no object is there when it begins: it is kept from mixing with another writer's by
    who calls this, with an object of its own that only one can create.
    """
    if isinstance(content, Path) and content.stat().st_size > LARGE_BYTES:
        if version_of(url, stores) is not None:
            return is_same(url, content, stores)
        _put(url, content, {"use_multipart": True}, stores)
        return True
    return _put(url, _held(content), {"mode": "create"}, stores) or is_same(url, content, stores)


def replace(url: str, content: bytes | Path, version: Version, stores: Stores = NO_STORES) -> None:
    """Write an object in place of the version given. If another is there by now, it is a StoreError."""
    if isinstance(content, Path) and content.stat().st_size > LARGE_BYTES:
        if version_of(url, stores) != version:
            raise _lost(url)
        _put(url, content, {"use_multipart": True}, stores)
    elif not _put(url, _held(content), {"mode": version}, stores) and not is_same(url, content, stores):
        raise _lost(url)


def remove(url: str, stores: Stores = NO_STORES) -> None:
    """Remove an object; there may be none."""
    address = check_writable(url)
    try:
        with asking(url, address, doing="write"):
            import obstore

            obstore.delete(client_of(address, stores), address.key)
    except DataError:
        return


def is_same(url: str, content: bytes | Path, stores: Stores = NO_STORES) -> bool:
    """Whether an object has these bytes: its size is compared, then every byte."""
    try:
        there = open_file(RemoteFiles(stores), url)
    except DataError:
        return False
    if isinstance(content, bytes):
        return there.size == len(content) and b"".join(there.pieces()) == content
    if there.size != content.stat().st_size:
        return False
    with content.open("rb") as file:
        return all(piece == file.read(len(piece)) for piece in there.pieces(MOST_BYTES))


def names_under(url: str, stores: Stores = NO_STORES) -> list[str]:
    """The names of the objects directly under a prefix."""
    check_writable(url)
    prefix = f"{url.rstrip('/')}/"
    names = [found[len(prefix) :] for found in list_remote(prefix, stores, "write")]
    return [name for name in names if "/" not in name]


def options_of(files: object) -> Stores:
    """The options of stores that a storage was made with, also one inside wrappers."""
    while files is not None:
        if isinstance(files, RemoteFiles):
            return files.stores
        files = getattr(files, "remote", None) or getattr(files, "files", None)
    return NO_STORES


def write_object(url: str, content: bytes, files: Files | None) -> None:
    """Create an object, or replace what is there; another writer in the meantime is an error."""
    stores = options_of(files)
    version = version_of(url, stores)
    if version is not None:
        replace(url, content, version, stores)
    elif not create(url, content, stores):
        raise _lost(url)


def _held(content: bytes | Path) -> bytes:
    return content if isinstance(content, bytes) else content.read_bytes()


def _version(about: Any) -> Version:
    return {name: about[name] for name in ("e_tag", "version") if about.get(name)}


def _put(url: str, content: bytes | Path, how: dict[str, Any], stores: Stores) -> bool:
    """Whether it was written: False if the condition did not hold."""
    from obstore.exceptions import AlreadyExistsError, PreconditionError

    address = check_writable(url)

    def put() -> bool:
        try:
            with asking(url, address, (AlreadyExistsError, PreconditionError), doing="write"):
                import obstore

                obstore.put(client_of(address, stores), address.key, content, **how)
        except (AlreadyExistsError, PreconditionError):
            return False
        return True

    return _again(put)


def _again(put: Callable[[], R]) -> R:
    """Clients do not repeat a conditional request whose answer was lost: here what was written is compared."""
    end, wait = time.monotonic() + RETRY_SECONDS, FIRST_WAIT_SECONDS
    for _ in range(MOST_RETRIES):
        with suppress(NoAnswerError):
            return put()
        if time.monotonic() > end:
            break
        time.sleep(wait * random.uniform(0.5, 1.0))  # noqa: S311 - no secret
        wait = min(2 * wait, LONGEST_WAIT_SECONDS)
    return put()


def _lost(url: str) -> StoreError:
    return StoreError(
        f"{url}: another writer was there first",
        found="an object that was not there before, or that has changed since",
        expected="one writer at a time",
        fix="see that nothing else writes there, and run it again",
    )
