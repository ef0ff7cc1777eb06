from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from webdataset.tariterators import group_by_keys, tar_file_iterator

from playhead.curate.shards import ShardConfig, ShardsProgress, ShardsReport, write_shards
from playhead.errors import DataError, RecipeError, SampleError, StoreError
from playhead.feed.loader import Loader
from playhead.jobs import Engine, Local, Ray
from playhead.prepare import prepare
from playhead.recipe.values import Recipe
from playhead.store import MEMORY, MemoryFiles
from small_data import bytes_of, write_jsonl

RATE = 8000
Row = dict[str, Any]


def noise(seconds: float, channels: int = 1, seed: int = 0, dtype: str = "int16") -> np.ndarray:
    info = np.iinfo(dtype)
    shape = (round(seconds * RATE), channels)
    return np.random.default_rng(seed).integers(info.min, info.max, shape, dtype=dtype, endpoint=True)


def recording(path: Path, samples: np.ndarray, subtype: str = "PCM_16", rate: int = RATE) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, samples, rate, subtype=subtype)
    return path


def windows(num_files: int = 3, each: int = 4) -> list[Row]:
    return [
        {
            "id": f"w{file}-{i}",
            "audio_filepath": f"audio/{file}.wav",
            "offset": 0.1 + i * 0.25,
            "duration": 0.2 + i / 16,
        }
        for file in range(num_files)
        for i in range(each)
    ]


ALONE = Local(1)


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    for file in range(3):
        recording(tmp_path / "audio" / f"{file}.wav", noise(2, seed=file))
    return write_jsonl(tmp_path / "windows.jsonl", windows())


def cut(manifest: Path, engine: Engine = ALONE, **fields: Any) -> ShardsReport:
    return write_shards(manifest, manifest.parent / "out", ShardConfig(**{"windows_per_shard": 5, **fields}), engine)


def members(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar}


def samples_of(content: bytes, dtype: str = "int16") -> tuple[np.ndarray, int]:
    return soundfile.read(io.BytesIO(content), dtype=dtype, always_2d=True)


@pytest.mark.parametrize("kind", ["wav", "flac"])
def test_windows_are_cut_to_the_sample(manifest: Path, kind: str) -> None:
    report = cut(manifest, kind=kind)
    assert (report.num_shards, report.num_windows, report.kept_shards, report.rejected) == (3, 12, 0, ())
    assert report.seconds == pytest.approx(sum(row["duration"] for row in windows()))
    found: dict[str, bytes] = {}
    for number in range(3):
        found |= members(manifest.parent / "out" / f"audio-{number:05d}.tar")
    assert list(found) == [f"{row['id']}.{ending}" for row in windows() for ending in (kind, "json")]
    for row in windows():
        assert json.loads(found[f"{row['id']}.json"]) == row
        samples, rate = samples_of(found[f"{row['id']}.{kind}"])
        whole = noise(2, seed=int(row["audio_filepath"][6]))
        first, last = round(row["offset"] * RATE), round((row["offset"] + row["duration"]) * RATE)
        assert rate == RATE
        assert np.array_equal(samples, whole[first:last])


@pytest.mark.parametrize(
    ("subtype", "kind", "dtype", "stored"),
    [
        ("PCM_U8", "wav", "int16", "PCM_16"),
        ("PCM_24", "wav", "int32", "PCM_24"),
        ("PCM_24", "flac", "int32", "PCM_24"),
        ("PCM_32", "wav", "int32", "PCM_32"),
        ("FLOAT", "wav", "float32", "FLOAT"),
        ("DOUBLE", "wav", "float64", "DOUBLE"),
        ("FLOAT", "flac", "int32", "PCM_24"),
        ("ULAW", "wav", "int16", "PCM_16"),
    ],
)
def test_samples_channels_and_rate_are_kept_as_far_as_the_kind_can_hold_them(
    tmp_path: Path, subtype: str, kind: str, dtype: str, stored: str
) -> None:
    source = recording(tmp_path / "a.wav", noise(1, channels=3, dtype="int32") / 2**32, subtype, rate=44100)
    write_jsonl(tmp_path / "windows.jsonl", [{"id": "w", "audio_filepath": "a.wav", "offset": 0.05, "duration": 0.1}])
    cut(tmp_path / "windows.jsonl", kind=kind)
    content = members(tmp_path / "out" / "audio-00000.tar")[f"w.{kind}"]
    about = soundfile.info(io.BytesIO(content))
    assert (about.samplerate, about.channels, about.subtype) == (44100, 3, stored)
    found, _ = samples_of(content, dtype)
    whole, _ = soundfile.read(source, dtype=dtype if kind == "wav" or subtype == "PCM_24" else "float64")
    if whole.dtype == np.float64 and dtype == "int32":
        whole = np.round(whole * 2**23) * 2**8  # FLAC holds 24 bits
    assert np.array_equal(found, whole[2205:6615].astype(dtype))


