"""Rows -> lhotse cuts: those that lhotse itself reads from the same files, with audio by path or in memory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lhotse import Recording, SupervisionSegment
from lhotse.audio import AudioSource
from lhotse.cut import Cut, MultiCut
from lhotse.serialization import deserialize_item
from lhotse.shar.utils import fill_shar_placeholder
from lhotse.utils import fastcopy

from playhead.errors import DataError, PlayheadError, RecipeError, SampleError
from playhead.formats.collect import own_id
from playhead.formats.jsonl import TRACK, row_object
from playhead.formats.lhotse import named_root, place_of
from playhead.formats.lhotse_cuts import ManifestPaths, check_cut, check_named
from playhead.formats.lhotse_shar import CUTS_ROLE, field_payloads, field_value
from playhead.formats.media import Media
from playhead.formats.registry import format_of
from playhead.formats.rows import Rows, Sample
from playhead.formats.shar_fields import NO_DATA, pairs
from playhead.formats.tar import TarReader
from playhead.formats.tar_rows import RowTar
from playhead.read.generator import SampleGenerator
from playhead.read.media import NOTHING_FETCHED, FetchedMedia
from playhead.read.media_rules import MediaRules, too_large
from playhead.read.row_decoder import RowDecoder
from playhead.read.samples import MadeSamples, Maker, chosen
from playhead.recipe.tree import Leaf
from playhead.recipe.values import LENGTH_TOLERANCE_SECONDS, AudioOptions, Recipe
from playhead.store import Buffer, Extent, Files, ask_together, is_url, open_file

CUT, KEY = "cut", "key"  # the fields of a sample: its cut, and a number that is its own

_KEYS_END = 1 << 63
_OF_CUTS = {"id", "start", "duration", "channel", "supervisions", "features", "recording", "custom"}
_PLACES = {"audio_filepath", "offset"}  # in the recording of the cut, and in its start


@dataclass(frozen=True)
class NewCutMaker:
    """Makes a CutMaker for a source, in any process."""

    in_memory: bool

    def __call__(self, recipe: Recipe, leaf: Leaf, files: Files) -> Maker:
        return CutMaker(recipe, leaf, files, in_memory=self.in_memory)


class CutMaker:
    """Makes the cuts of one source, in one process: samples of the fields `cut` and `key`.

    Local files that rows name are read by lhotse, when the dataset asks for audio; with `in_memory`, and where rows
    hold the audio or name a URL, cuts have the bytes.
    """

    recount = None

    def __init__(self, recipe: Recipe, leaf: Leaf, files: Files, *, in_memory: bool) -> None:
        self._decoder = RowDecoder(recipe, leaf, files)
        self._source, self._audio = leaf.source, leaf.source.audio or recipe.audio
        self._format = format_of(leaf.source, leaf.path).name
        self._root = named_root(leaf.source) if self._format in _MANIFESTS else None
        self._sources = _Sources(files, self._decoder.rules, in_memory)

    def raw(self, rows: Rows) -> list[Sample]:
        """Rows of lhotse's own formats as {"cut": cut}; others with recordings in place of their media."""
        if self._format in _MANIFESTS:
            return self._cuts(rows)
        samples = self._decoder.undecoded(self._decoder.raw(rows))
        media = [value for sample in samples for value in sample.values() if _is_audio(value)]
        held = self._sources.read(media)
        return [_with_recordings(sample, self._sources, held) for sample in samples]

    def fetch(self, raws: list[Sample], generators: Iterable[SampleGenerator]) -> FetchedMedia:  # noqa: ARG002
        """Nothing: `raw` reads the media, too."""
        return NOTHING_FETCHED

    def make(
        self,
        raws: list[Sample],
        generators: Iterable[SampleGenerator],
        fetched: FetchedMedia = NOTHING_FETCHED,  # noqa: ARG002
    ) -> MadeSamples:
        made: list[Sample] = []
        for raw, generator in zip(raws, generators, strict=False):
            key = generator.choose("cuts of a batch", _KEYS_END)
            try:
                cut = raw[CUT] if self._format in _MANIFESTS else _row_cut(chosen(raw, generator), key)
                made.append({CUT: self._delivered(cut), KEY: key})
            except (SampleError, DataError) as error:
                return MadeSamples(made, error)
        return MadeSamples(made, None)

    def _cuts(self, rows: Rows) -> list[Sample]:
        found: list[tuple[Cut, ManifestPaths]] = []
        try:
            for cut in _MANIFESTS[self._format](rows):
                found.append((cut, place_of(rows.shards[len(found)].name, self._root)))
        except DataError as error:
            error.at(rows.place(len(found)))
            raise
        media = [media for cut, place in found for media in _named(cut, place)]
        held = self._sources.read(media)
        return [{CUT: _with_sources(cut, place, self._sources, held)} for cut, place in found]

    def _delivered(self, cut: Cut) -> Cut:
        if self._source.tags:
            cut = fastcopy(cut, custom={**(cut.custom or {}), **self._source.tags})
        return _as_wanted(cut, self._audio) if cut.has_recording else cut


