"""One tar of windows: cut, written atomically, and described in a file beside it so that it is not cut again."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

import msgspec
from msgspec import Struct

from playhead.curate.clips import AudioKind, Recordings
from playhead.errors import DataError, RecipeError, SampleError
from playhead.fingerprint import digest
from playhead.formats.media import Media
from playhead.read.media_rules import MediaRules
from playhead.store import Files, replacing

_VERSION = 1
_FIX = "correct or remove it; or leave out windows like it with --on-error reject"


class RejectedWindow(Struct, frozen=True):
    """A window that could not be cut: its line in the manifest, counted from 1, and why."""

    line: int
    reason: str


class ShardSummary(Struct, frozen=True):
    """The contents of a tar. `inputs` is a digest of everything that determines its bytes."""

    inputs: str
    num_windows: int
    seconds: float
    num_bytes: int
    rejected: tuple[RejectedWindow, ...] = ()


class _Window(Struct):
    id: str
    audio_filepath: str
    duration: float
    offset: float = 0.0
    source: Any = None


@dataclass(frozen=True, kw_only=True)
class ShardConfig:
    """`audio_root` is where relative audio paths begin; by default in the folder of the manifest of the row."""

    kind: AudioKind = "wav"
    windows_per_shard: int = 1000
    audio_root: str | None = None
    on_error: Literal["stop", "reject"] = "stop"

    def __post_init__(self) -> None:
        """Refuse invalid values."""
        if self.kind not in {"wav", "flac"}:
            raise RecipeError("shards: unknown kind of audio", found=str(self.kind), expected="wav or flac")
        if self.windows_per_shard < 1:
            raise RecipeError("windows_per_shard: too few", found=str(self.windows_per_shard), expected="1 or more")
        if self.on_error not in {"stop", "reject"}:
            raise RecipeError("on_error: unknown value", found=str(self.on_error), expected="stop or reject")


@dataclass(frozen=True)
class ShardJob:
    """Lines of a manifest to be cut into one tar."""

    files: Files
    rules: MediaRules
    manifest: str
    first_line: int
    lines: tuple[bytes, ...]
    target: Path
    config: ShardConfig

    @property
    def name(self) -> str:
        return str(self.target)

    def run(self) -> tuple[ShardSummary, bool]:
        """The summary, and whether the tar already existed."""
        inputs = self._inputs()
        there = read_summary(self.target)
        if there is not None and there.inputs == inputs and _size(self.target) == there.num_bytes:
            return there, True
        return self._write(inputs), False

    def _write(self, inputs: str) -> ShardSummary:
        rejected: list[RejectedWindow] = []
        held = _Held()
        recordings = Recordings(self.config.kind, self.files)
        with replacing(self.target) as file:
            with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
                for number, line in self._numbered():
                    try:
                        held.add(tar, self._window(line), line, recordings, self)
                    except (DataError, SampleError) as error:
                        if self.config.on_error == "stop":
                            error.fix = error.fix or _FIX
                            raise error.at(f"{self.manifest}, line {number:,}") from error.__cause__
                        rejected.append(RejectedWindow(number, str(error)))
            size = _end_of(file)
        if not held.ids:
            self.target.unlink()  # a tar without a sample is an error to its readers
            size = 0
        summary = ShardSummary(inputs, len(held.ids), held.seconds, size, tuple(rejected))
        with replacing(summary_path(self.target)) as file:
            file.write(msgspec.json.encode(summary))
        return summary

    def _numbered(self) -> Iterator[tuple[int, bytes]]:
        return ((self.first_line + i, line) for i, line in enumerate(self.lines) if line.strip())

    def _window(self, line: bytes) -> _Window:
        try:
            window = msgspec.json.decode(line, type=_Window)
        except msgspec.MsgspecError as error:
            raise DataError(
                "is not a window", found=str(error), expected="id, audio_filepath, duration and perhaps offset"
            ) from error
        if not window.id or any(character in window.id for character in "./"):
            raise DataError(
                "id: cannot name a sample", found=repr(window.id), expected="a text without a dot or a slash"
            )
        return window

    def path_of(self, window: _Window) -> str:
        """The path of a window's recording. Relative paths begin at the root, or beside the manifest of its row."""
        root = self.config.audio_root
        if root is None:
            origin = window.source.get("file") if isinstance(window.source, dict) else None
            root = (origin if isinstance(origin, str) else self.manifest).rpartition("/")[0] or "."
        return self.rules.resolve(Media("audio", path=window.audio_filepath, base=root))

    def _inputs(self) -> str:
        """A digest of the lines, the settings, and the stamps of the recordings; a missing recording has no stamp."""
        stamps: dict[str, Any] = {}
        for _, line in self._numbered():
            try:
                path = self.path_of(self._window(line))
                if path not in stamps:
                    stamps[path] = self.files.stamp(path)
            except (DataError, SampleError):
                continue
        settings = [self.config.kind, self.config.on_error]
        return digest([_VERSION, self.first_line, self.lines, *settings, sorted(stamps.items())])


class _Held:
    """The contents of a tar so far."""

    def __init__(self) -> None:
        self.ids: set[str] = set()
        self.seconds = 0.0

    def add(self, tar: tarfile.TarFile, window: _Window, line: bytes, recordings: Recordings, job: ShardJob) -> None:
        if window.id in self.ids:
            raise DataError("id: occurs twice", found=repr(window.id), expected="every window once")
        clip = recordings.clip(job.path_of(window), window.offset, window.duration)
        for ending, content in ((job.config.kind, clip), ("json", line.strip())):
            # The time, owner and mode of a member are those of a new TarInfo: always the same.
            member = tarfile.TarInfo(f"{window.id}.{ending}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
        self.ids.add(window.id)
        self.seconds += window.duration


def summary_path(target: Path) -> Path:
    return target.with_name(f"{target.name}.done")


def read_summary(target: Path) -> ShardSummary | None:
    """The summary beside a tar; None if there is no complete one."""
    path = summary_path(target)
    if not path.is_file():
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=ShardSummary)
    except msgspec.MsgspecError:
        return None


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _end_of(file: BinaryIO) -> int:
    return file.seek(0, os.SEEK_END)
