"""Bytes of later batches are fetched while earlier ones are made, and nothing else changes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_processes import gone

import overlapping
from deliveries import Seen, deliver, seen, stream
from loopback import Loopback, serving
from playhead import DataError, Loader, Recipe, RecipeError, SampleError, StoreError, WorkerError
from playhead.prepare import prepare
from playhead.store import CountingFiles, JoiningFiles, LocalFiles, SchemeFiles
from playhead.testing import Fault, FaultyFiles
from playhead.torch import DataLoader
from small_data import recipe_over, write_jsonl

NUM_BATCHES = 24
LATENCY_SECONDS = 0.001
CLOCK_SECONDS = 1e-6  # differences of clock readings are rounded
WORKERS: dict[str, dict[str, Any]] = {
    "threads": {"workers": 2, "worker_kind": "thread", "lookahead": 3},
    "processes": {"workers": 2, "lookahead": 3},
}


def remote() -> FaultyFiles:
    """Local files whose requests take a round trip."""
    return FaultyFiles(JoiningFiles(SchemeFiles()), LATENCY_SECONDS)


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("kind", ["tar", "bucket", "zip", "passes"])
def test_batches_states_and_totals_are_those_without_look_ahead(tmp_path: Path, kind: str, workers: str) -> None:
    recipe = stream(tmp_path, kind)
    expected = [*deliver(Loader(recipe), NUM_BATCHES)]
    for threads in (3,) if workers == "processes" else (0, 1, 3):
        with Loader(recipe, files=remote(), fetch_threads=threads, **WORKERS[workers]) as loader:
            assert [*deliver(loader, NUM_BATCHES)] == expected


@pytest.mark.parametrize("workers", WORKERS)
def test_bad_rows_and_failing_maps_are_replaced_as_without_look_ahead(tmp_path: Path, workers: str) -> None:
    lines = [json.dumps({"n": i, "id": f"r{i}", "tokens": [i] * 5}) for i in range(60)]
    lines[8] = "no JSON"
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n")
    expected = replaced(tmp_path, "plain", on_error="substitute")
    assert replaced(tmp_path, "ahead", "substitute", fetch_threads=2, files=remote(), **WORKERS[workers]) == expected
    with pytest.raises((SampleError, DataError)) as without:
        replaced(tmp_path, "plain", on_error="raise")
    with pytest.raises((SampleError, DataError)) as ahead:
        replaced(tmp_path, "ahead", "raise", fetch_threads=2, files=remote(), **WORKERS[workers])
    assert str(ahead.value) == str(without.value)


def replaced(folder: Path, name: str, on_error: str, **how: Any) -> list[Seen]:
    """What is delivered of rows of which some are bad: once, and again with their substitutes known."""
    source = {"name": "s", "path": str(folder / "a.jsonl"), "map": "loader_maps:broken_in_places"}
    values = {"batching": {"type": "fixed", "size": 4}, "epochs": 2, "on_error": on_error, "max_bad": 1.0}
    recipe = Recipe.parse({"sources": [source], **values, "cache_dir": str(folder / name)}, folder)
    prepare(recipe, workers=1)
    with Loader(recipe, **how) as loader:
        once = [seen(batch) for batch in loader]
    with Loader(recipe, **how) as loader:
        assert [seen(batch) for batch in loader] == once
    return once


class Media:
    """Rows that name recordings on a server: segments of WAV files, and whole FLAC files; one is missing."""

    def __init__(self, folder: Path, served: Loopback, address: str, flac: bool) -> None:
        import soundfile

        name, rows = "flac" if flac else "wav", []
        for i in range(8):
            samples = np.random.default_rng(i).integers(-3000, 3000, 40_000).astype(np.int16)
            path = folder / f"{i}.{name}"
            soundfile.write(path, samples, 8000)
            served.objects[f"/bucket/{i}.{name}"] = path.read_bytes()
            rows += [{"audio_filepath": f"{i}.{name}", "offset": j * 1.0, "duration": 0.5} for j in range(4)]
        rows[5]["audio_filepath"] = f"missing.{name}"
        served.objects["/bucket/rows.jsonl"] = "".join(json.dumps(row) + "\n" for row in rows).encode()
        fields = {"path": "audio_filepath", "offset": "offset", "duration": "duration"}
        source = {"name": "s", "path": f"{address}/rows.jsonl", "length": {"field": "duration", "unit": "seconds"}}
        values = {
            "sources": [source | {"options": {"media": {"audio": fields}}}],
            "batching": {"type": "fixed", "size": 4},
            "sequence": "audio",
            "sequence_rate": 8000,
            "epochs": 2,
            "cache_dir": str(folder / "cache"),
        }
        self.recipe = Recipe.parse({**values, "on_error": "substitute", "max_bad": 1.0}, folder)
        self.strict = Recipe.parse(values, folder)
        prepare(self.recipe, workers=1)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loopback]:
    with serving({}) as server:
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        yield server


@pytest.mark.parametrize("flac", [False, True])
@pytest.mark.parametrize("workers", WORKERS)
def test_media_on_a_server_are_fetched_ahead_and_nothing_is_asked_for_twice(
    tmp_path: Path, served: Loopback, flac: bool, workers: str
) -> None:
    recipe = Media(tmp_path, served, f"{served.address}/bucket", flac).recipe
    expected = [*deliver(Loader(recipe))]
    served.requests.clear()
    with Loader(recipe, fetch_threads=0, **WORKERS[workers]) as loader:
        assert [*deliver(loader)] == expected
    without = sorted(served.requests)
    served.requests.clear()
    with Loader(recipe, **WORKERS[workers]) as loader:
        timings = watch(loader)
        assert [*deliver(loader)] == expected
    assert sorted(served.requests) == without
    assert any(timing.fetch_ended for timing in timings)


@pytest.mark.parametrize("workers", WORKERS)
def test_a_missing_medium_is_named_as_without_look_ahead(tmp_path: Path, served: Loopback, workers: str) -> None:
    recipe = Media(tmp_path, served, f"{served.address}/bucket", flac=False).strict
    messages = []
    for how in ({}, WORKERS[workers]):
        with Loader(recipe, **how) as loader, pytest.raises(Exception, match=r"missing\.wav") as caught:
            list(loader)
        messages.append((type(caught.value), str(caught.value)))
    assert messages[0] == messages[1]


def rows_of_one(folder: Path, num_rows: int = 40) -> Recipe:
    """A prepared recipe of batches of one row, each read by a request of its own, in order."""
    write_jsonl(folder / "a.jsonl", [{"n": i, "tokens": [i]} for i in range(num_rows)])
    fields = {"sources": [{"name": "s", "path": "a.jsonl", "shuffle": "none"}], "epochs": 1}
    recipe = Recipe.parse({**fields, "batching": {"type": "fixed", "size": 1}, "seed": 1}, folder)
    prepare(recipe, workers=1)
    return recipe


@pytest.mark.parametrize("kind", ["process", "thread"])
def test_three_later_batches_are_fetched_while_a_batch_is_mapped_by_one_thread(tmp_path: Path, kind: Any) -> None:
    overlapping._num_reads = 0
    files = FaultyFiles(LocalFiles(), 1e-6, overlapping.counted)
    how: dict[str, Any] = {"workers": 1, "worker_kind": kind, "lookahead": 5, "fetch_threads": 4}
    with Loader(rows_of_one(tmp_path), files=files, map=overlapping.patient, **how) as loader:
        batches = iter(loader)
        found = [next(batches)["n"].tolist() for _ in range(30)]
    assert found == [[i] for i in range(30)]


def test_without_threads_nothing_is_fetched_ahead(tmp_path: Path) -> None:
    recipe = rows_of_one(tmp_path)
    with Loader(recipe, files=remote(), workers=1, worker_kind="thread", fetch_threads=0) as loader:
        timings = watch(loader)
        for _ in loader:
            pass
    assert all(timing.fetch_ended == 0 and timing.ahead == 0 for timing in timings)


def test_what_was_fetched_ahead_is_counted_as_such(tmp_path: Path) -> None:
    files = FaultyFiles(LocalFiles(), 0.02)
    how: dict[str, Any] = {"workers": 1, "worker_kind": "thread", "lookahead": 4}
    with Loader(rows_of_one(tmp_path), files=files, map=slow, **how) as loader:
        timings = watch(loader)
        for _ in loader:
            pass
        total = loader.stats().total
    for timing in timings:
        assert 0 <= timing.ahead <= timing.open + timing.read + timing.decode + CLOCK_SECONDS
        assert timing.map >= 0.02
    assert total.ahead > 0


def slow(sample: dict[str, Any]) -> dict[str, Any]:
    time.sleep(0.02)
    return sample


@pytest.mark.parametrize(
    ("fault", "workers"), [("error", "threads"), ("short", "threads"), ("changed", "threads"), ("error", "processes")]
)
def test_a_fetch_that_fails_is_raised_where_its_batch_is_due_and_the_run_goes_on(
    tmp_path: Path, fault: Fault, workers: str
) -> None:
    recipe = rows_of_one(tmp_path)
    expected = [seen(batch) for batch in Loader(recipe)]
    files = FaultyFiles(LocalFiles(), LATENCY_SECONDS, partial(fails_at, fault))
    found = []
    with Loader(recipe, files=files, **WORKERS[workers]) as loader:
        with pytest.raises(StoreError, match=r"a\.jsonl"):
            found.extend(seen(batch) for batch in loader)
        state = loader.state_dict()
    assert found == expected[: len(found)]
    assert 0 < len(found) < len(expected)
    with Loader(recipe, files=remote(), **WORKERS[workers]) as again:
        again.load_state_dict(state)
        found.extend(seen(batch) for batch in again)
    assert found == expected


def fails_at(fault: Fault, number: int, method: str, _path: str) -> Fault | None:
    return fault if (number, method) == (9, "read") else None


def test_local_files_need_no_threads_and_those_of_remote_ones_end_with_the_loader(tmp_path: Path) -> None:
    recipe, others = rows_of_one(tmp_path), fetching()
    how: dict[str, Any] = {"workers": 2, "worker_kind": "thread"}
    with Loader(recipe, **how) as loader:
        batches = iter(loader)
        next(batches)
        assert fetching() <= others
    with Loader(recipe, files=remote(), **how) as loader:
        batches = iter(loader)
        next(batches)
        assert fetching() - others
    assert fetching() <= others


def fetching() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("playhead-fetch")}


def test_no_request_is_missing_or_repeated_with_worker_threads(tmp_path: Path) -> None:
    recipe = stream(tmp_path, "passes")
    counts = []
    for how in ({}, {"workers": 3, "worker_kind": "thread", "lookahead": 4}):
        files = CountingFiles(remote())
        with Loader(recipe, files=files, **how) as loader:
            for _ in loader:
                pass
        counts.append(files.counts)
    assert counts[0] == counts[1]


def test_a_killed_worker_is_an_error_and_its_successors_deliver_the_rest(tmp_path: Path) -> None:
    recipe = rows_of_one(tmp_path)
    expected = [seen(batch) for batch in Loader(recipe)]
    found = []
    with Loader(recipe, files=FaultyFiles(LocalFiles(), 0.01), workers=2, lookahead=4) as loader:
        batches = iter(loader)
        for batch in islice(batches, 5):
            found.append(seen(batch))
        os.kill(batch.worker, signal.SIGKILL)
        with pytest.raises(WorkerError):
            found.extend(seen(batch) for batch in batches)
        found.extend(seen(batch) for batch in loader)
    assert found == expected


OWNER = """
import sys
from playhead import Loader, Recipe
from playhead.store import LocalFiles
from playhead.testing import FaultyFiles
if __name__ == "__main__":
    recipe = Recipe.load(sys.argv[1])
    loader = Loader(recipe, files=FaultyFiles(LocalFiles(), 0.2), workers=2, lookahead=6, fetch_threads=4)
    for batch in loader:
        print(batch.worker, flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_workers_that_fetch_end_with_their_owner(tmp_path: Path, number: signal.Signals) -> None:
    recipe = rows_of_one(tmp_path)
    (tmp_path / "recipe.json").write_text(json.dumps(recipe.to_dict()))
    (tmp_path / "owner.py").write_text(OWNER)
    command = [sys.executable, str(tmp_path / "owner.py"), str(tmp_path / "recipe.json")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as owner:
        assert owner.stdout is not None
        workers = {int(owner.stdout.readline()) for _ in range(4)}
        owner.send_signal(number)
    assert len(workers) == 2
    assert gone(workers), "a worker outlives its owner"


@pytest.mark.parametrize("given", [-1, 1.5, True, "2"])
def test_a_number_of_threads_that_is_none_is_refused(tmp_path: Path, given: Any) -> None:
    recipe = recipe_over(tmp_path)
    with pytest.raises(RecipeError, match="fetch_threads"):
        Loader(recipe, workers=1, fetch_threads=given)
    with pytest.raises(RecipeError, match="fetch_threads"):
        DataLoader(recipe, num_workers=1, fetch_threads=given)


def test_the_loader_for_torch_fetches_ahead_too(tmp_path: Path) -> None:
    recipe = rows_of_one(tmp_path)
    expected = [batch["n"].tolist() for batch in Loader(recipe)]
    with DataLoader(recipe, files=remote(), num_workers=2, prefetch_factor=3, fetch_threads=2) as loader:
        timings = watch(loader)
        assert [batch["n"].tolist() for batch in loader] == expected
    assert any(timing.fetch_ended for timing in timings)
    with pytest.raises(RecipeError, match="requires worker processes"):
        DataLoader(recipe, fetch_threads=2)


def watch(loader: Any) -> list[Any]:
    found: list[Any] = []
    loader.watch(lambda timing, _asked, _given: found.append(timing))
    return found
