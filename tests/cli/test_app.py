from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import pytest

from playhead import DataError
from playhead.cli.report import print_error

RAISING = """
import sys
from playhead.cli import app, main
from playhead.cli.app import app
from playhead.errors import RecipeError

@app.command()
def fail(json: bool = False):
    raise RecipeError("lanes: is odd", found="3", fix="write 4")

@app.command()
def wait():
    import time
    print("waiting", flush=True)
    time.sleep(60)

main()
"""


def playhead(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "playhead", *words], capture_output=True, text=True, check=False)


def raising(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", RAISING, *words], capture_output=True, text=True, check=False)


def test_schema_prints_a_json_schema():
    done = playhead("schema")
    assert done.returncode == 0
    assert json.loads(done.stdout)["$defs"]["Source"]["properties"]["weight"]["description"]


def test_the_version_is_shown():
    assert playhead("--version").stdout.startswith("playhead 0.")


@pytest.mark.parametrize("words", [["shcema"], ["schema", "--nope"], ["schema", "extra"], []])
def test_wrong_usage_exits_with_2(words):
    assert playhead(*words).returncode == 2


def test_a_mistake_of_the_users_is_an_error_without_a_traceback():
    done = raising("fail")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == "RecipeError: lanes: is odd\n  found     3\n  to fix    write 4\n"


def test_with_json_the_error_is_one_object():
    done = raising("fail", "--json")
    assert done.returncode == 1
    expected = {"type": "RecipeError", "problem": "lanes: is odd", "found": "3", "expected": None, "fix": "write 4"}
    assert json.loads(done.stderr) == {"error": expected}


def test_an_interrupt_ends_quietly_with_130():
    with subprocess.Popen(
        [sys.executable, "-c", RAISING, "wait"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "waiting\n"
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=240)
    assert process.returncode == 130
    assert errors == ""


def test_on_a_terminal_the_error_is_red(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    print_error(DataError("a.jsonl: is missing"), as_json=False)
    assert capsys.readouterr().err == "\x1b[31mDataError: a.jsonl: is missing\x1b[0m\n"
