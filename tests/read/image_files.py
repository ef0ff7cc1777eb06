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
