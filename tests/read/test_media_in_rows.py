"""JSON rows that name WAV files, from the recipe to the batch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from wav_files import chunk, fmt, riff

from playhead import DataError, Loader, Recipe, StoreError
from playhead.formats.media import Media
from playhead.prepare import prepare
from playhead.store import MEMORY, CountingFiles, all_files

RATE = 8000


def wav_bytes(samples: np.ndarray[Any, Any], rate: int) -> bytes:
    return riff(fmt(rate=rate), chunk(b"data", samples.astype("<i2").tobytes()))


def recording(seconds: float, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(-(2**15), 2**15, round(seconds * RATE)).astype(np.int16)


def recipe_over(directory: Path, rows: list[dict[str, Any]], path: str = "a.jsonl", **more: Any) -> Recipe:
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    if path.startswith("memory://"):
        MEMORY.write(path, lines.encode())
    else:
        (directory / path).write_text(lines)
    fields = {"path": "audio_filepath", "offset": "offset", "duration": "duration"}
    source = {"name": "speech", "path": path, "length": {"field": "duration", "unit": "seconds"}, "shuffle": "none"}
    values = {
        "sources": [source | {"options": {"media": {"audio": fields}}}],
        "batching": {"type": "fixed", "size": 2},
        "sequence": "audio",
        "sequence_rate": RATE,
        "epochs": 1,
        "fields": ["audio", "audio_rate"],
        "cache_dir": str(directory / "cache"),
    }
    recipe = Recipe.parse(values | more, base_dir=directory)
    prepare(recipe)
    return recipe


def test_segments_of_named_files_are_decoded_and_batched_as_planned(tmp_path: Path) -> None:
    whole = [recording(2.0, seed) for seed in range(2)]
    for i, samples in enumerate(whole):
        (tmp_path / f"{i}.wav").write_bytes(wav_bytes(samples, RATE))
    rows = [{"audio_filepath": f"{i}.wav", "offset": start, "duration": 0.5} for start in (0.25, 1.5) for i in (0, 1)]
    recipe = recipe_over(tmp_path, rows)
    found = list(Loader(recipe))
    assert [batch["audio"].shape for batch in found] == [(2, RATE // 2)] * 2
    for batch, start in zip(found, (0.25, 1.5), strict=True):
        for i in range(2):
            first = round(start * RATE)
            expected = whole[i][first : first + RATE // 2].astype(np.float32) / 32768
            np.testing.assert_array_equal(batch["audio"][i], expected)
        assert batch["audio_rate"].tolist() == [RATE, RATE]


def test_files_in_memory_are_read_by_files_alone(tmp_path: Path) -> None:
    samples = recording(1.0)
    MEMORY.write("memory://speech/x.wav", wav_bytes(samples, RATE))
    rows = [{"audio_filepath": "x.wav", "duration": 1.0}]
    recipe = recipe_over(tmp_path, rows, "memory://speech/a.jsonl")
    (batch,) = Loader(recipe)
    np.testing.assert_array_equal(batch["audio"][0], samples.astype(np.float32) / 32768)


def test_media_of_a_micro_batch_are_fetched_together(tmp_path: Path) -> None:
    (tmp_path / "0.wav").write_bytes(wav_bytes(recording(4.0), RATE))
    rows = [{"audio_filepath": "0.wav", "offset": i / 2, "duration": 0.5} for i in range(8)]
    recipe = recipe_over(tmp_path, rows, batching={"type": "fixed", "size": 8})
    files = CountingFiles(all_files())
    (batch,) = Loader(recipe, files=files)
    assert batch.num_samples == 8
    assert (files.counts["stamp"], files.counts["read"]) == (1, 3)  # the rows, the header, the segments


def test_media_false_leaves_them_to_the_map(tmp_path: Path) -> None:
    rows = [{"audio_filepath": "gone.wav", "duration": 1.0}]
    recipe = recipe_over(tmp_path, rows, media=False, collate="list", sequence=None, fields=None, sequence_rate=None)
    (batch,) = Loader(recipe)
    (sample,) = batch["samples"]
    assert sample["audio"] == Media("audio", path="gone.wav", duration=1.0, base=str(tmp_path))


def test_a_medium_that_is_missing_is_a_bad_sample_and_a_storage_that_fails_is_not(tmp_path: Path) -> None:
    (tmp_path / "0.wav").write_bytes(wav_bytes(recording(1.0), RATE))
    rows = [{"audio_filepath": name, "duration": 1.0} for name in ("0.wav", "gone.wav")]
    recipe = recipe_over(tmp_path, rows, on_error="substitute", max_bad=1.0)
    (batch,) = Loader(recipe)
    np.testing.assert_array_equal(batch["audio"][0], batch["audio"][1])
    (quarantined,) = tmp_path.glob("cache/quarantine/*/*")
    assert "gone.wav: no such file" in quarantined.read_text()
    with pytest.raises(DataError, match=r'source "speech", row 1 .*a.jsonl, byte') as caught:
        list(Loader(recipe_over(tmp_path, rows)))
    assert "gone.wav: no such file" in str(caught.value)

    class Failing:
        def __init__(self) -> None:
            self.inner = all_files()

        def list(self, pattern: str) -> Any:
            return self.inner.list(pattern)

        def stamp(self, path: str) -> Any:
            if path.endswith(".wav"):
                raise StoreError(f"{path}: the server does not answer")
            return self.inner.stamp(path)

        def read(self, *args: Any) -> Any:
            return self.inner.read(*args)

    with pytest.raises(StoreError, match="does not answer"):
        list(Loader(recipe, files=Failing()))


def test_a_row_that_names_nothing_is_named_with_its_place(tmp_path: Path) -> None:
    recipe = recipe_over(tmp_path, [{"audio_filepath": 7, "duration": 1.0}])
    with pytest.raises(Exception, match="does not name a medium") as caught:
        list(Loader(recipe))
    assert "a.jsonl, byte 0" in str(caught.value)


def test_a_field_that_no_row_has_is_reported_with_the_fields_there_are(tmp_path: Path) -> None:
    recipe = recipe_over(tmp_path, [{"audio_path": "a.wav", "duration": 1.0}])
    with pytest.raises(DataError, match='has no field "audio_filepath"') as caught:
        list(Loader(recipe))
    assert caught.value.found == "fields: audio_path, duration"
