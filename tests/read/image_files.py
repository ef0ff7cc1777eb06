"""Images to decode: written by Pillow, or byte by byte."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
from PIL import Image

CONTAINERS = ("JPEG", "PNG", "GIF", "WebP", "BMP", "TIFF")


def picture(width: int = 37, height: int = 23, mode: str = "RGB", seed: int = 0) -> Image.Image:
    """Noise over a slope, so that turning and cutting it show."""
    rows, columns = np.mgrid[0:height, 0:width]
    slope = np.stack([rows * 3 % 256, columns * 5 % 256, (rows + columns) % 256], axis=-1)
    noise = np.random.default_rng(seed).integers(0, 64, (height, width, 3))
    return Image.fromarray((slope // 2 + noise).astype(np.uint8)).convert(mode)


def encoded(image: Image.Image, container: str = "PNG", **how: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, container, **how)
    return file.getvalue()


def turned(orientation: int, container: str = "JPEG", image: Image.Image | None = None) -> bytes:
    """An image with an EXIF orientation."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    return encoded(image or picture(), container, exif=exif)


def chunk(name: bytes, held: bytes) -> bytes:
    return struct.pack(">I", len(held)) + name + held + struct.pack(">I", zlib.crc32(name + held))


def png_of(width: int, height: int, pixels: bytes) -> bytes:
    """A PNG of grey whose header may say more than its pixels hold."""
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(pixels)) + chunk(b"IEND", b"")


def gif_of(screen: tuple[int, int], frame: tuple[int, int], dispose: int = 0) -> bytes:
    """The beginning of a GIF: a frame that may be larger than its screen."""
    control = b"!\xf9\x04" + bytes([dispose << 2]) + b"\0\0\0\0"
    return (
        b"GIF89a"
        + struct.pack("<HHBBB", *screen, 0x80, 0, 0)
        + bytes(6)
        + control
        + b"!\xfe\x05hello\0"
        + b","
        + struct.pack("<HHHHB", 0, 0, *frame, 0)
        + b"\x02\x02\x4c\x01\0;"
    )


def tiff_of(size: tuple[int, int], pixels: bytes, tile: tuple[int, int] | None = None) -> bytes:
    """A TIFF of grey, compressed, whose size and tile may be more than its pixels."""
    held = zlib.compress(pixels)
    tags = [(256, size[0]), (257, size[1]), (258, 8), (259, 8), (262, 1), (277, 1)]
    first = 8 + 2 + 12 * (len(tags) + (3 if tile is None else 4)) + 4
    tags += [(273, first), (278, size[1]), (279, len(held))] if tile is None else []
    tags += [(322, tile[0]), (323, tile[1]), (324, first), (325, len(held))] if tile is not None else []
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags)
    return b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(4) + held


def webp_of(width: int, height: int) -> bytes:
    """The beginning of a WebP file with a canvas of a size, and nothing on it."""
    canvas = bytes(4) + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    held = b"WEBPVP8X" + struct.pack("<I", len(canvas)) + canvas
    return b"RIFF" + struct.pack("<I", len(held)) + held


def deep_png(values: np.ndarray[Any, Any]) -> bytes:
    """A PNG of 16 bits, grey or coloured: Pillow writes no colours of 16 bits."""
    height, width = values.shape[:2]
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    header = struct.pack(">IIBBBBB", width, height, 16, 2 if values.ndim == 3 else 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
