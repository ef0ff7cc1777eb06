"""From a NeMo configuration to batches: data as NeMo has it, imported, prepared and read by the Loader."""

from __future__ import annotations

import json
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import yaml
from lhotse import CutSet

from lhotse_data import recording
from nemo_data import RATE, encoded, signal, write_shards
from playhead import Loader, Recipe
from playhead.prepare import prepare
from playhead.recipe.nemo import ImportOptions, import_nemo
from playhead.recipe.nemo.files import write_imported
from small_data import write_jsonl

LOUD_ENOUGH = {"sample_rate": RATE, "shuffle": True, "seed": 5}


def write_manifest(folder: Path, name: str, count: int, **fields: Any) -> str:
    """A manifest of recordings of half a second and more, beside them."""
    folder.mkdir(exist_ok=True)
    rows = []
    for i in range(count):
        frames = 4_000 + 400 * i
        (folder / f"{name}-{i}.wav").write_bytes(encoded(signal(frames, i)))
        rows.append({"audio_filepath": f"{name}-{i}.wav", "duration": frames / RATE, "text": f"{name} {i}", **fields})
    write_jsonl(folder / f"{name}.json", rows)
    return f"{folder.name}/{name}.json"


def write_tokenizer(folder: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({"<unk>": 0, "<audio>": 1}, unk_token="<unk>"))  # noqa: S106 - a word
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(["<audio>"])
    tokenizer.save(str(folder / "tokenizer.json"))


def loaded(folder: Path, config: dict[str, Any], **options: Any) -> Recipe:
    """The recipe of a configuration, written, read and prepared."""
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    imported = import_nemo(folder / "config.yaml", ImportOptions(base_dir=folder, **options))
    write_imported(imported, folder / "recipe.yaml")
    recipe = Recipe.load(folder / "recipe.yaml")
    assert recipe == imported.recipe
    prepare(recipe, workers=1)
    return recipe


def batches(recipe: Recipe, count: int) -> list[Any]:
    return list(islice(Loader(recipe), count))


@pytest.fixture
def speech(tmp_path: Path) -> dict[str, Any]:
    write_shards(tmp_path / "tars", [0, 1])
    manifest = write_manifest(tmp_path / "calls", "calls", 6)
    cuts = [recording(tmp_path, f"talk{i}.wav", 8_000 + 1600 * i).to_cut() for i in range(5)]
    CutSet.from_cuts(cuts).to_file(tmp_path / "cuts.jsonl")
    (tmp_path / "shar").mkdir()
    CutSet.from_cuts(cuts).to_shar(tmp_path / "shar", fields={"recording": "wav"}, shard_size=3)
    return {
        "input_cfg": [
            {
                "type": "nemo_tarred",
                "manifest_filepath": "tars/manifest__OP_0..1_CL_.json",
                "tarred_audio_filepaths": "tars/audio__OP_0..1_CL_.tar",
                "weight": 0.5,
                "tags": {"lang": "en", "task": "asr"},
            },
            {
                "type": "group",
                "weight": 0.5,
                "tags": {"lang": "pl"},
                "input_cfg": [
                    {"type": "nemo", "manifest_filepath": manifest, "weight": 1},
                    {"type": "lhotse", "cuts_path": "cuts.jsonl", "weight": 1},
                    {"type": "lhotse_shar", "shar_path": "shar", "weight": 2},
                ],
            },
        ]
    }


def _origin(sample: dict[str, Any]) -> str:
    if "supervisions" in sample:
        return "talks"
    return "tars" if "task" in sample else "calls"


def test_a_blend_of_all_audio_types_is_delivered_by_its_weights_and_with_its_tags(tmp_path, speech):
    config = {"train_ds": {**LOUD_ENOUGH, "batch_size": 4, **speech}, "trainer": {"devices": 2}}
    recipe = loaded(tmp_path, config)
    assert recipe.lanes == 2
    drawn: Counter[str] = Counter()
    for batch in batches(recipe, 200):
        assert batch.num_samples == 4
        for sample in batch["samples"]:
            assert sample["lang"] == ("en" if "task" in sample else "pl")
            assert sample["audio"].dtype == np.float32
            drawn[_origin(sample)] += 1
    shares = {name: count / drawn.total() for name, count in drawn.items()}
    assert shares == pytest.approx({"tars": 0.5, "calls": 0.125, "talks": 0.375}, abs=0.03)


