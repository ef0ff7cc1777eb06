"""The `playhead` command: called in this process, or as a user starts it where a process is what a test is about."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
import unicodedata
from collections.abc import Iterator, Mapping
from contextlib import chdir, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

from playhead.cli import main

_COLOURS = ("FORCE_COLOR", "TTY_COMPATIBLE", "COLUMNS", "CLICOLOR_FORCE")

# Root may write anywhere, unless the right to overrule permissions (1) is dropped (24) before a program is started.
_AS_ANYBODY = """
import ctypes, os, sys
if os.geteuid() == 0 and ctypes.CDLL(None, use_errno=True).prctl(24, 1, 0, 0, 0):
    sys.exit("the right to overrule permissions cannot be dropped")
os.execv(sys.executable, [sys.executable, "-m", "playhead", *sys.argv[1:]])
"""


def playhead(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Call a command in a folder and in this process; its output, and that of its workers, goes to files."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        code = call(words, folder, out.fileno(), err.fileno())
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(words, code, out.read(), err.read())


def started(folder: Path, *words: str, as_anybody: bool = False) -> subprocess.CompletedProcess[str]:
    """Start a command as a process of its own; `as_anybody` is bound by permissions even if we are root."""
    environment = {name: value for name, value in os.environ.items() if name not in _COLOURS}
    command = [sys.executable, *(["-c", _AS_ANYBODY] if as_anybody else ["-m", "playhead"]), *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def call(words: tuple[str, ...], folder: Path, out: int, err: int, settings: Mapping[str, str] | None = None) -> int:
    """The exit code of a command called in this process, as if it had been started with these descriptors."""
    assert not Path(__file__).is_relative_to(folder.resolve())  # for its modules are imported anew
    with _surroundings(words, folder, settings or {}), _standard_streams(out, err):
        try:
            main()
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else int(end.code is not None)
    raise AssertionError("main() has returned")


@contextmanager
def _surroundings(words: tuple[str, ...], folder: Path, settings: Mapping[str, str]) -> Iterator[None]:
    """What a process finds when it starts; a command leaves nothing of what it changes here."""
    hook, paths = sys.excepthook, set(sys.path)
    environment = {name: value for name, value in os.environ.items() if name not in _COLOURS} | settings
    kept = _forget_modules({str(folder.resolve())})
    importlib.invalidate_caches()
    try:
        with (
            chdir(folder),
            mock.patch.dict(os.environ, environment, clear=True),
            mock.patch.object(sys, "argv", ["playhead", *words]),
            mock.patch.object(sys, "path", [*sys.path]) as path,
        ):
            yield
    finally:
        sys.excepthook = hook
        _forget_modules({str(folder.resolve()), *path} - paths)
        sys.modules.update(kept)


def _forget_modules(folders: set[str]) -> dict[str, ModuleType]:
    """Take out and return the modules whose files are in these folders: another command would read them again."""
    found = {
        name: module
        for name, module in sys.modules.items()
        if (file := getattr(module, "__file__", None)) and any(Path(file).is_relative_to(at) for at in folders)
    }
    for name in found:
        del sys.modules[name]
    return found


@contextmanager
def _standard_streams(out: int, err: int) -> Iterator[None]:
    """Descriptors 1 and 2, and Python's streams over them, lead to other files for a while."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = os.dup(1), os.dup(2)
    try:
        os.dup2(out, 1)
        os.dup2(err, 2)
        with (
            open(1, "w", closefd=False) as stdout,
            open(2, "w", closefd=False, buffering=1) as stderr,
            mock.patch.object(sys, "stdout", stdout),
            mock.patch.object(sys, "stderr", stderr),
        ):
            yield
    finally:
        for number, descriptor in enumerate(kept, 1):
            os.dup2(descriptor, number)
            os.close(descriptor)


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
    """The error of a command that finds a problem, as `--json` gives it; `as_anybody` as in `started`."""
    words = (*words, "--json")
    done = started(folder, *words, as_anybody=True) if as_anybody else playhead(folder, *words)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    return strict_json(done.stderr)["error"]


def strict_json(text: str) -> Any:
    def refuse(word: str) -> None:
        raise ValueError(f"{word} is not JSON")

    return json.loads(text, parse_constant=refuse)


def wait_until(is_so: Any, seconds: float = 240) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.01)


def living_in_group(group: int) -> list[int]:
    """The processes of a group that are not dead, nor dead and unburied."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, pgrp = path.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(pgrp) == group and state != "Z":
            found.append(int(path.parent.name))
    return found