@dataclass(frozen=True)
class _Sources:
    """The audio of recordings that rows name."""

    files: Files
    rules: MediaRules
    in_memory: bool

    def read(self, media: Iterable[Media]) -> dict[str, bytes]:
        """The contents of files that are held in memory, by path. Each is read once for all cuts of it."""
        paths = [self.rules.resolve(each) for each in media if each.data is None]
        wanted = [path for path in dict.fromkeys(paths) if self.in_memory or is_url(path)]
        return dict(zip(wanted, ask_together(self.files, wanted, lambda i: self._content(wanted[i])), strict=True))

    def of(self, media: Media, channels: list[int], held: Mapping[str, bytes]) -> AudioSource:
        path = self.rules.resolve(media)
        return AudioSource("memory", channels, held[path]) if path in held else AudioSource("file", channels, path)

    def recording(self, media: Media, held: Mapping[str, bytes]) -> Recording:
        """A recording whose properties are those of its header."""
        name = media.path or "audio"
        data = media.data.read() if isinstance(media.data, Extent) else media.data
        try:
            if data is None:
                path = self.rules.resolve(media)
                if path not in held:
                    return Recording.from_file(path, recording_id=name)
                data = held[path]
            return Recording.from_bytes(data, recording_id=name)
        except PlayheadError:
            raise
        except Exception as error:
            raise SampleError(
                f"{name}: lhotse cannot open the audio", found=f"{type(error).__name__}: {error}"[:300]
            ) from error

    def _content(self, path: str) -> bytes:
        file = open_file(self.files, path)
        if file.size > self.rules.max_bytes:
            expected = f"at most {self.rules.max_bytes:,}"
            raise too_large(path, f"{file.size:,} bytes", expected, "max_bytes")
        return b"".join(file.pieces())


def _line_cuts(rows: Rows) -> Iterable[Cut]:
    return map(_cut, rows.payloads(TRACK))


def _shar_cuts(rows: Rows) -> Iterable[Cut]:
    """Cuts with the fields of their shards in place of placeholders, as lhotse fills them."""
    fields = field_payloads(rows, in_parts=False)
    for line in rows.payloads(CUTS_ROLE):
        cut = _cut(line)
        for role, found in fields.items():
            row = next(found)
            value = _held_manifest(row) if isinstance(row, RowTar) else field_value(role, row)
            if value is not None:
                setattr(cut, role, value)
        yield cut


_MANIFESTS = {"lhotse": _line_cuts, "lhotse_shar": _shar_cuts}


def _cut(line: Buffer) -> Cut:
    value = row_object(bytes(line).rstrip(), "strict")
    check_cut(value)
    if value["type"] == "Cut":  # the name of MonoCut before lhotse 0.8
        value["type"] = "MonoCut"
    return _deserialized(value, "the line is not a lhotse cut")


def _held_manifest(row: RowTar) -> Any:
    """The manifest in a row of a tar, with its data; None if the cut has none."""
    reader = TarReader(row)
    pair = next(pairs(reader))
    if pair.extension == NO_DATA:
        return None
    problem = f'"{pair.manifest.name}" is not a lhotse manifest'
    found = _deserialized(row_object(reader.read(pair.manifest.data, pair.manifest.size), "strict"), problem)
    fill_shar_placeholder(found, row.read(pair.data.data, pair.data.size), pair.data.name)
    return found


def _deserialized(value: dict[str, Any], problem: str) -> Any:
    try:
        return deserialize_item(value)
    except Exception as error:
        raise DataError(problem, found=f"{type(error).__name__}: {error}"[:300]) from error


def _recordings(cut: Cut) -> dict[str | None, Recording]:
    """The recordings of a cut that name files: its own, under None, and those of custom entries."""
    found = {None: cut.recording} | {
        name: value for name, value in (cut.custom or {}).items() if isinstance(value, Recording)
    }
    return {
        name: recording
        for name, recording in found.items()
        if recording is not None and any(source.type not in ("memory", "shar") for source in recording.sources)
    }


def _named(cut: Cut, place: ManifestPaths) -> list[Media]:
    return [_medium(source, place) for recording in _recordings(cut).values() for source in recording.sources]


def _medium(source: AudioSource, place: ManifestPaths) -> Media:
    check_named(source.type, str(source.source))
    return Media("audio", path=place.path(source.source), base=place.base)


