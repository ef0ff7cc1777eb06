"""What cannot be imported is refused by its name and place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from playhead.errors import RecipeError
from playhead.recipe.nemo import Imported, ImportOptions, import_nemo

NEMO = {"type": "nemo", "manifest_filepath": "/data/a.json"}


def dataset(*entries: Any, **settings: Any) -> dict[str, Any]:
    return {"train_ds": {"batch_size": 4, "shuffle": True, "input_cfg": list(entries) or [NEMO], **settings}}


def imported(folder: Path, config: Any, **options: Any) -> Imported:
    file = folder / "config.yaml"
    file.write_text(config if isinstance(config, str) else json.dumps(config))
    return import_nemo(file, ImportOptions(base_dir=folder, **options))


REFUSED = {
    "an unknown type": (dataset({"type": "nemo_tared"}), "train_ds.input_cfg[0].type: is an unknown type"),
    "no type": (dataset({"manifest_filepath": "a"}), "train_ds.input_cfg[0]: `type` is missing"),
    "a simulator": (
        dataset(NEMO, {"type": "multi_speaker_simulator", "manifest_filepath": "a"}),
        "train_ds.input_cfg[1].type: is not supported",
    ),
    "duplex": (dataset({"type": "s2s_duplex_reverse_role"}), "train_ds.input_cfg[0].type: is not supported"),
    "duplex from tars": (dataset({"type": "nemo_tarred_to_duplex"}), "train_ds.input_cfg[0].type: is not supported"),
    "speech synthesis": (
        dataset({"type": "lhotse_magpietts_data_as_continuation"}),
        "train_ds.input_cfg[0].type: is not supported",
    ),
    "a class": (dataset(_target_="a.B"), "train_ds._target_: cannot be imported"),
    "a class in an entry": (dataset({**NEMO, "_target_": "a.B"}), "train_ds.input_cfg[0]._target_: cannot be imported"),
    "a class inside an unknown key": (
        dataset(collate={"by": [{"_target_": "a.B"}]}),
        "train_ds.collate.by[0]._target_: cannot be imported",
    ),
    "a class among tags": (
        dataset({**NEMO, "tags": {"_target_": "a.B"}}),
        "train_ds.input_cfg[0].tags._target_: cannot be imported",
    ),
    "an augmentation of the older loader": (
        {"train_ds": {"batch_size": 4, "manifest_filepath": "a.json", "augmentor": {"speed": {"prob": 0.5}}}},
        "train_ds.augmentor: cannot be imported",
    ),
    "silence that the older loader cuts": (
        {"train_ds": {"batch_size": 4, "manifest_filepath": "a.json", "trim_silence": True}},
        "train_ds.trim_silence: cannot be imported",
    ),
    "a temperature that is no number": (
        "train_ds: {batch_size: 4, reweight_temperature: .nan, input_cfg: [{type: nemo, manifest_filepath: a.json}]}",
        "train_ds.reweight_temperature: is neither a number",
    ),
    "reverberation": (dataset(rir_enabled=True), "train_ds.rir_enabled: cannot be imported"),
    "windows": (dataset(cut_into_windows_duration=10), "train_ds.cut_into_windows_duration: cannot be imported"),
    "joined samples": (dataset(concatenate_samples=True), "train_ds.concatenate_samples: cannot be imported"),
    "another truncation": (
        dataset(truncate_duration=5, truncate_offset_type="start"),
        "train_ds.truncate_offset_type: cannot be imported",
    ),
    "padding on the left": (
        dataset(pad_min_duration=5, pad_direction="left"),
        "train_ds.pad_direction: cannot be imported",
    ),
    "a channel by a field": (dataset(channel_selector="best"), "train_ds.channel_selector: cannot be imported"),
    "a tag of a list": (dataset({**NEMO, "tags": {"a": [1]}}), "train_ds.input_cfg[0].tags.a: cannot be imported"),
    "no data": ({"train_ds": {"batch_size": 1}}, "train_ds: names no data"),
    "no batch size": ({"train_ds": {"input_cfg": [NEMO]}}, "train_ds: says no batch size"),
    "an empty list": (dataset(input_cfg=[]), "train_ds.input_cfg: is not a list of datasets"),
    "an empty group": (dataset({"type": "group", "input_cfg": []}), "train_ds.input_cfg[0].input_cfg: is not a list"),
    "a group without a list": (dataset({"type": "group"}), "train_ds.input_cfg[0].input_cfg: is missing"),
    "a tarred dataset without tars": (
        dataset({"type": "nemo_tarred", "manifest_filepath": "a.json"}),
        "train_ds.input_cfg[0]: `tarred_audio_filepaths` is missing",
    ),
    "no list to give temperatures to": (
        dataset(input_cfg=3, reweight_temperature=1),
        "train_ds.input_cfg: is not a list",
    ),
    "fewer tars than manifests": (
        dataset({"type": "nemo_tarred", "manifest_filepath": [["a"], ["b"]], "tarred_audio_filepaths": [["c"]]}),
        "train_ds.input_cfg[0].tarred_audio_filepaths: has another number of entries",
    ),
    "a weight on one of two manifests": (
        dataset({"type": "nemo", "manifest_filepath": [["a", 2], ["b"]]}),
        "train_ds.input_cfg[0].manifest_filepath[1]: has no weight",
    ),
    "Shar without cuts": (
        dataset({"type": "lhotse_shar", "shar_path": {"recording": "a.tar"}}),
        "train_ds.input_cfg[0].shar_path: has no `cuts`",
    ),
    "pairs without sizes": (
        dataset(use_bucketing=True, bucket_duration_bins=[[1, 2], [3, 4]]),
        "train_ds.bucket_duration_bins: pairs need `bucket_batch_size`",
    ),
    "sizes without bins": (dataset(bucket_batch_size=[1, 2]), "train_ds.bucket_batch_size: needs an edge"),
    "text by seconds": (
        dataset({"type": "txt", "paths": "a.txt"}, batch_duration=10),
        "train_ds.input_cfg[0]: text has no seconds to batch by",
    ),
    "conversations without the seconds of a token": (
        dataset({"type": "multimodal_conversation", "manifest_filepath": "a", "audio_locator_tag": "<a>"}),
        "train_ds.input_cfg[0]: `token_equivalent_duration` is missing",
    ),
    "questions beside text pairs": (
        dataset({"type": "txt_pair", "source_paths": "a", "target_paths": "b", "questions_path": "c"}),
        "train_ds.input_cfg[0].questions_path: cannot be imported",
    ),
    "drawn instructions": (
        dataset(
            {
                **NEMO,
                "type": "lhotse_as_conversation",
                "audio_locator_tag": "<a>",
                "token_equivalent_duration": 0.08,
                "preference_sampling": {"seed": 1},
            }
        ),
        "train_ds.input_cfg[0].preference_sampling: cannot be imported",
    ),
    "a value that is still missing": (
        dataset({"type": "nemo", "manifest_filepath": "???"}),
        "train_ds.input_cfg[0].manifest_filepath: has no value yet",
    ),
    "a number from the environment": (
        dataset(batch_size="${oc.env:BATCH}"),
        "train_ds.batch_size: is not a number",
    ),
    "an unknown fusion": (
        {"train_ds": {"multi_config": True, "sampler_fusion": "sum", **dict.fromkeys("ab", dataset()["train_ds"])}},
        "train_ds.sampler_fusion: is unknown",
    ),
    "a sub-config of weight 0": (
        {
            "train_ds": {
                "multi_config": True,
                "sampler_fusion": "randomized_round_robin",
                "sampler_weights": {"a": 0, "b": 1},
                "a": dataset()["train_ds"],
                "b": dataset()["train_ds"],
            }
        },
        "train_ds.sampler_weights.a: cannot be imported",
    ),
    "nothing about data": ({"model": {}}, "the configuration describes no data"),
    "two datasets": (
        {"model": dataset(), "data": dataset()},
        "the configuration describes several datasets to train on",
    ),
}


@pytest.mark.parametrize(("config", "problem"), REFUSED.values(), ids=REFUSED.keys())
def test_it_is_refused_by_name_and_place(tmp_path, config, problem):
    with pytest.raises(RecipeError) as error:
        imported(tmp_path, config)
    assert error.value.problem.startswith(problem)


def test_all_settings_that_cannot_be_imported_are_named_at_once(tmp_path):
    with pytest.raises(RecipeError) as error:
        imported(tmp_path, dataset(rir_enabled=True, lowpass_enabled=True, _target_="a.B"))
    assert error.value.problem == "3 settings cannot be imported"
    for name in ("rir_enabled", "lowpass_enabled", "_target_"):
        assert f"train_ds.{name}" in error.value.found


def test_a_switch_that_is_off_is_ignored(tmp_path):
    notes = imported(tmp_path, dataset(rir_enabled=False, rir_prob=0.5)).notes.of("ignored")
    assert [note.place for note in notes] == ["train_ds.rir_enabled", "train_ds.rir_prob"]


def test_an_unknown_key_is_ignored_and_put_on_the_checklist(tmp_path):
    found = imported(tmp_path, dataset({**NEMO, "colour": "red"}))
    assert [note.place for note in found.notes.of("ignored")] == ["train_ds.input_cfg[0].colour"]
    assert any("train_ds.input_cfg[0].colour" in item for item in found.notes.checklist)


def test_settings_of_the_older_loader_are_ignored_where_lhotse_is_used(tmp_path):
    settings = {"batch_size": 4, "manifest_filepath": "a.json", "use_lhotse": True, "shuffle": True}
    found = imported(tmp_path, {"train_ds": {**settings, "augmentor": {"speed": {}}, "trim_silence": True}})
    assert {note.place: note.why for note in found.notes.of("ignored")}.items() >= {
        ("train_ds.augmentor", "Lhotse's loader does not read it either"),
        ("train_ds.trim_silence", "Lhotse's loader does not read it either"),
    }


UNREAD = {
    "beside input_cfg": (dataset(manifest_filepath="b.json"), "train_ds.manifest_filepath", "reads `input_cfg` alone"),
    "in a group": (
        dataset({"type": "group", "cuts_path": "b.jsonl", "input_cfg": [NEMO]}),
        "train_ds.input_cfg[0].cuts_path",
        "reads `input_cfg` alone",
    ),
    "of another type": (
        dataset({**NEMO, "input_cfg": [NEMO]}),
        "train_ds.input_cfg[0].input_cfg",
        "does not read it for `type: nemo`",
    ),
}


@pytest.mark.parametrize(("config", "place", "why"), UNREAD.values(), ids=UNREAD.keys())
def test_data_that_nemo_does_not_read_is_reported_as_left_out(tmp_path, config, place, why):
    found = imported(tmp_path, config)
    (note,) = found.notes.of("ignored")
    assert (note.place, why in note.why) == (place, True)
    assert any(f"`{place}` names data that was left out" in item for item in found.notes.checklist)


def test_settings_that_validation_sets_share_are_noted_once_and_at_their_place(tmp_path):
    shared = {"manifest_filepath": ["a.json", "b.json"], "batch_size": 2, "colour": "red"}
    found = imported(tmp_path, dataset() | {"validation_ds": shared})
    assert list(found.values["evaluation"]) == ["a", "b"]
    assert [note.place for note in found.notes.of("ignored")] == ["validation_ds.colour"]
    assert [note.now for note in found.notes.found if note.place == "validation_ds"] == ['source "a-2"', 'source "b"']


def test_a_source_without_a_telling_path_is_named_by_its_set(tmp_path, monkeypatch):
    monkeypatch.setenv("DEV", "/data/dev")
    found = imported(tmp_path, dataset() | {"validation_ds": {"shar_path": "${oc.env:DEV}", "batch_size": 2}})
    assert found.values["evaluation"]["validation"]["sources"][0]["name"] == "validation"


def test_a_file_that_includes_itself_is_refused(tmp_path):
    (tmp_path / "a.yaml").write_text('[{"type": "group", "input_cfg": "b.yaml"}]')
    (tmp_path / "b.yaml").write_text('[{"type": "group", "input_cfg": "./a.yaml"}]')
    with pytest.raises(RecipeError, match=r"a file includes itself\n  found     \S+a.yaml -> \S+b.yaml -> \S+a.yaml"):
        imported(tmp_path, dataset(input_cfg="a.yaml"))
    with pytest.raises(RecipeError, match="a file includes itself"):
        imported(tmp_path, dataset(input_cfg="a.yaml", reweight_temperature=1))


def test_a_file_may_be_included_twice(tmp_path):
    (tmp_path / "a.yaml").write_text(json.dumps([NEMO]))
    found = imported(tmp_path, dataset(*[{"type": "group", "input_cfg": "a.yaml", "weight": i} for i in (1, 2)]))
    assert [group.sources[0].name for group in found.recipe.sources] == ["a", "a-3"]


def test_a_file_that_is_missing_is_named(tmp_path):
    with pytest.raises(RecipeError, match=r"nowhere.yaml: cannot be read"):
        imported(tmp_path, dataset(input_cfg="nowhere.yaml"))


def test_one_of_several_datasets_is_chosen(tmp_path):
    config = {"model": dataset(seed=1), "data": dataset(seed=2)}
    assert imported(tmp_path, config, section="data.train_ds").recipe.seed == 2
    with pytest.raises(RecipeError, match=r"--section model.test_ds: there is no such key"):
        imported(tmp_path, config, section="model.test_ds")


def test_values_that_a_job_is_started_with_take_their_place(tmp_path):
    config = dataset({"type": "nemo", "manifest_filepath": "???"})
    overrides = [
        "train_ds.input_cfg[0].manifest_filepath=/data/b.json",
        "train_ds.seed=1e1",
        "+train_ds.max_duration=9",
    ]
    found = imported(tmp_path, config, overrides=overrides[::2])
    assert found.recipe.sources[0].path == ["/data/b.json"]
    assert found.recipe.sources[0].keep == {"duration": [None, 9]}
    for wrong in ("train_ds", "=3", "train_ds.input_cfg[7].weight=1"):
        with pytest.raises(RecipeError, match=r"^--set"):
            imported(tmp_path, config, overrides=[wrong])


def test_sets_of_one_name_in_validation_and_test_are_both_kept(tmp_path):
    sets = [
        {"batch_size": 1, "datasets": {"clean": {"manifest_filepath": f"/data/{kind}.json"}}} for kind in ("v", "t")
    ]
    found = imported(tmp_path, {**dataset(), "validation_ds": sets[0], "test_ds": sets[1]})
    assert {name: each.sources[0].path for name, each in found.recipe.evaluation.items()} == {
        "clean": ["/data/v.json"],
        "test-clean": ["/data/t.json"],
    }


def test_yaml_that_contains_itself_is_refused(tmp_path):
    with pytest.raises(RecipeError, match=r"config.yaml: contains itself"):
        imported(tmp_path, "train_ds: &a\n  batch_size: 1\n  again: *a\n")


def test_broken_yaml_and_a_key_given_twice_are_refused_with_their_line(tmp_path):
    with pytest.raises(RecipeError, match=r"config.yaml, line 3, column 2: not valid YAML"):
        imported(tmp_path, "train_ds:\n  a: [1\nb: 2")
    with pytest.raises(RecipeError, match=r"config.yaml, line 2, column 1: not valid YAML\n  found     the key `a`"):
        imported(tmp_path, "a: 1\na: 2\n")
    with pytest.raises(RecipeError, match="not valid YAML"):
        imported(tmp_path, "a: !!python/object/apply:os.system [ls]\n")
