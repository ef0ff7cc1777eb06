"""PH050 to PH053: the functions that a recipe names."""

from __future__ import annotations

from pathlib import Path

import pytest
from checked_recipes import found, rows, sound, source, the_one, written


def module(folder: Path, name: str, text: str) -> str:
    """A module beside the recipe, under a name that no other test imports."""
    (folder / f"{name}.py").write_text(text)
    return name


def test_a_function_that_cannot_be_found_is_an_error(tmp_path: Path) -> None:
    finding = the_one("PH050", sound(tmp_path, map="no_such_maps:tokenize"))
    assert (finding.severity, finding.place, finding.line) == ("error", "map", 7)
    assert "the module no_such_maps cannot be found" in finding.problem
    assert finding.fix == "put no_such_maps.py beside the recipe, or install the package"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def other(sample): ...\n", "has no function wanted"),
        ("1 / 0\n", "importing the module"),
        ("def wanted(a, b, c): ...\n", "takes 3 arguments"),
        ("raise SystemExit(3)\n", "importing the module"),
    ],
)
def test_a_module_without_the_function_is_an_error(tmp_path: Path, text: str, words: str) -> None:
    name = module(tmp_path, f"lacking_{abs(hash(text))}", text)
    findings = found("PH050", sound(tmp_path, map=f"{name}:wanted"))
    assert any(words in finding.problem for finding in findings)


def test_functions_of_lengths_and_of_collation_are_looked_for_too(tmp_path: Path) -> None:
    name = module(tmp_path, "sizes_of_rows", "def size(row):\n    return row['n']\n")
    one = source(tmp_path, "a", rows("a", 9), length={"function": f"{name}:size"})
    path = written(tmp_path, one, collate="no_such_collate:pad")
    assert [each.place for each in found("PH050", path)] == ["collate"]
    path.write_text(path.read_text().replace(f"{name}:size", "no_such_sizes:size"))
    assert {each.place for each in found("PH050", path)} == {"sources[0].length.function", "collate"}


INNER = "def made():\n    def inner(sample):\n        return sample\n    return inner\ntokenize = made()\n"


@pytest.mark.parametrize("text", ["tokenize = lambda sample: sample\n", INNER])
def test_a_lambda_and_a_function_inside_another_are_found(tmp_path: Path, text: str) -> None:
    name = module(tmp_path, f"made_{len(text)}", text)
    finding = the_one("PH051", sound(tmp_path, map=f"{name}:tokenize"))
    assert (finding.severity, finding.place) == ("warning", "map")
    good = module(tmp_path, f"defined_{len(text)}", "def tokenize(sample):\n    return sample\n")
    assert found("PH051", sound(tmp_path, map=f"{good}:tokenize")) == []


UNSEEDED = {
    "random": "import random\ndef f(sample):\n    return {**sample, 'x': random.random()}\n",
    "numpy.random": "import numpy as np\ndef f(sample):\n    return {**sample, 'x': np.random.rand(3)}\n",
    "torch": "import torch\ndef f(sample):\n    return {**sample, 'x': torch.rand(3)}\n",
    "a counter": "seen = []\ndef f(sample):\n    seen.append(1)\n    return {**sample, 'x': len(seen)}\n",
    "a clock": "import time\ndef f(sample):\n    return {**sample, 'x': time.perf_counter_ns()}\n",
}


@pytest.mark.parametrize("kind", UNSEEDED)
def test_a_map_that_gives_another_sample_is_found(tmp_path: Path, kind: str) -> None:
    name = module(tmp_path, f"unseeded_{kind.replace(' ', '_').replace('.', '_')}", UNSEEDED[kind])
    finding = the_one("PH052", sound(tmp_path, map=f"{name}:f"))
    assert (finding.severity, finding.place) == ("error", "map")
    assert "gives another sample when it is run on a row again" in finding.problem
    assert 'row 0 of "a": x' in finding.found
    assert ("it draws from" in finding.found) == (not kind.startswith("a "))


def test_a_map_that_seldom_draws_from_a_global_generator_is_found(tmp_path: Path) -> None:
    text = "import random\ndef f(sample):\n    random.random()\n    return sample\n"
    finding = the_one("PH052", sound(tmp_path, map=f"{module(tmp_path, 'seldom_drawing', text)}:f"))
    assert "draws from a global random generator" in finding.problem


def test_a_map_that_draws_from_the_generator_it_is_given_is_not_found(tmp_path: Path) -> None:
    text = "def f(sample, random):\n    sample['tokens'].reverse()\n    return {**sample, 'x': random.normal(size=3)}\n"
    assert found("PH052", sound(tmp_path, map=f"{module(tmp_path, 'seeded_maps', text)}:f")) == []


def test_a_map_of_one_source_alone_is_named_at_that_source(tmp_path: Path) -> None:
    name = module(tmp_path, "unseeded_of_one", UNSEEDED["random"])
    one = source(tmp_path, "a", rows("a", 9), map=f"{name}:f")
    assert the_one("PH052", written(tmp_path, source(tmp_path, "b", rows("b", 9)), one)).place == "sources[1].map"


ALONE = "import multiprocessing\nif multiprocessing.parent_process() is not None:\n    {}\n"
KEEPS = "def f(sample):\n    return sample\n"


@pytest.mark.parametrize(
    ("does", "words"),
    [
        ("raise OSError('no display')", "OSError: no display"),
        ("import os; os._exit(3)", "the process ended while importing it"),
    ],
)
def test_a_module_that_a_spawned_worker_cannot_import_is_found(tmp_path: Path, does: str, words: str) -> None:
    name = module(tmp_path, f"not_in_workers_{len(does)}", ALONE.format(does) + KEEPS)
    good = module(tmp_path, f"in_workers_{len(does)}", KEEPS)
    path = written(
        tmp_path,
        source(tmp_path, "a", rows("a", 9), map=f"{good}:f"),
        source(tmp_path, "b", rows("b", 9), map=f"{name}:f"),
    )
    finding = the_one("PH053", path)
    assert (finding.severity, finding.place) == ("error", "sources[1].map")
    assert finding.found == words


def test_a_module_that_any_process_can_import_is_not_found(tmp_path: Path) -> None:
    assert found("PH053", sound(tmp_path, map=f"{module(tmp_path, 'plain_maps', KEEPS)}:f")) == []
