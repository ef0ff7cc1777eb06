"""Objects in S3, Google Cloud Storage, Azure and on web servers: stamped, listed, read by byte range, through obstore.

Requests that fail on the way (a 5xx answer, a lost connection, also in mid-body, a time-out) are sent again, a bounded
number of times. Endpoints and credentials are those of the environment, as obstore documents them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Any

from playhead.errors import DataError
from playhead.fingerprint import digest
from playhead.store.addresses import Address, address_of
from playhead.store.globbing import fixed_part, has_magic, matches
from playhead.store.local import Stamp
from playhead.store.remote_errors import asking, changed

_MOST_RETRIES = 6
_RETRY_SECONDS = 90
MOST_BYTES = 8 << 20  # in a request: obstore gives each 30 seconds
_MARK_DIGITS = 15  # 60 bits: a mark is a signed 64-bit number
_started: list[int] = []  # the process in which obstore's threads run


@dataclass(frozen=True)
class RemoteFile:
    """An object as it was when it was opened. Threads may share one; it holds no connection."""

    path: str
    size: int
    mark: int

    def read(self, offset: int, size: int) -> bytes:
        """The bytes from `offset`, fewer than `size` only at the end. An object that changed since is an error."""
        end = min(offset + size, self.size)
        if end - offset > MOST_BYTES:
            return b"".join(self.read(first, min(MOST_BYTES, end - first)) for first in range(offset, end, MOST_BYTES))
        if end <= offset:
            return b""
        address = address_of(self.path)
        with asking(self.path, address):
            import obstore

            answer = obstore.get(_store(address), address.key, options={"range": (offset, end)})
            found = _stamp(answer.meta)
            data = answer.bytes().to_bytes() if found == self.stamp else b""
        if found != self.stamp:
            raise changed(self.path, *(f"{one.size:,} bytes, mark {one.mark}" for one in (found, self.stamp)))
        return data

    @property
    def stamp(self) -> Stamp:
        return Stamp(self.size, self.mark)


def open_remote(url: str) -> RemoteFile:
    found = stamp_remote(url)
    return RemoteFile(url, found.size, found.mark)


def stamp_remote(url: str) -> Stamp:
    address = address_of(url)
    with asking(url, address):
        import obstore

        return _stamp(obstore.head(_store(address), address.key))


def list_remote(url: str) -> list[str]:
    """The URLs of all objects under a prefix that ends in a whole part of a key, by name."""
    address = _listable(url)
    with asking(url, address):
        import obstore

        pages = obstore.list(_store(address), address.key.rstrip("/") or None)
        keys = sorted(found["path"] for page in pages for found in page)
    return [f"{address.store}/{key}" for key in keys]


def match_remote(pattern: str) -> list[str]:
    """The URLs of the objects that a pattern names, by name; one without a wildcard names itself."""
    address = address_of(pattern)
    if not has_magic(address.key):
        stamp_remote(pattern)
        return [pattern]
    _listable(pattern)
    prefix = f"{address.store}/"
    keys = [url[len(prefix) :] for url in list_remote(prefix + fixed_part(address.key))]
    if address.key in keys:  # its name holds what looks like a wildcard
        return [pattern]
    return [prefix + key for key in keys if matches(key, address.key)]


def _listable(url: str) -> Address:
    address = address_of(url)
    if not address.can_list:
        raise DataError(
            f"{url}: a web server lists nothing",
            expected="the address of each file",
            fix="name the files one by one, or with a brace pattern such as part-{000..127}.jsonl",
        )
    return address


def _stamp(about: Any) -> Stamp:
    """Size, and a mark made of the entity tag; where a store gives none, of the time of the last change."""
    if tag := about["e_tag"]:
        return Stamp(about["size"], int(digest(tag)[:_MARK_DIGITS], 16))
    return Stamp(about["size"], int(about["last_modified"].timestamp() * 1e6))


def _store(address: Address) -> Any:
    """The client of a store. In a fork of a process that already used one it would wait for ever: refused."""
    if not _started:
        _started.append(os.getpid())
    if _started[0] != os.getpid():
        raise DataError(
            f"{address.store}: cannot be read in a fork of a process that reads object stores",
            fix='start worker processes with "spawn" or "forkserver"',
        )
    settings = {name: os.environ[name] for name in sorted(os.environ) if name.startswith(("AWS_", "AZURE_", "GOOGLE_"))}
    return _client(address.store, tuple(settings.items()))


@lru_cache(maxsize=64)
def _client(store: str, environment: tuple[tuple[str, str], ...]) -> Any:  # noqa: ARG001 - obstore reads it itself
    """A client as the environment was when it was made; another environment is another client."""
    from obstore.store import from_url

    backoff = {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=10), "base": 2}
    retries = {"max_retries": _MOST_RETRIES, "retry_timeout": timedelta(seconds=_RETRY_SECONDS), "backoff": backoff}
    if store.startswith("http"):
        return from_url(store, retry_config=retries, client_options={"allow_http": store.startswith("http:")})  # type: ignore[call-overload]
    return from_url(store, retry_config=retries)  # type: ignore[call-overload]
