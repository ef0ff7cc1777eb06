"""Lhotse datasets on our streams: the cuts that lhotse itself reads, in any loader, after any resume."""

from __future__ import annotations

import gc
import json
import os
import random
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from lhotse import CutSet, Fbank, MonoCut, SupervisionSegment
from lhotse.audio import AudioSource
from lhotse.dataset import K2SpeechRecognitionDataset, OnTheFlyFeatures
from lhotse.features import Features
from lhotse.features.io import NumpyFilesWriter
from lhotse.shar import SharWriter

import lhotse_job
import nemo_data
from lhotse_data import RATE, cut, recipe_of, recording, speech
from lhotse_job import Cuts, digest, recognition
from loopback import serving
from playhead import Loader, PlayheadError, Recipe, RecipeError, SampleError
from playhead.lhotse import CutSampler, DataLoader
from playhead.prepare import prepare
from small_data import write_jsonl, write_tar

PATIENCE_SECONDS = 120


def cuts_of(recipe: Recipe, **options: Any) -> list[Any]:
    prepare(recipe, workers=1)
    with DataLoader(recipe, Cuts(), **options) as loader:
        return [found for batch in loader if not batch.idle for found in batch["cuts"]]


def check_audio(found: list[Any], expected: list[Any]) -> None:
    assert [each.id for each in found] == [each.id for each in expected]
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.load_audio().tobytes() == theirs.load_audio().tobytes()
        assert (ours.duration, ours.sampling_rate) == (theirs.duration, theirs.sampling_rate)
        assert ours.supervisions == theirs.supervisions


@pytest.mark.parametrize("options", [{}, {"num_workers": 2}])
def test_cuts_of_a_manifest_are_those_that_lhotse_reads(tmp_path: Path, options: Any) -> None:
    speech(tmp_path).to_file(tmp_path / "cuts.jsonl")
    read = list(CutSet.from_file(tmp_path / "cuts.jsonl"))
    recipe = recipe_of(tmp_path, {"path": "cuts.jsonl", "format": "lhotse"})
    assert cuts_of(recipe, **options) == read
    held = cuts_of(recipe, in_memory=True, **options)
    assert {source.type for each in held for source in each.recording.sources} == {"memory"}
    check_audio(held, read)
    assert [(each.start, each.channel, each.custom) for each in held] == [
        (each.start, each.channel, each.custom) for each in read
    ]


def test_relative_paths_begin_at_the_root_and_recordings_of_custom_entries_are_found(tmp_path: Path) -> None:
    made = speech(tmp_path / "wavs", 4)
    other = recording(tmp_path / "wavs", "other.wav", RATE)
    for each in made:
        for source in each.recording.sources:
            source.source = Path(source.source).name
        each.target_recording = other
    made.to_file(tmp_path / "cuts.jsonl")
    source = {"path": "cuts.jsonl", "format": "lhotse", "options": {"root": "wavs"}}
    expected = [each.load_audio().tobytes() for each in speech(tmp_path / "wavs", 4)]
    for in_memory in (False, True):
        found = cuts_of(recipe_of(tmp_path, source), in_memory=in_memory)
        assert [each.load_audio().tobytes() for each in found] == expected
        kinds = {each.target_recording.sources[0].type for each in found}
        assert kinds == {"memory" if in_memory else "file"}
        assert found[0].target_recording.load_audio().tobytes() == other.load_audio().tobytes()


