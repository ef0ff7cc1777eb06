"""Runs the code blocks of a documentation page, in order, in one fresh directory.

- ```yaml whose first line is `# file: NAME` is written to NAME. Any other must be YAML, and a recipe if it has
  `sources:` at the top.
- ```python blocks of a page share one namespace. One whose first line is `# file: NAME` is written to NAME instead, to
  be run or imported by a later block.
- ```console: every `$ command` must exit with 0, or the code in an `<!-- exit: N -->` comment before the block;
  the lines below a command are its output, where `...` matches anything.
- ```text and ```json are not run. Every other kind is refused, so that nothing escapes by accident.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

import docs_setup
from commands import call
from playhead import Recipe

_FENCE = re.compile(r"^```(?P<kind>\S*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
_EXIT = re.compile(r"<!-- exit: (\d+) -->\s*\Z")
_SETUP = re.compile(r"\A(?:---\n.*?\n---\n)?<!-- setup: (\w+) -->", re.DOTALL)
_FILE = re.compile(r"# file: (\S+)\n")
_PLAIN = re.compile(r"playhead [^|&;<>()$`\\*?~#{}\[\]\n]*\n")  # nothing in it is for a shell, but quotes
_WIDE = {"COLUMNS": "120"}  # so that a table looks alike on every machine
_TIMEOUT_SECONDS = 300


class DocsError(AssertionError):
    """A page says something that is not so."""


@dataclass(frozen=True)
class Block:
    kind: str
    body: str
    line: int
    exit_code: int


def blocks(text: str) -> list[Block]:
    found = []
    for match in _FENCE.finditer(text):
        before = text[: match.start()]
        code = _EXIT.search(before)
        found.append(Block(match["kind"], match["body"], before.count("\n") + 1, int(code[1]) if code else 0))
    if text.count("\n```") + text.startswith("```") != 2 * len(found):
        raise DocsError("a fence is not closed, or is indented")
    return found


def run_page(page: Path, directory: Path) -> None:
    """Run every block of a page; the working directory must already be `directory`.

    Modules that the page writes are forgotten afterwards: another page may have others of the same names.
    """
    before = set(sys.modules)
    try:
        _run_blocks(page, directory)
    finally:
        for name in set(sys.modules) - before:
            if str(getattr(sys.modules[name], "__file__", "")).startswith(f"{directory}{os.sep}"):
                del sys.modules[name]


def _run_blocks(page: Path, directory: Path) -> None:
    text = page.read_text(encoding="utf-8")
    setup = _SETUP.match(text)
    with ExitStack() as stack:
        made = getattr(docs_setup, setup[1])() if setup else None
        if made is not None:  # a server, which runs as long as the page
            stack.enter_context(made)
        namespace: dict[str, Any] = {"__name__": "__main__"}
        for block in blocks(text):
            _run_naming_the_line(block, page, directory, namespace)


def _run_naming_the_line(block: Block, page: Path, directory: Path, namespace: dict[str, Any]) -> None:
    try:
        _run(block, directory, namespace)
    except Exception as error:
        raise DocsError(f"{page.name}, line {block.line}: {type(error).__name__}: {error}") from error


def _run(block: Block, directory: Path, namespace: dict[str, Any]) -> None:
    if block.kind == "yaml":
        _run_yaml(block.body, directory)
    elif block.kind == "python" and (name := _FILE.match(block.body)):
        (directory / name[1]).write_text(block.body)
    elif block.kind == "python":
        exec(compile(block.body, f"line {block.line}", "exec"), namespace)  # noqa: S102 - what a runner is for
    elif block.kind == "console":
        for command, expected in _commands(block.body):
            _run_command(command, expected, block.exit_code, directory)
    elif block.kind not in {"text", "json"}:
        raise DocsError(f"a block of kind `{block.kind}`; use yaml, python, console, text or json")


def _run_yaml(body: str, directory: Path) -> None:
    name = _FILE.match(body)
    file = directory / (name[1] if name else "unnamed-block.yaml")
    file.write_text(body)
    values = yaml.safe_load(body)
    if isinstance(values, dict) and "sources" in values:
        Recipe.load(file)


def _commands(body: str) -> list[tuple[str, str]]:
    lines = body.splitlines(keepends=True)
    if not lines or not lines[0].startswith("$ "):
        raise DocsError("a console block must begin with `$ `")
    starts = [i for i, line in enumerate(lines) if line.startswith("$ ")]
    ends = [*starts[1:], len(lines)]
    return [(lines[start][2:], "".join(lines[start + 1 : end])) for start, end in zip(starts, ends, strict=True)]


def _run_command(command: str, expected: str, exit_code: int, directory: Path) -> None:
    code, output = _outcome(command, directory)
    if code != exit_code:
        raise DocsError(f"`{command.strip()}` exited with {code}, not {exit_code}:\n{output}")
    if expected.strip() and not _matches(output, expected):
        raise DocsError(f"`{command.strip()}` printed\n{output}\nand not\n{expected}")


def _outcome(command: str, directory: Path) -> tuple[int, str]:
    """The exit code of a command, and what it prints. A plain `playhead ...` is called in this process."""
    with tempfile.TemporaryFile("w+") as output:
        if _PLAIN.fullmatch(command):
            words = tuple(shlex.split(command)[1:])
            code = call(words, directory, output.fileno(), output.fileno(), _WIDE)
        else:
            # Found on the PATH, like everything a reader would type.
            path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
            streams = {"stdout": output, "stderr": subprocess.STDOUT, "timeout": _TIMEOUT_SECONDS}
            settings = {**os.environ, **_WIDE, "PATH": path}
            done = subprocess.run(["bash", "-c", command], cwd=directory, env=settings, check=False, **streams)  # noqa: S607
            code = done.returncode
        output.seek(0)
        return code, output.read()


def _matches(output: str, expected: str) -> bool:
    def clean(text: str) -> str:
        return "\n".join(line.rstrip() for line in text.strip().splitlines())

    pattern = ".*".join(re.escape(piece) for piece in clean(expected).split("..."))
    return re.fullmatch(pattern, clean(output), re.DOTALL) is not None
