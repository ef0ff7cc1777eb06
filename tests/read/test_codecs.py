"""Audio in every container, held against soundfile: whole, in segments, and as the recipe wants it."""

from __future__ import annotations

import io
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import soxr
from hypothesis import given, settings
from hypothesis import strategies as st

from playhead import Loader, Recipe, RecipeError, SampleError
from playhead.formats.media import Media
from playhead.prepare import prepare
from playhead.read import codecs, media
from playhead.read.media_rules import MediaRules
from playhead.read.stored import read_arrays
from playhead.recipe.values import AudioOptions
from playhead.store import CountingFiles, LocalFiles, MemoryFiles
from small_data import write_tar

EXACT = [
    ("FLAC", "PCM_16"),
    ("FLAC", "PCM_24"),
    ("AIFF", "PCM_16"),
    ("W64", "PCM_24"),
    ("CAF", "PCM_16"),
    ("AU", "PCM_16"),
]
EXACT += [("WAV", "ULAW"), ("OGG", "VORBIS"), ("OGG", "OPUS"), ("MP3", "MPEG_LAYER_III")]
RULES = MediaRules(())


def tone(num_frames: int, channels: int = 1, seed: int = 0) -> np.ndarray:
    """A tone of its own frequency and some noise in each channel."""
    times = np.arange(num_frames)[:, None] / 16_000
    noise = np.random.default_rng(seed).normal(0, 0.02, (num_frames, channels))
    return np.sin(2 * np.pi * times * (np.arange(channels) + 1) * 220) * 0.5 + noise


def encoded(samples: np.ndarray, container: str, subtype: str, rate: int = 16_000) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format=container, subtype=subtype)
    return file.getvalue()


def by_soundfile(data: bytes, first: int = 0, end: int | None = None) -> np.ndarray:
    return soundfile.read(io.BytesIO(data), start=first, stop=end, dtype="float32")[0]


def decoded(value: Media, files: Any = None, how: AudioOptions | None = None) -> tuple[np.ndarray, int]:
    samples, problem = media.decode_media([{"a": value}], files or MemoryFiles(), RULES, how or AudioOptions())
    if problem is not None:
        raise problem
    found = read_arrays(samples)[0]
    return found["a"], found["a_rate"]


@pytest.mark.parametrize(("container", "subtype"), EXACT)
@pytest.mark.parametrize("channels", [1, 2])
def test_samples_are_those_of_soundfile(container: str, subtype: str, channels: int) -> None:
    data = encoded(tone(20_000, channels), container, subtype)
    found, rate = decoded(Media("audio", data))
    assert rate == soundfile.info(io.BytesIO(data)).samplerate
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, by_soundfile(data))
    part, _ = decoded(Media("audio", data, offset=0.25, duration=0.5))
    if subtype != "OPUS":  # whose frames depend on where decoding began
        np.testing.assert_array_equal(part, by_soundfile(data, rate // 4, rate * 3 // 4))


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 4000), st.integers(1, 2), st.data())
def test_any_segment_of_a_flac_is_that_part_of_it(num_frames: int, channels: int, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, num_frames - 1))
    end = data.draw(st.integers(first + 1, num_frames))
    whole = encoded(tone(num_frames, channels), "FLAC", "PCM_16")
    found, _ = decoded(Media("audio", whole, offset=first / 16_000, duration=(end - first) / 16_000))
    np.testing.assert_array_equal(found, by_soundfile(whole, first, end))


def test_a_short_segment_of_a_long_recording_is_sought_and_the_rest_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "long.flac"
    path.write_bytes(encoded(np.random.default_rng(0).uniform(-1, 1, 4_000_000), "FLAC", "PCM_16"))
    files = CountingFiles(LocalFiles())
    found, _ = decoded(Media("audio", path=str(path), offset=200.0, duration=1.0), files)
    np.testing.assert_array_equal(found, by_soundfile(path.read_bytes(), 3_200_000, 3_216_000))
    assert files.counts["bytes"] < path.stat().st_size / 4


