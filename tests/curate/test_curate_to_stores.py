"""Curating into a bucket of a real server: the same outputs, one writer, and uploads that go on after a kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from subprocess import PIPE

import msgspec
import numpy as np
import pytest
import soundfile

from alm_rows import conversation, write_manifest
from commands import playhead
from playhead.curate import publish
from playhead.curate.config import WindowConfig
from playhead.curate.run import CurateReport, curate_windows
from playhead.curate.shards import ShardConfig
from playhead.errors import DataError, PrepareError, RecipeError, StoreError
from playhead.feed.loader import Loader
from playhead.jobs import Ray
from playhead.prepare import prepare
from playhead.recipe.values import Recipe
from playhead.store import SchemeFiles, list_files, open_file
from playhead.store.objects import create, read_object, remove
from store_servers import S3, moto

TIMED = {"summary.json", "report.html"}


@pytest.fixture(scope="module")
def server() -> Iterator[S3]:
    with moto() as started:
        yield started


@pytest.fixture
def bucket(server: S3, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    return server.make_bucket(f"c-{abs(hash(request.node.name)) % 10**9}")


@pytest.fixture
def manifest(tmp_path: Path) -> str:
    return str(write_manifest(tmp_path / "in.jsonl", [conversation(number, 40) for number in range(6)]))


def curate(manifest: str, out: str | Path, **others: object) -> CurateReport:
    return curate_windows([manifest], out, rows_per_shard=4, workers=1, **others)  # type: ignore[arg-type]


def contents(out: str) -> dict[str, bytes]:
    files = SchemeFiles()
    return {url[len(out) + 1 :]: b"".join(open_file(files, url).pieces()) for url in list_files(files, [f"{out}/*"])}


def test_a_bucket_holds_what_a_directory_would(bucket: str, manifest: str, tmp_path: Path) -> None:
    curate(manifest, tmp_path / "local")
    report = curate(manifest, f"{bucket}/out/")
    expected = {path.name: path.read_bytes() for path in (tmp_path / "local").iterdir() if path.is_file()}
    found = contents(f"{bucket}/out")
    assert found.keys() == {name for name in expected if not name.startswith(".")}
    assert {name for name in found if found[name] != expected[name]} <= TIMED
    assert (report.out, report.changed) == (f"{bucket}/out/", True)
    again = curate(manifest, f"{bucket}/out")
    assert not again.changed
    assert again.summary == report.summary
    assert contents(f"{bucket}/out") == found


def test_windows_in_a_bucket_are_a_source(bucket: str, manifest: str, tmp_path: Path) -> None:
    report = curate(manifest, f"{bucket}/out")
    source = {"name": "w", "path": f"{bucket}/out/windows.jsonl", "length": {"field": "duration", "unit": "seconds"}}
    values = {"sources": [source], "batching": {"type": "fixed", "size": 1}, "epochs": 1, "lanes": 1, "media": False}
    recipe = Recipe.parse({**values, "collate": "list", "cache_dir": "cache", "sequence": None}, base_dir=tmp_path)
    prepare(recipe)
    with Loader(recipe) as loader:
        assert sum(1 for _ in loader) == report.summary.num_kept


def test_another_request_is_refused_and_force_writes_it_again(bucket: str, manifest: str) -> None:
    curate(manifest, f"{bucket}/out")
    before = contents(f"{bucket}/out")
    other = WindowConfig(min_speakers=3)
    with pytest.raises(PrepareError, match="holds the outputs of another run"):
        curate_windows([manifest], f"{bucket}/out", other, workers=1)
    assert contents(f"{bucket}/out") == before
    assert curate_windows([manifest], f"{bucket}/out", other, workers=1, force=True).changed
    after = contents(f"{bucket}/out")
    assert "rows-00001.jsonl" in before
    assert "rows-00001.jsonl" not in after  # one shard now
    assert json.loads(after["curate.json"])["request"]["parameters"]["min_speakers"] == 3


def test_objects_that_no_ledger_describes_are_refused(bucket: str, manifest: str) -> None:
    create(f"{bucket}/out/windows.jsonl", b"mine")
    with pytest.raises(PrepareError, match=r"windows.jsonl exists, but no curate.json describes it"):
        curate(manifest, f"{bucket}/out")
    assert contents(f"{bucket}/out") == {"windows.jsonl": b"mine"}


def test_an_upload_that_stopped_goes_on_and_keeps_what_is_there(
    bucket: str, manifest: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    done: list[str] = []

    def failing(url: str, content: bytes | Path) -> bool:
        if len(done) == 2:
            raise StoreError(f"{url}: its store cannot be reached")
        done.append(url)
        return create(url, content)

    with monkeypatch.context() as patched:
        patched.setattr(publish, "create", failing)
        with pytest.raises(StoreError, match="cannot be reached"):
            curate(manifest, f"{bucket}/out", work=tmp_path / "work")
    half = contents(f"{bucket}/out")
    assert json.loads(half["curate.json"])["outputs"] is None
    assert len(half) == 2
    other = WindowConfig(min_speakers=3)
    with pytest.raises(PrepareError, match="holds the outputs of another run"):
        curate_windows([manifest], f"{bucket}/out", other, workers=1)
    assert curate(manifest, f"{bucket}/out", work=tmp_path / "work").changed
    curate(manifest, tmp_path / "local")
    assert contents(f"{bucket}/out").keys() == {path.name for path in (tmp_path / "local").glob("[a-z]*")}


def test_two_requests_at_once_do_not_mix(bucket: str, manifest: str) -> None:
    configs = [WindowConfig(min_speakers=number) for number in (1, 2, 3)]

    def run(config: WindowConfig) -> bool:
        try:
            return curate_windows([manifest], f"{bucket}/out", config, workers=1).changed
        except PrepareError:
            return False

    with ThreadPoolExecutor(3) as pool:
        written = list(pool.map(run, configs))
    assert written.count(True) == 1
    ledger = json.loads(contents(f"{bucket}/out")["curate.json"])
    assert ledger["request"]["parameters"]["min_speakers"] == configs[written.index(True)].min_speakers
    assert ledger["outputs"] is not None


def test_an_object_that_another_wrote_meanwhile_is_refused(bucket: str, manifest: str) -> None:
    claimed = publish.claim_place(f"{bucket}/out", request_of(manifest, bucket), force=False)
    create(f"{bucket}/out/rows-00000.jsonl", b"of another")
    assert not claimed.is_finished
    with pytest.raises(StoreError, match=r"rows-00000.jsonl: is there already, with other bytes"):
        curate(manifest, f"{bucket}/out")
    assert json.loads(contents(f"{bucket}/out")["curate.json"])["outputs"] is None


def request_of(manifest: str, bucket: str) -> publish.CurateRequest:
    """The request of a run, from the ledger it leaves elsewhere."""
    curate(manifest, f"{bucket}/elsewhere")
    found = read_object(f"{bucket}/elsewhere/curate.json")
    assert found is not None
    return msgspec.json.decode(found[0], type=publish.CurateLedger).request


def test_the_place_may_be_inside_the_inputs(bucket: str, manifest: str) -> None:
    create(f"{bucket}/in/a.jsonl", Path(manifest))
    first = curate(f"{bucket}/in", f"{bucket}/in/out")
    assert first.changed
    assert not curate(f"{bucket}/in", f"{bucket}/in/out").changed
    with pytest.raises(RecipeError, match="is inside the output directory"):
        curate(f"{bucket}/in/out/windows.jsonl", f"{bucket}/in/out")


def test_the_audio_of_windows_is_published_too(bucket: str, tmp_path: Path) -> None:
    rows = [{**conversation(number, 40), "audio_filepath": "a.wav"} for number in range(2)]
    manifest = str(write_manifest(tmp_path / "in.jsonl", rows))
    longest = max(segment["end"] for row in rows for segment in row["segments"])  # type: ignore[attr-defined]
    soundfile.write(tmp_path / "a.wav", np.zeros(int(8_000 * longest) + 8_000, np.float32), 8_000)
    plain = curate(manifest, f"{bucket}/out")
    assert plain.summary.num_kept
    report = curate(manifest, f"{bucket}/out", shards=ShardConfig(windows_per_shard=3))
    assert report.shards is not None
    found = contents(f"{bucket}/out")
    with tarfile.open(fileobj=BytesIO(found["audio-00000.tar"])) as tar:
        assert len(tar.getnames()) == 2 * min(3, plain.summary.num_kept)
    again = curate(manifest, f"{bucket}/out", shards=ShardConfig(windows_per_shard=3))
    assert not again.changed
    with pytest.raises(StoreError, match=r"audio-00000\.tar: is there already, with other bytes"):
        curate(manifest, f"{bucket}/out", shards=ShardConfig(windows_per_shard=1))


def test_rows_left_out_by_an_earlier_run_are_said(bucket: str, tmp_path: Path) -> None:
    manifest = write_manifest(tmp_path / "in.jsonl", [conversation(number, 40) for number in range(2)])
    manifest.write_text(manifest.read_text() + "{}\n")
    curate(str(manifest), f"{bucket}/out", on_error="reject")
    assert "rejected.jsonl" in contents(f"{bucket}/out")
    with pytest.raises(DataError, match="rows were left out by an earlier run"):
        curate(str(manifest), f"{bucket}/out")


def test_a_work_directory_is_needed_on_other_machines_and_only_for_stores(
    bucket: str, manifest: str, tmp_path: Path
) -> None:
    with pytest.raises(RecipeError, match="work: is for outputs in a store"):
        curate(manifest, tmp_path / "out", work=tmp_path / "work")
    with pytest.raises(RecipeError, match="work: is missing"):
        curate_windows([manifest], f"{bucket}/out", engine=Ray("ray://127.0.0.1:1"))


def test_the_command_writes_to_a_bucket(bucket: str, manifest: str, tmp_path: Path) -> None:
    done = playhead(tmp_path, "curate", "windows", manifest, "--out", f"{bucket}/out", "--work", "work", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["out"] == f"{bucket}/out"
    remove(f"{bucket}/out/summary.json")
    done = playhead(tmp_path, "curate", "windows", manifest, "--out", f"{bucket}/out")
    assert done.returncode == 1
    assert "summary.json is missing" in done.stderr


def test_a_run_that_is_stopped_leaves_no_directory_behind(tmp_path: Path, bucket: str) -> None:
    rows = [conversation(number, 40) for number in range(60)]
    manifest = write_manifest(tmp_path / "many.jsonl", rows * 200)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    command = [sys.executable, "-m", "playhead", "curate", "windows", str(manifest), "--out", f"{bucket}/x"]
    with subprocess.Popen(
        command, env=os.environ | {"TMPDIR": str(temporary)}, stdout=PIPE, stderr=PIPE, text=True
    ) as process:
        while not [*temporary.glob("playhead-curate-*/*")]:
            assert process.poll() is None
            time.sleep(0.01)
        process.terminate()
        output, errors = process.communicate(timeout=240)
    assert (process.returncode, output) == (128 + signal.SIGTERM, "")
    assert errors == "PrepareError: stopped by SIGTERM\n  to fix    run it again to resume\n"
    assert not [*temporary.glob("playhead-curate-*")]
