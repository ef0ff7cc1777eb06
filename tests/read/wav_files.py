"""WAV files to decode: written by soundfile, or byte by byte."""

from __future__ import annotations

import io
import struct

import numpy as np
import soundfile

SUBTYPES = ("PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE")


def noise(num_frames: int, channels: int = 1, seed: int = 0) -> np.ndarray:
    """Every value that 32 bits hold may occur, the extremes do."""
    found = np.random.default_rng(seed).integers(-(2**31), 2**31, (num_frames, channels), dtype=np.int32)
    found[:1], found[1:2] = -(2**31), 2**31 - 1
    return found


def written(samples: np.ndarray, rate: int = 16_000, subtype: str = "PCM_16", container: str = "WAV") -> bytes:
    file = io.BytesIO()
    given = samples / 2.0**31 if subtype in {"FLOAT", "DOUBLE"} else samples
    soundfile.write(file, given, rate, format=container, subtype=subtype)
    return file.getvalue()


def as_soundfile_reads(data: bytes, first: int = 0, end: int | None = None) -> np.ndarray:
    return soundfile.read(io.BytesIO(data), start=first, stop=end, dtype="float32")[0]


def chunk(name: bytes, held: bytes, size: int | None = None) -> bytes:
    return name + struct.pack("<I", len(held) if size is None else size) + held + bytes(len(held) % 2)


def fmt(code: int = 1, channels: int = 1, rate: int = 8_000, bits: int = 16, frame_bytes: int | None = None) -> bytes:
    frame = channels * bits // 8 if frame_bytes is None else frame_bytes
    return chunk(b"fmt ", struct.pack("<HHIIHH", code, channels, rate, rate * frame, frame, bits))


def riff(*chunks: bytes, magic: bytes = b"RIFF", size: int | None = None) -> bytes:
    body = b"WAVE" + b"".join(chunks)
    return magic + struct.pack("<I", len(body) if size is None else size) + body
