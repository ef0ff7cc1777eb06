"""The `playhead` command as a user starts it: a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import unicodedata
from pathlib import Path
from typing import Any

_COLOURS = ("FORCE_COLOR", "TTY_COMPATIBLE", "COLUMNS", "CLICOLOR_FORCE")


# Root may write anywhere, unless the right to overrule permissions (1) is dropped (24) before a program is started.
_AS_ANYBODY = """
import ctypes, os, sys
if os.geteuid() == 0 and ctypes.CDLL(None, use_errno=True).prctl(24, 1, 0, 0, 0):
    sys.exit("the right to overrule permissions cannot be dropped")
os.execv(sys.executable, [sys.executable, "-m", "playhead", *sys.argv[1:]])
"""


def playhead(folder: Path, *words: str, as_anybody: bool = False) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, its output in pipes; `as_anybody` is bound by permissions even if we are root."""
    environment = {name: value for name, value in os.environ.items() if name not in _COLOURS}
    command = [sys.executable, *(["-c", _AS_ANYBODY] if as_anybody else ["-m", "playhead"]), *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def printed(folder: Path, *words: str) -> str:
    """What a command that succeeds prints: nothing on stderr, and no control characters."""
    done = playhead(folder, *words)
    assert (done.returncode, done.stderr) == (0, "")
    controls = {character for character in done.stdout if unicodedata.category(character) == "Cc"}
    assert controls <= {"\n"}
    return done.stdout


def as_json(folder: Path, *words: str) -> Any:
    """The same with `--json`, read by a strict parser."""
    return strict_json(printed(folder, *words, "--json"))


def refused(folder: Path, *words: str, as_anybody: bool = False) -> dict[str, Any]:
    """The error of a command that finds a problem, as `--json` gives it."""
    done = playhead(folder, *words, "--json", as_anybody=as_anybody)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    return strict_json(done.stderr)["error"]


def strict_json(text: str) -> Any:
    def refuse(word: str) -> None:
        raise ValueError(f"{word} is not JSON")

    return json.loads(text, parse_constant=refuse)
