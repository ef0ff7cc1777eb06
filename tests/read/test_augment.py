"""Augmentations of audio: what they do to it, and that their draws depend on the sample alone."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import soxr

from format_worlds import check_worlds, recipe_of
from playhead import Loader, Recipe, RecipeError, SampleError
from playhead.formats.media import MediaCrop
from playhead.prepare import prepare
from playhead.read.audio import Audio
from playhead.read.augment import padded_to, with_gain, with_noise, with_speed
from playhead.store import CountingFiles, all_files
from small_data import all_lengths, table_of, write_jsonl, write_tar

RATE = 8_000
NUM_ROWS = 24


def signal(num_frames: int, seed: int, channels: int = 1) -> np.ndarray:
    shape = num_frames if channels == 1 else (num_frames, channels)
    return np.random.default_rng(seed).integers(-9000, 9000, shape).astype(np.int16)


def encoded(samples: np.ndarray, container: str = "WAV", rate: int = RATE) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format=container, subtype="PCM_16")
    return file.getvalue()


def floats(samples: np.ndarray) -> np.ndarray:
    return samples.astype(np.float32) / np.float32(1 << 15)


def num_frames_of(i: int) -> int:
    return 8_000 + 400 * i


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Recordings of 1 to 2.15 seconds, WAV and FLAC by turns, and three of noise: short, long, of another rate."""
    rows = []
    for i in range(NUM_ROWS):
        name = f"{i}.{'flac' if i % 2 else 'wav'}"
        (tmp_path / name).write_bytes(encoded(signal(num_frames_of(i), i), "FLAC" if i % 2 else "WAV"))
        rows.append({"audio_filepath": name, "duration": num_frames_of(i) / RATE, "number": i})
    write_jsonl(tmp_path / "speech.json", rows)
    noises = [
        ("short", signal(900, 100), RATE),
        ("long", signal(40_000, 101), RATE),
        ("fast", signal(50_000, 102), 16_000),
    ]
    for name, samples, rate in noises:
        (tmp_path / f"{name}.wav").write_bytes(encoded(samples, rate=rate))
    write_jsonl(tmp_path / "noise.json", [{"audio_filepath": f"{name}.wav"} for name, _, _ in noises])
    return tmp_path


SPEECH = {"format": "nemo", "path": "speech.json"}
NOISES = [{"name": "hum", "format": "nemo", "path": "noise.json"}]
EVERYTHING: list[dict[str, Any]] = [
    {"type": "crop", "seconds": 1.5},
    {"type": "speed", "factors": [0.9, 1.0, 1.1], "probability": 0.7},
    {"type": "noise", "source": "hum", "snr": [0, 20], "probability": 0.6},
    {"type": "gain", "decibels": [-6, 6]},
    {"type": "pad", "seconds": 1.2},
]


def speech(corpus: Path, augment: list[dict[str, Any]], **fields: Any) -> Recipe:
    fields = {"audio": {"sample_rate": RATE}, "fields": ["audio", "number"], "noises": NOISES, **fields}
    return recipe_of(corpus, SPEECH, augment=augment, **fields)


def delivered(recipe: Recipe, **options: Any) -> dict[int, np.ndarray]:
    """The audio of each row, without padding."""
    found = {}
    for batch in Loader(recipe, **options):
        for slot in range(batch.num_samples):
            found[int(batch["number"][slot])] = batch["audio"][slot][: batch["audio_lengths"][slot]]
    assert len(found) == NUM_ROWS
    return found


def test_everything_is_the_same_on_any_number_of_ranks_and_after_a_resume(corpus: Path) -> None:
    check_worlds(speech(corpus, EVERYTHING, epochs=2), 2 * NUM_ROWS)


def test_worker_processes_draw_as_the_loader_itself_does(corpus: Path) -> None:
    recipe = speech(corpus, EVERYTHING)
    alone, by_workers = delivered(recipe), delivered(recipe, workers=2)
    for i, audio in alone.items():
        np.testing.assert_array_equal(by_workers[i], audio)


