"""The media of a batch decoded by several threads: at the same time, and nothing else changes."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from deliveries import deliver
from flights import PATIENCE_SECONDS
from nemo_data import RATE, encoded, signal
from playhead import DataError, Loader, Recipe, RecipeError, SampleError
from playhead.formats.media import Media
from playhead.prepare import prepare
from playhead.read.decode_threads import DecodeThreads
from playhead.read.media import decode_media
from playhead.read.media_rules import media_rules
from playhead.store import MemoryFiles
from playhead.torch import DataLoader
from small_data import write_jsonl

NUM_ROWS = 24
WORKERS: dict[str, dict[str, Any]] = {
    "none": {},
    "threads": {"workers": 2, "worker_kind": "thread"},
    "processes": {"workers": 2},
}

_meeting = threading.Barrier(2)


def meet(data: bytes) -> bytes:
    """A decoder that ends only when another runs at the same time."""
    _meeting.wait(PATIENCE_SECONDS)
    return data


def recordings(folder: Path, **fields: Any) -> Recipe:
    """Rows that name recordings of two containers, and segments of one that they share."""
    rows = []
    for i in range(NUM_ROWS):
        name = f"{i % 20}.{'flac' if i % 2 else 'wav'}"
        if i < 20:
            (folder / name).write_bytes(encoded(signal(800 + 10 * i, i), "FLAC" if i % 2 else "WAV"))
        rows.append({"audio_filepath": name, "offset": 0.01, "duration": 0.05})
    write_jsonl(folder / "rows.json", rows)
    source = {"name": "a", "path": "rows.json", "format": "nemo"}
    values = {"sources": [source], "batching": {"type": "fixed", "size": 8}, "epochs": 1, "sequence_rate": RATE}
    recipe = Recipe.parse({**values, **fields}, folder)
    prepare(recipe, workers=1)
    return recipe


def test_media_of_one_batch_are_decoded_at_the_same_time() -> None:
    rows = [{"clip": Media("video", bytes([i]))} for i in range(4)]
    how = {"video": f"{__name__}:meet", "threads": DecodeThreads(1)}
    samples, problem = decode_media(rows, MemoryFiles(), media_rules(["/data/rows.jsonl"]), **how)
    assert problem is None
    assert [sample["clip"] for sample in samples] == [bytes([i]) for i in range(4)]


@pytest.mark.parametrize("workers", WORKERS)
def test_batches_states_and_totals_are_those_of_one_thread(tmp_path: Path, workers: str) -> None:
    recipe = recordings(tmp_path)
    expected = [*deliver(Loader(recipe))]
    assert sum(batch.num_samples for batch, *_ in expected) == NUM_ROWS
    with Loader(recipe, decode_threads=3, **WORKERS[workers]) as loader:
        assert [*deliver(loader)] == expected


@pytest.mark.parametrize("workers", WORKERS)
def test_recordings_that_cannot_be_decoded_are_replaced_or_raised_alike(tmp_path: Path, workers: str) -> None:
    recipe = recordings(tmp_path, on_error="substitute", max_bad=0.5)
    for name in ("5.flac", "8.wav"):
        (tmp_path / name).write_bytes(b"no recording" * 20)
    found = []
    for threads in (0, 3):
        with Loader(recipe, decode_threads=threads, **WORKERS[workers]) as loader:
            found.append([*deliver(loader)])
    assert found[0] == found[1]
    messages = []
    for threads in (0, 3):
        with Loader(replace(recipe, on_error="raise"), decode_threads=threads, **WORKERS[workers]) as loader:
            with pytest.raises((SampleError, DataError)) as raised:
                [*deliver(loader)]
            messages.append(str(raised.value))
    assert messages[0] == messages[1]


def test_torch_takes_the_option_too(tmp_path: Path) -> None:
    recipe = recordings(tmp_path)
    expected = [batch["audio"].tolist() for batch in Loader(recipe)]
    for workers in (0, 1):
        with DataLoader(recipe, num_workers=workers, decode_threads=2) as loader:
            assert [batch["audio"].tolist() for batch in loader] == expected


@pytest.mark.parametrize("given", [-1, 1.5, "2", True])
def test_a_number_of_threads_that_is_none_is_refused(tmp_path: Path, given: Any) -> None:
    recipe = recordings(tmp_path)
    with pytest.raises(RecipeError, match="decode_threads"):
        Loader(recipe, decode_threads=given)
    with pytest.raises(RecipeError, match="decode_threads"):
        DataLoader(recipe, decode_threads=given)