def test_buckets_filters_and_budgets_hold_in_what_is_delivered(tmp_path):
    manifest = write_manifest(tmp_path / "calls", "calls", 20)
    settings = {"use_bucketing": True, "bucket_duration_bins": [0.6, 0.9], "batch_duration": 3, "max_duration": 1.2}
    recipe = loaded(tmp_path, {"train_ds": {**LOUD_ENOUGH, **settings, "manifest_filepath": manifest}})
    for batch in batches(recipe, 40):
        seconds = batch["audio_lengths"] / RATE
        assert seconds.max() <= 1.2
        assert seconds.max() * len(seconds) <= 3
        assert len({int(np.searchsorted([0.6, 0.9, 1.2], second)) for second in seconds.tolist()}) == 1


def test_validation_sets_deliver_every_row_once(tmp_path):
    manifest = write_manifest(tmp_path / "calls", "calls", 6)
    dev = write_manifest(tmp_path / "dev", "dev", 7)
    validation = {"datasets": {"my-dev": {"manifest_filepath": dev}}, "batch_size": 2, "sample_rate": RATE}
    train = {**LOUD_ENOUGH, "batch_size": 2, "manifest_filepath": manifest}
    recipe = loaded(tmp_path, {"model": {"train_ds": train, "validation_ds": validation}})
    texts = [text for batch in Loader(recipe, split="my-dev") for text in batch["text"]]
    assert texts == [f"dev {i}" for i in range(7)]


def test_speed_and_noise_are_applied(tmp_path):
    manifest = write_manifest(tmp_path / "calls", "calls", 6)
    noise = write_manifest(tmp_path / "noise", "noise", 2)
    settings = {"perturb_speed": True, "noise_path": noise, "noise_mix_prob": 1.0, "noise_snr": [0, 5], "batch_size": 2}
    recipe = loaded(tmp_path, {"train_ds": {**LOUD_ENOUGH, **settings, "manifest_filepath": manifest}})
    frames = {length for batch in batches(recipe, 30) for length in batch["audio_lengths"].tolist()}
    assert len(frames) > 6  # recordings have other lengths at other speeds


def test_text_and_speech_share_a_budget_of_tokens(tmp_path):
    write_tokenizer(tmp_path)
    manifest = write_manifest(tmp_path / "calls", "calls", 6)
    (tmp_path / "web.txt").write_text("".join("word " * (i + 1) + "\n" for i in range(9)))
    entries = [{"type": "nemo", "manifest_filepath": manifest}, {"type": "txt", "paths": "web.txt", "language": "en"}]
    settings = {"use_multimodal_sampling": True, "token_equivalent_duration": 0.08, "batch_tokens": 40, "max_tokens": 5}
    recipe = loaded(tmp_path, {"train_ds": {**LOUD_ENOUGH, **settings, "input_cfg": entries}})
    seen: Counter[str] = Counter()
    for batch in batches(recipe, 30):
        counted = []
        for sample in batch["samples"]:
            words = len(sample["text"].split())
            assert "audio" in sample or words <= 5
            counted.append(words + int(np.ceil(sample["duration"] / 0.08 - 1e-9)) if "audio" in sample else words)
            seen["audio" in sample] += 1
        assert max(counted) * len(counted) <= 40
    assert seen[True] == pytest.approx(seen[False], abs=10)