def test_epochs_and_seeds_draw_anew_and_an_added_augmentation_leaves_the_others_alone(corpus: Path) -> None:
    gain = {"type": "gain", "decibels": [-20, 20]}

    def gains(*augment: dict[str, Any], **fields: Any) -> dict[tuple[int, int], float]:
        found = {}
        for batch in Loader(speech(corpus, [*augment], **fields)):
            for slot in range(batch.num_samples):
                i = int(batch["number"][slot])
                found[i, int(batch.epochs[slot])] = float(batch["audio"][slot][0] / floats(signal(1, i))[0])
        return found

    first = gains(gain, epochs=2, seed=5)
    assert len({*first.values()}) == 2 * NUM_ROWS
    assert gains({"type": "pad", "seconds": 3}, gain, epochs=2, seed=5) == first
    other = gains(gain, epochs=2, seed=6)
    assert not {*other.values()} & {*first.values()}


def test_gains_are_within_their_range(corpus: Path) -> None:
    found = delivered(speech(corpus, [{"type": "gain", "decibels": [-6, 3]}]))
    decibels = []
    for i, audio in found.items():
        plain = floats(signal(num_frames_of(i), i))
        factor = float(audio @ plain / (plain @ plain))
        np.testing.assert_allclose(audio, plain * np.float32(factor), rtol=1e-5, atol=1e-7)
        decibels.append(20 * np.log10(factor))
    assert -6 <= min(decibels) < -2
    assert 0 < max(decibels) <= 3