@pytest.mark.parametrize("audio", ["wav", "flac", "original"])
def test_cuts_of_shar_have_the_fields_of_their_shards(tmp_path: Path, audio: str) -> None:
    (tmp_path / "wavs").mkdir()
    (tmp_path / "shar").mkdir()
    cuts = []
    with NumpyFilesWriter(tmp_path / "arrays") as writer:
        for i in range(7):
            of = recording(tmp_path / "wavs", f"r{i}.wav", RATE + 100 * i)
            made = cut(of, f"cut-{i}", 0.0 if audio == "original" else 0.1, of.duration - 0.1, note=f"n{i}")
            made.embedding = writer.store_array(made.id, np.arange(5) + i)
            made.features = features_of(made, tmp_path)
            cuts.append(made)
    fields = {"recording": audio, "embedding": "numpy", "features": "numpy"}
    with SharWriter(tmp_path / "shar", fields, shard_size=3) as shar:
        for each in cuts:
            shar.write(each)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # lhotse leaves its files open
        read = list(CutSet.from_shar(in_dir=tmp_path / "shar"))
        gc.collect()
    for each in read:
        del each.custom["shard_origin"], each.custom["shar_epoch"]
    found = cuts_of(recipe_of(tmp_path, {"path": "shar", "format": "lhotse_shar"}), num_workers=1)
    assert found == read
    check_audio(found, read)
    for ours, theirs in zip(found, read, strict=True):
        assert np.array_equal(ours.load_features(), theirs.load_features())
        assert np.array_equal(ours.load_embedding(), theirs.load_embedding())


