"""Laws of the project as a whole: what it shows to the outside, and how quickly."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import playhead

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "src").rglob("*.py"))


def run_python(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout


def test_public_names_are_exactly_those_in_all():
    assert dir(playhead) == sorted(playhead.__all__)
    for name in playhead.__all__:
        assert getattr(playhead, name) is not None


def test_every_error_is_public():
    kinds = {kind.__name__ for kind in [playhead.PlayheadError, *playhead.PlayheadError.__subclasses__()]}
    assert kinds == {name for name in playhead.__all__ if name.endswith("Error")}


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Loder'"):
        _ = playhead.Loder


@pytest.mark.parametrize("program", ["import playhead", "from playhead.cli.app import app"])
def test_importing_is_light(program):
    loaded = run_python(f"import sys\n{program}\nprint(*sys.modules)").split()
    assert "playhead" in loaded
    assert not {"numba", "numpy", "yaml", "torch", "pyarrow", "msgspec", "jax"} & set(loaded)


def test_reading_a_recipe_needs_neither_numba_nor_torch():
    program = "import sys, playhead\nplayhead.Recipe.parse\nimport playhead.recipe.read\nprint(*sys.modules)"
    assert not {"numba", "torch", "pyarrow"} & set(run_python(program).split())


def test_the_version_is_that_of_the_installed_package():
    declared = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert playhead.__version__ == declared[1]


@pytest.mark.parametrize("file", SOURCES, ids=lambda file: str(file.relative_to(ROOT)))
def test_files_are_small_and_named_after_one_idea(file):
    assert len(file.read_text().splitlines()) <= 300
    assert file.stem not in {"utils", "common", "base", "manager", "helpers", "misc"}


def test_every_folder_says_what_comes_in_and_what_goes_out():
    for init in (ROOT / "src" / "playhead").glob("*/__init__.py"):
        text = init.read_text()
        assert text.startswith('"""'), init
        assert re.search(r"(Comes in|In): .*(Goes out|Out)\b", text, re.DOTALL), init
