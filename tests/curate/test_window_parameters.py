from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from playhead.curate import WindowConfig
from playhead.curate.config import CutConfig
from playhead.curate.settings import read_config, split_words
from playhead.errors import DataError, RecipeError


@pytest.mark.parametrize(
    ("given", "about"),
    [
        ({"min_speakers": 4, "max_speakers": 3}, "min_speakers"),
        ({"min_speakers": -1}, "min_speakers"),
        ({"min_speakers": 2.5}, "min_speakers"),
        ({"max_speakers": 0, "min_speakers": 0}, "max_speakers"),
        ({"tolerance": 1}, "tolerance"),
        ({"tolerance": -0.1}, "tolerance"),
        ({"tolerance": float("nan")}, "tolerance"),
        ({"target_window_duration": 0}, "target_window_duration"),
        ({"target_window_duration": float("inf")}, "target_window_duration"),
        ({"target_duration": -3}, "target_duration"),
        ({"min_sample_rate": 0}, "min_sample_rate"),
        ({"min_bandwidth": -1}, "min_bandwidth"),
        ({"overlap_percentage": 101}, "overlap_percentage"),
        ({"overlap_percentage": "50"}, "overlap_percentage"),
        ({"truncation": 1}, "truncation"),
        ({"drop_fields": ["words"]}, "drop_fields"),
        ({"drop_fields": "words, end"}, "drop_fields"),
    ],
)
def test_a_parameter_that_cannot_be_is_named(given: dict[str, Any], about: str) -> None:
    with pytest.raises(RecipeError, match=f"^{about}: ") as refused:
        WindowConfig(**given)
    assert refused.value.expected


def test_whole_and_broken_numbers_are_one_parameter() -> None:
    assert WindowConfig(target_duration=120, min_bandwidth=8000) == WindowConfig()


def test_words_and_flags_replace_what_a_file_says(tmp_path: Path) -> None:
    file = tmp_path / "windows.yaml"
    file.write_text("tolerance: 0.2\nmin-speakers: 1\noverlap_percentage: 30\n")
    found = read_config(WindowConfig, file, {"min_speakers": 3}, {"overlap_percentage": 70})
    assert found == WindowConfig(tolerance=0.2, min_speakers=3, overlap_percentage=70)


def test_words_with_an_equals_sign_are_parameters_unless_a_file_has_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a=b.jsonl").touch()
    words = [
        "x.jsonl",
        "tolerance=0.2",
        "a=b.jsonl",
        "drop_fields=words,note",
        "truncation=false",
        "drop_fields_top_level=",
    ]
    inputs, overrides = split_words(words)
    assert inputs == ["x.jsonl", "a=b.jsonl"]
    assert overrides == {
        "tolerance": 0.2,
        "drop_fields": "words,note",
        "truncation": False,
        "drop_fields_top_level": "",
    }
    assert WindowConfig(**overrides).dropped_top_level == frozenset()


def test_a_name_that_is_not_known_is_answered_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="did you mean `tolerance`"):
        read_config(WindowConfig, None, {"tolerence": 0.1}, {})
    file = tmp_path / "windows.yaml"
    file.write_text("overlap_percent: 3\n")
    with pytest.raises(RecipeError, match="did you mean `overlap_percentage`"):
        read_config(WindowConfig, file, {}, {})


PIPELINE = """
defaults:
  - _self_
  - override hydra/job_logging: none
hydra: {run: {dir: .}, output_subdir: null}
documentation: |
  Makes windows.
manifest_path: ???
output_dir: ./alm_output
backend: xenna
stages:
  - _target_: nemo_curator.stages.audio.alm.ALMManifestReader
    manifest_path: ${manifest_path}
    files_per_partition: 1
  - _target_: nemo_curator.stages.audio.alm.ALMDataBuilderStage
    target_window_duration: 60.0
    tolerance: 0.2
    min_sample_rate: 8000
    min_bandwidth: 4000
    min_speakers: 1
    max_speakers: 3
    truncation: false
    drop_fields: "words"
    drop_fields_top_level: "words,segments"
  - _target_: nemo_curator.stages.audio.alm.ALMDataOverlapStage
    overlap_percentage: 30
    target_duration: 60.0
  - _target_: nemo_curator.stages.audio.alm.ALMManifestWriterStage
    output_path: ${output_dir}/alm_output.jsonl
"""


