"""Lhotse cuts: the contents of a manifest line, and the sample made from it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import msgspec
from msgspec import Struct

from playhead.errors import DataError
from playhead.formats.jsonl import LineKind, row_object, text_bytes
from playhead.formats.lengths import read_field
from playhead.formats.media import Media
from playhead.formats.rows import Sample
from playhead.recipe.values import Length
from playhead.store import Buffer, Extent, is_url

ID, AUDIO, DURATION, TEXT, SUPERVISIONS = "id", "audio", "duration", "text", "supervisions"
BY_DURATION = Length(field=DURATION, unit="seconds")

CutType = Literal["MonoCut", "MultiCut", "Cut"]  # the last is what MonoCut was called before lhotse 0.8
Channels = int | list[int] | None

_CUT_FIELDS = frozenset({ID, "start", DURATION, "channel", SUPERVISIONS, "features", "recording", "custom", "type"})
_RECORDING_FIELDS = ("id", "sources", "sampling_rate")


class AudioSource(Struct, frozen=True):
    """A file of a recording, and which of the recording's channels are in it."""

    type: str
    channels: list[int]
    source: str = ""


class RecordingManifest(Struct, frozen=True):
    """The manifest of a recording."""

    sources: list[AudioSource]
    sampling_rate: int
    transforms: list[Any] | None = None


class Cut(Struct, frozen=True):
    """A part of a recording, with its transcripts."""

    id: str | int
    duration: float
    type: CutType
    start: float = 0.0
    channel: Channels = None
    recording: RecordingManifest | None = None
    supervisions: list[dict[str, Any]] | None = None
    custom: dict[str, Any] | None = None


class CutSpan(NamedTuple):
    """The part of a recording that a cut covers: seconds (no duration: up to the end) and channels (None: all)."""

    start: float
    duration: float | None
    channels: Channels


class ManifestPaths(NamedTuple):
    """Resolves recordings named in a manifest: it is in the directory `base`; relative paths begin at `root`."""

    base: str
    root: str

    def path(self, named: str) -> str:
        return named if is_url(named) or named.startswith("/") else f"{self.root}/{named}"


_CUT = msgspec.json.Decoder(Cut)


def decode_cut(line: Buffer) -> Cut:
    """A line as a cut; DataError if it cannot be read."""
    try:
        return _CUT.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = row_object(bytes(line).rstrip(), "strict")
    check_cut(value)
    try:
        return msgspec.convert(value, Cut)
    except msgspec.ValidationError as error:
        raise DataError("the line is not a lhotse cut", found=str(error), expected="a MonoCut or MultiCut") from None


def check_cut(value: Mapping[str, Any]) -> None:
    """Refuse objects that are not cuts, cuts of other types, and recordings that would have to be computed."""
    kind = value.get("type")
    if kind not in get_args(CutType):
        named = isinstance(kind, str)
        raise DataError(
            f"a cut of type {kind} cannot be read" if named else "the line is not a lhotse cut",
            found=f"the cut {value.get(ID)!r}" if named else f"fields: {', '.join(value) or 'none'}"[:200],
            expected="cuts of type MonoCut or MultiCut",
            fix="leave such cuts out, or write their audio as it sounds (`CutSet.save_audios`)",
        )
    recording = value.get("recording")
    if isinstance(recording, dict):
        _check_transforms(recording.get("transforms"))
    elif recording is not None:
        raise DataError("the recording of a cut is not an object", found=repr(recording)[:80])


def cut_sample(cut: Cut, audio: Mapping[str, Media | None], place: ManifestPaths) -> Sample:
    """The sample of a cut; `audio` is its recording, if it has one.

    Custom entries are under their names, and recordings among them are media; one with the name of a field of the cut
    is left out, as lhotse hides it.
    """
    sample: Sample = {ID: cut.id, **audio, DURATION: cut.duration}
    sample[TEXT], sample[SUPERVISIONS] = _text(cut.supervisions), cut.supervisions or []
    for name, value in (cut.custom or {}).items():
        if name in sample:
            continue
        if not _is_recording(value):
            sample[name] = value
            continue
        recording = _converted(value, name)
        if any(source.type != "shar" for source in recording.sources):  # otherwise a field that was not requested
            sample[name] = named_media(recording, custom_part(cut, name), place)
    return sample


def cut_part(cut: Cut) -> CutSpan:
    """The span of a cut in its recording."""
    return CutSpan(cut.start, cut.duration, cut.channel)


def custom_part(cut: Cut, name: str) -> CutSpan:
    """The span of a cut in a recording of a custom entry, as in lhotse: such a recording has its own channels."""
    custom = cut.custom or {}
    channels = custom.get(f"{name}_channel_selector")
    if custom.get(f"{name}_unaligned"):
        return CutSpan(0.0, None, channels)
    return CutSpan(cut.start, cut.duration, channels)


def named_media(recording: RecordingManifest, part: CutSpan, place: ManifestPaths) -> Media:
    """A part of a recording that the manifest names."""
    offset, duration = _segment(recording, part)
    found = []
    for source, channels in _sources(recording, part.channels):
        check_named(source.type, source.source)
        path = place.path(source.source)
        found.append(Media("audio", path=path, offset=offset, duration=duration, base=place.base, channels=channels))
    return found[0] if len(found) == 1 else Media("audio", parts=tuple(found))


