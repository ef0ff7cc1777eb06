from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from playhead.errors import PrepareError
from playhead.prepare import prepare
from playhead.recipe.values import Length, Recipe
from small_data import all_lengths, bytes_of, recipe_over, table_of, write_jsonl

HERE = Path(__file__).parent
PATHS = os.pathsep.join([str(HERE), str(HERE.parent), os.environ.get("PYTHONPATH", "")])


def shards(folder: Path, shift: int = 0) -> Path:
    folder.mkdir(exist_ok=True)
    for i in range(4):
        write_jsonl(folder / f"{i}.jsonl", [{"n": i * 10 + j + shift, "id": f"{i}-{j}"} for j in range(6)])
    return folder


def recipe_with(folder: Path, function: str) -> Recipe:
    return recipe_over(folder, length=Length(function=f"awkward_lengths:{function}"), ids="id")


def start(folder: Path, function: str, limit_bytes: int | None = None, **options: Any) -> subprocess.Popen[str]:
    """`prepare` in a process of its own."""
    code = (
        "import resource, sys\nfrom pathlib import Path\nfrom test_kills import recipe_with\n"
        "from playhead.prepare import prepare\n"
    )
    if limit_bytes:
        code += f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit_bytes}, {limit_bytes}))\n"
    code += (
        "if __name__ == '__main__':\n"
        f"    prepare(recipe_with(Path({str(folder)!r}), {function!r}), **{options['how']!r})\n"
    )
    script = folder / "prepare_it.py"
    script.write_text(code)
    environment = {**os.environ, "PYTHONPATH": PATHS, **options.get("environment", {})}
    return subprocess.Popen([sys.executable, str(script)], env=environment, stderr=subprocess.PIPE, text=True)


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    while not path.exists():
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.02)


@pytest.fixture
def stuck(tmp_path: Path) -> Any:
    """A `prepare` that has done shards 0 and 1 and hangs in shard 2."""
    environment = {"WAIT_AT": "23", "WAIT_MARK": str(tmp_path / "mark")}
    process = start(shards(tmp_path), "waiting", how={"workers": 1}, environment=environment)
    wait_for(tmp_path / "mark", process)
    yield process
    process.kill()
    process.communicate()


def test_a_killed_prepare_goes_on_where_it_was_and_ends_with_the_same_bytes(tmp_path: Path, stuck: Any) -> None:
    stuck.send_signal(signal.SIGKILL)
    stuck.wait()
    recipe = recipe_with(tmp_path, "waiting")
    report = prepare(recipe).sources[0]
    assert (report.scanned_shards, report.reused_shards) == (2, 2)
    resumed = bytes_of(tmp_path / "cache")
    shutil.rmtree(tmp_path / "cache")
    prepare(recipe)
    assert bytes_of(tmp_path / "cache") == resumed


def test_two_prepares_at_once_are_one_and_an_error_that_names_the_other(tmp_path: Path, stuck: Any) -> None:
    with pytest.raises(PrepareError, match=f"being prepared by process {stuck.pid} on "):
        prepare(recipe_with(tmp_path, "waiting"))


def test_a_part_left_by_a_kill_is_not_used_for_a_file_that_changed_meanwhile(tmp_path: Path, stuck: Any) -> None:
    stuck.send_signal(signal.SIGKILL)
    stuck.wait()
    write_jsonl(tmp_path / "0.jsonl", [{"n": 99, "id": "new"}])
    recipe = recipe_with(tmp_path, "waiting")
    assert prepare(recipe).sources[0].scanned_shards == 3
    assert all_lengths(table_of(recipe))[0] == 99


@pytest.mark.full
def test_a_kill_at_any_moment_leaves_the_old_the_new_or_something_to_redo(tmp_path: Path) -> None:
    shards(tmp_path / "old")
    shards(tmp_path / "new", shift=1)
    shutil.copy2(tmp_path / "old" / "0.jsonl", tmp_path / "new" / "0.jsonl")
    command = [sys.executable, str(HERE / "killed_everywhere.py"), str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": PATHS}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 20


def test_a_worker_that_is_killed_is_a_failure_that_names_the_shards_in_flight(tmp_path: Path) -> None:
    shards(tmp_path)
    how = {"workers": 2, "processes": True}
    process = start(tmp_path, "dying", how=how, environment={"DIE_AT": "12"})
    _, letter = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "PrepareError" in letter
    assert "worker process was killed" in letter
    assert str(tmp_path / "1.jsonl") in letter
    # What the others finished is kept.
    report = prepare(recipe_with(tmp_path, "dying")).sources[0]
    assert 1 <= report.scanned_shards <= 2


@pytest.mark.parametrize("limit_bytes", [100, 500, 900])
def test_a_full_disk_is_an_error_and_leaves_no_half_files(tmp_path: Path, limit_bytes: int) -> None:
    shards(tmp_path)
    process = start(tmp_path, "waiting", limit_bytes, how={"workers": 1})
    _, letter = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "cannot be written" in letter
    assert str(tmp_path / "cache") in letter
    assert "to fix" in letter
    assert "Traceback" in letter  # raised, not a crash
    assert not list((tmp_path / "cache").rglob("*.tmp"))
    prepare(recipe_with(tmp_path, "waiting"))
    assert table_of(recipe_with(tmp_path, "waiting")).num_rows == 24


def test_a_full_disk_while_merging_leaves_the_old_index_as_it_was(tmp_path: Path) -> None:
    recipe = recipe_with(shards(tmp_path), "waiting")
    prepare(recipe)
    write_jsonl(tmp_path / "4.jsonl", [{"n": 1, "id": "x"}])
    process = start(tmp_path, "waiting", 450, how={"workers": 1})
    _, letter = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "cannot be written" in letter
    (tmp_path / "4.jsonl").unlink()
    assert not prepare(recipe).changed
