"""The members of a tar, by reading its headers only: ustar, PAX and GNU, from one end to the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from msgspec import Struct

from playhead.errors import DataError
from playhead.formats.tar_blocks import TarBlocks
from playhead.store import Buffer, File, requests_cost

BLOCK = 512
_GZIP = b"\x1f\x8b"
_AHEAD = 1 << 14
_LONGEST_EXTENSION = 1 << 20
_REGULAR = b"0\0" + b"7"
_LINKS = (b"1", b"2")
_GNU_NAME, _GNU_LINK, _PAX, _PAX_GLOBAL, _SPARSE = b"L", b"K", b"x", b"g", b"S"


class TarBytes(Protocol):
    """A tar file, or a part of one in memory."""

    @property
    def path(self) -> str: ...

    @property
    def size(self) -> int: ...

    def read(self, offset: int, size: int) -> bytes: ...


class TarMember(Struct, frozen=True):
    """A regular file in a tar: `first` is its first header, extension headers included; `data` its first byte."""

    name: str
    first: int
    data: int
    size: int

    @property
    def end(self) -> int:
        return self.data + -(-self.size // BLOCK) * BLOCK


class Hints(Protocol):
    """Parts of a tar that are already read, or read together with others."""

    def window(self, offset: int, size: int) -> tuple[int, Buffer] | None:
        """Bytes that include the requested ones, and the offset of the first; None if they must be read."""


class TarReader:
    """Reads a little ahead, so that small members need no separate read; of a file on a network, in large blocks."""

    def __init__(
        self, file: TarBytes, *, needs_end: bool = False, ahead: int = _AHEAD, hints: Hints | None = None
    ) -> None:
        self.file = file
        if isinstance(file, File) and hints is None and requests_cost(file.files, file.path):
            self.file = TarBlocks(file)
        self._hints = hints
        self._ahead_bytes = ahead
        self._needs_end = needs_end
        self._base = 0
        self._ahead: Buffer = b""

    def read(self, offset: int, size: int) -> bytes:
        inside = offset - self._base
        if inside < 0 or inside + size > len(self._ahead):
            known = None if self._hints is None else self._hints.window(offset, size)
            if known is None:
                known = offset, self.file.read(offset, max(size, self._ahead_bytes))
            self._base, self._ahead = known
            inside = offset - self._base
        return bytes(self._ahead[inside : inside + size])

    def members(self) -> Iterator[TarMember]:
        """The regular files in order. Law: a tar that ends early is an error, never a shorter list."""
        position, first = 0, 0
        name: str | None = None
        size: int | None = None
        while (header := self._header(position)) is not None:
            kind = header[156:157]
            own_size = _number(header[124:136], self.file, position)
            data = position + BLOCK
            if kind in (_GNU_NAME, _GNU_LINK, _PAX, _PAX_GLOBAL):
                content = self._extension(data, own_size, position)
                if kind == _GNU_NAME:
                    name = _text(content.rstrip(b"\0"))
                elif kind == _PAX:
                    name, size = _pax(content, name, size, f"{self.file.path}, byte {position:,}")
                position = data + -(-own_size // BLOCK) * BLOCK
                first = position if kind == _PAX_GLOBAL else first
                continue
            member = TarMember(name or _name(header), first, data, own_size if size is None else size)
            if kind == _SPARSE:
                raise DataError(f"{self.file.path}, byte {first:,}: sparse member", found=member.name)
            if kind in _LINKS:
                raise DataError(
                    f'{self.file.path}, byte {first:,}: member "{member.name}" is a link',
                    found="a link to another file, without its own bytes",
                    expected="regular files",
                    fix="write the shard again with links followed: tar --hard-dereference -h",
                )
            if kind in _REGULAR and not member.name.endswith("/"):
                self._check_whole(member)
                yield member
                position = member.end
            else:
                # Directories and devices have no data, whatever their size says.
                position = data
            first, name, size = position, None, None

    def _header(self, position: int) -> bytes | None:
        """The header at a position; None at the end of the archive."""
        header = self.read(position, BLOCK)
        if position == 0 and header.startswith(_GZIP):
            raise DataError(
                f"{self.file.path}: is compressed",
                found="gzip",
                expected="a plain tar: members of a compressed one cannot be read by their offset",
                fix="unpack it with `gzip --decompress`; its members may be compressed themselves",
            )
        if len(header) == BLOCK and header.count(0) == BLOCK:
            self._check_nothing_follows(position)
            return None
        if not header and not self._needs_end:
            return None
        if not header:
            raise DataError(
                f"{self.file.path}, byte {position:,}: the tar is truncated, or its writer was killed",
                found="no blocks of zeros at its end",
                expected="the end marker of a tar",
                fix="write the shard again; if it is whole, add `options: {allow_no_end: true}` to the source",
            )
        if len(header) < BLOCK:
            raise _truncated(self.file, position, "a header", BLOCK)
        if _checksum(header) != _number(header[148:156], self.file, position):
            raise DataError(
                f"{self.file.path}, byte {position:,}: not a tar header",
                found=f"bytes {header[:16]!r}..., whose checksum is wrong",
                expected="an uncompressed tar",
                fix="write the shard again; a compressed one must be decompressed first",
            )
        return header

    def _check_nothing_follows(self, position: int) -> None:
        """Refuse a tar with data after its end marker, such as two concatenated tars: the second would be lost."""
        while data := self.file.read(position, _AHEAD):
            if data.count(0) != len(data):
                raise DataError(
                    f"{self.file.path}, byte {position:,}: data after the end marker of the tar",
                    expected="nothing but zeros",
                    fix="join tars with `tar --concatenate`, not with cat; or write the shard again",
                )
            position += len(data)

    def _extension(self, data: int, size: int, position: int) -> bytes:
        content = self.read(data, size) if size <= _LONGEST_EXTENSION else b""
        if len(content) < size:
            raise _truncated(self.file, position, "an extended header", size)
        return content

    def _check_whole(self, member: TarMember) -> None:
        if member.data + member.size > self.file.size:
            raise _truncated(self.file, member.first, f'member "{member.name}"', member.size)


def _truncated(file: TarBytes, position: int, what: str, size: int) -> DataError:
    return DataError(
        f"{file.path}, byte {position:,}: the tar is truncated in {what}",
        found=f"a file of {file.size:,} bytes",
        expected=f"{size:,} bytes more for it",
        fix="copy or write the shard again",
    )


def _checksum(header: bytes) -> int:
    return sum(header) - sum(header[148:156]) + 8 * 32


def _number(field: bytes, file: TarBytes, position: int) -> int:
    """Octal text, or (GNU) a binary number after a byte 0x80."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    text = field.split(b"\0", 1)[0].strip()
    try:
        return int(text or b"0", 8)
    except ValueError as error:
        problem = f"{file.path}, byte {position:,}: not a tar header"
        raise DataError(problem, found=f"the number {field!r}") from error


def _name(header: bytes) -> str:
    name = header[:100].split(b"\0", 1)[0]
    # GNU tars keep other fields where ustar has a prefix.
    prefix = header[345:500].split(b"\0", 1)[0] if header[257:263] == b"ustar\0" else b""
    return _text(prefix + b"/" + name if prefix else name)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _pax(content: bytes, name: str | None, size: int | None, where: str) -> tuple[str | None, int | None]:
    """The path and the size among the records, each "<length> <key>=<value>" and a newline."""
    position = 0
    while position < len(content) and content[position] != 0:
        length, _, _ = content[position : position + 20].partition(b" ")
        if not length.isdigit() or int(length) <= len(length):
            raise DataError(f"{where}: broken extended header", found=repr(content[position : position + 20]))
        key, _, value = content[position + len(length) + 1 : position + int(length) - 1].partition(b"=")
        if key == b"path":
            name = _text(value)
        elif key == b"size":
            size = int(value)
        position += int(length)
    return name, size
