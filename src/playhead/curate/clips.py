"""A stretch of a recording as the bytes of a small audio file: only its frames are read, none is changed."""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from playhead.errors import DataError, PrepareError
from playhead.types import Array

Kind = Literal["wav", "flac"]

ROUNDING_SECONDS = 0.001  # manifests round to milliseconds: a window that ends so much past the end ends with the file

# What the samples are read as, and stored as in WAV and in FLAC, which has no samples of 32 bits and none that float.
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
_WIDTHS = {"PCM_16": 2, "PCM_24": 3, "PCM_32": 4, "FLOAT": 4, "DOUBLE": 8}


@dataclass
class Recordings:
    """Recordings to cut clips from; the last one stays open, because windows of one follow one another."""

    kind: Kind
    _path: str | None = None
    _file: Any = None

    def clip(self, path: str, offset: float, duration: float) -> bytes:
        """The audio from `offset` on. Law: where the kind can hold them, its samples are those of the recording."""
        file = self._open(path)
        first, last = round(offset * file.samplerate), round((offset + duration) * file.samplerate)
        if file.frames < last <= file.frames + ROUNDING_SECONDS * file.samplerate:
            last = file.frames
        if not 0 <= first < last <= file.frames:
            raise DataError(
                f"{path}: the window is not within the recording",
                found=f"a window from {offset:g} to {offset + duration:g} s",
                expected=f"times up to {file.frames / file.samplerate:g} s",
            )
        dtype, in_wav, in_flac = _STORED.get(file.subtype, _LOSSY)
        stored = in_wav if self.kind == "wav" else in_flac
        samples = self._samples(path, first, last - first, dtype)
        if dtype.startswith("float") and stored.startswith("PCM"):
            samples = _integers(samples, _WIDTHS[stored])
        if self.kind == "wav":
            return _wav(samples, file.samplerate, stored)
        return _flac(samples, file.samplerate, stored, path)

    def _samples(self, path: str, first: int, count: int, dtype: str) -> Array:
        soundfile = import_soundfile()
        try:
            self._file.seek(first)
            samples: Array = self._file.read(count, dtype=dtype, always_2d=True)
        except soundfile.SoundFileError as error:
            raise DataError(f"{path}: cannot be decoded", found=_said(error)) from error
        if len(samples) != count:
            raise DataError(
                f"{path}: is cut off", found=f"{first + len(samples):,} frames", expected=f"{self._file.frames:,}"
            )
        return samples

    def _open(self, path: str) -> Any:
        if path != self._path:
            self.close()
            soundfile = import_soundfile()
            if not Path(path).is_file():
                raise DataError(f"{path}: no such file", fix="restore it, or set audio_root to where audio paths begin")
            try:
                self._file = soundfile.SoundFile(path)
            except soundfile.SoundFileError as error:
                raise DataError(f"{path}: is no audio file that can be read", found=_said(error)) from error
            self._path = path
        return self._file

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._path = self._file = None


def _integers(samples: Array, width: int) -> Array:
    """Samples from -1 to 1 as integers of so many bytes, at the top of the type that holds them; louder ones clip."""
    full = 1 << (8 * width - 1)
    found: Array = np.clip(np.rint(samples * np.float64(full)), -full, full - 1)
    if width == 2:
        return found.astype(np.int16)
    return np.left_shift(found.astype(np.int32), 32 - 8 * width)


def _wav(samples: Array, rate: int, stored: str) -> bytes:
    """Written here, and not by libsndfile, which puts the time of day into files of floats."""
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
            found=f"{samples.shape[1]} channels at {rate:,} Hz: {_said(error)}",
            fix="use wav",
        ) from error
    return file.getvalue()


def import_soundfile() -> Any:
    try:
        import soundfile
    except (ImportError, OSError) as error:  # OSError: the package is there, and its library is not
        raise PrepareError(
            "cutting audio needs the package soundfile, which cannot be imported",
            found=str(error),
            fix="pip install 'playhead[audio]'",
        ) from error
    return soundfile


def _said(error: Exception) -> str:
    return str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__