def test_the_real_webdataset_and_playhead_read_the_tars(manifest: Path) -> None:
    cut(manifest)
    out = manifest.parent / "out"
    read: list[Row] = []
    for path in sorted(out.glob("*.tar")):
        with path.open("rb") as file:
            read += group_by_keys(member | {"__url__": "a"} for member in tar_file_iterator(file))
    assert [sample["__key__"] for sample in read] == [row["id"] for row in windows()]
    source = {"name": "s", "path": "out/*.tar", "length": {"field": "json.duration", "unit": "seconds"}}
    fields = {"sources": [source | {"shuffle": "none"}], "batching": {"type": "fixed", "size": 3}, "epochs": 1}
    recipe = Recipe.parse({**fields, "collate": "shard_batches:keys", "media": False}, manifest.parent)
    report = prepare(recipe).sources[0]
    assert report.num_rows == 12
    with Loader(recipe) as loader:
        found = [pair for batch in loader for pair in zip(batch["keys"], batch["audio"], strict=True)]
    assert found == [(sample["__key__"], sample["wav"]) for sample in read]


def test_neither_workers_nor_engines_change_a_byte(manifest: Path, ray_cluster: str, tmp_path: Path) -> None:
    cut(manifest)
    expected = bytes_of(tmp_path / "out")
    engine = Ray(ray_cluster)
    for other in (Local(2), engine):
        for path in (tmp_path / "out").iterdir():
            path.unlink()
        assert cut(manifest, other).kept_shards == 0
        assert bytes_of(tmp_path / "out") == expected
    engine.close()


def test_a_second_run_does_nothing_and_a_changed_input_is_cut_again(manifest: Path, tmp_path: Path) -> None:
    cut(manifest)
    marks = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("*.tar*")}
    assert cut(manifest).kept_shards == 3
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("*.tar*")} == marks
    recording(tmp_path / "audio" / "2.wav", noise(2, seed=9))
    assert cut(manifest).kept_shards == 1  # the windows of file 2 are in two of three
    write_jsonl(manifest, windows()[:7])
    report = cut(manifest)
    assert (report.num_shards, report.kept_shards) == (2, 1)
    assert [path.name for path in sorted((tmp_path / "out").glob("*.tar"))] == ["audio-00000.tar", "audio-00001.tar"]
    assert cut(manifest, kind="flac").kept_shards == 0
    (tmp_path / "out" / "audio-00000.tar").write_bytes(b"")
    assert cut(manifest, kind="flac").kept_shards == 1


