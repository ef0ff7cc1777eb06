"""Images by Pillow: opened by what they begin with, their size read from the header.

Only these decoders of Pillow are reached, never one that starts another program, and each directly: `Image.open` would
compare sizes with a limit of the whole process, and warn.
"""

from __future__ import annotations

import io
import struct
from importlib import import_module
from typing import Any, BinaryIO, NamedTuple

from playhead.errors import PlayheadError, RecipeError, SampleError
from playhead.read.codecs import MediaStream
from playhead.read.wav import NoDecoderError, Readable
from playhead.store import Buffer

_BUFFER_BYTES = 1 << 14
_LONGEST_HEADER = 1 << 26
_ORIENTATION = 0x0112  # of EXIF
_TURNED = (5, 6, 7, 8)  # orientations that swap width and height


class _Container(NamedTuple):
    """What the first bytes of files are, and the class of Pillow that opens them."""

    magics: tuple[bytes, ...]
    module: str
    opens: str


_CONTAINERS = {
    "JPEG": _Container((b"\xff\xd8\xff",), "JpegImagePlugin", "JpegImageFile"),
    "PNG": _Container((b"\x89PNG\r\n\x1a\n",), "PngImagePlugin", "PngImageFile"),
    "GIF": _Container((b"GIF87a", b"GIF89a"), "GifImagePlugin", "GifImageFile"),
    "WebP": _Container((b"RIFF",), "WebPImagePlugin", "WebPImageFile"),
    "BMP": _Container((b"BM",), "BmpImagePlugin", "BmpImageFile"),
    "TIFF": _Container((b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"), "TiffImagePlugin", "TiffImageFile"),
}


def image_size(source: Readable) -> tuple[int, int]:
    """The width and height that an image has in samples, of which only the header is read.

    Where an EXIF orientation stands before the pixels (JPEG, TIFF) it is taken into account; in PNG and WebP it may
    come after them, and the size is the one stored. A broken header is a SampleError.
    """
    container = _container(source)
    stream = MediaStream(_Header(source))
    file: BinaryIO = io.BufferedReader(stream, _BUFFER_BYTES)
    try:
        if container in _SIZES:
            return _SIZES[container](file)
        image = _opened(container, file)
        width, height = image.size
        turned = container == "JPEG" and image.getexif().get(_ORIENTATION) in _TURNED
    except (PlayheadError, MemoryError):
        raise
    except Exception as error:  # broken bytes make Pillow raise nearly anything
        raise stream.problem or _broken(source.path, container, error) from error
    return (height, width) if turned else (width, height)


class _Header:
    """The beginning of a medium, as far as it is asked for; more than a header can be is refused."""

    def __init__(self, source: Readable) -> None:
        self._source, self._num_bytes = source, 0
        self.path, self.size = source.path, source.size

    def read(self, offset: int, size: int) -> Buffer:
        self._num_bytes += size
        if self._num_bytes > _LONGEST_HEADER:
            raise SampleError(
                f"{self.path}: its header does not end",
                found=f"{_LONGEST_HEADER:,} bytes without the size of the image",
                fix="write the image again, without what was added to it",
            )
        return self._source.read(offset, size)


def _container(source: Readable) -> str:
    """The name of the container by its magic."""
    head = bytes(source.read(0, 12))
    for name, container in _CONTAINERS.items():
        if head.startswith(container.magics) and (name != "WebP" or head[8:] == b"WEBP"):
            return name
    raise NoDecoderError(
        f"{source.path}: there is no decoder for this image",
        found=f"it begins with {head!r}" if head else "it is empty",
        expected=", ".join(_CONTAINERS),
        fix="store it as one of these, or say `media: false` and decode it in the map",
    )


def _opened(container: str, file: Any) -> Any:
    """The image, of which Pillow has read the header."""
    try:
        found = import_module(f"PIL.{_CONTAINERS[container].module}")
    except ImportError as error:
        raise RecipeError(
            "images need the package Pillow, which cannot be imported",
            found=str(error),
            fix="pip install 'playhead[image]', or leave them as they are with `media: false`",
        ) from None
    return getattr(found, _CONTAINERS[container].opens)(file)


def _webp_size(file: BinaryIO) -> tuple[int, int]:
    """By hand: Pillow reads a WebP file whole, and makes room for its pixels, where it opens it."""
    head = file.read(30)
    if len(head) == 30 and head[12:16] == b"VP8X":
        return 1 + int.from_bytes(head[24:27], "little"), 1 + int.from_bytes(head[27:30], "little")
    if len(head) == 30 and head[12:16] == b"VP8L" and head[20] == 0x2F:
        bits = int.from_bytes(head[21:25], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if len(head) == 30 and head[12:16] == b"VP8 " and head[23:26] == b"\x9d\x01\x2a":
        width, height = struct.unpack("<HH", head[26:30])
        return width & 0x3FFF, height & 0x3FFF
    raise ValueError(f"no WebP header: {head[12:30]!r}")


def _gif_size(file: BinaryIO) -> tuple[int, int]:
    """By hand: of a frame larger than its screen Pillow may make room for the pixels where it opens it."""
    width, height, flags = struct.unpack("<6xHHB2x", file.read(13))
    file.read(3 << (flags & 7) + 1 if flags & 0x80 else 0)
    while (block := file.read(1)) == b"!":
        file.read(1)
        while size := file.read(1)[0]:
            file.read(size)
    if block != b",":
        raise ValueError("no image in the GIF file")
    left, top, frame_width, frame_height = struct.unpack("<HHHH", file.read(8))
    return max(width, left + frame_width), max(height, top + frame_height)


_SIZES = {"WebP": _webp_size, "GIF": _gif_size}


def _broken(path: str, container: str, error: Exception) -> SampleError:
    return SampleError(
        f"{path}: is not a {container} file that can be decoded",
        found=f"{type(error).__name__}: {str(error) or 'it ends early'}"[:200],
        fix="restore the file",
    )
