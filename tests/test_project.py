"""Laws of the project as a whole: what it shows to the outside, and how quickly."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import playhead

ROOT = Path(__file__).parent.parent


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


def test_a_worker_process_imports_numba_only_when_it_calls_a_kernel():
    """numba takes as long to import as all the rest, and doubles the memory of a worker."""
    loaded = run_python("import sys, playhead.feed.worker\nprint(*sys.modules)").split()
    assert "playhead.feed.produce" in loaded
    assert not {"numba", "torch", "pyarrow", "rich"} & set(loaded)


def test_the_version_is_that_of_the_installed_package():
    declared = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert playhead.__version__ == declared[1]


def test_no_two_test_files_have_the_same_name():
    """Else pytest cannot import both in one process."""
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert [name for name in names if names.count(name) > 1] == []


def test_no_file_is_named_after_no_idea():
    vague = {"utils", "common", "base", "manager", "helpers", "misc"}
    assert [path for path in (ROOT / "src").rglob("*.py") if vague & {path.stem, path.parent.name}] == []


def existing_folders():
    return {init.parent.name for init in (ROOT / "src" / "playhead").glob("*/__init__.py")}


def existing_modules():
    return {path.stem for path in (ROOT / "src" / "playhead").glob("[!_]*.py")}


def test_contributing_names_every_folder_and_module_and_no_other():
    section = (ROOT / "CONTRIBUTING.md").read_text().split("## Folders in the order a sample travels")[1]
    lines = section.split("```")[1].splitlines()[1:]
    named = [name for line in lines for name in re.split(r" {2,}", line)[0].split()]
    assert sorted(named) == sorted(existing_folders() | existing_modules())


def test_the_order_of_folders_is_checked_for_every_folder_and_module():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    layers = " ".join(project["tool"]["importlinter"]["contracts"][0]["layers"])
    to_come = set(re.findall(r"\(playhead\.(\w+)\)", layers)) - existing_folders()
    assert set(re.findall(r"playhead\.(\w+)", layers)) - to_come == existing_folders() | existing_modules()


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_every_folder_and_file_that_a_page_names_exists(page):
    text = re.sub(r"^```.*?^```$", "", (ROOT / page).read_text(), flags=re.MULTILINE | re.DOTALL)
    named = re.findall(r"`([\w./]+/[\w.]*|\w+\.(?:py|toml|md))`|\]\(([\w./-]+)", text)
    roots = (ROOT, ROOT / "src" / "playhead", ROOT / "src" / "playhead" / "formats")
    missing = [name for names in named for name in names if name and not any((root / name).exists() for root in roots)]
    assert len(named) > 10
    assert missing == []


REGISTRY = """
import json
from playhead.formats import registry
registry._load_all()
lengths = {name: known.default_length for name, known in registry._known.items()}
shown = {name: "none" if length is None else f"`{length.field}` in {length.unit}" for name, length in lengths.items()}
endings = sorted(ending for known in registry._known.values() for ending in known.extensions)
print(json.dumps({"lengths": shown, "endings": endings}))
"""


def test_the_pages_name_every_format_with_its_extensions_and_length_and_no_other():
    """In a process of its own, for other tests register formats of theirs."""
    known = json.loads(run_python(REGISTRY))
    readme, formats, recipe = ((ROOT / page).read_text() for page in ("README.md", "docs/formats.md", "docs/recipe.md"))
    table = re.findall(r"^\| `(\w+)` \| [^|]+ \| ([^|]+) \|$", readme.split("## Formats")[1], re.MULTILINE)
    assert dict(table) == known["lengths"]
    names = sorted(known["lengths"])
    assert [name for name, _ in table] == names
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \|", formats, re.MULTILINE)
    assert [name for name, _ in rows] == names
    assert (
        sorted({ending for _, files in rows for ending in re.findall(r"`([\w-]*\.[\w.]+)`", files)}) == known["endings"]
    )
    (line,) = re.findall(r"^\| `format` \| (.+?), or one that another package adds", recipe, re.MULTILINE)
    assert re.findall(r"`(\w+)`", line) == names


def test_every_folder_says_what_comes_in_and_what_goes_out():
    for init in (ROOT / "src" / "playhead").glob("*/__init__.py"):
        text = init.read_text()
        assert text.startswith('"""'), init
        assert re.search(r"(Comes in|In): .*(Goes out|Out)\b", text, re.DOTALL), init
