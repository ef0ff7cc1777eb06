"""Audio, manifests and tars as NeMo has them, and what Playhead delivers of them."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from playhead import Loader, Recipe
from playhead.formats.media import Media
from playhead.prepare import prepare
from small_data import write_jsonl, write_tar

RATE = 8_000


def signal(num_frames: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-(2**15), 2**15, num_frames).astype(np.int16)


def encoded(samples: np.ndarray, container: str = "WAV") -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, RATE, format=container, subtype="PCM_16")
    return file.getvalue()


@dataclass(frozen=True)
class AnyPlace:
    """Equal to a medium of audio in any directory."""

    data: bytes | None = None
    path: str = ""
    offset: float = 0.0
    duration: float | None = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Media) or not str(other.path).endswith(self.path):
            return False
        return (self.data, self.offset, self.duration) == (other.data, other.offset, other.duration)

    __hash__ = None  # type: ignore[assignment]


def as_floats(samples: np.ndarray) -> np.ndarray:
    return samples.astype(np.float32) / np.float32(2**15)


def delivered(recipe: Recipe) -> list[dict[str, Any]]:
    """The samples in order, with their audio as it was before padding."""
    found = []
    for batch in Loader(recipe):
        for slot in range(batch.num_samples):
            row = {name: value[slot] for name, value in batch.items()}
            row["audio"] = row["audio"][: row["audio_lengths"]]
            found.append(row)
    return found


def recipe_in(folder: Path, source: dict[str, Any], **fields: Any) -> Recipe:
    values = {"sources": [{"name": "s", "shuffle": "none", **source}], "batching": {"type": "fixed", "size": 2}}
    recipe = Recipe.parse({**values, "epochs": 1, "audio": {"sample_rate": RATE}, **fields}, folder)
    prepare(recipe, workers=1)
    return recipe


def write_shards(folder: Path, numbers: Sequence[int], *, prefix: str = "") -> list[dict[str, Any]]:
    """Tars of three members in another order than their rows, two of which are segments of one member."""
    kept = []
    for number in numbers:
        names = [f"{prefix}{number}-{i}.wav" for i in range(3)]
        sizes = {name: 4_000 + 1_000 * i + number for i, name in enumerate(names)}
        (folder / prefix).mkdir(exist_ok=True, parents=True)
        members = [(name, encoded(signal(size, size))) for name, size in reversed(sizes.items())]
        write_tar(folder / f"{prefix}audio_{number}.tar", [*members, ("unused.wav", encoded(signal(10)))])
        rows: list[dict[str, Any]] = [
            {"audio_filepath": name, "duration": sizes[name] / RATE, "text": name, "shard_id": number}
            for name in names[:2]
        ]
        for part, (offset, duration) in enumerate([(0.0, 0.25), (0.25, 0.5)], 1):
            name = names[2].replace(".wav", f"-sub{part}.wav")
            rows.append(
                {"audio_filepath": name, "offset": offset, "duration": duration, "text": name, "shard_id": number}
            )
        write_jsonl(folder / f"{prefix}manifest_{number}.json", rows)
        kept += rows
    return kept


def expected_audio(row: dict[str, Any]) -> np.ndarray:
    name = row["audio_filepath"].split("-sub")[0].removesuffix(".wav")
    size = 4_000 + 1_000 * int(name.rsplit("-", 1)[1]) + row["shard_id"]
    first = round(row.get("offset", 0) * RATE)
    return as_floats(signal(size, size))[first : first + round(row["duration"] * RATE)]
