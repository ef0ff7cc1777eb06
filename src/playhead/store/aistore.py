"""Objects in AIStore, `ais://bucket/object`, through the gateway of AIS_ENDPOINT: stamped, listed, read by range.

The gateway answers a request with a redirect to the node that holds the object. Only such a redirect is followed: one
from the endpoint itself, not to a link-local address, and not from https to http. The token goes along.
AIStore's batch call (GetBatch) is not used: ranges of an object are requests of their own, several in flight.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import quote

import msgspec

from playhead.errors import DataError, StoreError
from playhead.store.addresses import address_of
from playhead.store.ais_requests import Answer, ask, gateway_of
from playhead.store.clients import AIS_ENDPOINT, Stores
from playhead.store.files import Buffer, Ranges, Stamp, changed, check_buffers, check_ranges, too_short, vanished
from playhead.store.globbing import fixed_part, has_magic, matches
from playhead.store.pieces import Piece, read_pieces
from playhead.store.remote import mark_of
from playhead.store.together import ask_together

_MEMBER = re.compile(r"(.*?\.(?:tar|tgz|tar\.gz|tar\.lz4|zip))/.+", re.DOTALL)
_PAGE_OBJECTS = 1000
_MSGPACK = "application/msgpack"
_VERSIONS = ("ais-checksum-value", "ais-version", "ETag", "Last-Modified")


@dataclass(frozen=True)
class AistoreFiles:
    """Objects by URL, with the options of their buckets. Connections are shared by the process."""

    stores: Stores = field(default_factory=dict)

    def list(self, pattern: str) -> Sequence[str]:
        address = address_of(pattern)
        if not has_magic(address.key):
            self.stamp(pattern)
            return [pattern]
        names = sorted(self._names(pattern, fixed_part(address.key)))
        if address.key in names:  # its name contains wildcard characters
            return [pattern]
        return [f"{address.store}/{name}" for name in names if matches(name, address.key)]

    def stamp(self, path: str) -> Stamp:
        answer = self._ask("HEAD", path)
        if answer.status == 404:
            raise _missing(path)
        return _stamp_of(path, answer.expect(path, 200))

    def read(
        self, path: str, stamp: Stamp | None, ranges: Ranges, into: Sequence[memoryview] | None = None
    ) -> Sequence[Buffer]:
        """Requests for the ranges, several in flight, and one that asks whether the object changed."""
        check_ranges(ranges)
        if into is not None:
            check_buffers(ranges, into)
        if stamp is None:
            stamp = self.stamp(path)
        now = partial(self._now, path)
        return read_pieces(path, stamp, ranges, into, partial(self._pieces, path, stamp), now)

    def _pieces(self, path: str, stamp: Stamp, pieces: Sequence[Piece]) -> Sequence[Buffer]:
        return ask_together(self, [path] * len(pieces), lambda i: self._piece(path, stamp, pieces[i]))

    def _piece(self, path: str, stamp: Stamp, piece: Piece) -> bytes:
        answer = self._ask("GET", path, {"Range": f"bytes={piece.first}-{piece.end - 1}"})
        if answer.status == 404:
            raise vanished(path)
        body = b"" if answer.status == 416 else answer.expect(path, 206, 200).body
        if answer.status == 200 and piece.size != len(body):
            raise StoreError(
                f"{path}: its server does not support byte ranges",
                found=f"{len(body):,} bytes in answer to a range of {piece.size:,}",
                expected="a gateway and nodes of AIStore, which answer Range requests",
                fix=f"check {AIS_ENDPOINT}",
            )
        if len(body) != piece.size:
            now = self._now(path)
            raise too_short(path, piece.first, piece.end, len(body)) if now == stamp else changed(path, now, stamp)
        where = answer.headers.get("Content-Range", "")
        if answer.status == 206 and not where.startswith(f"bytes {piece.first}-{piece.end - 1}/"):
            raise StoreError(
                f"{path}: its node answered with another range",
                found=f"Content-Range: {where}" if where else "no Content-Range",
                expected=f"bytes {piece.first}-{piece.end - 1}",
                fix=f"check {AIS_ENDPOINT}; and that what is between here and the cluster leaves its answers alone",
            )
        return body

    def _now(self, path: str) -> Stamp:
        try:
            return self.stamp(path)
        except DataError as error:
            raise vanished(path) from error

    def _names(self, pattern: str, prefix: str) -> Sequence[str]:
        """The names of all objects that begin with a prefix, page by page."""
        address = address_of(pattern)
        gateway = gateway_of(address, self.stores)
        found: list[str] = []
        page = {"uuid": "", "continuation_token": ""}
        while True:
            value = {"prefix": prefix, "pagesize": _PAGE_OBJECTS, "props": "name,size", "flags": "0", **page}
            body = msgspec.json.encode({"action": "list", "name": "", "value": value})
            headers = {"Content-Type": "application/json", "Accept": _MSGPACK}
            bucket = address.store.partition("://")[2]
            answer = ask(pattern, gateway, "GET", f"/v1/buckets/{quote(bucket)}", headers, body)
            if answer.status == 404:
                raise DataError(f"{address.store}: no such bucket", fix="correct the address")
            before = page["continuation_token"]
            names, page = _page(pattern, answer.expect(pattern, 200))
            found += names
            if not page["continuation_token"]:
                return found
            if page["continuation_token"] == before:
                raise _no_listing(pattern, "a page that continues with itself")

    def _ask(self, method: str, path: str, headers: dict[str, str] | None = None) -> Answer:
        address = address_of(path)
        bucket = address.store.partition("://")[2]
        where = f"/v1/objects/{quote(bucket)}/{quote(address.key)}"
        return ask(path, gateway_of(address, self.stores), method, where, headers or {})


def _page(pattern: str, answer: Answer) -> tuple[list[str], dict[str, str]]:
    """The names in an answer to a listing, and what to ask for the next with: MessagePack and JSON name them apart."""
    binary = answer.headers.get("Content-Type", "").startswith(_MSGPACK)
    names = (
        ("UUID", "ContinuationToken", "Entries", "n") if binary else ("uuid", "continuation_token", "entries", "name")
    )
    try:
        found: Any = (msgspec.msgpack if binary else msgspec.json).decode(answer.body)
        entries = [entry[names[3]] for entry in found.get(names[2]) or []]
        return entries, {"uuid": found.get(names[0], ""), "continuation_token": found.get(names[1], "")}
    except (msgspec.DecodeError, KeyError, AttributeError, TypeError):
        raise _no_listing(pattern, "an answer that is not a listing of AIStore") from None


def _no_listing(pattern: str, found: str) -> StoreError:
    return StoreError(
        f"{pattern}: cannot be listed",
        found=found,
        fix=f"check {AIS_ENDPOINT}: it is the address of a gateway, as in http://ais.example:51080",
    )


def _stamp_of(path: str, answer: Answer) -> Stamp:
    """Size, and a mark made from the checksum and version of an object, or what else says that it changed."""
    size = answer.headers.get("Content-Length", "")
    versions = [f"{name}={answer.headers[name]}" for name in _VERSIONS if answer.headers.get(name)]
    if not size.isdecimal() or not versions:
        raise StoreError(
            f"{path}: its gateway does not say what distinguishes a changed object",
            expected=f"a size, and one of {', '.join(_VERSIONS)}",
            fix=f"check {AIS_ENDPOINT}; and that checksums or versioning are on for the bucket",
        )
    return Stamp(int(size), mark_of(" ".join(versions)))


def _missing(path: str) -> DataError:
    address = address_of(path)
    member = _MEMBER.fullmatch(address.key)
    if member is None:
        return DataError(f"{path}: no such object", fix="correct the address, or restore the object")
    return DataError(
        f"{path}: no such object",
        found="an address that looks like a member of an archive",
        expected=f"the archive itself, {address.store}/{member[1]}",
        fix="name the archive: the formats webdataset and nemo_tarred read its members by range",
    )
