"""Images decoded by Pillow, within limits, as the recipe wants them: their mode and size."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from playhead.errors import PlayheadError, SampleError
from playhead.formats.media import Media
from playhead.read.image_headers import ImageHeader, broken_image, container_of, open_image, pillow, read_header
from playhead.read.media_rules import MediaRules, too_large
from playhead.read.stored import StoredArray
from playhead.read.wav import Readable
from playhead.recipe.values import ImageOptions

_PIXEL_BYTES = 4  # of an image in memory, in the largest modes of Pillow
_TURNS = {
    2: "FLIP_LEFT_RIGHT",
    3: "ROTATE_180",
    4: "FLIP_TOP_BOTTOM",
    5: "TRANSPOSE",
    6: "ROTATE_270",
    7: "TRANSVERSE",
    8: "ROTATE_90",
}
_WITH_ALPHA = ("RGBA", "RGBa", "LA", "La", "PA")
_TIFF_BITS = 258
_UINT8 = np.dtype(np.uint8)


def delivered_size(size: tuple[int, int], how: ImageOptions) -> tuple[int, int]:
    """The width and height that an image of a size is delivered with."""
    if how.size is not None:
        return how.size
    wanted, side = (how.shortest, min(size)) if how.shortest is not None else (how.longest, max(size))
    if wanted is None:
        return size
    width, height = (max(1, length * wanted // side) for length in size)
    return width, height


def decode_image(
    source: Readable, group: Sequence[Media], rules: MediaRules, how: ImageOptions
) -> list[dict[str, Any] | SampleError]:
    """An image for each request, or the reason why there is none.

    It is an array of uint8, of shape (height, width, channels), or (height, width) if it is grey; the first of several
    frames. Law: the header is checked against the limits before memory is allocated for pixels.
    """

    def decoded(mode: str | None) -> dict[str, Any] | SampleError:
        try:
            return {"": _decoded(source, rules, how if mode is None or how.mode else replace(how, mode=mode))}
        except SampleError as error:
            return error

    found = {mode: decoded(mode) for mode in {media.mode for media in group}}
    return [found[media.mode] for media in group]


def _decoded(source: Readable, rules: MediaRules, how: ImageOptions) -> StoredArray:
    container, path = container_of(source), source.path
    if source.size > rules.max_bytes:
        raise too_large(path, f"{source.size:,} bytes", f"{rules.max_bytes:,} at most", "max_bytes")
    file = io.BytesIO(source.read(0, source.size))
    try:
        header = read_header(container, file)
        size = delivered_size(header.turned_size, how)
        _check_limits(path, header, size, rules)
        image = _in_mode(path, container, _turned(container, header, file), how)
        if image.size != size:
            image = image.resize(size, pillow("Image").Resampling.BICUBIC)
    except (PlayheadError, MemoryError):
        raise
    except Exception as error:  # Pillow may raise many types of errors for broken bytes
        raise broken_image(path, container, error) from error
    bands = () if image.mode == "L" else (len(image.mode),)
    return StoredArray(image.tobytes(), _UINT8, (image.height, image.width, *bands))


def _check_limits(path: str, header: ImageHeader, delivered: tuple[int, int], rules: MediaRules) -> None:
    """Refuse an image by its header. Pillow resizes the rows first, then the columns."""
    (width, height), (new_width, new_height) = header.turned_size, delivered
    num_pixels = max(width * height, header.tile_pixels, new_width * new_height)
    if delivered != header.turned_size:
        num_pixels = max(num_pixels, new_width * height)
    found = f"{width:,} x {height:,} pixels"
    if num_pixels > width * height:
        found += f", {num_pixels:,} of them while it is decoded and resized"
    if num_pixels > rules.max_pixels:
        raise too_large(path, found, f"{rules.max_pixels:,} pixels at most", "max_pixels")
    if num_pixels * _PIXEL_BYTES > rules.max_bytes:
        expected = f"{rules.max_bytes:,} bytes at most, {_PIXEL_BYTES} for a pixel"
        raise too_large(path, found, expected, "max_bytes")


def _turned(container: str, header: ImageHeader, file: io.BytesIO) -> Any:
    """The image with its pixels, upright. Pillow turns a TIFF itself."""
    image = header.image
    if image is None:
        file.seek(0)
        image = open_image(container, file)
    image.load()
    if container != "TIFF" and header.orientation in _TURNS:
        image = image.transpose(pillow("Image").Transpose[_TURNS[header.orientation]])
    if image.size != header.turned_size:
        raise ValueError(f"its pixels are {image.size}, and its header says {header.turned_size}")
    return image


def _in_mode(path: str, container: str, image: Any, how: ImageOptions) -> Any:
    """The image with 8 bits per band, in the requested mode or the nearest of the supported modes.

    Of 16 bits the higher 8 are kept, as Pillow does for 16-bit colours.
    """
    if image.mode.startswith("I;16") or (image.mode == "I" and container == "PNG"):
        bits = image.tag_v2[_TIFF_BITS][0] if container == "TIFF" else 16
        grey = (np.asarray(image) >> bits - 8).astype(np.uint8)
        image = pillow("Image").fromarray(grey)
    if image.mode in ("I", "F"):
        raise SampleError(
            f"{path}: its pixels are numbers without a range",
            found="whole numbers of 32 bits, or signed ones" if image.mode == "I" else "fractions",
            expected="8 or 16 bits, from black to white",
            fix="write it again with 8 or 16 bits, or set `media: false` and decode it in the map",
        )
    mode = how.mode or _nearest_mode(image)
    if mode == image.mode:
        return image
    if mode != "RGBA":
        image.info.pop("transparency", None)
    return image.convert(mode)


def _nearest_mode(image: Any) -> str:
    if image.mode in ("1", "L"):
        return "L"
    return "RGBA" if image.mode in _WITH_ALPHA or (image.mode == "P" and image.has_transparency_data) else "RGB"
