"""The bytes of a medium: its beginning is read at once, the rest on demand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from playhead.formats.media import Media
from playhead.read.media_rules import MediaRules, too_large
from playhead.store import Buffer, Extent, File, Files, Ranges, open_file, requests_cost
from playhead.store.addresses import without_query

_HEAD_BYTES = 1 << 14
_WHOLE_BYTES = 1 << 20  # a file up to this size that is needed whole is read at once
_WHOLE_LOCAL_BYTES = 1 << 16


@dataclass(frozen=True)
class MediaBytes:
    """The bytes of a medium: its beginning in memory, the rest (if any) in the file, from byte `base` on.

    With `kept`, ranges that were read are kept there, and not requested again.
    """

    path: str
    size: int
    head: Buffer
    file: File | None = None
    base: int = 0
    kept: dict[tuple[int, int], Buffer] | None = None

    def read(self, offset: int, size: int) -> Buffer:
        end = min(offset + size, self.size)
        if self.file is None or end <= len(self.head):
            return self.head[offset:end]
        if self.kept is not None:
            return self.ranges([(offset, end)])[0] if offset < end else b""
        return self.file.read(self.base + offset, end - offset)

    def extents(self, wanted: Sequence[tuple[int, int]]) -> list[Extent] | None:
        """All ranges as they are in the file; None if a later read costs a round trip or they are in memory."""
        if self.file is None or all(end <= len(self.head) for _, end in wanted):
            return None
        if requests_cost(self.file.files, self.file.path):
            return None
        return [Extent(self.file, self.base + first, self.base + end) for first, end in wanted]

    def ranges(self, wanted: Sequence[tuple[int, int]]) -> Sequence[Buffer]:
        """All ranges, in one request to the storage, or none."""
        if self.file is None or all(end <= len(self.head) for _, end in wanted):
            view = memoryview(self.head)
            return [view[first:end] for first, end in wanted]
        if self.kept is not None:
            unread = [bounds for bounds in dict.fromkeys(wanted) if bounds not in self.kept]
            self.kept.update(zip(unread, replace(self, kept=None).ranges(unread), strict=True) if unread else ())
            return [self.kept[bounds] for bounds in wanted]
        firsts, ends = [self.base + first for first, _ in wanted], [self.base + end for _, end in wanted]
        return self.file.files.read(self.file.path, self.file.stamp, Ranges(firsts, ends))


def open_media(files: Files, path: str, *, whole: bool = False, keeps: bool = False) -> MediaBytes:
    """A file with its beginning read: the header, or all of a small file if it is needed `whole`.

    One that `keeps` what is read of it is never requested twice.
    """
    file = open_file(files, path)
    most = _WHOLE_BYTES if requests_cost(files, path) else _WHOLE_LOCAL_BYTES
    size = file.size if whole and file.size <= most else _HEAD_BYTES
    return MediaBytes(without_query(path), file.size, file.read(0, size), file, kept={} if keeps else None)


def media_bytes(path: str, data: bytes | Extent) -> MediaBytes:
    """A medium that a row holds."""
    if isinstance(data, Extent):
        return MediaBytes(path, data.size, data.head, data.file, data.first)
    return MediaBytes(path, len(data), data)


def open_medium(media: Media, files: Files, rules: MediaRules, field: str) -> MediaBytes:
    """The medium in a field of a row, with its beginning read; one that the rules do not allow is a SampleError."""
    if media.data is None:
        return open_media(files, rules.resolve(media))
    return media_bytes(f'the bytes in "{field}"' if media.path is None else without_query(media.path), media.data)


def all_bytes(source: MediaBytes, rules: MediaRules) -> bytes:
    """A medium whole, of which at most as many bytes are read as the rules allow."""
    if source.size > rules.max_bytes:
        raise too_large(source.path, f"{source.size:,} bytes", f"at most {rules.max_bytes:,}", "max_bytes")
    return bytes(source.read(0, source.size))