def features_of(made: Any, folder: Path) -> Features:
    """Features that need no extractor: windows of the signal."""
    windows = made.load_audio()[0][: RATE // 2].reshape(-1, 160)
    path = folder / f"{made.id}.npy"
    np.save(path, windows)
    return Features(
        type="windows",
        num_frames=len(windows),
        num_features=160,
        frame_shift=0.01,
        sampling_rate=RATE,
        start=made.start,
        duration=len(windows) / 100,
        storage_type="numpy_files",
        storage_path=str(folder),
        storage_key=path.name,
        recording_id=made.recording_id,
        channels=0,
    )


def test_rows_of_nemo_are_cuts_of_segments_with_a_supervision(tmp_path: Path) -> None:
    for i in range(2):
        soundfile.write(tmp_path / f"{i}.wav", nemo_data.signal(8_000, i), nemo_data.RATE, subtype="PCM_16")
    rows = [
        {"audio_filepath": "0.wav", "duration": 1.0, "text": "all", "lang": "pl", "score": 4},
        {"audio_filepath": "1.wav", "duration": 0.25, "offset": 0.5, "text": "part", "id": "own"},
        {"audio_filepath": "1.wav", "duration": 0.9, "text": "nearly all"},
    ]
    write_jsonl(tmp_path / "manifest.json", rows)
    recipe = recipe_of(tmp_path, {"path": "manifest.json", "format": "nemo", "tags": {"corpus": "calls"}})
    for in_memory in (False, True):
        found = cuts_of(recipe, in_memory=in_memory)
        assert [each.id for each in found] == ["0.wav", "own", "1.wav"]
        assert [each.duration for each in found] == [1.0, 0.25, 1.0]
        said = [each.supervisions[0] for each in found]
        assert [(each.text, each.language, each.duration) for each in said] == [
            ("all", "pl", 1.0),
            ("part", None, 0.25),
            ("nearly all", None, 1.0),
        ]
        assert [each.corpus for each in found] == ["calls"] * 3
        assert found[0].score == 4
        part = nemo_data.as_floats(nemo_data.signal(8_000, 1))[4_000:6_000]
        assert found[1].load_audio()[0].tobytes() == part.tobytes()


def test_rows_of_tarred_manifests_have_their_members_in_memory(tmp_path: Path) -> None:
    rows = nemo_data.write_shards(tmp_path, [0, 1])
    source = {"path": "manifest_{0..1}.json", "format": "nemo_tarred", "options": {"tar": "audio_{0..1}.tar"}}
    found = cuts_of(recipe_of(tmp_path, source), num_workers=1)
    assert [each.supervisions[0].text for each in found] == [row["text"] for row in rows]
    for ours, row in zip(found, rows, strict=True):
        assert ours.load_audio()[0].tobytes() == nemo_data.expected_audio(row).tobytes()


def test_samples_of_a_webdataset_are_cuts_by_their_keys(tmp_path: Path) -> None:
    sound = nemo_data.encoded(nemo_data.signal(4_000), "FLAC")
    members = [("a/1.flac", sound), ("a/1.json", b'{"lang": "pl", "snr": 3}'), ("a/1.txt", b"said")]
    write_tar(tmp_path / "part-0.tar", members)
    source = {"path": "part-0.tar", "length": {"audio": "flac", "unit": "seconds"}}
    (found,) = cuts_of(recipe_of(tmp_path, source))
    assert (found.id, found.duration, found.snr) == ("a/1", 0.5, 3)
    assert (found.supervisions[0].text, found.supervisions[0].language) == ("said", "pl")
    assert found.load_audio()[0].tobytes() == nemo_data.as_floats(nemo_data.signal(4_000)).tobytes()


def test_remote_recordings_are_read_into_memory_and_by_the_rules_of_media(tmp_path: Path) -> None:
    of = recording(tmp_path, "far.wav", RATE)
    with serving({}) as server:
        for i, name in enumerate(["far.wav", f"{server.address}/elsewhere/far.wav"]):
            of.sources = [AudioSource("url", [0], name)]
            CutSet.from_cuts([cut(of, "one", 0.1, 0.5)]).to_file(tmp_path / f"cuts-{i}.jsonl")
        for name in ("cuts-0.jsonl", "cuts-1.jsonl", "far.wav"):
            server.objects[f"/data/{name}"] = (tmp_path / name).read_bytes()
        recipe = recipe_of(tmp_path, {"path": f"{server.address}/data/cuts-0.jsonl", "format": "lhotse"})
        (found,) = cuts_of(recipe)
        assert found.recording.sources[0].type == "memory"
        of.sources = [AudioSource("file", [0], str(tmp_path / "far.wav"))]
        assert found.load_audio().tobytes() == cut(of, "one", 0.1, 0.5).load_audio().tobytes()
        recipe = recipe_of(tmp_path, {"path": f"{server.address}/data/cuts-1.jsonl", "format": "lhotse"})
        with pytest.raises(SampleError, match="outside the locations that rows of this source may name"):
            cuts_of(recipe)


def test_a_manifest_never_runs_a_command(tmp_path: Path) -> None:
    of = recording(tmp_path, "a.wav", RATE)
    of.sources = [AudioSource("command", [0], f"touch {tmp_path}/ran; cat {tmp_path}/a.wav")]
    CutSet.from_cuts([cut(of, "one", 0.1, 0.5)]).to_file(tmp_path / "cuts.jsonl")
    with pytest.raises(PlayheadError, match='a recording of type "command" cannot be read'):
        cuts_of(recipe_of(tmp_path, {"path": "cuts.jsonl", "format": "lhotse"}))
    assert not (tmp_path / "ran").exists()


def test_the_rate_and_the_channels_of_the_recipe_are_those_of_the_cuts(tmp_path: Path) -> None:
    speech(tmp_path).to_file(tmp_path / "cuts.jsonl")
    read = list(CutSet.from_file(tmp_path / "cuts.jsonl"))
    source = {"path": "cuts.jsonl", "format": "lhotse"}
    found = cuts_of(recipe_of(tmp_path, source, audio={"sample_rate": 8_000, "channels": "first"}))
    for ours, theirs in zip(found, read, strict=True):
        assert (ours.id, ours.sampling_rate, ours.num_channels) == (theirs.id, 8_000, 1)
        assert ours.recording == theirs.resample(8_000).recording  # which resamples when audio is loaded
    chosen = cuts_of(recipe_of(tmp_path, source, audio={"channels": "first"}))
    for ours, theirs in zip(chosen, read, strict=True):
        assert ours.load_audio().tobytes() == theirs.load_audio()[:1].tobytes()
    with pytest.raises(RecipeError, match="several channels cannot be mixed down"):
        cuts_of(recipe_of(tmp_path, source, audio={"channels": "mono"}))


def transcribed(folder: Path, num_cuts: int = 40) -> Path:
    """A recipe file of an endless stream of shuffled cuts, prepared."""
    cuts = []
    for i in range(num_cuts):
        of = recording(folder, f"{i}.wav", 2_000 + 97 * i)
        said = [SupervisionSegment(f"s{i}", of.id, 0, of.duration, text=f"words of {i}")]
        cuts.append(MonoCut(f"c{i}", 0, of.duration, 0, recording=of, supervisions=said))
    CutSet.from_cuts(cuts).to_file(folder / "cuts.jsonl")
    source = {"name": "speech", "path": "cuts.jsonl", "format": "lhotse"}
    batching = {"type": "bucket", "num": 3, "budget": 1.2}
    recipe = {"sources": [source], "batching": batching, "lanes": 4, "seed": 5, "cache_dir": "cache"}
    path = folder / "recipe.json"
    path.write_text(json.dumps(recipe))
    prepare(Recipe.load(path), workers=1)
    return path


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A recipe, and what one rank delivers without interruption or workers."""
    path = transcribed(tmp_path_factory.mktemp("job"))
    return path, taken(DataLoader(Recipe.load(path), recognition(), rank=0, world_size=1), 24)


def taken(loader: Any, num_batches: int) -> list[str]:
    return [digest(batch) for batch, _ in zip(loader, range(num_batches), strict=False)]


def test_random_transforms_are_the_same_with_workers_and_leave_random_numbers_alone(job: Any) -> None:
    path, whole = job
    recipe = Recipe.load(path)
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002
    torch.manual_seed(1)
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # noqa: NPY002
    assert taken(DataLoader(recipe, recognition(), rank=0, world_size=1), 4) == whole[:4]
    assert (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()) == before  # noqa: NPY002
    for options in ({"num_workers": 2}, {"num_workers": 1, "multiprocessing_context": "spawn"}):
        with DataLoader(recipe, recognition(), rank=0, world_size=1, **options) as loader:
            assert taken(loader, 8) == whole[:8]
    assert len(set(whole)) == len(whole)


def test_after_a_kill_two_ranks_go_on_exactly_where_one_was(job: Any, tmp_path: Path) -> None:
    path, whole = job
    out = tmp_path / "rank-0.txt"
    command = [sys.executable, lhotse_job.__file__, str(path), "0", "1", "2", str(out)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE) as process:
        wait_for(lambda: out.exists() and out.read_text().count("\n") > 8, process)
        process.kill()
    lines = [line.split("\t") for line in out.read_text().split("\n")[:-1]]
    assert [found for found, _ in lines[:8]] == whole[:8]
    state = json.loads(lines[7][1])
    ranks = []
    for rank in range(2):
        loader = DataLoader(Recipe.load(path), recognition(), rank=rank, world_size=2, num_workers=rank)
        loader.load_state_dict(state)
        ranks.append(taken(loader, 8))
        loader.close()
    assert [found for pair in zip(*ranks, strict=True) for found in pair] == whole[8:24]


def wait_for(true: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not true():
        assert process.poll() is None, process.stderr.read().decode()
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_torch_s_own_data_loader_delivers_the_same_and_resumes_exactly(job: Any, num_workers: int) -> None:
    path, whole = job
    sampler = CutSampler(Recipe.load(path), rank=0, world_size=1)
    assert sampler.state_dict(0) == Loader(Recipe.load(path)).state_dict() | {
        "payload": sampler.state_dict(0)["payload"],
        "checksum": sampler.state_dict(0)["checksum"],
    }
    loader = torch.utils.data.DataLoader(
        sampler.dataset(recognition()), sampler=sampler, batch_size=None, num_workers=num_workers
    )
    assert taken(loader, 6) == whole[:6]
    state = sampler.state_dict(6)
    ranks = []
    for rank in range(2):
        resumed = CutSampler(Recipe.load(path), rank=rank, world_size=2)
        resumed.load_state_dict(sampler.state_dict(4))
        ranks.append(
            taken(torch.utils.data.DataLoader(resumed.dataset(recognition()), sampler=resumed, batch_size=None), 4)
        )
    assert [found for pair in zip(*ranks, strict=True) for found in pair] == whole[4:12]
    again = CutSampler(Recipe.load(path), rank=0, world_size=1)
    again.load_state_dict(state)
    assert (
        taken(torch.utils.data.DataLoader(again.dataset(recognition()), sampler=again, batch_size=None), 3)
        == (whole[6:9])
    )


@pytest.mark.filterwarnings("ignore:__array_wrap__")
def test_features_on_the_fly_are_those_of_lhotse_s_own_loader(tmp_path: Path) -> None:
    recipe = Recipe.load(transcribed(tmp_path, 6))
    dataset = K2SpeechRecognitionDataset(input_strategy=OnTheFlyFeatures(Fbank()), return_cuts=True)
    with DataLoader(recipe, dataset, rank=0, world_size=1, num_workers=1) as loader:
        batch = next(iter(loader))
    cuts = {each.id: each for each in CutSet.from_file(tmp_path / "cuts.jsonl")}
    expected = dataset[CutSet.from_cuts(cuts[each.id] for each in batch["supervisions"]["cut"])]
    assert torch.equal(batch["inputs"], expected["inputs"])
    assert batch["supervisions"]["text"] == expected["supervisions"]["text"]
    assert batch["supervisions"]["cut"] == expected["supervisions"]["cut"]


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"map": "loader_maps:augmented"}, "map"),
        ({"augment": [{"type": "gain", "decibels": [-3, 3]}]}, "augment"),
        ({"audio": {"dtype": "int16"}}, "audio: {dtype: int16}"),
        (
            {
                "sources": [{"name": "s", "path": "a.jsonl", "format": "messages"}],
                "batching": {"type": "fixed", "size": 1},
            },
            "format: messages",
        ),
    ],
)
def test_settings_that_change_samples_are_refused_by_name(job: Any, fields: Any, named: str) -> None:
    recipe = Recipe.load(job[0])
    values = {**recipe.to_dict(), **fields}
    with pytest.raises(RecipeError, match="does not apply to lhotse cuts") as caught:
        DataLoader(Recipe.parse(values), Cuts())
    assert f"`{named}`" in str(caught.value)


def test_a_sampler_knows_only_states_of_batches_that_were_taken_and_refuses_substitutes(job: Any) -> None:
    recipe = Recipe.load(job[0])
    sampler = CutSampler(recipe, rank=0, world_size=1)
    next(iter(sampler))
    for number in (-1, 2):
        with pytest.raises(PlayheadError, match="does not know the state after this batch"):
            sampler.state_dict(number)
    with pytest.raises(RecipeError, match="bad samples are not replaced in torch's DataLoader"):
        CutSampler(Recipe.parse({**recipe.to_dict(), "on_error": "substitute"}))


def test_a_batch_size_in_torch_s_data_loader_is_refused(job: Any) -> None:
    sampler = CutSampler(Recipe.load(job[0]), rank=0, world_size=1)
    loader = torch.utils.data.DataLoader(sampler.dataset(recognition()), sampler=sampler)
    with pytest.raises(RecipeError, match="would put these batches into batches once more"):
        next(iter(loader))


def test_a_recording_that_is_missing_is_named_or_replaced(tmp_path: Path) -> None:
    speech(tmp_path, 8).to_file(tmp_path / "cuts.jsonl")
    (tmp_path / "floats.wav").unlink()
    recipe = recipe_of(tmp_path, {"path": "cuts.jsonl", "format": "lhotse"}, on_error="substitute", max_bad=0.5)
    found = cuts_of(recipe, in_memory=True)
    assert len(found) == 8
    assert "cut-003" not in {each.id for each in found}
    with pytest.raises(PlayheadError, match=r"floats.wav: no such file.*|cuts.jsonl, byte"):
        cuts_of(recipe_of(tmp_path, {"path": "cuts.jsonl", "format": "lhotse"}), in_memory=True)


def test_an_error_of_the_dataset_names_it_and_the_rows(job: Any) -> None:
    class Failing:
        def __getitem__(self, cuts: CutSet) -> Any:
            raise KeyError("no such field")

    with pytest.raises(SampleError, match=r"Failing.__getitem__ raised KeyError") as caught:
        next(iter(DataLoader(Recipe.load(job[0]), Failing(), rank=0, world_size=1)))
    assert "cuts.jsonl, byte" in str(caught.value)