def _with_sources(cut: Cut, place: ManifestPaths, sources: _Sources, held: Mapping[str, bytes]) -> Cut:
    """The cut with the locations of its recordings resolved, or their contents."""
    for name, recording in _recordings(cut).items():
        found = [sources.of(_medium(source, place), source.channels, held) for source in recording.sources]
        changed = fastcopy(recording, sources=found)
        if name is None:
            cut.recording = changed
        else:
            cut.custom[name] = changed
    return cut


def _is_audio(value: Any) -> bool:
    return type(value) is Media and value.kind == "audio"


def _with_recordings(sample: Sample, sources: _Sources, held: Mapping[str, bytes]) -> Sample:
    """The sample with a recording, and the segment that is wanted of it, in place of each medium of audio."""
    return {
        name: (sources.recording(value, held), value.offset, value.duration) if _is_audio(value) else value
        for name, value in sample.items()
    }


def _row_cut(sample: Sample, key: int) -> Cut:
    """The cut of a row that is no cut: its first recording, one supervision, and all other fields as custom ones."""
    fields = {**_object(sample.get("json")), **sample}
    audio = [(name, value) for name, value in sample.items() if _is_segment(value)]
    if not audio:
        raise SampleError("a row without audio cannot be a cut", found=f"fields: {', '.join(map(str, sample))}"[:200])
    (_, (recording, offset, duration)), *others = audio
    cut = fastcopy(_segment(recording, offset, duration), id=_id(fields, key))
    said = SupervisionSegment(
        id=cut.id,
        recording_id=recording.id,
        start=0.0,
        duration=cut.duration,
        channel=cut.channel,
        text=_text(fields, "text", "txt"),
        language=_text(fields, "lang", "language"),
        speaker=_text(fields, "speaker"),
    )
    custom = {
        name: value for name, value in fields.items() if name not in _OF_CUTS | _PLACES and not _is_segment(value)
    }
    custom |= {name: found for name, (found, _, _) in others}
    return fastcopy(cut, supervisions=[said], custom=custom or None)


def _is_segment(value: Any) -> bool:
    return type(value) is tuple and len(value) == 3 and isinstance(value[0], Recording)


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _segment(recording: Recording, offset: float, duration: float | None) -> Cut:
    """A cut of a segment; as in NeMo, one that is as long as the recording, give or take 0.2 s, is all of it."""
    cut = recording.to_cut()
    left = recording.duration - offset
    if duration is None:
        duration = left
    if duration - left > LENGTH_TOLERANCE_SECONDS or not math.isfinite(offset + duration) or left <= 0:
        raise SampleError(
            f"{recording.id}: the recording is shorter than in its row",
            found=f"{recording.duration:g} s",
            expected=f"{offset + duration:g} s at least",
        )
    if not offset and abs(duration - left) <= LENGTH_TOLERANCE_SECONDS:
        return cut
    return cut.truncate(offset=offset, duration=min(duration, left), preserve_id=True)


def _id(fields: Mapping[str, Any], key: int) -> str:
    """The id of a row: as in the index, its own one, its key in a tar, or its audio file and offset."""
    found = own_id(fields) or fields.get("__key__")
    if found is None and isinstance(path := fields.get("audio_filepath"), str):
        offset = fields.get("offset")
        found = f"{path}@{offset}" if offset else path
    return str(found) if found is not None else f"{key:016x}"


def _text(fields: Mapping[str, Any], *names: str) -> str | None:
    return next((value for name in names if isinstance(value := fields.get(name), str)), None)


def _as_wanted(cut: Cut, audio: AudioOptions) -> Cut:
    """The cut with the channels and the rate of the recipe; lhotse resamples when audio is loaded."""
    if isinstance(cut, MultiCut) and audio.channels != "all":
        wanted = _channels(cut.channel, audio)
        cut = fastcopy(cut.with_channels(wanted), id=cut.id)
    if audio.sample_rate is not None:
        for name in [name for name, value in (cut.custom or {}).items() if isinstance(value, Recording)]:
            if cut.custom[name].sampling_rate != audio.sample_rate:
                cut = fastcopy(cut, custom={**cut.custom, name: cut.custom[name].resample(audio.sample_rate)})
        if cut.sampling_rate != audio.sample_rate:
            cut = cut.resample(audio.sample_rate)
    return cut


def _channels(available: Sequence[int], audio: AudioOptions) -> list[int]:
    if audio.channels == "mono":
        raise RecipeError(
            "`audio: {channels: mono}`: a cut of several channels cannot be mixed down by the loader",
            found=f"channels {list(available)}",
            fix="choose one (`channels: first`), or mix them in your dataset",
        )
    numbers = audio.channels if isinstance(audio.channels, list) else [0]
    if max(numbers) >= len(available):
        raise SampleError("the cut does not have the channels of the recipe", found=f"channels {list(available)}")
    return [available[number] for number in numbers]
