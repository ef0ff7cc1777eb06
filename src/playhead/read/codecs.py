"""Audio that needs a codec: FLAC by miniaudio, other formats by soundfile.

Each opens a medium by its header. It is decoded whole from memory; for a short segment of a long recording, the decoder
seeks in the file.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import numpy as np

from playhead.errors import PlayheadError, RecipeError, SampleError
from playhead.read.containers import check_whole
from playhead.read.stored import StoredArray
from playhead.read.wav import NoDecoderError, Readable
from playhead.store import Buffer, Extent
from playhead.types import Array

FLAC_MAGICS = (b"fLaC",)
TAG_MAGICS = (b"ID3",)
MP3_MAGICS = (b"\xff\xfb", b"\xff\xfa", b"\xff\xf3", b"\xff\xf2", b"\xff\xe3", b"\xff\xe2")
OTHER_MAGICS = (b"OggS", b"FORM", b"riff", b"caff", b".snd", b"RIFX")

_STREAM_INFO_BYTES = 42
_TAG_HEADER_BYTES = 10
_HAS_FOOTER = 0x10
_SOUGHT_BYTES = 1 << 20  # less than this is faster to decode whole
_SOUGHT_SHARE = 4
_BUFFER_BYTES = 1 << 16
_16_BIT_SCALE = 2.0**-15
# Frames of MP3 use bits of up to 85 frames before them, and Opus predicts from decoded samples: after a seek the output
# is correct only some time later.
_LEAD_FRAMES = 1 << 16
_WITH_MEMORY = ("MP3", "OGG")


@dataclass
class Coded:
    """A recording whose samples must be decoded.

    `decode` returns (frames, channels) from the bytes of the whole file: floats, or 16 bits. Segments of one recording
    share its result. `first_byte` is where the recording begins in its file.
    """

    source: Readable
    rate: int
    channels: int
    num_frames: int
    decode: Callable[[bytes], Array]
    first_byte: int = 0
    _decoded: Array | None = field(default=None, repr=False)

    is_plain = False

    def byte_range(self, first: int, end: int) -> tuple[int, int]:
        """The range of the whole recording, or an empty one if the decoder seeks in the file."""
        sought = self.source.size > _SOUGHT_BYTES and (end - first) * _SOUGHT_SHARE < self.num_frames
        return (0, 0) if sought else (self.first_byte, self.first_byte + self.source.size)

    def floats(self, data: Buffer | Extent, first: int, end: int) -> Array | StoredArray:
        """Frames as float32; 16-bit samples are converted when they are written to their place.

        Law: as many frames as the header declares; one channel has one axis.
        """
        whole = data.read() if isinstance(data, Extent) else bytes(data)
        if not whole:
            found = SoundFile(self.source).frames(first, end)
        else:
            if self._decoded is None:
                self._decoded = self.decode(whole)
            if len(self._decoded) < self.num_frames:
                raise _truncated(self.source.path, len(self._decoded), self.num_frames)
            found = self._decoded[first:end]
        found = found[:, 0] if self.channels == 1 else found
        if found.dtype != np.int16:
            return found
        return StoredArray(found.reshape(-1).view(np.uint8).data, found.dtype, found.shape, _16_BIT_SCALE)


def open_flac(source: Readable) -> Coded:
    head = bytes(source.read(0, _STREAM_INFO_BYTES))
    if len(head) < _STREAM_INFO_BYTES or head[4] & 0x7F != 0:
        raise SampleError(f"{source.path}: is not a FLAC file", found="no STREAMINFO after its first bytes")
    packed = int.from_bytes(head[18:26], "big")  # 20 bits rate, 3 channels - 1, 5 bits - 1, 36 samples
    rate, channels, bits, num_frames = (
        packed >> 44,
        (packed >> 41 & 7) + 1,
        (packed >> 36 & 31) + 1,
        packed & (1 << 36) - 1,
    )
    if not rate or not num_frames:
        raise SampleError(
            f"{source.path}: its header does not contain its length",
            found=f"{num_frames} frames at {rate} Hz",
            fix="write it again to a file, not to a pipe (`flac --decode` and `flac`)",
        )
    miniaudio = _module("miniaudio")
    if miniaudio is None:
        return open_other(source)
    return Coded(
        source, rate, channels, num_frames, _flac_by_miniaudio(source.path, miniaudio, num_frames, channels, bits)
    )


def open_tagged(source: Readable) -> Coded:
    """The recording after ID3 tags: usually MP3, sometimes FLAC."""
    at = 0
    while (head := bytes(source.read(at, _TAG_HEADER_BYTES)))[:3] == b"ID3" and len(head) == _TAG_HEADER_BYTES:
        size = 0
        for part in head[6:]:  # seven bits each
            size = size << 7 | part & 0x7F
        at += _TAG_HEADER_BYTES + size + (_TAG_HEADER_BYTES if head[5] & _HAS_FOOTER else 0)
    untagged = _From(source, at)
    found = open_flac(untagged) if head.startswith(FLAC_MAGICS) else open_other(untagged)
    found.first_byte = at
    return found


@dataclass(frozen=True)
class _From:
    """A medium from one of its bytes on."""

    source: Readable
    first: int

    @property
    def path(self) -> str:
        return self.source.path

    @property
    def size(self) -> int:
        return max(0, self.source.size - self.first)

    def read(self, offset: int, size: int) -> Buffer:
        return self.source.read(self.first + offset, size)


def open_other(source: Readable) -> Coded:
    """The formats of libsndfile: MP3, Ogg with Vorbis or Opus, AIFF, W64, CAF, AU, and WAV with a codec."""
    check_whole(source)
    file = SoundFile(source).file
    return Coded(source, file.samplerate, file.channels, file.frames, _by_soundfile(source.path))


def _flac_by_miniaudio(
    path: str, miniaudio: ModuleType, num_frames: int, channels: int, bits: int
) -> Callable[[bytes], Array]:
    """Decode straight into an array: a fifth faster than `flac_read_s16`, which copies the result."""
    lib, ffi = miniaudio.lib, miniaudio.ffi
    as_stored = bits <= 16
    read = lib.ma_dr_flac_read_pcm_frames_s16 if as_stored else lib.ma_dr_flac_read_pcm_frames_f32

    def decode(data: bytes) -> Array:
        opened = lib.ma_dr_flac_open_memory(data, len(data), ffi.NULL)
        if not opened:
            raise SampleError(f"{path}: cannot be decoded", found="a broken FLAC file", fix="restore the file")
        try:
            out = np.empty((num_frames, channels), np.int16 if as_stored else np.float32)
            place = ffi.from_buffer("ma_int16[]" if as_stored else "float[]", out, require_writable=True)
            return out[: read(opened, num_frames, place)]
        finally:
            lib.ma_dr_flac_close(opened)

    return decode


def _by_soundfile(path: str) -> Callable[[bytes], Array]:
    def decode(data: bytes) -> Array:
        soundfile = import_soundfile()
        try:
            found: Array = soundfile.read(io.BytesIO(data), dtype="float32", always_2d=True)[0]
        except soundfile.SoundFileError as error:
            raise SampleError(f"{path}: cannot be decoded", found=said(error)) from error
        return found

    return decode


class SoundFile:
    """A medium opened by soundfile; errors of the storage are raised as they are, not as soundfile reports them."""

    def __init__(self, source: Readable) -> None:
        self._path, self._stream = source.path, MediaStream(source)
        with self._naming_problems(NoDecoderError, "is not an audio file that can be decoded"):
            self.file: Any = import_soundfile().SoundFile(io.BufferedReader(self._stream, _BUFFER_BYTES))

    def frames(self, first: int, end: int, dtype: str = "float32") -> Array:
        """The frames [first, end), of shape (frames, channels). Law: as many as requested."""
        begin = max(0, first - _LEAD_FRAMES) if self.file.format in _WITH_MEMORY else first
        with self._naming_problems(SampleError, "cannot be decoded"):
            self.file.seek(begin)
            found: Array = self.file.read(end - begin, dtype=dtype, always_2d=True)[first - begin :]
        if len(found) < end - first:
            raise _truncated(self._path, first + len(found), end)
        return found

    @contextmanager
    def _naming_problems(self, kind: type[SampleError], problem: str) -> Iterator[None]:
        try:
            yield
        except import_soundfile().SoundFileError as error:
            raise self._stream.problem or kind(f"{self._path}: {problem}", found=said(error)) from error
        if self._stream.problem is not None:
            raise self._stream.problem


class MediaStream(io.RawIOBase):
    """A medium as a file object. Its first error is kept: exceptions do not pass through the soundfile library."""

    def __init__(self, source: Readable) -> None:
        self._source, self._position = source, 0
        self.problem: PlayheadError | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._source.size}[whence]
        return self._position

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._source.read(self._position, len(buffer))
        except PlayheadError as error:
            self.problem = self.problem or error
            return 0
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)


def decoders() -> dict[str, str]:
    """The decoder of each container, which may affect the last bits of samples. Nothing is imported for it."""
    flac = "soundfile" if find_spec("miniaudio") is None else "miniaudio"
    return {"flac": flac, "other": "soundfile", "rate": "soxr", "image": "Pillow"}


def import_soundfile() -> Any:
    soundfile = _module("soundfile")
    if soundfile is None:
        raise RecipeError(
            "this audio needs the package soundfile, which cannot be imported", fix="pip install 'playhead[audio]'"
        )
    return soundfile


def _module(name: str) -> Any:
    try:
        return __import__(name)
    except (ImportError, OSError):  # OSError: the package is installed, but its library is not
        return None


def _truncated(path: str, found: int, expected: int) -> SampleError:
    return SampleError(
        f"{path}: is truncated", found=f"{found:,} frames", expected=f"{expected:,}", fix="restore the file"
    )


def said(error: object) -> str:
    text = str(error).strip()
    return text.splitlines()[-1] if text else type(error).__name__
