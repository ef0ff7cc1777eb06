"""PCM WAV by numpy alone: RIFF and RF64, plain and extensible, 8 to 32 bits and floats."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from playhead.errors import SampleError
from playhead.read.stored import StoredArray
from playhead.store import Buffer, Extent
from playhead.types import Array

MAGICS = (b"RIFF", b"RF64")

_MOST_CHUNKS = 64
_UNKNOWN_SIZES = (0xFFFFFFFF, 0x7FFFF000)  # written by ffmpeg and sox when they cannot seek back to the header
_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
_SUBFORMAT_TAIL = bytes.fromhex("000000001000800000aa00389b71")
_CODECS = {2: "ADPCM", 6: "A-law", 7: "mu-law", 0x11: "IMA ADPCM", 0x31: "GSM 6.10", 0x50: "MPEG", 0x55: "MP3"}
_STORED = {
    (_PCM, 8): "u1",
    (_PCM, 16): "<i2",
    (_PCM, 24): "i3",
    (_PCM, 32): "<i4",
    (_FLOAT, 32): "<f4",
    (_FLOAT, 64): "<f8",
}
_PLAIN: dict[str, float | None] = {"<i2": 2.0**-15, "<i4": 2.0**-31}
if np.dtype("<f4").isnative:
    _PLAIN["<f4"] = None
_24_BIT_SCALE = 2.0**-31  # they are at the top of 32 bits


class NoDecoderError(SampleError):
    """A medium in an unsupported container or codec."""


class Readable(Protocol):
    """Bytes with a name for messages; `read` returns fewer than requested only at the end."""

    @property
    def path(self) -> str: ...

    @property
    def size(self) -> int: ...

    def read(self, offset: int, size: int) -> Buffer: ...


@dataclass(frozen=True)
class Wav:
    """Where the samples of a WAV file are, and how they are stored."""

    stored: str
    channels: int
    rate: int
    num_frames: int
    first_byte: int
    frame_bytes: int

    def byte_range(self, first: int, end: int) -> tuple[int, int]:
        """The bytes of frames [first, end)."""
        return self.first_byte + first * self.frame_bytes, self.first_byte + end * self.frame_bytes

    @property
    def is_plain(self) -> bool:
        """Whether frames are contiguous numbers that are float32, or become float32 by a multiplication."""
        return self.stored in _PLAIN

    def floats(self, data: Buffer | Extent, first: int, end: int) -> Array | StoredArray:  # noqa: ARG002
        """The frames in the bytes `data`, as float32.

        Law: integers are divided by 2 ** (bits - 1), floats stay; one channel has one axis.

        Plain frames are converted when they are written to their place, and may stay in the file until then.
        """
        if self.is_plain:
            size = data.size if isinstance(data, Extent) else len(data)
            num_frames = size // self.frame_bytes
            shape = (num_frames,) if self.channels == 1 else (num_frames, self.channels)
            return StoredArray(data, np.dtype(self.stored), shape, _PLAIN[self.stored])
        data = data.read() if isinstance(data, Extent) else data
        if self.stored == "u1":
            found = (np.frombuffer(data, np.uint8).astype(np.float32) - np.float32(128)) * np.float32(2.0**-7)
        elif self.stored == "i3":
            scale = np.float32(_24_BIT_SCALE)
            found = np.multiply(self._numbers(data), scale, dtype=np.float32, casting="unsafe")
        else:
            found = self._numbers(data).astype(np.float32)
        return found if self.channels == 1 else found.reshape(-1, self.channels)

    def exact(self, data: Buffer) -> Array:
        """Frames as stored, of shape (frames, channels): 8 bits at the top of int16, 24 bits at that of int32."""
        if self.stored == "u1":
            numbers: Array = (np.frombuffer(data, np.uint8).astype(np.int16) - 128) << 8
        else:
            numbers = self._numbers(data)
        return numbers.reshape(-1, self.channels)

    def _numbers(self, data: Buffer) -> Array:
        if self.stored != "i3":
            return np.frombuffer(data, self.stored)
        three = np.frombuffer(data, np.uint8).reshape(-1, 3)
        wide = np.zeros((len(three), 4), np.uint8)
        wide[:, 1:] = three
        return wide.reshape(-1).view("<i4")


def open_wav(file: Readable) -> Wav:
    """Read the header of a file that begins with one of `MAGICS`; a broken or truncated one is a SampleError."""
    riff = bytes(file.read(0, 12))
    if len(riff) < 12 or riff[8:12] != b"WAVE":
        raise SampleError(
            f"{file.path}: is not a WAV file", found=f"{riff[8:12]!r} after {riff[:4]!r}", expected="b'WAVE'"
        )
    riff_size = struct.unpack("<I", riff[4:8])[0]
    at, about, long_size = 12, None, None
    for _ in range(_MOST_CHUNKS):
        chunk = bytes(file.read(at, 8))
        if len(chunk) < 8:
            break
        name, size = chunk[:4], struct.unpack("<I", chunk[4:])[0]
        if name == b"data":
            if about is None:
                raise SampleError(
                    f"{file.path}: its samples come before their format", found="no fmt chunk before data"
                )
            size = _data_size(file, at + 8, size, riff_size, long_size)
            return _wav(file.path, about, at + 8, size)
        if name == b"fmt ":
            about = bytes(file.read(at + 8, min(size, 40)))
        elif name == b"ds64" and riff[:4] == b"RF64":
            sizes = bytes(file.read(at + 8, 16))
            long_size = struct.unpack("<Q", sizes[8:])[0] if len(sizes) == 16 else None
        at += 8 + size + size % 2
    raise SampleError(
        f"{file.path}: holds no samples",
        found=f"no data chunk in {min(at, file.size):,} of {file.size:,} bytes",
        fix="restore the file; it seems to be truncated or damaged",
    )


def _data_size(file: Readable, first: int, size: int, riff_size: int, long_size: int | None) -> int:
    """The bytes of samples; those of a file that was streamed, or never closed, extend to its end."""
    rest = file.size - first
    if long_size is not None and size == 0xFFFFFFFF:
        size = long_size
    elif size in _UNKNOWN_SIZES or (size == 0 and (riff_size + 8 <= first or riff_size in _UNKNOWN_SIZES)):
        return rest
    if size > rest:
        raise SampleError(
            f"{file.path}: is truncated",
            found=f"{rest:,} bytes of samples",
            expected=f"{size:,}, by its header",
            fix="restore the file",
        )
    return size


def _wav(path: str, about: bytes, first_byte: int, size: int) -> Wav:
    if len(about) < 16:
        raise SampleError(f"{path}: its fmt chunk is truncated", found=f"{len(about)} bytes", expected="16 or more")
    code, channels, rate, _, frame_bytes, bits = struct.unpack("<HHIIHH", about[:16])
    if code == _EXTENSIBLE and len(about) >= 40:
        code = struct.unpack("<H", about[24:26])[0] if about[26:40] == _SUBFORMAT_TAIL else code
    stored = _STORED.get((code, bits))
    if stored is None:
        codec = _CODECS.get(code, {_PCM: "PCM", _FLOAT: "floats"}.get(code, f"format {code:#06x}"))
        kind = SampleError if code in (_PCM, _FLOAT, _EXTENSIBLE) else NoDecoderError
        raise kind(
            f"{path}: unsupported WAV encoding",
            found=f"{codec} of {bits} bits",
            expected="PCM of 8, 16, 24 or 32 bits, or floats of 32 or 64",
            fix="store it as PCM, for example with `sox in.wav -b 16 -e signed-integer out.wav`",
        )
    if channels == 0 or rate == 0 or frame_bytes != channels * bits // 8:
        raise SampleError(
            f"{path}: its header is inconsistent",
            found=f"{channels} channels of {bits} bits at {rate:,} Hz, in frames of {frame_bytes} bytes",
            fix="restore the file",
        )
    return Wav(stored, channels, rate, size // frame_bytes, first_byte, frame_bytes)
