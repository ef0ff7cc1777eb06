"""`playhead import-nemo`: what it writes and prints, and when it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commands import as_json, playhead, printed, refused
from playhead import Recipe

CONFIG = """
trainer: {devices: 4}
model:
  train_ds:
    batch_duration: 60
    shuffle: true
    num_workers: 8
    input_cfg:
      - {type: nemo, manifest_filepath: calls.json, weight: 1, tags: {lang: en}}
      - {type: nemo, manifest_filepath: talks.json, weight: 2, tags: {lang: pl}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.yaml").write_text(CONFIG)
    for name in ("calls", "talks"):
        (tmp_path / f"{name}.json").write_text(json.dumps({"audio_filepath": "a.wav", "duration": 2.0, "text": name}))
    return tmp_path


def test_a_recipe_and_a_report_are_written_and_the_next_commands_printed(folder):
    out = printed(folder, "import-nemo", "config.yaml", "--out", "recipe.yaml")
    assert out.startswith("recipe.yaml: 2 sources from config.yaml\nrecipe.migration.md: settings ")
    assert "  playhead prepare recipe.yaml\n  playhead check recipe.yaml\n  playhead plan recipe.yaml\n" in out
    recipe = Recipe.load(folder / "recipe.yaml")
    assert (recipe.lanes, [source.weight for source in recipe.sources]) == (4, [1, 2])
    assert recipe.sources[0].path == [str(folder / "calls.json")]
    report = (folder / "recipe.migration.md").read_text()
    assert "| model.train_ds.num_workers | 8 |  | an argument of the Loader" in report
    assert "- [ ] `lanes: 4` was computed from the trainer" in report
    assert printed(folder, "prepare", "recipe.yaml")


def test_the_report_is_printed_as_json(folder):
    found = as_json(folder, "import-nemo", "config.yaml", "--lanes", "16")
    assert (found["recipe"], found["report"], found["num_sources"]) == ("recipe.yaml", "recipe.migration.md", 2)
    assert {"place", "was", "now", "why"} == set(found["mapped"][0])
    assert [note["place"] for note in found["ignored"]] == ["model.train_ds.num_workers"]
    assert found["commands"][0] == "playhead prepare recipe.yaml"
    assert Recipe.load(folder / "recipe.yaml").lanes == 16


def test_files_that_exist_are_replaced_only_when_asked(folder):
    (folder / "recipe.yaml").write_text("mine")
    error = refused(folder, "import-nemo", "config.yaml")
    assert error["problem"] == "recipe.yaml: exists already"
    assert (folder / "recipe.yaml").read_text() == "mine"
    assert not (folder / "recipe.migration.md").exists()
    printed(folder, "import-nemo", "config.yaml", "--force")
    assert Recipe.load(folder / "recipe.yaml")


def test_the_configuration_itself_is_never_replaced(folder):
    error = refused(folder, "import-nemo", "config.yaml", "--out", "./config.yaml", "--force")
    assert error["problem"] == "--out config.yaml: is the configuration itself"
    assert (folder / "config.yaml").read_text() == CONFIG


def test_nothing_is_written_where_a_setting_is_refused(folder):
    (folder / "config.yaml").write_text(CONFIG + "    rir_enabled: true\n")
    error = refused(folder, "import-nemo", "config.yaml")
    assert (error["type"], error["problem"]) == ("RecipeError", "model.train_ds.rir_enabled: cannot be imported")
    assert not list(folder.glob("recipe*"))


def test_values_of_the_job_and_a_folder_for_paths_may_be_given(folder):
    (folder / "configs").mkdir()
    (folder / "config.yaml").rename(folder / "configs" / "config.yaml")
    words = ("--base", "..", "--set", "model.train_ds.seed=9", "--section", "model.train_ds", "--out", "r.yaml")
    printed(folder / "configs", "import-nemo", "config.yaml", *words)
    recipe = Recipe.load(folder / "configs" / "r.yaml")
    assert (recipe.seed, recipe.sources[0].path) == (9, [str(folder / "calls.json")])


def test_a_recipe_is_yaml_and_a_configuration_must_be_there(folder):
    assert "a recipe is a YAML file" in refused(folder, "import-nemo", "config.yaml", "--out", "r.json")["problem"]
    assert "cannot be read" in refused(folder, "import-nemo", "nowhere.yaml")["problem"]
    assert playhead(folder, "import-nemo").returncode == 2