def test_speeds_are_planned_with_the_slowest_factor_and_shorter_audio_passes(corpus: Path) -> None:
    factors = [0.8, 1.0, 1.25]
    recipe = speech(corpus, [{"type": "speed", "factors": factors}])
    assert all_lengths(table_of(recipe)) == [-(-num_frames_of(i) * 10 // (8 * 8)) for i in range(NUM_ROWS)]
    drawn = set()
    for i, audio in delivered(recipe).items():
        plain = floats(signal(num_frames_of(i), i))
        by_length = {int(len(plain) / factor): factor for factor in factors}
        factor = by_length[len(audio)]
        drawn.add(factor)
        expected = plain if factor == 1 else soxr.resample(plain, RATE * factor, RATE, quality="HQ")[: len(audio)]
        np.testing.assert_allclose(audio, expected, atol=1e-4)
    assert drawn == {*factors}


def test_crops_keep_a_part_and_read_no_more_than_that(corpus: Path) -> None:
    long = signal(400_000, 7)
    (corpus / "long_speech.wav").write_bytes(encoded(long))
    write_jsonl(
        corpus / "speech.json",
        [{"audio_filepath": "long_speech.wav", "duration": 50.0, "number": i} for i in range(24)],
    )
    recipe = speech(corpus, [{"type": "crop", "seconds": 0.5}])
    assert all_lengths(table_of(recipe)) == [500] * NUM_ROWS
    files = CountingFiles(all_files(recipe.cache_dir, "refuse"))
    found = delivered(recipe, files=files)
    starts = set()
    for audio in found.values():
        assert len(audio) == 4_000
        at = next(
            i for i in np.flatnonzero(floats(long) == audio[0]) if np.array_equal(floats(long)[i : i + 4_000], audio)
        )
        starts.add(int(at))
    assert len(starts) == NUM_ROWS
    assert max(starts) > 200_000
    assert files.counts["bytes"] < NUM_ROWS * (2 * 4_000 + 40_000)


def test_a_crop_of_decoded_audio_keeps_the_same_part(corpus: Path) -> None:
    crop = {"type": "crop", "seconds": 0.6}
    early = delivered(speech(corpus, [crop]))
    late = delivered(speech(corpus, [{"type": "gain", "decibels": [0, 0]}, crop]))
    for i, audio in early.items():
        np.testing.assert_array_equal(late[i], audio)


def test_padding_goes_to_the_end_of_short_audio_only(corpus: Path) -> None:
    recipe = speech(corpus, [{"type": "pad", "seconds": 1.5}])
    assert all_lengths(table_of(recipe)) == [max(1_500, num_frames_of(i) // 8) for i in range(NUM_ROWS)]
    for i, audio in delivered(recipe).items():
        plain = floats(signal(num_frames_of(i), i))
        np.testing.assert_array_equal(audio[: len(plain)], plain)
        assert len(audio) == max(12_000, len(plain))
        assert not audio[len(plain) :].any()


def test_noise_is_added_at_the_ratio_that_was_drawn(corpus: Path) -> None:
    long = floats(signal(40_000, 101))
    write_jsonl(corpus / "noise.json", [{"audio_filepath": "long.wav"}])
    found = delivered(speech(corpus, [{"type": "noise", "source": "hum", "snr": [5, 15]}]))
    starts = set()
    for i, audio in found.items():
        plain = floats(signal(num_frames_of(i), i))
        added = (audio - plain).astype(np.float64)
        snr = 10 * np.log10(np.mean(plain.astype(np.float64) ** 2) / np.mean(added**2))
        assert 4.99 <= snr <= 15.01
        at = int(np.argmax(np.correlate(long, added.astype(np.float32), "valid")))
        noise = long[at : at + len(plain)]
        np.testing.assert_allclose(added / np.sqrt(np.mean(added**2)), noise / np.sqrt(np.mean(noise**2)), atol=1e-3)
        starts.add(at)
    assert len(starts) == NUM_ROWS


def test_probabilities_leave_the_others_as_they_are(corpus: Path) -> None:
    found = delivered(speech(corpus, [{"type": "noise", "source": "hum", "snr": [5, 5], "probability": 0.5}]))
    untouched = [np.array_equal(audio, floats(signal(num_frames_of(i), i))) for i, audio in found.items()]
    assert 4 <= sum(untouched) <= NUM_ROWS - 4


def test_audio_of_16_bits_stays_so_and_is_cut_off_at_full_scale(corpus: Path) -> None:
    recipe = speech(corpus, [{"type": "gain", "decibels": [20, 20]}], audio={"sample_rate": RATE, "dtype": "int16"})
    for i, audio in delivered(recipe).items():
        loud = np.rint(floats(signal(num_frames_of(i), i)) * np.float32(10) * 32768)
        assert audio.dtype == np.int16
        np.testing.assert_array_equal(audio, np.clip(loud, -32768, 32767).astype(np.int16))


def test_audio_of_tars_is_augmented_and_noise_may_come_from_one(tmp_path: Path) -> None:
    members = []
    for i in range(NUM_ROWS):
        members += [(f"{i:03}.wav", encoded(signal(9_000, i))), (f"{i:03}.json", f'{{"number": {i}}}'.encode())]
    write_tar(tmp_path / "speech.tar", members)
    write_tar(tmp_path / "noise.tar", [(f"{i}.flac", encoded(signal(500, i, 2), "FLAC")) for i in range(3)])
    augment = [
        {"type": "crop", "seconds": 1.0, "field": "wav"},
        {"type": "noise", "source": "hum", "snr": [10, 10], "field": "wav", "noise_field": "flac"},
    ]
    recipe = recipe_of(
        tmp_path,
        {"path": "speech.tar", "length": {"audio": "wav", "unit": "seconds"}},
        augment=augment,
        noises=[{"name": "hum", "path": "noise.tar"}],
        audio={"sample_rate": RATE},
        fields=["wav"],
        epochs=2,
    )
    assert all_lengths(table_of(recipe)) == [1_000] * NUM_ROWS
    check_worlds(recipe, 2 * NUM_ROWS)
    shapes = {batch["wav"].shape[1:] for batch in Loader(recipe)}
    assert shapes == {(8_000,)}


def test_a_bad_row_of_noise_is_named_with_its_file(corpus: Path) -> None:
    recipe = speech(corpus, [{"type": "noise", "source": "hum", "snr": [5, 5]}])
    for name in ("short", "long", "fast"):
        (corpus / f"{name}.wav").write_bytes(b"no audio at all")
    with pytest.raises(SampleError, match="unsupported audio format") as caught:
        delivered(recipe)
    assert 'noise of source "hum", row' in str(caught.value)
    assert 'source "s", row' in str(caught.value)
    assert "noise.json" in str(caught.value)


def test_a_sample_without_audio_names_the_remedy(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "text.jsonl", [{"text": "none"}])
    recipe = recipe_of(tmp_path, {"path": "text.jsonl"}, augment=[{"type": "gain", "decibels": [0, 1]}], lanes=1)
    with pytest.raises(SampleError, match='field "audio" holds no decoded audio to augment') as caught:
        next(iter(Loader(recipe)))
    assert "`augment: []`" in caught.value.fix
    silent = recipe_of(tmp_path, {"path": "text.jsonl", "augment": []}, augment=recipe.augment, lanes=1, epochs=1)
    assert next(iter(Loader(silent)))["text"] == ["none"]


def test_evaluation_sets_are_not_augmented(corpus: Path) -> None:
    evaluation = {"dev": {"sources": [{"name": "dev", **SPEECH}], "batching": {"type": "fixed", "size": 4}}}
    recipe = speech(corpus, EVERYTHING, evaluation=evaluation)
    for i, audio in delivered(recipe, split="dev").items():
        np.testing.assert_array_equal(audio, floats(signal(num_frames_of(i), i)))


def test_measuring_does_not_augment(corpus: Path) -> None:
    source = {**SPEECH, "length": {"measure": True, "unit": "seconds"}}
    augment = [{"type": "speed", "factors": [0.5, 2.0]}, {"type": "noise", "source": "hum", "snr": [0, 0]}]
    fields: dict[str, Any] = {
        "audio": {"sample_rate": RATE},
        "sequence": "audio",
        "sequence_rate": RATE,
        "noises": NOISES,
    }
    values = {"sources": [{"name": "s", **source}], "batching": {"type": "fixed", "size": 2}, "epochs": 1}
    recipe = Recipe.parse({**values, **fields, "augment": augment}, corpus)
    for name in ("short", "long", "fast"):
        (corpus / f"{name}.wav").unlink()
    prepare(recipe, workers=1, measure=True)
    assert all_lengths(table_of(recipe)) == [num_frames_of(i) // 4 for i in range(NUM_ROWS)]


def test_undecoded_media_cannot_be_augmented(corpus: Path) -> None:
    with pytest.raises(RecipeError, match="augment: there is no decoded audio"):
        speech(corpus, [{"type": "gain", "decibels": [0, 1]}], media=False)


def test_speed_takes_no_more_frames_than_planned() -> None:
    for num_frames in (1, 2, 7, 999, 44_101):
        for factor in (0.1, 0.9, 1.0, 1.1, 3.7, 10.0):
            sped = with_speed(Audio(np.ones(num_frames, np.float32), 44_100), factor)
            assert max(1, num_frames / factor - 2) <= len(sped) <= max(1, num_frames / factor)


def test_noise_of_other_channels_and_silence() -> None:
    mono, stereo = Audio(floats(signal(10, 0)), 10), Audio(floats(signal(10, 1, 2)), 10)
    assert with_noise(mono, stereo, 0).shape == (10,)
    added = with_noise(stereo, mono, 0) - stereo.samples
    np.testing.assert_allclose(added[:, 0], added[:, 1], atol=1e-6)
    assert with_noise(stereo, Audio(floats(signal(4, 2, 2)), 10), 0).shape == (10, 2)
    silence = Audio(np.zeros(10, np.float32), 10)
    np.testing.assert_array_equal(with_noise(mono, silence, 3), mono.samples)
    np.testing.assert_array_equal(with_noise(silence, mono, 3), silence.samples)


def test_each_function_leaves_its_input_alone() -> None:
    audio = Audio(floats(signal(100, 0, 2)), 100)
    before = audio.samples.copy()
    for made in (with_gain(audio, 6), with_speed(audio, 1.3), with_noise(audio, audio, 3), padded_to(audio, 2)):
        assert made.dtype == np.float32
        assert made.shape[1:] == (2,)
    assert audio.cropped(MediaCrop(0.29, 0.999)).samples.shape == (29, 2)
    np.testing.assert_array_equal(audio.samples, before)
