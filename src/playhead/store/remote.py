"""Objects in S3, Google Cloud Storage, Azure and on web servers: stamped, listed, read by byte range, through obstore.

Requests that fail on the way (a 5xx answer, a lost connection, also in mid-body, a time-out) are sent again, a bounded
number of times. Endpoints and credentials are those of the environment, as obstore documents them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from functools import lru_cache
from typing import Any

from playhead.errors import DataError, StoreError
from playhead.fingerprint import digest
from playhead.store.addresses import Address, address_of
from playhead.store.files import Buffer, Ranges, Stamp, changed, too_short, vanished
from playhead.store.globbing import fixed_part, has_magic, matches
from playhead.store.remote_errors import asking

_MOST_RETRIES = 6
_RETRY_SECONDS = 90
MOST_BYTES = 8 << 20  # in a request: obstore gives each 30 seconds
_MARK_DIGITS = 15  # 60 bits: a mark is a signed 64-bit number
_started: list[int] = []  # the process in which obstore's threads run


class RemoteFiles:
    """Objects by URL. It holds no connection: clients are shared by the whole process."""

    def list(self, pattern: str) -> Sequence[str]:
        address = address_of(pattern)
        if not has_magic(address.key):
            self.stamp(pattern)
            return [pattern]
        _listable(pattern)
        prefix = f"{address.store}/"
        keys = [url[len(prefix) :] for url in list_remote(prefix + fixed_part(address.key))]
        if address.key in keys:  # its name holds what looks like a wildcard
            return [pattern]
        return [prefix + key for key in keys if matches(key, address.key)]

    def stamp(self, path: str) -> Stamp:
        address = address_of(path)
        with asking(path, address):
            import obstore

            return _stamp(obstore.head(_store(address), address.key))

    def read(
        self, path: str, stamp: Stamp | None, ranges: Ranges, into: Sequence[memoryview] | None = None
    ) -> Sequence[Buffer]:
        """A request for each range, several for a long one."""
        if stamp is None:
            stamp = self.stamp(path)
        address = address_of(path)
        found = [_range(path, address, stamp, first, end) for first, end in zip(*ranges, strict=True)]
        if into is None:
            return found
        for buffer, data in zip(into, found, strict=True):
            buffer[: len(data)] = data
        return into


def _range(url: str, address: Address, stamp: Stamp, first: int, end: int) -> bytes:
    if end > stamp.size:
        raise too_short(url, first, end, max(0, stamp.size - first))
    pieces = [(low, min(low + MOST_BYTES, end)) for low in range(first, end, MOST_BYTES)]
    if len(pieces) == 1:
        return _piece(url, address, stamp, *pieces[0])
    return b"".join(_piece(url, address, stamp, *piece) for piece in pieces)


def _piece(url: str, address: Address, stamp: Stamp, first: int, end: int) -> bytes:
    try:
        with asking(url, address):
            import obstore

            answer = obstore.get(_store(address), address.key, options={"range": (first, end)})
            found = _stamp(answer.meta)
            data = answer.bytes().to_bytes() if found == stamp else b""
    except DataError as error:  # it was there when it was stamped
        raise vanished(url) from error
    if found != stamp:
        raise changed(url, found, stamp)
    return data


def list_remote(url: str) -> list[str]:
    """The URLs of all objects under a prefix that ends in a whole part of a key, by name."""
    address = _listable(url)
    with asking(url, address):
        import obstore

        pages = obstore.list(_store(address), address.key.rstrip("/") or None)
        keys = sorted(found["path"] for page in pages for found in page)
    return [f"{address.store}/{key}" for key in keys]


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
        raise StoreError(
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
