"""Jobs in processes, and on a real Ray of two cores that another process keeps (the fixture `ray_cluster`)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from engine_jobs import Deadly, Square, Waiting

from measured_data import recipe_of
from playhead.errors import PlayheadError, PrepareError, RecipeError
from playhead.jobs import Local, Ray
from playhead.jobs.ray_engine import MOST_TRIES
from playhead.jobs.shared_disk import expect_file
from playhead.prepare import prepare
from playhead.recipe.values import Length
from small_data import bytes_of, recipe_over, write_jsonl

HERE = Path(__file__).parent
PATHS = os.pathsep.join([str(HERE), str(HERE.parent), os.environ.get("PYTHONPATH", "")])


@pytest.fixture(scope="module")
def engine(ray_cluster: str) -> Iterator[Ray]:
    """One connection for all: others of this process use it too, and leave it open, as they do a user's own."""
    found = Ray(ray_cluster)
    found.run([Square(1)], lambda _job, _outcome: None)
    yield found
    found.close()


def outcomes(jobs: Any, engine: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    engine.run(jobs, lambda job, outcome: found.update({job.name: outcome}))
    return found


def described(outcome: Any) -> Any:
    return str(outcome) if isinstance(outcome, PlayheadError) else outcome


def test_engines_give_the_same_outcomes_errors_among_them(engine: Ray) -> None:
    jobs = [Square(number, refused=7) for number in range(40)]
    expected = {name: described(outcome) for name, outcome in outcomes(jobs, Local(1)).items()}
    assert "number 7: refused" in expected["number 7"]
    for other in (Local(2), Local(2, threads=True), engine):
        assert {name: described(outcome) for name, outcome in outcomes(jobs, other).items()} == expected


def test_jobs_are_taken_only_as_there_is_room(engine: Ray) -> None:
    taken, done = 0, 0
    furthest = 0

    def jobs() -> Iterator[Square]:
        nonlocal taken, furthest
        for number in range(60):
            taken += 1
            furthest = max(furthest, taken - done)
            yield Square(number)

    def finished(_job: Square, _outcome: int) -> None:
        nonlocal done
        done += 1

    engine.run(jobs(), finished)
    assert done == 60
    assert furthest <= 5  # two for each of two cores, and the one just taken


def test_a_job_whose_worker_was_lost_is_done_again(engine: Ray, tmp_path: Path) -> None:
    jobs = [Deadly(0, tmp_path, deaths=1), Deadly(1, tmp_path, deaths=0)]
    assert outcomes(jobs, engine) == {"deadly 0": 0, "deadly 1": 1}
    assert [len((tmp_path / str(number)).read_text().splitlines()) for number in range(2)] == [2, 1]


def test_a_job_that_kills_every_worker_has_failed_and_the_others_go_on(engine: Ray, tmp_path: Path) -> None:
    found = outcomes([Deadly(0, tmp_path, deaths=99), *map(Square, range(5))], engine)
    assert [found[f"number {number}"] for number in range(5)] == [0, 1, 4, 9, 16]
    assert isinstance(found["deadly 0"], PrepareError)
    assert f"deadly 0: not done, because its Ray worker was lost {MOST_TRIES} times" in str(found["deadly 0"])
    assert len((tmp_path / "0").read_text().splitlines()) == MOST_TRIES


def test_no_cluster_is_joined_or_begun_for_no_jobs() -> None:
    assert outcomes([], Ray("192.0.2.1:1")) == {}


def test_an_error_that_is_not_ours_ends_the_run_and_what_is_in_flight(engine: Ray, tmp_path: Path) -> None:
    def stop(_job: Any, _outcome: Any) -> None:
        until(tmp_path / "pid-0")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        engine.run([Waiting(0, tmp_path), Square(1)], stop)
    until_ended(tmp_path / "pid-0")


def test_sigterm_ends_what_is_in_flight_and_then_the_process(engine: Ray, tmp_path: Path) -> None:
    def stop(_job: Any, _outcome: Any) -> None:
        until(tmp_path / "pid-0")
        os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(SystemExit) as left:
        engine.run([Waiting(0, tmp_path), Square(1)], stop)
    assert left.value.code == 143
    until_ended(tmp_path / "pid-0")


def until_ended(path: Path) -> None:
    """Wait for the process of a job. Ray gives it a tenth of a second to clean up, so half files may be left: whoever
    runs the command again removes them.
    """
    worker, deadline = int(path.read_text()), time.monotonic() + 120
    with suppress(ProcessLookupError):
        while time.monotonic() < deadline:
            os.kill(worker, 0)
            time.sleep(0.01)
        pytest.fail(f"process {worker} still runs")


def until(path: Path) -> None:
    while not path.exists() or not path.stat().st_size:
        time.sleep(0.01)


def lengths_beside(folder: Path) -> Any:
    folder.mkdir()
    for shard in range(4):
        write_jsonl(folder / f"{shard}.jsonl", [{"n": shard * 10 + row, "id": f"{shard}-{row}"} for row in range(10)])
    return recipe_over(folder, length=Length(function="held_lengths:held"), ids="id")


def test_a_recipe_prepared_on_ray_has_the_same_bytes_though_a_worker_was_killed(
    engine: Ray, ray_cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = lengths_beside(tmp_path / "data")
    cache = tmp_path / "data" / "cache"
    monkeypatch.chdir(tmp_path / "data")  # where workers look for the file that holds them
    prepare(recipe)
    expected = bytes_of(cache)
    prepare(recipe, force=True, engine=Ray(ray_cluster))
    assert bytes_of(cache) == expected

    def kill() -> None:
        until(tmp_path / "data" / "pid")
        os.kill(int((tmp_path / "data" / "pid").read_text()), signal.SIGKILL)

    (tmp_path / "data" / "hold").touch()
    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    prepare(recipe, force=True, engine=Ray(ray_cluster))
    killer.join()
    assert bytes_of(cache) == expected


def test_measured_lengths_have_the_same_bytes_on_ray(engine: Ray, ray_cluster: str, tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", [{"n": row, "id": str(row)} for row in range(30)])
    recipe = recipe_of(tmp_path, "random")
    prepare(recipe, measure=True)
    expected = bytes_of(tmp_path / "cache")
    report = prepare(recipe, measure=True, force=True, engine=Ray(ray_cluster, workers=2))
    assert report.sources[0].measured_rows == 30
    assert bytes_of(tmp_path / "cache") == expected


def playhead(folder: Path, *words: str, **environment: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "playhead", *words]
    settings = {**os.environ, "PYTHONPATH": PATHS, **environment}
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=folder, env=settings, start_new_session=True, **pipes)


@pytest.mark.full
@pytest.mark.parametrize("seconds", [0.0, 0.7])  # after which the command waits inside Ray
def test_the_command_starts_a_cluster_of_its_own_and_ctrl_c_leaves_nothing_behind(
    ray_cluster: str, tmp_path: Path, seconds: float
) -> None:
    folder = tmp_path / "data"
    lengths_beside(folder)
    (folder / "recipe.yaml").write_text(
        "sources: [{name: s, path: '*.jsonl', length: {function: 'held_lengths:held'}}]\n"
        "batching: {type: fixed, size: 2}\n"
    )
    (folder / "held_lengths.py").write_text((HERE / "held_lengths.py").read_text())
    (folder / "hold").touch()
    place = Path("/tmp") / f"r{os.getpid()}x"  # noqa: S108 - the path of a socket must be short
    place.mkdir()
    words = ("prepare", "recipe.yaml", "--engine", "ray", "--workers", "2")
    with playhead(folder, *words, RAY_ADDRESS="", TMPDIR=str(place)) as command:
        until(folder / "pid")
        time.sleep(seconds)
        os.killpg(command.pid, signal.SIGINT)
        _, errors = command.communicate()
        assert command.returncode == 130, errors
    assert list(place.iterdir()) == []
    place.rmdir()
    assert processes_of(command.pid) == []


def processes_of(session: int) -> list[str]:
    """The commands of a session that are still there."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:
            continue
        name, fields = text[text.index("(") : text.rindex(")")], text[text.rindex(")") + 2 :].split()
        if fields[3] == str(session) and fields[0] != "Z":
            found.append(name)
    return found


@pytest.mark.full
def test_the_command_joins_a_cluster_and_prints_its_result_only_though_a_worker_dies(
    ray_cluster: str, tmp_path: Path
) -> None:
    write_jsonl(tmp_path / "a.jsonl", [{"n": row} for row in range(9)])
    (tmp_path / "recipe.yaml").write_text(
        "sources: [{name: s, path: a.jsonl, length: {function: 'held_lengths:dying'}}]\n"
        "batching: {type: fixed, size: 2}\n"
    )
    (tmp_path / "die").touch()
    with playhead(tmp_path, "prepare", "recipe.yaml", "--engine", "ray", "--json", RAY_ADDRESS=ray_cluster) as command:
        out, errors = command.communicate()
    assert command.returncode == 0, errors
    assert not (tmp_path / "die").exists()
    assert json.loads(out)["sources"][0]["num_rows"] == 9


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--ray-address", "auto"], 2, "needs --engine ray"),
        (["--engine", "dask"], 2, "dask"),
        (["--engine", "ray", "--ray-address", "nowhere"], 1, "no Ray cluster could be joined at nowhere"),
        (["--engine", "ray", "--ray-address", "127.0.0.1:1"], 1, "no Ray cluster could be joined at 127.0.0.1:1"),
    ],
)
def test_wrong_engines_are_refused(tmp_path: Path, words: list[str], code: int, said: str) -> None:
    write_jsonl(tmp_path / "a.jsonl", [{"n": 1}])
    (tmp_path / "recipe.yaml").write_text("sources: [{name: s, path: a.jsonl}]\nbatching: {type: fixed, size: 2}\n")
    with playhead(tmp_path, "prepare", "recipe.yaml", *words) as command:
        _, errors = command.communicate()
    assert (command.returncode, said in errors) == (code, True), errors


def test_ray_that_is_not_installed_names_its_extra(tmp_path: Path) -> None:
    code = (
        "import sys\nsys.modules['ray'] = None\nfrom engine_jobs import Square\n"
        "from playhead.jobs import Ray\n"
        "Ray().run([Square(1)], print)\n"
    )
    environment = {**os.environ, "PYTHONPATH": PATHS}
    command = [sys.executable, "-c", code]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert "pip install 'playhead[ray]'" in found.stderr


def test_workers_are_told_to_the_engine_where_one_is_given(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"Ray\(workers=...\)"):
        prepare(recipe_over(tmp_path), workers=2, engine=Ray())


def test_a_file_that_a_worker_wrote_elsewhere_is_an_error_about_shared_storage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("playhead.jobs.shared_disk._TRIES", 2)
    with pytest.raises(PrepareError, match="storage that every machine of the cluster mounts"):
        expect_file(tmp_path / "a.part")