def check_named(kind: str, path: str) -> None:
    """Refuse a source of a recording that is not a file: a command is never run."""
    if kind not in ("file", "url"):
        in_shar = "use `format: lhotse_shar`, and name the directory"
        raise DataError(
            f'a recording of type "{kind}" cannot be read',
            found=path[:80] or "no path",
            expected='recordings of type "file" or "url"',
            fix=in_shar if kind == "shar" else "write the audio to files (`CutSet.save_audios`)",
        )


def held_media(recording: RecordingManifest, part: CutSpan, data: bytes | Extent, name: str) -> Media:
    """A part of a recording whose bytes are available; `name` is for messages."""
    found = _sources(recording, part.channels)
    if len(found) != 1:
        raise DataError(
            "a recording of one member has several sources",
            found=", ".join(source.source for source, _ in found)[:200],
            fix="write the shard again",
        )
    offset, duration = _segment(recording, part)
    return Media("audio", data, name, offset, duration, channels=found[0][1])


def _segment(recording: RecordingManifest, part: CutSpan) -> tuple[float, float | None]:
    """Offset and duration, each rounded to whole samples, as in lhotse."""
    rate = recording.sampling_rate
    if rate <= 0 or not math.isfinite(part.start + (part.duration or 0.0)):
        raise DataError(
            "a cut has an invalid time span",
            found=f"from {part.start} s on, {part.duration} s, at {rate} Hz",
        )
    duration = None if part.duration is None else _num_samples(part.duration, rate) / rate
    return _num_samples(part.start, rate) / rate, duration


def _num_samples(seconds: float, rate: int) -> int:
    return math.floor(round(seconds * rate, 8) + 0.5)


def _sources(recording: RecordingManifest, channels: Channels) -> list[tuple[AudioSource, tuple[int, ...] | None]]:
    """The files that contain these channels, each with the channels to take from it (None: all).

    As in lhotse they are in the order of the recording's sources and their channels, not in that of the cut.
    """
    _check_transforms(recording.transforms)
    wanted = None if channels is None else {channels} if isinstance(channels, int) else set(channels)
    there = {number for source in recording.sources for number in source.channels}
    if not there or (wanted is not None and not (wanted and wanted <= there)):
        raise DataError(
            "the recording does not have the channels of its cut",
            found=f"channels {sorted(there)}",
            expected="one channel at least" if wanted is None else f"channels {sorted(wanted)}",
        )
    found = []
    for source in recording.sources:
        numbers = tuple(i for i, number in enumerate(source.channels) if wanted is None or number in wanted)
        if numbers:
            found.append((source, None if len(numbers) == len(source.channels) else numbers))
    return found


def _check_transforms(transforms: Any) -> None:
    if transforms:
        names = [each.get("name") if isinstance(each, dict) else each for each in transforms]
        raise DataError(
            f"a recording with transforms ({', '.join(map(str, names))[:100]}) cannot be read",
            expected="recordings as they are in their files",
            fix="write the audio as it sounds (`CutSet.save_audios`); to resample, set `audio: {sample_rate: ...}`",
        )


def _is_recording(value: Any) -> bool:
    """Whether a custom entry is the manifest of a recording, as lhotse decides it."""
    return isinstance(value, dict) and all(name in value for name in _RECORDING_FIELDS)


def _converted(value: Any, name: str) -> RecordingManifest:
    try:
        return msgspec.convert(value, RecordingManifest)
    except msgspec.ValidationError as error:
        raise DataError(f'the custom entry "{name}" is not a recording', found=str(error)) from None


def _text(supervisions: Any) -> str:
    """The texts of all supervisions that have one."""
    if not isinstance(supervisions, list):
        return ""
    texts = (each.get(TEXT) for each in supervisions if isinstance(each, dict))
    return " ".join(text for text in texts if isinstance(text, str))


def _place_of(field: str) -> str | None:
    """Where a field of the sample is in the line; None for the text, which is made of the supervisions."""
    if field == TEXT:
        return None
    return field if field.partition(".")[0] in _CUT_FIELDS else f"custom.{field}"


@dataclass(frozen=True)
class _CutRow:
    """A cut as a row for a Collector: its fields are those of the sample and of the line."""

    raw: bytes
    value: Sample

    def get(self, field: str) -> Any:
        place = _place_of(field)
        return _text(self.value.get(SUPERVISIONS)) if place is None else read_field(self.value, place)

    def size(self, field: str | None) -> int:
        return len(self.raw) if field is None else text_bytes(self.get(field), field)

    def sample(self) -> Sample:
        return cut_sample(decode_cut(self.raw), {}, ManifestPaths("", ""))


def _cut_row(raw: bytes, value: Sample) -> _CutRow:
    check_cut(value)
    return _CutRow(raw, value)


class _Untransformed(Struct, frozen=True):
    """The fields of a recording that a scan needs."""

    transforms: None = None


CUTS = LineKind(_cut_row, _place_of, {"type": CutType, "recording": _Untransformed | None})
