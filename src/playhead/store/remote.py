"""Objects in S3, Google Cloud Storage, Azure and on web servers: stamped, listed, read by byte range, through obstore.

Requests that fail on the way (a 5xx answer, a lost connection, also in mid-body, a time-out) are sent again, a bounded
number of times. Endpoints and credentials are those of the environment, as obstore documents them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import timedelta
from functools import lru_cache
from typing import Any

from playhead.errors import DataError, StoreError
from playhead.fingerprint import digest
from playhead.store.addresses import Address, address_of
from playhead.store.files import Buffer, Ranges, Stamp, changed, check_buffers, check_ranges, too_short, vanished
from playhead.store.globbing import fixed_part, has_magic, matches
from playhead.store.remote_errors import asking

_MOST_RETRIES = 6
_RETRY_SECONDS = 90
_REQUEST_SECONDS = 30  # also the default time-out of obstore for buckets
MOST_BYTES = 8 << 20  # per request: it must finish before the time-out
_MARK_DIGITS = 15  # 60 bits: a mark is a signed 64-bit number
_SHORTER = "416 Range Not Satisfiable"
_started: list[int] = []  # the process in which obstore's threads run


class RemoteFiles:
    """Objects by URL. It holds no connection: clients are shared by the whole process."""

    def list(self, pattern: str) -> Sequence[str]:
        address = address_of(pattern)
        if not has_magic(pattern.split("/", 3)[-1]):  # as it was written: %5B is not a wildcard
            self.stamp(pattern)
            return [pattern]
        _listable(pattern)
        prefix = f"{address.store}/"
        keys = [url[len(prefix) :] for url in list_remote(prefix + fixed_part(address.key))]
        if address.key in keys:  # its name contains wildcard characters
            return [pattern]
        return [prefix + key for key in keys if matches(key, address.key)]

    def stamp(self, path: str) -> Stamp:
        address = address_of(path)
        with asking(path, address):
            import obstore

            return _stamp_of(obstore.head(_store(address), address.key))

    def read(
        self, path: str, stamp: Stamp | None, ranges: Ranges, into: Sequence[memoryview] | None = None
    ) -> Sequence[Buffer]:
        """A request for each range, several for a long one, none for an empty one."""
        check_ranges(ranges)
        if into is not None:
            check_buffers(ranges, into)
        if stamp is None:
            stamp = self.stamp(path)
        if into is None:
            return [b"".join(_pieces(path, stamp, first, end)) for first, end in zip(*ranges, strict=True)]
        for buffer, first, end in zip(into, *ranges, strict=True):
            size = 0
            for piece in _pieces(path, stamp, first, end):
                buffer[size : size + len(piece)] = piece
                size += len(piece)
        return into


def _pieces(url: str, stamp: Stamp, first: int, end: int) -> Iterator[bytes]:
    if end > max(first, stamp.size):
        raise too_short(url, first, end, max(0, stamp.size - first))
    address = address_of(url)
    for low in range(first, end, MOST_BYTES):
        yield _piece(url, address, stamp, low, min(low + MOST_BYTES, end))


def _piece(url: str, address: Address, stamp: Stamp, first: int, end: int) -> bytes:
    try:
        found, data = _answer(url, address, first, end)
    except DataError as error:  # it existed when it was stamped
        raise vanished(url) from error
    if found != stamp:
        raise changed(url, found, stamp)
    if len(data) != end - first:
        raise too_short(url, first, end, len(data))
    return data


def _answer(url: str, address: Address, first: int, end: int) -> tuple[Stamp, bytes]:
    try:
        with asking(url, address):
            import obstore

            answer = obstore.get(_store(address), address.key, options={"range": (first, end)})
            return _stamp_of(answer.meta), answer.bytes().to_bytes()
    except StoreError as error:
        if _SHORTER not in str(error.found):
            raise
        return RemoteFiles().stamp(url), b""


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
            f"{url}: web servers cannot list files",
            expected="the address of each file",
            fix="name the files one by one, or with a brace pattern such as part-{000..127}.jsonl",
        )
    return address


def _stamp_of(about: Any) -> Stamp:
    """Size, and a mark made from the entity tag or, without one, from the time of the last change."""
    if tag := about["e_tag"]:
        return Stamp(about["size"], int(digest(tag)[:_MARK_DIGITS], 16))
    return Stamp(about["size"], int(about["last_modified"].timestamp() * 1e6))


def _store(address: Address) -> Any:
    """The client of a store. Refused in a fork of a process that already used one: it would hang."""
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
    """A client for the current environment; a changed environment gets another client."""
    from obstore.store import from_url

    backoff = {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=10), "base": 2}
    retries = {"max_retries": _MOST_RETRIES, "retry_timeout": timedelta(seconds=_RETRY_SECONDS), "backoff": backoff}
    if store.startswith("http"):
        options = {"allow_http": store.startswith("http:"), "timeout": timedelta(seconds=_REQUEST_SECONDS)}
        return from_url(store, retry_config=retries, client_options=options)  # type: ignore[call-overload]
    return from_url(store, retry_config=retries)  # type: ignore[call-overload]
