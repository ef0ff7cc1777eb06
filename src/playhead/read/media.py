"""The media of samples: fetched for a whole micro-batch at once, and decoded by kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from playhead.errors import DataError, PlayheadError, RecipeError, SampleError
from playhead.formats.media import Media, MediaKind
from playhead.formats.rows import Sample
from playhead.read.audio import as_wanted, chosen_channels
from playhead.read.codecs import FLAC_MAGICS, MP3_MAGICS, OTHER_MAGICS, open_flac, open_mp3, open_other
from playhead.read.media_rules import MediaRules
from playhead.read.stored import StoredArray
from playhead.read.wav import MAGICS, NoDecoderError, Readable, open_wav
from playhead.recipe.values import AudioOptions
from playhead.store import Buffer, Extent, File, Files, Ranges, ask_together, open_file, requests_cost
from playhead.store.addresses import without_query
from playhead.types import Array

ROUNDING_SECONDS = 0.001  # manifests round to milliseconds: a segment that ends so much past the end ends with the file

_HEAD_BYTES = 1 << 14
_WHOLE_BYTES = 1 << 20  # a file up to this size of which everything is wanted is read at once
_WHOLE_LOCAL_BYTES = 1 << 16
_MOST_SECONDS = 1e9
_AS_IT_IS = AudioOptions()
_WITHOUT_DECODER = {b"ftyp": "MP4 or M4A", b"\xff\xf1": "AAC", b"\xff\xf9": "AAC", b"\x1aE\xdf\xa3": "Matroska or WebM"}


class Timed(Protocol):
    """How long a recording is."""

    @property
    def rate(self) -> int: ...

    @property
    def num_frames(self) -> int: ...


class Recording(Timed, Protocol):
    """An opened recording: its header is read, its samples are not. Those of a plain one may stay in their file.

    `floats` makes the frames [first, end) of the bytes that `byte_range` says.
    """

    @property
    def channels(self) -> int: ...

    @property
    def is_plain(self) -> bool: ...

    def byte_range(self, first: int, end: int) -> tuple[int, int]: ...

    def floats(self, data: Buffer | Extent, first: int, end: int) -> Array | StoredArray: ...


def _open_riff(source: Readable) -> Recording:
    """PCM by numpy; a WAV file may hold other codecs, too."""
    try:
        return open_wav(source)
    except NoDecoderError as error:
        try:
            return open_other(source)
        except (RecipeError, SampleError):
            raise error from None


# By kind, then by the bytes that files of a container begin with: names are not trusted.
DECODERS: dict[MediaKind, dict[bytes, Callable[[Readable], Recording]]] = {
    "audio": {
        **dict.fromkeys(MAGICS, _open_riff),
        **dict.fromkeys(FLAC_MAGICS, open_flac),
        **dict.fromkeys(MP3_MAGICS, open_mp3),
        **dict.fromkeys(OTHER_MAGICS, open_other),
    },
}


@dataclass(frozen=True)
class MediaBytes:
    """The bytes of a medium: its beginning is here, the rest (if any) in the file, from byte `base` on."""

    path: str
    size: int
    head: Buffer
    file: File | None = None
    base: int = 0

    def read(self, offset: int, size: int) -> Buffer:
        end = min(offset + size, self.size)
        if self.file is None or end <= len(self.head):
            return self.head[offset:end]
        return self.file.read(self.base + offset, end - offset)

    def extents(self, wanted: Sequence[tuple[int, int]]) -> list[Extent] | None:
        """All ranges as they are in the file; None where it costs a round trip to read them later, or nothing now."""
        if self.file is None or all(end <= len(self.head) for _, end in wanted):
            return None
        if requests_cost(self.file.files, self.file.path):
            return None
        return [Extent(self.file, self.base + first, self.base + end) for first, end in wanted]

    def ranges(self, wanted: Sequence[tuple[int, int]]) -> Sequence[Buffer]:
        """All ranges, in one request to the storage, or none."""
        if self.file is None or all(end <= len(self.head) for _, end in wanted):
            view = memoryview(self.head)
            return [view[first:end] for first, end in wanted]
        firsts, ends = [self.base + first for first, _ in wanted], [self.base + end for _, end in wanted]
        return self.file.files.read(self.file.path, self.file.stamp, Ranges(firsts, ends))


def open_media(files: Files, path: str, *, whole: bool = False) -> MediaBytes:
    """A file with its beginning read: the header, or all of a small file where the `whole` is wanted."""
    file = open_file(files, path)
    most = _WHOLE_BYTES if requests_cost(files, path) else _WHOLE_LOCAL_BYTES
    size = file.size if whole and file.size <= most else _HEAD_BYTES
    return MediaBytes(without_query(path), file.size, file.read(0, size), file)


def media_bytes(path: str, data: bytes | Extent) -> MediaBytes:
    """A medium that a row holds."""
    if isinstance(data, Extent):
        return MediaBytes(path, data.size, data.head, data.file, data.first)
    return MediaBytes(path, len(data), data)


def open_medium(media: Media, files: Files, rules: MediaRules, field: str) -> MediaBytes:
    """The medium in a field of a row, with its beginning read; one that the rules do not allow is a SampleError."""
    if media.data is None:
        return open_media(files, rules.resolve(media))
    return media_bytes(f'the bytes in "{field}"' if media.path is None else without_query(media.path), media.data)


class _Wanted(NamedTuple):
    sample: int
    field: str
    media: Media


class _Audio(NamedTuple):
    samples: Array | StoredArray
    rate: int


def decode_media(
    samples: list[Sample], files: Files, rules: MediaRules, audio: AudioOptions = _AS_IT_IS
) -> tuple[list[Sample], SampleError | DataError | None]:
    """The samples with their media fetched and decoded, up to the first that fails, and how that one does.

    Audio becomes an array of shape (samples,) or (samples, channels), of float32 from -1 to 1 unless `audio` says
    otherwise, with `<field>_rate` beside it; a StoredArray where its numbers need no decoding, and of a local file they
    are not read yet.
    Law: each file costs one stamp, one read of its header and at most one more for all that is wanted of it; where
    requests take a round trip, those of many files are in flight together. What fails in the storage is raised.
    """
    wanted = [
        _Wanted(number, field, value)
        for number, sample in enumerate(samples)
        for field, value in sample.items()
        if type(value) is Media
    ]
    if not wanted:
        return samples, None
    found = _Decoding(files, rules, audio).all(wanted)
    done: list[Sample] = []
    for number, sample in enumerate(samples):
        made: Sample = {}
        for field, value in sample.items():
            if type(value) is not Media:
                made.setdefault(field, value)  # unless it is the rate of a field before it
                continue
            decoded = found[number, field]
            if isinstance(decoded, PlayheadError):
                return done, decoded
            made[field], made[f"{field}_rate"] = decoded
        done.append(made)
    return done, None


_Found = dict[tuple[int, str], _Audio | SampleError | DataError]


@dataclass(frozen=True)
class _Decoding:
    files: Files
    rules: MediaRules
    audio: AudioOptions

    def all(self, wanted: Sequence[_Wanted]) -> _Found:
        found: _Found = {}
        named: dict[tuple[str, MediaKind], list[_Wanted]] = {}
        for each in wanted:
            media = each.media
            if media.data is not None:
                self._decode(open_medium(media, self.files, self.rules, each.field), [each], found)
                continue
            try:
                named.setdefault((self.rules.resolve(media), media.kind), []).append(each)
            except SampleError as error:
                found[each.sample, each.field] = error
        paths, groups = [path for path, _ in named], list(named.values())

        def fetch(i: int) -> None:
            whole = any(each.media.duration is None for each in groups[i])
            try:
                self._decode(open_media(self.files, paths[i], whole=whole), groups[i], found)
            except DataError as error:
                found.update({(each.sample, each.field): error for each in groups[i]})

        ask_together(self.files, paths, fetch)
        return found

    def _decode(self, source: MediaBytes, group: Sequence[_Wanted], found: _Found) -> None:
        """Decode what a group wants of one medium."""
        try:
            recording = open_recording(source, group[0].media.kind)
        except SampleError as error:
            found.update({(each.sample, each.field): error for each in group})
            return
        frames: dict[tuple[int, str], tuple[int, int]] = {}
        for each in group:
            try:
                frames[each.sample, each.field] = _wanted_frames(source.path, recording, each.media, self.rules)
            except SampleError as error:
                found[each.sample, each.field] = error
        ranges = list(dict.fromkeys(recording.byte_range(*bounds) for bounds in frames.values()))
        unread = source.extents(ranges) if recording.is_plain else None
        parts = dict(zip(ranges, source.ranges(ranges) if unread is None else unread, strict=True)) if ranges else {}
        for each in group:
            key = each.sample, each.field
            if key not in frames:
                continue
            bounds = frames[key]
            try:
                samples = recording.floats(parts[recording.byte_range(*bounds)], *bounds)
                if each.media.channels is not None:
                    samples = chosen_channels(source.path, samples, each.media.channels, "the channels in the row")
                found[key] = _Audio(*as_wanted(source.path, samples, recording.rate, self.audio))
            except SampleError as error:
                found[key] = error


def open_recording(source: Readable, kind: MediaKind = "audio") -> Recording:
    """A medium opened by the decoder of its kind and magic."""
    head = bytes(source.read(0, 12))
    for magic, opens in DECODERS.get(kind, {}).items():
        if head.startswith(magic):
            return opens(source)
    name = next((name for magic, name in _WITHOUT_DECODER.items() if magic in head[:8]), None)
    raise NoDecoderError(
        f"{source.path}: there is no decoder for this {kind}",
        found=f"{name} (it begins with {head[:8]!r})" if name else f"it begins with {head[:12]!r}",
        expected="WAV, FLAC, MP3, Ogg, AIFF, W64, CAF or AU",
        fix="store it as one of these, or say `media: false` and decode it in the map (with torchcodec, for one)",
    )


def _wanted_frames(path: str, recording: Recording, media: Media, rules: MediaRules) -> tuple[int, int]:
    """The frames of a segment that keeps the limits."""
    first, end = segment_frames(path, recording, media.offset, media.duration, media.slack)
    if media.crop is not None:
        first, end = media.crop.frames(first, end, recording.rate)
    seconds = (end - first) / recording.rate
    if seconds > rules.max_seconds:
        raise _too_large(path, f"{seconds:,.3f} s", f"{rules.max_seconds:,.3f} s at most", "max_seconds")
    low, high = recording.byte_range(first, end)
    decoded = 0 if recording.is_plain else 4 * recording.channels * (recording.num_frames if high else end - first)
    num_bytes = max(high - low, decoded)
    if num_bytes > rules.max_bytes:
        raise _too_large(path, f"{num_bytes:,} bytes", f"{rules.max_bytes:,} at most", "max_bytes")
    return first, end


def segment_frames(
    path: str, recording: Timed, offset: float, duration: float | None, slack: float = ROUNDING_SECONDS
) -> tuple[int, int]:
    """The first frame of a segment and the one after its last; one outside the recording is a SampleError."""
    rate, num_frames = recording.rate, recording.num_frames
    if offset == 0 and duration is None:
        return 0, num_frames
    if _is_time(offset) and (duration is None or _is_time(duration)):
        first = round(offset * rate)
        end = num_frames if duration is None else round((offset + duration) * rate)
        if num_frames < end <= num_frames + slack * rate:
            end = num_frames
        if first < end <= num_frames:
            return first, end
    until = "to its end" if duration is None else f"of {str(duration)[:20]} s"
    raise SampleError(
        f"{path}: the segment is not within the recording",
        found=f"a segment {until}, from {str(offset)[:20]} s on",
        expected=f"times up to {num_frames / rate:g} s",
    )


def _is_time(seconds: object) -> bool:
    return isinstance(seconds, int | float) and 0 <= seconds <= _MOST_SECONDS


def _too_large(path: str, found: str, expected: str, limit: str) -> SampleError:
    fix = f"leave the row out, or raise the limit in the recipe: `media: {{{limit}: ...}}`"
    return SampleError(f"{path}: is too large for one sample", found=found, expected=expected, fix=fix)
