"""Objects in S3, Google Cloud Storage, Azure and on web servers: stamped, listed, read by byte range, through obstore.

Requests that fail on the way (a 5xx answer, a lost connection, also in mid-body, a time-out) are sent again, a bounded
number of times, after waits that grow and vary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import chain
from typing import Any, Literal

from playhead.errors import DataError, StoreError
from playhead.fingerprint import digest
from playhead.store.addresses import Address, address_of
from playhead.store.clients import Stores, client_of
from playhead.store.files import Buffer, Ranges, Stamp, changed, check_buffers, check_ranges, too_short, vanished
from playhead.store.globbing import fixed_part, has_magic, matches
from playhead.store.pieces import MOST_BYTES, Piece, calls_of, filled, joined, parts_of, pieces_of, read_pieces
from playhead.store.remote_errors import asking
from playhead.store.together import ask_together

_MARK_DIGITS = 15  # 60 bits: a mark is a signed 64-bit number
_MOST_TAGS = 4096
_SHORTER = "416 Range Not Satisfiable"
_tags: dict[int, str] = {}  # by mark: the entity tags that this process has seen


@dataclass(frozen=True)
class RemoteFiles:
    """Objects by URL, with the options of their stores. It holds no connection: clients are shared by the process."""

    stores: Stores = field(default_factory=dict)

    def list(self, pattern: str) -> Sequence[str]:
        address = address_of(pattern)
        if not has_magic(pattern.split("/", 3)[-1]):  # as it was written: %5B is not a wildcard
            self.stamp(pattern)
            return [pattern]
        _listable(pattern)
        prefix = f"{address.store}/"
        keys = [url[len(prefix) :] for url in list_remote(prefix + fixed_part(address.key), self.stores)]
        if address.key in keys:  # its name contains wildcard characters
            return [pattern]
        return [prefix + key for key in keys if matches(key, address.key)]

    def stamp(self, path: str) -> Stamp:
        address = address_of(path)
        with asking(path, address):
            import obstore

            return _stamp_of(path, obstore.head(client_of(address, self.stores), address.key))

    def read(
        self, path: str, stamp: Stamp | None, ranges: Ranges, into: Sequence[memoryview] | None = None
    ) -> Sequence[Buffer]:
        """One request for a range, whose answer says of which object it is; several at a time for several ranges."""
        check_ranges(ranges)
        if into is not None:
            check_buffers(ranges, into)
        if stamp is None:
            stamp = self.stamp(path)
        pieces = pieces_of(path, stamp, ranges, MOST_BYTES)
        if len(pieces) == 1:
            found = [self._one(path, stamp, pieces[0])]
            return joined(ranges, pieces, found) if into is None else filled(into, pieces, found)
        return read_pieces(path, stamp, ranges, into, partial(self._several, path, stamp), partial(self._now, path))

    def _one(self, url: str, stamp: Stamp, piece: Piece) -> Buffer:
        try:
            found, data = self._answer(url, stamp, piece)
        except DataError as error:  # it existed when it was stamped
            raise vanished(url) from error
        if found != stamp:
            raise changed(url, found, stamp)
        if len(data) != piece.size:
            raise too_short(url, piece.first, piece.end, len(data))
        return data

    def _answer(self, url: str, stamp: Stamp, piece: Piece) -> tuple[Stamp, Buffer]:
        from obstore.exceptions import PreconditionError

        address, options = address_of(url), {"range": (piece.first, piece.end)}
        tag = _tags.get(stamp.mark)
        try:
            with asking(url, address, PreconditionError):
                import obstore

                client = client_of(address, self.stores)
                answer = obstore.get(client, address.key, options=options | ({"if_match": tag} if tag else {}))  # type: ignore[arg-type]
                return _stamp_of(url, answer.meta), memoryview(answer.bytes())
        except PreconditionError:
            found = self.stamp(url)
            if found != stamp:
                return found, b""
            _tags.pop(stamp.mark, None)  # a server that knows no condition: the answer's own tag is compared
            return self._answer(url, stamp, piece)
        except StoreError as error:
            if _SHORTER not in str(error.found):
                raise
            return self.stamp(url), b""

    def _several(self, url: str, stamp: Stamp, pieces: Sequence[Piece]) -> Sequence[Buffer]:
        """The bytes of each piece, which may be of another object than the one stamped."""
        calls = [part for call in calls_of(pieces, MOST_BYTES) for part in parts_of(call)]
        answers = ask_together(self, [url] * len(calls), lambda i: self._call(url, stamp, calls[i]))
        found = dict(zip(chain(*calls), chain(*answers), strict=True))
        return [found[piece] for piece in pieces]

    def _call(self, url: str, stamp: Stamp, pieces: Sequence[Piece]) -> Sequence[Buffer]:
        address = address_of(url)
        try:
            with asking(url, address):
                import obstore

                firsts, ends = [piece.first for piece in pieces], [piece.end for piece in pieces]
                client = client_of(address, self.stores)
                answers = obstore.get_ranges(client, address.key, starts=firsts, ends=ends, coalesce=0)
        except DataError as error:
            raise vanished(url) from error
        except StoreError as error:
            if _SHORTER in str(error.found) and (now := self._now(url)) != stamp:
                raise changed(url, now, stamp) from error
            raise
        for piece, answer in zip(pieces, answers, strict=True):
            if len(answer) != piece.size:
                now = self._now(url)
                raise (
                    too_short(url, piece.first, piece.end, len(answer)) if now == stamp else changed(url, now, stamp)
                )
        return [memoryview(answer) for answer in answers]

    def _now(self, url: str) -> Stamp:
        try:
            return self.stamp(url)
        except DataError as error:
            raise vanished(url) from error


def list_remote(url: str, stores: Stores | None = None, doing: Literal["read", "write"] = "read") -> list[str]:
    """The URLs of all objects under a prefix that ends in a whole part of a key, by name."""
    address = _listable(url)
    with asking(url, address, doing=doing):
        import obstore

        pages = obstore.list(client_of(address, stores or {}), address.key.rstrip("/") or None)
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


def _stamp_of(url: str, about: Any) -> Stamp:
    """Size, and a mark made from the entity tag or, without one, from the time of the last change."""
    tag = about["e_tag"]
    if not tag:
        mark = int(about["last_modified"].timestamp() * 1e6)
        if not mark:  # what obstore has in place of a header that is not there
            raise StoreError(
                f"{url}: its server does not say what distinguishes a changed object",
                found="neither ETag nor Last-Modified in its answer",
                expected="one of them: another file of the same size would not be noticed",
                fix="set up the server to send one, or copy the file to a bucket or a disk",
            )
        return Stamp(about["size"], mark)
    mark = mark_of(tag)
    if mark not in _tags and not tag.startswith("W/"):  # a weak tag never matches a condition
        if len(_tags) >= _MOST_TAGS:
            _tags.clear()
        _tags[mark] = tag
    return Stamp(about["size"], mark)


@lru_cache(maxsize=_MOST_TAGS)
def mark_of(tag: str) -> int:
    """A mark from the text by which a store distinguishes the versions of an object."""
    return int(digest(tag)[:_MARK_DIGITS], 16)
