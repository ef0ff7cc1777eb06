"""`playhead check`: its output, its options and its exit codes."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from commands import playhead, strict_json
from playhead.verify.checks import CHECKS
from small_data import write_jsonl


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A prepared recipe with a warning (no seed) and notes."""
    rows = [{"id": str(i), "n": 3, "tokens": [i, i, i], "text": "a, b: 50%"} for i in range(40)]
    write_jsonl(tmp_path / "a.jsonl", rows)
    source = {"name": "a", "path": "a.jsonl", "length": "n", "ids": "id"}
    recipe = {"lanes": 4, "batching": {"type": "fixed", "size": 2}, "sources": [source]}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe, sort_keys=False))
    assert playhead(tmp_path, "prepare", "recipe.yaml").returncode == 0
    return tmp_path


def test_findings_are_a_table_with_the_fix_below_each(folder: Path) -> None:
    done = playhead(folder, "check", "recipe.yaml", "--world", "3")
    assert (done.returncode, done.stderr) == (1, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "code   severity line  finding"
    assert lines[1] == "PH030  error       1  3 ranks cannot share 4 lanes evenly"
    assert lines[2] == "                      at        lanes"
    assert lines[5].startswith("                      to fix    write `lanes: 3` before the first run")
    assert lines[6].startswith("PH002  warning        the seed is not set")
    assert re.search(r"^1 error, 1 warning, \d notes from \d+ checks$", done.stdout, re.MULTILINE)
    assert lines[-2] == "not checked: PH032, PH033, PH034 (needs --steps)"
    assert lines[-1] == "not checked: PH070, PH071, PH072, PH073 (needs --state)"


def test_the_exit_code_says_whether_there_is_an_error_or_if_strict_a_warning(folder: Path) -> None:
    assert playhead(folder, "check", "recipe.yaml").returncode == 0
    assert playhead(folder, "check", "recipe.yaml", "--strict").returncode == 1
    assert playhead(folder, "check", "recipe.yaml", "--strict", "--ignore", "PH002").returncode == 0
    assert playhead(folder, "check", "recipe.yaml", "--world", "3").returncode == 1
    accepted = ("--ignore", "PH030:lanes", "--ignore", "PH002")
    done = playhead(folder, "check", "recipe.yaml", "--strict", "--world", "3", *accepted)
    assert done.returncode == 0
    assert "; 2 findings accepted" in done.stdout


def test_json_has_every_finding_and_what_was_not_checked(folder: Path) -> None:
    done = playhead(folder, "check", "recipe.yaml", "--json", "--world", "3", "--ignore", "PH065")
    assert done.returncode == 1
    found = strict_json(done.stdout)
    assert (found["recipe"], found["errors"], found["warnings"]) == ("recipe.yaml", 1, 1)
    first = found["findings"][0]
    assert (first["code"], first["severity"], first["place"], first["line"]) == ("PH030", "error", "lanes", 1)
    assert {*first} == {"code", "severity", "place", "line", "problem", "found", "expected", "fix"}
    assert [each["code"] for each in found["ignored"]] == ["PH065"]
    assert found["not_checked"]["PH070"] == "needs --state"
    assert {*found["checked"], *found["not_checked"]} == {check.code for check in CHECKS}


def test_github_annotations_name_the_file_and_the_line(folder: Path) -> None:
    done = playhead(folder, "check", "recipe.yaml", "--github", "--world", "3,64")
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert lines[0].startswith(
        "::error file=recipe.yaml,line=1,title=PH030 lanes::3, 64 ranks cannot share 4 lanes evenly%0Afound: "
    )
    assert all(
        re.match(r"::(error|warning|notice) file=recipe\.yaml,(line=\d+,)?title=PH\d{3}", line) for line in lines
    )
    assert any("% of the batches" not in line and "%25" in line for line in lines if "PH042" in line)


def test_an_unprepared_recipe_is_checked_as_far_as_it_can_be(folder: Path) -> None:
    with (folder / "recipe.yaml").open("a") as file:
        file.write("cache_dir: elsewhere\n")
    done = playhead(folder, "check", "recipe.yaml")
    assert done.returncode == 1
    assert 'PH010  error       6  "a" is not prepared: its index is missing, or older than the recipe' in done.stdout
    assert "to fix    run `playhead prepare recipe.yaml`" in done.stdout
    assert re.search(r"^not checked: PH004, PH012, .*PH052.* \(no source is prepared\)$", done.stdout, re.MULTILINE)
    missing = r"^not checked: PH016, PH041, .*PH044 \(no plan: a source is not prepared, or"
    assert re.search(missing, done.stdout, re.MULTILINE)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--ignore", "PH999"), "there is no such check"),
        (("--world", "8,x"), "is a list of numbers of ranks"),
        (("--world", "0"), "is a list of numbers of ranks"),
        (("--steps", "0"), "greater than or equal to 1"),
        (("--json", "--github"), "is one output"),
    ],
)
def test_wrong_usage_has_exit_code_2(folder: Path, words: tuple[str, ...], message: str) -> None:
    done = playhead(folder, "check", "recipe.yaml", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


def test_what_a_map_prints_is_no_part_of_the_output(folder: Path) -> None:
    (folder / "noisy_maps.py").write_text("def f(sample):\n    print('hello')\n    return sample\n")
    with (folder / "recipe.yaml").open("a") as file:
        file.write("map: noisy_maps:f\n")
    done = playhead(folder, "check", "recipe.yaml", "--json")
    assert json.loads(done.stdout)["errors"] == 0
    assert "hello" in done.stderr


def test_a_terminal_shows_progress_and_long_lines_are_folded_below_themselves(folder: Path) -> None:
    master, slave = pty.openpty()
    environment = {**os.environ, "COLUMNS": "70", "TERM": "xterm"}
    with subprocess.Popen(
        [sys.executable, "-m", "playhead", "check", "recipe.yaml"],
        cwd=folder,
        env=environment,
        stdout=slave,
        stderr=slave,
    ) as process:
        os.close(slave)
        shown = b""
        while True:
            try:
                piece = os.read(master, 1 << 16)
            except OSError:
                break
            if not piece:
                break
            shown += piece
    os.close(master)
    assert process.returncode == 0
    text = re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", shown).decode()
    assert "PH0" in text.split("code   severity")[0]  # the bar named a check
    table = text[text.index("code   severity") :].splitlines()
    assert all(len(line) <= 70 for line in table if not line.startswith("not checked"))


@pytest.mark.full
def test_of_many_findings_alike_the_first_are_shown(folder: Path) -> None:
    names = [f"s{i:02}" for i in range(12)]
    for name in names:
        write_jsonl(folder / f"{name}.jsonl", [{"id": f"{name}-{i % 3}", "n": 1, "tokens": [1]} for i in range(6)])
    sources = [{"name": name, "path": f"{name}.jsonl", "length": "n", "ids": "id"} for name in names]
    recipe = {"seed": 1, "lanes": 4, "batching": {"type": "fixed", "size": 2}, "sources": sources}
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    assert playhead(folder, "prepare", "recipe.yaml").returncode == 0
    done = playhead(folder, "check", "recipe.yaml")
    assert done.stdout.count("ids occur more than once") == 8
    assert "PH027  warning        and 4 more findings like these; --json lists all\n" in done.stdout
    found = strict_json(playhead(folder, "check", "recipe.yaml", "--json").stdout)
    assert sum(each["code"] == "PH027" for each in found["findings"]) == 12