def test_transcripts_become_conversations_of_tokens(tmp_path):
    write_tokenizer(tmp_path)
    (tmp_path / "chat_template.jinja").write_text(
        "{% for message in messages %}{{ message.role }} {{ message.content }} {% endfor %}"
    )
    manifest = write_manifest(tmp_path / "calls", "calls", 6)
    entry = {"type": "lhotse_as_conversation", "audio_locator_tag": "<audio>", "tags": {"context": "Write it down:"}}
    entries = [{**entry, "input_cfg": [{"type": "nemo", "manifest_filepath": manifest}]}]
    settings = {"use_multimodal_sampling": True, "token_equivalent_duration": 0.08, "prompt_format": "llama3"}
    bins = {"bucket_duration_bins": [24, 60], "bucket_batch_size": [2, 1]}
    recipe = loaded(tmp_path, {"data": {"train_ds": {**LOUD_ENOUGH, **settings, **bins, "input_cfg": entries}}})
    for batch in batches(recipe, 6):
        assert batch["tokens"].shape[1] <= 60
        assert (batch["tokens"] == 1).any()


def test_two_samplers_take_turns_by_their_weights(tmp_path):
    write_tokenizer(tmp_path)
    manifest = write_manifest(tmp_path / "calls", "calls", 6)
    (tmp_path / "en.txt").write_text("one two\n" * 9)
    (tmp_path / "pl.txt").write_text("jeden dwa trzy\n" * 9)
    pairs = [{"type": "txt_pair", "source_paths": "en.txt", "target_paths": "pl.txt"}]
    bins = {"bucket_duration_bins": [[2, 2], [2, 4]], "bucket_batch_size": [4, 3]}
    config = {
        "multi_config": True,
        "sampler_fusion": "randomized_round_robin",
        "sampler_weights": {"spoken": 3, "written": 1},
        **LOUD_ENOUGH,
        "shard_seed": 1,
        "spoken": {
            "batch_duration": 2,
            "sample_rate": RATE,
            "input_cfg": [{"type": "nemo", "manifest_filepath": manifest}],
        },
        "written": {"use_multimodal_sampling": True, **bins, "input_cfg": pairs},
    }
    recipe = loaded(tmp_path, {"train_ds": config})
    kinds = Counter("audio" in batch["samples"][0] for batch in batches(recipe, 80))
    assert kinds == pytest.approx({True: 60, False: 20}, abs=6)


def test_sidecars_that_are_there_are_noted_and_those_that_are_cut_short_are_not_used(tmp_path):
    lines = write_manifest(tmp_path / "calls", "calls", 6)
    other = write_manifest(tmp_path / "other", "other", 2)
    file = tmp_path / lines
    offsets = [0, *np.cumsum([len(line) for line in file.read_bytes().splitlines(keepends=True)]).tolist()]
    Path(f"{file}.idx").write_bytes(np.array(offsets, "<u8").tobytes())
    Path(f"{tmp_path / other}.idx").write_bytes(b"")
    config = {"train_ds": {**LOUD_ENOUGH, "batch_size": 1, "manifest_filepath": [[lines, 1], [other, 1]]}}
    (tmp_path / "config.yaml").write_text(json.dumps(config))
    notes = import_nemo(tmp_path / "config.yaml", ImportOptions(base_dir=tmp_path)).notes
    about = [(note.kind, note.place, note.was) for note in notes.found if note.place.endswith(".idx")]
    assert about == [
        ("mapped", "train_ds.manifest_filepath[0] .idx", "1 of 1 files"),
        ("ignored", "train_ds.manifest_filepath[1] .idx", "1 files"),
    ]


def test_recordings_of_cuts_are_found_beside_their_manifest(tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    soundfile.write(tmp_path / "data" / "a.wav", signal(RATE), RATE)
    cuts = CutSet.from_cuts([recording(tmp_path / "data", f"r{i}.wav", RATE).to_cut() for i in range(3)])
    rows = [json.loads(json.dumps(cut.to_dict())) for cut in cuts]
    for row in rows:
        row["recording"]["sources"][0]["source"] = Path(row["recording"]["sources"][0]["source"]).name
    write_jsonl(tmp_path / "data" / "cuts.jsonl", rows)
    monkeypatch.chdir("/")
    config = {"train_ds": {**LOUD_ENOUGH, "batch_size": 3, "cuts_path": "data/cuts.jsonl"}}
    assert batches(loaded(tmp_path, config), 1)[0]["audio"].shape[0] == 3
