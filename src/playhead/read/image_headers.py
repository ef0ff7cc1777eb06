"""The headers of images: their size and orientation, without allocating memory for pixels.

Images are recognized by their first bytes. Only these decoders of Pillow are used, never one that starts another
program, and each directly: `Image.open` would compare sizes with a limit of the whole process, and warn.
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
_LONGEST_METADATA = 1 << 20
_ORIENTATION = 0x0112  # a tag of EXIF
_SIDEWAYS = (5, 6, 7, 8)  # orientations that swap width and height
_TIFF_SIZE, _TIFF_TILE = (256, 257), (322, 323)
_WEBP_METADATA = {b"EXIF": "exif", b"XMP ": "xmp"}
_WEBP_HAS_METADATA = 0x08 | 0x04
_MOST_CHUNKS = 1 << 14


class _Container(NamedTuple):
    """The first bytes of a file format, and the Pillow class that opens it."""

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


class ImageHeader(NamedTuple):
    """The properties of an image before its pixels are decoded.

    `size` is the stored size; `tile_pixels` are decoded at a time, however few of them are in the image. `image` has
    been opened by Pillow, unless that would allocate memory for pixels.
    """

    size: tuple[int, int]
    orientation: int = 1
    tile_pixels: int = 0
    image: Any = None

    @property
    def turned_size(self) -> tuple[int, int]:
        return self.size[::-1] if self.orientation in _SIDEWAYS else self.size


def image_size(source: Readable) -> tuple[int, int]:
    """The width and height of an image, of which only the header is read.

    Law: it is the size that the image is decoded with, before it is resized. So an EXIF orientation counts, unless it
    comes after the pixels of a PNG. A broken header is a SampleError.
    """
    container = container_of(source)
    stream = MediaStream(_HeaderBytes(source))
    try:
        found = read_header(container, io.BufferedReader(stream, _BUFFER_BYTES)).turned_size
    except (PlayheadError, MemoryError):
        raise
    except Exception as error:  # Pillow may raise many types of errors for broken bytes
        raise stream.problem or broken_image(source.path, container, error) from error
    if stream.problem is not None:
        raise stream.problem
    return found


class _HeaderBytes:
    """Reads the beginning of a medium on demand; more than the size of the longest header is refused."""

    def __init__(self, source: Readable) -> None:
        self._source, self._num_bytes = source, 0
        self.path, self.size = source.path, source.size

    def read(self, offset: int, size: int) -> Buffer:
        self._num_bytes += size
        if self._num_bytes > _LONGEST_HEADER:
            raise SampleError(
                f"{self.path}: its header does not end",
                found=f"{_LONGEST_HEADER:,} bytes without the size of the image",
                fix="write the image again, without extra data in its header",
            )
        return self._source.read(offset, size)


def container_of(source: Readable) -> str:
    """The name of the container by its magic."""
    head = bytes(source.read(0, 12))
    for name, container in _CONTAINERS.items():
        if head.startswith(container.magics) and (name != "WebP" or head[8:] == b"WEBP"):
            return name
    raise NoDecoderError(
        f"{source.path}: unsupported image format",
        found=f"it begins with {head!r}" if head else "it is empty",
        expected=", ".join(_CONTAINERS),
        fix="store it as one of these, or set `media: false` and decode it in the map",
    )


def read_header(container: str, file: BinaryIO) -> ImageHeader:
    """The header of an image; errors of the decoder are raised unchanged."""
    header = _BY_HAND[container](file) if container in _BY_HAND else _header_by_pillow(container, file)
    if min(header.size) < 1:
        raise ValueError("it has no pixels")
    return header


def _header_by_pillow(container: str, file: BinaryIO) -> ImageHeader:
    image = open_image(container, file)
    if container != "TIFF":
        return ImageHeader(image.size, _orientation(image), image=image)
    width, height, *tile = (image.tag_v2.get(tag, 0) for tag in (*_TIFF_SIZE, *_TIFF_TILE))
    if not all(isinstance(length, int) for length in (width, height, *tile)):
        raise ValueError("a size that is not a number")
    return ImageHeader((width, height), _orientation(image), tile[0] * tile[1], image)


def _orientation(image: Any) -> int:
    """The orientation in the metadata of an image, EXIF before XMP; 1 if there is none that can be read.

    The method of PNG images is not called: it would decode the pixels to look for metadata after them.
    """
    getexif = pillow("Image").Image.getexif
    try:
        found = getexif(image).get(_ORIENTATION)
    except Exception:  # noqa: BLE001 - broken bytes make Pillow raise nearly anything, and the pixels may be good
        return 1
    return found if isinstance(found, int) else 1


def open_image(container: str, file: BinaryIO) -> Any:
    """The image, with its header read by Pillow."""
    return getattr(pillow(_CONTAINERS[container].module), _CONTAINERS[container].opens)(file)


def pillow(module: str) -> Any:
    """A module of Pillow, imported where it is used."""
    try:
        return import_module(f"PIL.{module}")
    except ImportError as error:
        raise RecipeError(
            "images need the package Pillow, which cannot be imported",
            found=str(error),
            fix="pip install 'playhead[image]', or leave them as they are with `media: false`",
        ) from None


def _webp_header(file: BinaryIO) -> ImageHeader:
    """Parsed here: Pillow reads a WebP file whole and allocates memory for its pixels when it opens it."""
    head = file.read(30)
    if len(head) == 30 and head[12:16] == b"VP8X":
        size = 1 + int.from_bytes(head[24:27], "little"), 1 + int.from_bytes(head[27:30], "little")
        return ImageHeader(size, _webp_orientation(file) if head[20] & _WEBP_HAS_METADATA else 1)
    if len(head) == 30 and head[12:16] == b"VP8L" and head[20] == 0x2F:
        bits = int.from_bytes(head[21:25], "little")
        return ImageHeader((1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)))
    if len(head) == 30 and head[12:16] == b"VP8 " and head[23:26] == b"\x9d\x01\x2a":
        width, height = struct.unpack("<HH", head[26:30])
        return ImageHeader((width & 0x3FFF, height & 0x3FFF))
    raise ValueError(f"no WebP header: {head[12:30]!r}")


def _webp_orientation(file: BinaryIO) -> int:
    """Metadata comes after the pixels of a WebP file, which are skipped."""
    image, place = pillow("Image").Image(), 12
    file.seek(place)
    for _ in range(_MOST_CHUNKS):
        if len(start := file.read(8)) < 8:
            break
        name, size = struct.unpack("<4sI", start)
        if name in _WEBP_METADATA:
            image.info[_WEBP_METADATA[name]] = file.read(min(size, _LONGEST_METADATA))
        place += 8 + size + size % 2
        file.seek(place)
    return _orientation(image)


def _gif_header(file: BinaryIO) -> ImageHeader:
    """Parsed here: Pillow may allocate memory for a frame larger than its screen when it opens the file."""
    width, height, flags = struct.unpack("<6xHHB2x", file.read(13))
    file.read(3 << (flags & 7) + 1 if flags & 0x80 else 0)
    while (block := file.read(1)) == b"!":
        file.read(1)
        while size := file.read(1)[0]:
            file.read(size)
    if block != b",":
        raise ValueError("no image in the GIF file")
    left, top, frame_width, frame_height = struct.unpack("<HHHH", file.read(8))
    return ImageHeader((max(width, left + frame_width), max(height, top + frame_height)))


_BY_HAND = {"WebP": _webp_header, "GIF": _gif_header}


def broken_image(path: str, container: str, error: Exception) -> SampleError:
    return SampleError(
        f"{path}: is not a {container} file that can be decoded",
        found=f"{type(error).__name__}: {str(error) or 'it ends early'}"[:200],
        fix="restore the file",
    )