def test_the_pipeline_of_the_tutorial_is_read_by_the_classes_of_its_stages(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE)
    expected = WindowConfig(
        target_window_duration=60,
        tolerance=0.2,
        min_sample_rate=8000,
        min_bandwidth=4000,
        min_speakers=1,
        max_speakers=3,
        truncation=False,
        overlap_percentage=30,
        target_duration=60,
    )
    assert read_config(WindowConfig, file, {}, {}) == expected
    file.write_text(PIPELINE.replace("alm.ALMManifest", "common.Manifest"))  # as the classes are called in 1.4.0
    assert read_config(WindowConfig, file, {}, {}) == expected
    assert read_config(WindowConfig, file, {"tolerance": 0.3}, {"min_speakers": 2}).tolerance == 0.3
    file.write_text(PIPELINE.replace("    overlap_percentage: 30\n", ""))
    assert read_config(WindowConfig, file, {}, {}).overlap_percentage == 0  # as the stage itself has it
    file.write_text(PIPELINE.replace("min_speakers", "min_speeches"))
    with pytest.raises(RecipeError, match="min_speeches: unknown parameter"):
        read_config(WindowConfig, file, {}, {})


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("ALMDataOverlapStage", "ALMNewStage", r"stages\[2\]: unknown stage"),
        ("ALMManifestReader", "ALMDataBuilderStage", r"stages\[1\]: a second ALMDataBuilderStage"),
        ("ALMDataOverlapStage", "ALMManifestReaderStage", "stages: no ALMDataOverlapStage"),
        ("_target_: nemo_curator.stages.audio.alm.ALMManifestReader", "a: b", r"stages\[0\]: names no class"),
        ('drop_fields: "words"', "drop_fields: ${dropped}", "drop_fields: refers to another value"),
    ],
)
def test_another_pipeline_is_refused_with_the_flat_form(tmp_path: Path, old: str, new: str, problem: str) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE.replace(old, new))
    with pytest.raises(RecipeError, match=problem) as refused:
        read_config(WindowConfig, file, {}, {})
    assert "`overlap_percentage: 50`" in str(refused.value.fix)
    file.write_text("stages: 3\n")
    with pytest.raises(RecipeError, match="stages: not a list"):
        read_config(WindowConfig, file, {}, {})


def test_a_parameter_given_twice_is_refused() -> None:
    with pytest.raises(RecipeError, match="tolerance: given twice"):
        read_config(WindowConfig, None, {"tolerance": 0.1}, {"tolerance": 0.2})
    with pytest.raises(RecipeError, match="tolerance: given twice"):
        split_words(["tolerance=0.1", "tolerance=0.1"])


@pytest.mark.parametrize("text", ["- a\n- b\n", "a: [\n", "just words\n"])
def test_a_file_without_parameters_by_name_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "windows.yaml"
    file.write_text(text)
    with pytest.raises(RecipeError, match=r"windows\.yaml"):
        read_config(WindowConfig, file, {}, {})


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.yaml: cannot be read"):
        read_config(WindowConfig, tmp_path / "none.yaml", {}, {})


def test_numbers_are_read_as_in_recipes(tmp_path: Path) -> None:
    _, overrides = split_words(["target_window_duration=1e2", "drop_fields=no"])
    assert overrides == {"target_window_duration": 100.0, "drop_fields": "no"}
    file = tmp_path / "windows.yaml"
    file.write_text("tolerance: 1e-1\n")
    assert read_config(WindowConfig, file, overrides, {}).tolerance == 0.1
    file.write_text("tolerance: 0.1\ntolerance: 0.2\n")
    with pytest.raises(RecipeError, match=r"windows\.yaml, line 2"):
        read_config(WindowConfig, file, {}, {})


@pytest.mark.parametrize("kind", [WindowConfig, CutConfig])
def test_a_number_too_large_for_a_float_is_refused(kind: type[WindowConfig | CutConfig]) -> None:
    name = "min_bandwidth" if kind is WindowConfig else "max_seconds"
    with pytest.raises(RecipeError, match=name):
        kind(**{name: 10**400})
