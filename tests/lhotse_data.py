"""Recordings, and cuts of them as lhotse makes and writes them; and what Playhead delivers of such files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from lhotse import CutSet, MonoCut, MultiCut, Recording, SupervisionSegment
from lhotse.audio import AudioSource

from playhead import Loader
from playhead.recipe.values import Recipe

RATE = 16000


def recording(folder: Path, name: str, num_frames: int, channels: int = 1, subtype: str = "PCM_16") -> Recording:
    """Noise in a file, which `name` says the container of."""
    seed = sum(map(ord, name))
    signal = np.random.default_rng(seed).uniform(-0.6, 0.6, (num_frames, channels))
    soundfile.write(folder / name, signal, RATE, subtype=subtype)
    return Recording.from_file(folder / name, recording_id=Path(name).stem)


def channel_files(folder: Path, name: str, num_frames: int) -> Recording:
    """A recording of two channels, each in a file of its own."""
    parts = [recording(folder, f"{name}-{channel}.wav", num_frames) for channel in (0, 1)]
    sources = [AudioSource("file", [i], part.sources[0].source) for i, part in enumerate(parts)]
    return Recording(name, sources, RATE, num_frames, num_frames / RATE, [0, 1])


def cut(of: Recording, name: str, start: float, duration: float, channel: Any = 0, **custom: Any) -> Any:
    """A cut with two supervisions, one of them without text, and custom entries."""
    said = [
        SupervisionSegment(f"{name}-a", of.id, 0, duration / 2, text=f"first of {name}", speaker="x", language="pl"),
        SupervisionSegment(f"{name}-b", of.id, duration / 2, duration / 2),
        SupervisionSegment(f"{name}-c", of.id, duration / 2, duration / 2, text="ünd more", custom={"snr": 3}),
    ]
    kind = MonoCut if isinstance(channel, int) else MultiCut
    return kind(name, start, duration, channel, recording=of, supervisions=said, custom=custom or None)


def speech(folder: Path, num_cuts: int = 23) -> CutSet:
    """Cuts of all kinds that can be read: containers, channels, segments that begin and end between two samples."""
    folder.mkdir(exist_ok=True)
    mono = recording(folder, "mono.wav", 2 * RATE)
    stereo = recording(folder, "stereo.wav", 2 * RATE, channels=2)
    flac = recording(folder, "coded.flac", 2 * RATE, channels=2)
    floats = recording(folder, "floats.wav", 2 * RATE, subtype="FLOAT")
    apart = channel_files(folder, "apart", 2 * RATE)
    choices: list[tuple[Recording, Any]] = [
        (mono, 0),
        (stereo, 1),
        (flac, 0),
        (floats, 0),
        (apart, 1),
        (apart, [0, 1]),
        (stereo, [0, 1]),
        (flac, [1]),
    ]
    cuts = []
    for i in range(num_cuts):
        of, channel = choices[i % len(choices)]
        start = 0.0 if i % 5 == 0 else 0.01 * i + 1 / 30000 * (i % 3)
        duration = of.duration if i % 5 == 0 else 0.5 + 0.0123456 * i
        cuts.append(cut(of, f"cut-{i:03}", start, duration, channel, lang=("en", "pl")[i % 2], score=i / 4))
    return CutSet.from_cuts(cuts)


def recipe_of(folder: Path, source: dict[str, Any], **fields: Any) -> Recipe:
    """A recipe that delivers samples one by one, in the order of the files."""
    values: dict[str, Any] = {"sources": [{"name": "speech", "shuffle": "none", **source}], "collate": "list"}
    values |= {"batching": {"type": "fixed", "size": 4}, "sequence": None, "epochs": 1, "cache_dir": "cache"}
    return Recipe.parse(values | fields, base_dir=folder)


def delivered(recipe: Recipe) -> list[dict[str, Any]]:
    with Loader(recipe) as loader:
        return [sample for batch in loader if not batch.idle for sample in batch["samples"]]


def check_audio(found: Any, expected: np.ndarray, atol: float = 0.0) -> None:
    """Law: the same samples, bit for bit unless `atol` says otherwise; lhotse has the channels first."""
    wanted = expected[0] if len(expected) == 1 else expected.T
    assert found.dtype == np.float32
    assert found.shape == wanted.shape
    if atol:
        np.testing.assert_allclose(found, wanted, rtol=0, atol=atol)
    else:
        assert found.tobytes() == np.ascontiguousarray(wanted).tobytes()


def check_samples(samples: Sequence[dict[str, Any]], read: Iterable[Any], atol: float = 0.0) -> None:
    """Law: same rows, same order, same ids, texts and samples as the cuts that lhotse itself reads."""
    cuts = list(read)
    assert [sample["id"] for sample in samples] == [cut.id for cut in cuts]
    for sample, cut in zip(samples, cuts, strict=True):
        assert sample["duration"] == cut.duration
        assert sample["text"] == " ".join(each.text for each in cut.supervisions if each.text)
        assert sample["supervisions"] == [each.to_dict() for each in cut.supervisions]
        assert sample["audio_rate"] == cut.sampling_rate
        check_audio(sample["audio"], cut.load_audio(), atol)