def bursts(num_frames: int, rate: int, channels: int) -> np.ndarray:
    """Tones that come and go: coded with a variable rate, a frame borrows the bits of many before it."""
    random = np.random.default_rng(rate + channels)
    found = np.zeros((num_frames, channels))
    for _ in range(num_frames // rate):
        first, size = random.integers(0, num_frames - rate), random.integers(100, rate)
        wave = np.sin(np.arange(size) / rate * random.uniform(300, 18_000)) * random.uniform(0.01, 0.5)
        found[first : first + size] += wave[:, None]
    return np.clip(found, -0.9, 0.9)


@pytest.mark.parametrize(
    ("container", "subtype", "rate", "channels", "how"),
    [
        ("MP3", "MPEG_LAYER_III", 22_050, 2, {"bitrate_mode": "VARIABLE", "compression_level": 0.95}),
        ("MP3", "MPEG_LAYER_III", 22_050, 2, {"bitrate_mode": "VARIABLE", "compression_level": 0.0}),
        ("MP3", "MPEG_LAYER_III", 16_000, 1, {"bitrate_mode": "VARIABLE", "compression_level": 0.5}),
        ("MP3", "MPEG_LAYER_III", 44_100, 1, {"bitrate_mode": "CONSTANT", "compression_level": 0.9}),
        ("OGG", "OPUS", 16_000, 1, {}),
        ("OGG", "VORBIS", 44_100, 2, {}),
    ],
)
def test_a_segment_that_is_sought_is_that_part_of_what_is_decoded_whole(
    container: str, subtype: str, rate: int, channels: int, how: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = io.BytesIO()
    with soundfile.SoundFile(file, "w", rate, channels, format=container, subtype=subtype, **how) as writer:
        for part in np.split(bursts(60 * rate, rate, channels), 60):
            writer.write(part)
    data = file.getvalue()
    whole = by_soundfile(data)
    monkeypatch.setattr(codecs, "_SOUGHT_BYTES", 1 << 10)
    random = np.random.default_rng(1)
    for first in random.integers(0, len(whole) - rate, 40).tolist():
        found, _ = decoded(Media("audio", data, offset=first / rate, duration=1.0))
        np.testing.assert_allclose(found, whole[first : first + rate], rtol=0, atol=1e-6)


def test_flac_after_tags_is_flac_and_mp3_after_tags_is_mp3() -> None:
    tag = b"ID3\x04\0\0\0\0\x01\x03" + bytes((1 << 7) + 3)
    with_footer = b"ID3\x04\0\x10\0\0\0\x05" + bytes(5) + b"3DI\x04\0\x10\0\0\0\x05"
    for container, subtype in (("FLAC", "PCM_16"), ("MP3", "MPEG_LAYER_III")):
        plain = encoded(tone(30_000), container, subtype)
        for data in (tag + plain, with_footer + tag + plain):
            found, _ = decoded(Media("audio", data))
            np.testing.assert_array_equal(found, by_soundfile(plain))
            part, _ = decoded(Media("audio", data, offset=0.5, duration=0.25))
            np.testing.assert_array_equal(part, by_soundfile(plain)[8_000:12_000])
    with pytest.raises(SampleError):
        decoded(Media("audio", tag))


def test_a_large_file_that_begins_as_an_mp3_is_not_read_into_memory(tmp_path: Path) -> None:
    path = tmp_path / "large.mp3"
    data = encoded(np.concatenate([tone(16_000)] * 30), "MP3", "MPEG_LAYER_III")
    with path.open("wb") as file:
        file.write(b"ID3\x04\0\0\0\0\0\x0a" + bytes(10))
        file.truncate(1 << 33)
    files = CountingFiles(LocalFiles())
    with pytest.raises(SampleError):
        decoded(Media("audio", path=str(path)), files)
    path.write_bytes(data)
    rules = MediaRules((), max_bytes=1 << 20)
    files = CountingFiles(LocalFiles())
    _, problem = media.decode_media([{"a": Media("audio", path=str(path))}], files, rules)
    assert isinstance(problem, SampleError)
    assert "1,920,000 bytes" in problem.found


def test_segments_of_one_recording_are_decoded_once(tmp_path: Path) -> None:
    path = tmp_path / "a.flac"
    path.write_bytes(encoded(tone(64_000), "FLAC", "PCM_16"))
    files = CountingFiles(LocalFiles())
    rows = [{"a": Media("audio", path=str(path), offset=float(i), duration=1.0)} for i in range(4)]
    samples, problem = media.decode_media(rows, files, RULES)
    assert problem is None
    np.testing.assert_array_equal(np.concatenate([sample["a"] for sample in samples]), by_soundfile(path.read_bytes()))
    assert files.counts["bytes"] < path.stat().st_size + (1 << 15)


@pytest.mark.parametrize(("container", "subtype"), [*EXACT, ("AIFF", "FLOAT"), ("CAF", "ALAC_16"), ("RF64", "ULAW")])
def test_what_is_cut_off_is_a_bad_sample(container: str, subtype: str) -> None:
    data = encoded(tone(40_000), container, subtype)
    assert len(decoded(Media("audio", data))[0]) == len(by_soundfile(data))
    for size in (len(data) - 1, len(data) * 9 // 10, len(data) // 3, 150):
        with pytest.raises(SampleError, match=r"is truncated|cannot be decoded|is not an audio file"):
            decoded(Media("audio", data[:size]))


def test_big_endian_wav_that_is_cut_off_is_a_bad_sample() -> None:
    file = io.BytesIO()
    soundfile.write(file, tone(4_000), 16_000, format="WAV", subtype="PCM_16", endian="BIG")
    assert len(decoded(Media("audio", file.getvalue()))[0]) == 4_000
    with pytest.raises(SampleError, match="is truncated"):
        decoded(Media("audio", file.getvalue()[:-1]))


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(["FLAC", "MP3", "OGG", "AIFF"]), st.data())
def test_whatever_is_written_over_it_it_is_audio_or_a_bad_sample(container: str, data: st.DataObject) -> None:
    subtype = {"MP3": "MPEG_LAYER_III", "OGG": "VORBIS"}.get(container, "PCM_16")
    whole = bytearray(encoded(tone(2_000), container, subtype))
    at = data.draw(st.integers(4, len(whole) - 9))
    whole[at : at + 8] = data.draw(st.binary(min_size=8, max_size=8))
    try:
        found, rate = decoded(Media("audio", bytes(whole)))
    except SampleError:
        return
    assert found.dtype == np.float32
    assert rate > 0


def test_decoded_audio_beyond_the_limit_is_refused_before_it_is_decoded() -> None:
    silence = encoded(np.zeros(3_000_000), "FLAC", "PCM_16")
    assert len(silence) < 40_000
    _, problem = media.decode_media([{"a": Media("audio", silence)}], MemoryFiles(), MediaRules((), max_bytes=1 << 20))
    assert isinstance(problem, SampleError)
    assert "12,000,000 bytes" in problem.found


@pytest.mark.parametrize("container", ["WAV", "FLAC"])
def test_channels_rate_and_dtype_are_as_the_recipe_wants_them(container: str) -> None:
    data = encoded(tone(16_000, 3), container, "PCM_16")
    plain = by_soundfile(data)
    for channels, expected in [
        ("all", plain),
        ("mono", plain.mean(axis=1, dtype=np.float32)),
        ("first", plain[:, 0]),
        ([2], plain[:, 2]),
        ([2, 0], plain[:, [2, 0]]),
    ]:
        found, rate = decoded(Media("audio", data), how=AudioOptions(channels=channels))
        assert rate == 16_000
        np.testing.assert_array_equal(found, expected)
    found, rate = decoded(Media("audio", data), how=AudioOptions(sample_rate=24_000, channels="mono"))
    assert (rate, found.shape) == (24_000, (24_000,))
    np.testing.assert_array_equal(found, soxr.resample(plain.mean(axis=1, dtype=np.float32), 16_000, 24_000))
    found, _ = decoded(Media("audio", data), how=AudioOptions(dtype="int16"))
    np.testing.assert_array_equal(found, soundfile.read(io.BytesIO(data), dtype="int16")[0])
    assert found.dtype == np.int16
    with pytest.raises(SampleError, match="has no channel 3"):
        decoded(Media("audio", data), how=AudioOptions(channels=[0, 3]))


def test_without_miniaudio_soundfile_decodes_and_without_both_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = encoded(tone(5_000), "FLAC", "PCM_16")
    imported = codecs._module
    monkeypatch.setattr(codecs, "_module", lambda name: None if name == "miniaudio" else imported(name))
    np.testing.assert_array_equal(decoded(Media("audio", data))[0], by_soundfile(data))
    monkeypatch.setattr(codecs, "find_spec", lambda _: None)
    assert codecs.decoders()["flac"] == "soundfile"
    monkeypatch.setattr(codecs, "_module", lambda _: None)
    with pytest.raises(RecipeError, match="needs the package soundfile") as caught:
        decoded(Media("audio", data))
    assert "playhead[audio]" in caught.value.fix


def test_a_webdataset_of_audio_needs_no_code(tmp_path: Path) -> None:
    kinds = {"wav": ("WAV", "PCM_16"), "flac": ("FLAC", "PCM_16"), "mp3": ("MP3", "MPEG_LAYER_III")}
    for extension, how in kinds.items():
        members = []
        for i in range(6):
            data = encoded(tone(3_000 + 40_000 * (i % 2) + i, seed=i), *how)
            members += [
                (f"{i:03}.{extension}", data),
                (f"{i:03}.txt", f"text {i}".encode()),
                (f"{i:03}.json", b'{"n": 1}'),
            ]
        write_tar(tmp_path / f"{extension}.tar", members)
        source = {"name": "a", "path": f"{extension}.tar", "shuffle": "none"}
        recipe = Recipe.parse({"sources": [source], "batching": {"type": "fixed", "size": 3}, "epochs": 1}, tmp_path)
        prepare(recipe, workers=1)
        found = list(Loader(recipe))
        assert [text for batch in found for text in batch["txt"]] == [f"text {i}" for i in range(6)]
        row = 0
        for batch in found:
            assert batch[f"{extension}_rate"].tolist() == [16_000] * 3
            for signal, length in zip(batch[extension], batch[f"{extension}_lengths"], strict=True):
                np.testing.assert_allclose(signal[:length], by_soundfile(members[3 * row][1]), atol=1e-4)
                row += 1
        raw = Recipe.parse({**recipe.to_dict(), "media": False}, tmp_path)
        assert next(iter(Loader(raw)))[extension] == [data for name, data in members[:9] if name.endswith(extension)]


def test_audio_options_of_a_source_replace_those_of_the_recipe_and_are_in_the_payload_fingerprint(
    tmp_path: Path,
) -> None:
    write_tar(tmp_path / "a.tar", [(f"{i}.wav", encoded(tone(800, 2, i), "WAV", "PCM_16")) for i in range(4)])
    base = {"batching": {"type": "fixed", "size": 2}, "seed": 1}
    plain = Recipe.parse({**base, "sources": [{"name": "a", "path": "a.tar"}]}, tmp_path)
    mono = Recipe.parse({**plain.to_dict(), "audio": {"channels": "mono", "sample_rate": 8000}}, tmp_path)
    source = {"name": "a", "path": "a.tar", "audio": {"channels": [1], "dtype": "int16"}}
    own = Recipe.parse({**mono.to_dict(), "sources": [source]}, tmp_path)
    prepare(plain, workers=1)
    assert next(islice(Loader(plain), 1))["wav"].shape == (2, 800, 2)
    assert next(islice(Loader(mono), 1))["wav"].shape == (2, 400)
    batch = next(islice(Loader(own), 1))
    assert (batch["wav"].shape, batch["wav"].dtype) == ((2, 800), np.int16)
    fingerprints = {Loader(recipe).state_dict()["payload"] for recipe in (plain, mono, own)}
    assert len(fingerprints) == 3
