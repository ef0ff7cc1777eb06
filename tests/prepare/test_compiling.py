"""Compiled kernels: made by `prepare`, and kept where a read-only installation can keep them."""

from __future__ import annotations

import os
import pickle
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import playhead
from commands import _AS_ANYBODY
from playhead.formats.contract import ScanLimits
from playhead.formats.jsonl import TRACK, Jsonl
from playhead.formats.rows import Shard
from playhead.formats.spec import Spec
from playhead.prepare.parts import ScanJob
from playhead.recipe.values import Length
from playhead.store import all_files
from small_data import write_jsonl

RECIPE = """
lanes: 2
weights_in: length
on_error: substitute
sources:
  - {name: a, path: "a*.jsonl", length: n, ids: id, keep: {c: [3, null]}}
  - {name: b, path: a0.jsonl, length: n}
batching: {type: bucket, num: 3, budget: 64}
evaluation:
  dev: {sources: [{name: e, path: a1.jsonl, length: n}], batching: {type: fixed, size: 2}}
"""
FIRST_BATCHES = """
import sys
from playhead import Loader, Recipe
recipe = Recipe.load("recipe.yaml")
for split in (None, "dev"):
    loader = Loader(recipe, split=split)
    for batch, _ in zip(loader, range(3)):
        state = loader.state_dict()
resumed = Loader(recipe)
resumed.load_state_dict(dict(Loader(recipe).state_dict()))
next(iter(resumed))
"""
ONE_KERNEL = """
import numpy as np
from playhead.order.hashing import mix64
print(int(mix64(np.uint64(1))))
"""


def job(folder: Path) -> Path:
    folder.mkdir()
    for i in range(2):
        rows = [{"n": 1 + j % 9, "id": str(j), "c": j, "tokens": [j] * (1 + j % 9)} for j in range(300)]
        write_jsonl(folder / f"a{i}.jsonl", rows)
    (folder / "recipe.yaml").write_text(RECIPE)
    return folder


def installed_read_only(folder: Path) -> Path:
    """The package without compiled kernels, where nobody may write."""
    source = Path(playhead.__path__[0])
    shutil.copytree(source, folder / "playhead", ignore=shutil.ignore_patterns("__pycache__"))
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    return folder


def environment(site: Path, cache: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    return kept | {"PYTHONPATH": str(site), "XDG_CACHE_HOME": str(cache), "HOME": "/nonexistent"}


def command(*words: str) -> list[str]:
    return [sys.executable, "-c", _AS_ANYBODY, *words]


def python(code: str) -> list[str]:
    """A program that is bound by permissions even if we are root."""
    return [sys.executable, "-c", _AS_ANYBODY.replace('"-m", "playhead", *sys.argv[1:]', '"-c", sys.argv[1]'), code]


def kernels(cache: Path) -> set[Path]:
    return set(cache.rglob("*.nbc"))


@pytest.mark.full
def test_prepare_compiles_for_a_read_only_installation_and_no_rank_has_to(tmp_path: Path) -> None:
    site, cache = installed_read_only(tmp_path / "site"), tmp_path / "cache"
    ready = environment(site, cache)
    at = job(tmp_path / "one")
    run = {"cwd": at, "env": ready, "capture_output": True, "text": True}
    done = subprocess.run(command("prepare", "recipe.yaml"), check=False, **run)
    assert (done.returncode, done.stderr) == (0, "")
    compiled = kernels(cache)
    assert len(compiled) > 15
    assert kernels(site) == set()
    assert (cache / "playhead" / "kernels").stat().st_mode & 0o777 == 0o700
    done = subprocess.run(python(FIRST_BATCHES), check=False, **run)
    assert (done.returncode, done.stderr) == (0, "")
    assert kernels(cache) == compiled


def test_two_processes_may_compile_the_same_kernels_at_once(tmp_path: Path) -> None:
    site, cache = installed_read_only(tmp_path / "site"), tmp_path / "cache"
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    running = [subprocess.Popen(python(ONE_KERNEL), env=environment(site, cache), **pipes) for _ in range(2)]
    outputs = {process.communicate() for process in running}
    assert [process.returncode for process in running] == [0, 0]
    ((_, errors),) = outputs
    assert errors == ""
    assert len(kernels(cache)) == 1


def test_where_kernels_cannot_be_kept_anywhere_a_warning_says_so(tmp_path: Path) -> None:
    site, cache = installed_read_only(tmp_path / "site"), tmp_path / "cache"
    cache.mkdir(mode=0o555)
    ready = environment(site, cache)
    done = subprocess.run(python(ONE_KERNEL), env=ready, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stderr.count("compiled kernels cannot be cached") == 1
    assert "NUMBA_CACHE_DIR" in done.stderr
    elsewhere = ready | {"NUMBA_CACHE_DIR": str(tmp_path / "elsewhere")}
    again = subprocess.run(python(ONE_KERNEL), env=elsewhere, capture_output=True, text=True, check=False)
    assert (again.stdout, again.stderr) == (done.stdout, "")
    assert kernels(tmp_path / "elsewhere")


def test_on_a_terminal_it_says_that_the_first_run_compiles_and_in_a_pipe_nothing(tmp_path: Path) -> None:
    at = job(tmp_path / "one")
    words = [sys.executable, "-m", "playhead", "prepare", "recipe.yaml"]
    ours, theirs = pty.openpty()
    with subprocess.Popen(words, cwd=at, stdout=subprocess.PIPE, stderr=theirs) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                shown += os.read(ours, 1 << 16)
            except OSError:  # the other end is closed
                break
    os.close(ours)
    assert process.returncode == 0
    assert "the first run compiles" in shown.decode()
    piped = subprocess.run([*words, "--force"], cwd=at, capture_output=True, text=True, check=True)
    assert piped.stderr == ""
    assert "compiles" not in piped.stdout


SCAN = """
import pickle, sys
from playhead.jobs.engine import outcome_of
print(outcome_of(pickle.load(open("job", "rb"))).num_rows, "numba" in sys.modules)
"""


def test_a_worker_that_scans_lines_imports_no_compiler(tmp_path: Path) -> None:
    """It would take as long as scanning half a gigabyte."""
    path = write_jsonl(tmp_path / "a.jsonl", [{"n": 1, "id": "x"}] * 5)
    spec = Spec(length=Length(field="n"), ids="id")
    shard = Shard(((TRACK, str(path)),))
    scan = ScanJob(Jsonl(), shard, None, spec, all_files(), ScanLimits(), tmp_path / "part.npz")
    (tmp_path / "job").write_bytes(pickle.dumps(scan))
    command = [sys.executable, "-c", SCAN]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=240)
    assert done.stdout == "5 False\n"
