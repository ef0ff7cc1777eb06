"""Interpolations, as OmegaConf resolves them."""

from __future__ import annotations

from pathlib import Path

import pytest

from playhead.errors import RecipeError
from playhead.recipe.environment import expand_environment
from playhead.recipe.nemo import import_nemo
from playhead.recipe.nemo.interpolation import Document
from playhead.recipe.nemo.yaml_text import parse_yaml_text

TEXT = r"""
model:
  rate: 16000
  name: big
  nested: {list: [1, 2, {deep: "${model.rate}"}]}
  train_ds:
    rate: ${model.rate}
    sibling: ${.rate}
    above: ${..name}
    root: ${model.nested.list[2].deep}
    dotted: ${model.nested.list.1}
    whole: ${model.nested}
    through: ${model.train_ds.whole.list[0]}
    text: /data/${model.name}/${model.rate}/x
    chosen: ${model.${.which}}
    which: name
    env: ${oc.env:ROOT}/a
    default: ${oc.env:ROOT, /data}/b
    quoted: ${oc.env:ROOT,'/my data'}/c
    plain: \${not.this}
    flag: "${.truth}-${.nothing}"
    truth: true
    nothing: null
unused: ${now:%Y}
"""


def document(text: str = TEXT) -> Document:
    return Document(parse_yaml_text(text, "config.yaml"), "config.yaml")


def test_references_are_resolved_wherever_they_point():
    found = document().get(("model", "train_ds"))
    assert {key: value for key, value in found.items() if key not in ("which", "truth", "nothing")} == {
        "rate": 16000,
        "sibling": 16000,
        "above": "big",
        "root": 16000,
        "dotted": 2,
        "whole": {"list": [1, 2, {"deep": 16000}]},
        "through": 1,
        "text": "/data/big/16000/x",
        "chosen": "big",
        "env": "${ROOT}/a",
        "default": "${ROOT:-/data}/b",
        "quoted": "${ROOT:-/my data}/c",
        "plain": "$${not.this}",
        "flag": "true-null",
    }


def test_references_to_the_environment_mean_in_a_recipe_what_they_mean_in_omegaconf():
    found = document().get(("model", "train_ds"))
    assert expand_environment(found["env"], {"ROOT": "/r"}) == "/r/a"
    assert expand_environment(found["default"], {}) == "/data/b"
    assert expand_environment(found["plain"], {}) == "${not.this}"


BROKEN = {
    "a: ${b}\nb: ${c}\nc: ${a}": "a: an interpolation refers to itself",
    "a: ${a}": "a: an interpolation refers to itself",
    "a: ${b.c}": "a: an interpolation names no key of the file",
    "a: ${": "a: an interpolation is not closed",
    "a: ${}": "a: an interpolation is malformed",
    "a: ${now:%Y}": "a: the resolver `now` is not supported",
    "a: ${oc.decode:x}": "a: the resolver `oc.decode` is not supported",
    "a: ${oc.env:X,null}": "a: a default from the environment is not a text",
    "a: x${b}\nb: [1]": "a: an interpolation inside a text refers to a mapping or a list",
    "a: ${b.${oc.env:X}}": "a: an interpolation depends on the environment",
}


@pytest.mark.parametrize(("text", "problem"), BROKEN.items(), ids=BROKEN.keys())
def test_what_cannot_be_resolved_is_refused_with_its_place(text, problem):
    with pytest.raises(RecipeError) as error:
        document(text).get(("a",))
    assert error.value.problem == f"config.yaml, {problem}"


def test_a_mapping_that_refers_to_itself_is_refused():
    with pytest.raises(RecipeError, match="an interpolation refers to itself"):
        document("a: {b: '${a}'}").get(("a",))


def test_scalars_are_those_of_omegaconf():
    found = parse_yaml_text("{a: no, b: 1e3, c: 2024-01-01, d: on, e: 1_000, f: .5, g: 1.5e-2, h: 0.1}", "text")
    assert found == {"a": False, "b": 1000.0, "c": "2024-01-01", "d": True, "e": 1000, "f": 0.5, "g": 0.015, "h": 0.1}


def test_a_variable_that_is_not_set_here_stays_a_reference_and_is_on_the_checklist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DATA_ROOT", raising=False)
    config = tmp_path / "config.yaml"
    config.write_text(
        "train_ds:\n  batch_size: 2\n  input_cfg:\n"
        '    - {type: nemo, manifest_filepath: "${oc.env:DATA_ROOT}/a.json", weight: 1}\n'
        '    - {type: nemo, manifest_filepath: "${oc.env:OTHER,/o}/b.json", weight: 1}\n'
    )
    found = import_nemo(config)
    assert [source["path"] for source in found.values["sources"]] == ["${DATA_ROOT}/a.json", "${OTHER:-/o}/b.json"]
    assert any("Set DATA_ROOT in the environment" in item for item in found.notes.checklist)
