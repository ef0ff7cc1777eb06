"""Configurations in the shapes of NeMo's examples give recipes and reports that were checked by hand, and frozen."""

from __future__ import annotations

import pytest
import yaml
from nemo_imports import CONFIGS, FROZEN, IMPORTED, imported, texts

from playhead import Recipe
from playhead.recipe.nemo import ImportOptions, import_nemo
from playhead.recipe.text import parse_yaml
from playhead.recipe.tree import leaves

AGAIN = "if this is meant: python tests/recipe/nemo/nemo_imports.py"


@pytest.mark.parametrize("name", IMPORTED)
def test_a_configuration_gives_the_recipe_that_was_checked(name):
    recipe, report = texts(imported(name))
    assert recipe == (FROZEN / f"{name}.yaml").read_text(), AGAIN
    assert report == (FROZEN / f"{name}.md").read_text(), AGAIN


@pytest.mark.parametrize("name", IMPORTED)
def test_the_text_of_a_recipe_reads_as_its_values(name, monkeypatch):
    monkeypatch.setenv("AST_ROOT", "/data")
    found = imported(name)
    recipe, _ = texts(found)
    assert parse_yaml(recipe.replace("/base/", f"{CONFIGS}/"), name) == found.values
    assert Recipe.parse(found.values, CONFIGS) == found.recipe


def test_every_configuration_is_imported_or_included():
    names = {path.stem for path in CONFIGS.glob("*.yaml")}
    assert names - set(IMPORTED) == {"translation", "blend_of_canary"}


def places_of(node, place):
    """Every key of the datasets and sub-configs of a configuration."""
    for key, value in node.items():
        here = f"{place}.{key}"
        if isinstance(value, dict) and place.endswith("train_ds") and key != "sampler_weights":
            yield from places_of(value, here)
        elif value is not None:
            yield here


@pytest.mark.parametrize("name", [name for name in IMPORTED if name not in ("bare_list", "weighted_manifests")])
def test_every_setting_of_a_dataset_is_in_the_report(name):
    config = yaml.safe_load((CONFIGS / f"{name}.yaml").read_text())
    section = next((key for key, part in config.items() if isinstance(part, dict) and "train_ds" in part), None)
    dataset = config[section]["train_ds"] if section else config["train_ds"]
    notes = imported(name).notes.found
    # A note may be about several keys: `min_duration, max_duration`.
    reported = {
        f"{note.place.rpartition('.')[0]}.{key}" for note in notes for key in note.place.split(".")[-1].split(", ")
    }
    reported |= {place.partition("[")[0] for place in reported}
    assert set(places_of(dataset, f"{section}.train_ds" if section else "train_ds")) - reported == set()


@pytest.mark.parametrize("name", IMPORTED)
def test_every_entry_has_become_a_source(name):
    found = imported(name)
    named = {note.now for note in found.notes.of("mapped")}
    sources = [leaf.source.name for leaf in leaves(found.recipe) if not leaf.is_noise]
    assert [source for source in sources if not any(f'"{source}"' in text for text in named)] == []


def test_the_folder_of_the_recipe_does_not_change_what_relative_paths_mean(tmp_path):
    beside, elsewhere = imported("bare_list"), imported("bare_list", recipe_dir=tmp_path)
    assert [source.path for source in beside.recipe.sources] == [source.path for source in elsewhere.recipe.sources]
    assert beside.recipe.sources[0].path == [str(CONFIGS / "relative" / "train.json")]


def test_lines_of_texts_are_found_from_the_base_and_not_beside_the_manifest(tmp_path):
    (tmp_path / "list.yaml").write_text(
        "- {type: nemo, manifest_filepath: there/train.json, "
        "extra_fields: [{name: prompt, type: text_sample, path: prompts.txt}]}\n"
    )
    found = import_nemo(tmp_path / "list.yaml", ImportOptions(base_dir=tmp_path))
    (source,) = found.values["sources"]
    assert source["options"]["extra_fields"][0]["path"] == str(tmp_path / "prompts.txt")