def test_tars_of_others_are_left_alone(manifest: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    other = tmp_path / "out" / "audio-00099.tar"
    other.write_bytes(b"mine")
    cut(manifest)
    assert other.read_bytes() == b"mine"


def test_relative_paths_begin_at_the_root_and_absolute_ones_do_not(manifest: Path, tmp_path: Path) -> None:
    cut(manifest)
    expected = bytes_of(tmp_path / "out")["audio-00000.tar"]
    (tmp_path / "elsewhere").mkdir()
    moved = manifest.rename(tmp_path / "elsewhere" / "windows.jsonl")
    cut(moved, audio_root=str(tmp_path))
    assert bytes_of(tmp_path / "elsewhere" / "out")["audio-00000.tar"] == expected
    rows = [{**row, "audio_filepath": str(tmp_path / row["audio_filepath"])} for row in windows()]
    assert cut(write_jsonl(moved, rows)).num_windows == 12


BAD = [
    ({"audio_filepath": "audio/gone.wav"}, "audio/gone.wav: no such file"),
    ({"audio_filepath": "windows.jsonl"}, "windows.jsonl: is not an audio file that can be decoded"),
    ({"offset": 1.9, "duration": 0.2}, "a segment of 0.2 s, starting at 1.9 s"),
    ({"offset": -0.5}, "the segment is not within the recording"),
    ({"duration": 0}, "the segment is not within the recording"),
    ({"duration": "long"}, r"\$.duration"),
    ({"id": "a.b"}, "id: cannot name a sample"),
    ({"id": "w0-0"}, "id: occurs twice"),
]


@pytest.mark.parametrize(("fields", "said"), BAD)
def test_a_window_that_cannot_be_cut_stops_the_run_by_file_and_line(
    manifest: Path, tmp_path: Path, fields: Row, said: str
) -> None:
    rows = windows()
    rows[2] |= fields
    write_jsonl(manifest, rows)
    with pytest.raises((DataError, SampleError), match=said) as caught:
        cut(manifest)
    assert f"{manifest}, line 3: " in str(caught.value)
    assert not list((tmp_path / "out").glob(".*.tmp"))


def test_windows_that_cannot_be_cut_are_rejected_to_a_list_and_the_others_are_kept(
    manifest: Path, tmp_path: Path
) -> None:
    rows = windows()
    for place, (fields, _) in zip((1, 2, 3, 5, 6, 7, 8, 11), BAD, strict=True):
        rows[place] |= fields
    rows[11]["id"] = "w2-2"  # in its own shard
    write_jsonl(manifest, rows)
    manifest.write_text(manifest.read_text() + "\n{broken\n")
    report = cut(manifest, on_error="reject")
    assert [one.line for one in report.rejected] == [2, 3, 4, 6, 7, 8, 9, 12, 14]
    assert report.num_windows == 4
    listed = [json.loads(line) for line in (tmp_path / "out" / "audio-rejected.jsonl").read_text().splitlines()]
    assert [(one["line"], one["reason"]) for one in listed] == [(one.line, one.reason) for one in report.rejected]
    assert cut(manifest, on_error="reject") == ShardsReport(**{**vars(report), "kept_shards": 3})


def test_a_shard_whose_windows_are_all_rejected_has_no_tar(manifest: Path, tmp_path: Path) -> None:
    rows = [row | {"offset": 9} if i < 5 else row for i, row in enumerate(windows())]
    write_jsonl(manifest, rows)
    assert cut(manifest, on_error="reject").num_shards == 2
    assert not (tmp_path / "out" / "audio-00000.tar").exists()


def test_a_window_may_end_a_millisecond_after_its_recording(manifest: Path, tmp_path: Path) -> None:
    row = {"id": "w", "audio_filepath": "audio/0.wav", "offset": 1.5, "duration": 0.501}
    write_jsonl(manifest, [row])
    cut(manifest)
    samples, _ = samples_of(members(tmp_path / "out" / "audio-00000.tar")["w.wav"])
    assert len(samples) == RATE // 2


def test_a_killed_run_goes_on_and_ends_with_the_same_bytes(manifest: Path, tmp_path: Path) -> None:
    long = write_jsonl(
        tmp_path / "windows.jsonl", [row | {"id": f"{row['id']}-{i}"} for i in range(99) for row in windows()]
    )
    code = (
        "from playhead.curate.shards import ShardConfig, write_shards\nfrom playhead.jobs import Local\n"
        "if __name__ == '__main__':\n"
        f"    write_shards({str(long)!r}, {str(tmp_path / 'out')!r}, ShardConfig(windows_per_shard=5), Local(2))\n"
    )
    (tmp_path / "run.py").write_text(code)
    with subprocess.Popen([sys.executable, str(tmp_path / "run.py")]) as process:
        while len(list((tmp_path / "out").glob("*.done"))) < 10:
            assert process.poll() is None
            time.sleep(0.005)
        os.kill(process.pid, signal.SIGKILL)
    resumed = cut(long, Local(2))
    assert 10 <= resumed.kept_shards < resumed.num_shards == 238
    found = bytes_of(tmp_path / "out")
    for path in (tmp_path / "out").iterdir():
        path.unlink()
    assert cut(long).kept_shards == 0
    assert bytes_of(tmp_path / "out") == found


def test_progress_tells_every_shard(manifest: Path, tmp_path: Path) -> None:
    seen: list[ShardsProgress] = []
    write_shards(manifest, tmp_path / "out", ShardConfig(windows_per_shard=5), progress=seen.append)
    assert [(Path(one.shard).name, one.num_windows, one.done_shards) for one in seen] == [
        ("audio-00000.tar", 5, 1),
        ("audio-00001.tar", 5, 2),
        ("audio-00002.tar", 2, 3),
    ]


@pytest.mark.parametrize("fields", [{"kind": "mp3"}, {"windows_per_shard": 0}, {"on_error": "ignore"}])
def test_settings_that_cannot_be_used_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(RecipeError, match=next(iter(fields)).replace("kind", "shards")):
        ShardConfig(**fields)


def without_soundfile(directory: Path, config: str) -> subprocess.CompletedProcess[str]:
    code = (
        "import sys\nsys.modules['soundfile'] = None\n"
        "from playhead.curate.shards import ShardConfig, write_shards\n"
        f"print(write_shards('windows.jsonl', 'out', ShardConfig({config})).num_windows)\n"
    )
    return subprocess.run([sys.executable, "-c", code], cwd=directory, capture_output=True, text=True, check=False)


def test_wav_is_cut_into_wav_without_soundfile_and_flac_names_the_extra(manifest: Path, tmp_path: Path) -> None:
    assert without_soundfile(tmp_path, "").stdout == "12\n"
    assert "pip install 'playhead[audio]'" in without_soundfile(tmp_path, "kind='flac'").stderr
    soundfile.write(tmp_path / "audio" / "0.wav", noise(2), RATE, format="FLAC")
    found = without_soundfile(tmp_path, "on_error='reject'")
    assert "pip install 'playhead[audio]'" in found.stderr


@pytest.mark.parametrize("container", ["WAV", "FLAC", "OGG"])
def test_recordings_may_be_urls(manifest: Path, tmp_path: Path, container: str) -> None:
    subtype = None if container == "OGG" else "PCM_16"
    for file in range(3):
        path = tmp_path / "audio" / f"{file}.wav"
        soundfile.write(path, noise(2, seed=file), RATE, format=container, subtype=subtype)
        MEMORY.write(f"memory://speech/audio/{file}.wav", path.read_bytes())
    cut(manifest)
    expected = bytes_of(tmp_path / "out")
    report = write_shards(manifest, tmp_path / "remote", ShardConfig(windows_per_shard=5, audio_root="memory://speech"))
    assert report.num_windows == 12
    for name in ("audio-00000.tar", "audio-00001.tar", "audio-00002.tar"):
        assert bytes_of(tmp_path / "remote")[name] == expected[name]


def test_rows_name_no_urls_but_those_under_the_audio_root(manifest: Path) -> None:
    rows = [{**row, "audio_filepath": "https://host.example/a.wav?token=secret"} for row in windows()]
    write_jsonl(manifest, rows)
    with pytest.raises(SampleError, match="a web address with a query") as caught:
        cut(manifest)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("container", ["WAV", "FLAC"])
def test_what_fails_in_the_storage_is_never_a_rejected_window(tmp_path: Path, container: str) -> None:
    class Failing(MemoryFiles):
        def read(self, path: str, stamp: Any, ranges: Any, into: Any = None) -> Any:
            if path.endswith(".wav") and max(ranges.ends) > 20_000:
                raise StoreError(f"{path}: timed out")
            return super().read(path, stamp, ranges, into)

    content = io.BytesIO()
    soundfile.write(content, noise(4), RATE, format=container, subtype="PCM_16")
    files = Failing()
    files.write("memory://a.wav", content.getvalue())
    row = {"id": "w", "audio_filepath": "memory://a.wav", "offset": 2.0, "duration": 1.0}
    files.write("memory://windows.jsonl", json.dumps(row).encode())
    with pytest.raises(StoreError, match="timed out"):
        write_shards("memory://windows.jsonl", tmp_path / "out", ShardConfig(on_error="reject"), files=files)
