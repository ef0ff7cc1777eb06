"""A clip of a recording as the bytes of a small audio file: only its frames are read, none is changed."""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from playhead.errors import DataError
from playhead.read.codecs import SoundFile, import_soundfile, said
from playhead.read.media_bytes import MediaBytes, open_media
from playhead.read.recordings import Timed, segment_frames
from playhead.read.wav import MAGICS, NoDecoderError, Wav, open_wav
from playhead.store import Files
from playhead.types import Array

AudioKind = Literal["wav", "flac"]

# The types that samples are read as, and stored as in WAV and in FLAC, which has neither 32-bit samples nor floats.
_STORED = {
    "PCM_S8": ("int16", "PCM_16", "PCM_16"),
    "PCM_U8": ("int16", "PCM_16", "PCM_16"),
    "PCM_16": ("int16", "PCM_16", "PCM_16"),
    "PCM_24": ("int32", "PCM_24", "PCM_24"),
    "PCM_32": ("int32", "PCM_32", "PCM_24"),
    "FLOAT": ("float32", "FLOAT", "PCM_24"),
    "DOUBLE": ("float64", "DOUBLE", "PCM_24"),
}
_LOSSY = ("float32", "PCM_16", "PCM_16")
_SUBTYPES = {"u1": "PCM_U8", "<i2": "PCM_16", "i3": "PCM_24", "<i4": "PCM_32", "<f4": "FLOAT", "<f8": "DOUBLE"}
_WIDTHS = {"PCM_16": 2, "PCM_24": 3, "PCM_32": 4, "FLOAT": 4, "DOUBLE": 8}


class _ClipSource(Timed, Protocol):
    @property
    def subtype(self) -> str: ...

    def samples(self, first: int, end: int) -> Array: ...


@dataclass
class Recordings:
    """Recordings to cut clips from; the last one stays open, because windows of a recording are consecutive."""

    kind: AudioKind
    files: Files
    _path: str | None = None
    _opened: _ClipSource | None = None

    def clip(self, path: str, offset: float, duration: float) -> bytes:
        """The audio from `offset` on. Law: if the audio kind can hold them, its samples are those of the recording."""
        if self._opened is None or path != self._path:
            self._opened, self._path = _open(open_media(self.files, path)), path
        recording = self._opened
        samples = recording.samples(*segment_frames(path, recording, offset, duration))
        dtype, in_wav, in_flac = _STORED.get(recording.subtype, _LOSSY)
        stored = in_wav if self.kind == "wav" else in_flac
        if dtype.startswith("float") and stored.startswith("PCM"):
            samples = _integers(samples, _WIDTHS[stored])
        if self.kind == "wav":
            return _wav(samples, recording.rate, stored)
        return _flac(samples, recording.rate, stored, path)


def _open(source: MediaBytes) -> _ClipSource:
    """PCM WAV by the decoder of `read/wav.py`, everything else by soundfile."""
    if bytes(source.head[:4]) in MAGICS:
        try:
            return _WavRecording(source, open_wav(source))
        except NoDecoderError:
            pass
    return _SoundFileRecording(source)


@dataclass(frozen=True)
class _WavRecording:
    source: MediaBytes
    wav: Wav

    @property
    def rate(self) -> int:
        return self.wav.rate

    @property
    def num_frames(self) -> int:
        return self.wav.num_frames

    @property
    def subtype(self) -> str:
        return _SUBTYPES[self.wav.stored]

    def samples(self, first: int, end: int) -> Array:
        (data,) = self.source.ranges([self.wav.byte_range(first, end)])
        return self.wav.exact(data)


class _SoundFileRecording:
    def __init__(self, source: MediaBytes) -> None:
        self._opened = SoundFile(source)
        file = self._opened.file
        self.rate: int = file.samplerate
        self.num_frames: int = file.frames
        self.subtype: str = file.subtype

    def samples(self, first: int, end: int) -> Array:
        return self._opened.frames(first, end, _STORED.get(self.subtype, _LOSSY)[0])


def _integers(samples: Array, width: int) -> Array:
    """Samples from -1 to 1 as integers of `width` bytes, in the high bytes of their type; louder ones are clipped."""
    full = 1 << (8 * width - 1)
    found: Array = np.clip(np.rint(samples * np.float64(full)), -full, full - 1)
    if width == 2:
        return found.astype(np.int16)
    return np.left_shift(found.astype(np.int32), 32 - 8 * width)


def _wav(samples: Array, rate: int, stored: str) -> bytes:
    """Written here, not by libsndfile, which puts the current time into files of floats."""
    channels, width = samples.shape[1], _WIDTHS[stored]
    little = samples.astype(samples.dtype.newbyteorder("<"), copy=False)
    data = little.tobytes()
    if stored == "PCM_24":
        data = little.reshape(-1).view("u1").reshape(-1, 4)[:, 1:].tobytes()
    format_code = 3 if stored in {"FLOAT", "DOUBLE"} else 1
    about = struct.pack("<HHIIHH", format_code, channels, rate, rate * channels * width, channels * width, 8 * width)
    chunks = [(b"fmt ", about), (b"data", data)]
    body = b"".join(name + struct.pack("<I", len(held)) + held + bytes(len(held) % 2) for name, held in chunks)
    return b"RIFF" + struct.pack("<I", 4 + len(body)) + b"WAVE" + body


def _flac(samples: Array, rate: int, stored: str, path: str) -> bytes:
    soundfile = import_soundfile()
    file = io.BytesIO()
    try:
        soundfile.write(file, samples, rate, format="FLAC", subtype=stored)
    except soundfile.SoundFileError as error:
        raise DataError(
            f"{path}: cannot be stored as FLAC",
            found=f"{samples.shape[1]} channels at {rate:,} Hz: {said(error)}",
            fix="use wav",
        ) from error
    return file.getvalue()
