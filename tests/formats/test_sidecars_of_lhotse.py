"""Sidecars shared with lhotse 2.0, which is installed beside 1.33: it reads what we write, and we what it writes."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lhotse.shar import SharWriter

from lhotse_data import cut, recipe_of, recording
from nemo_data import write_shards
from playhead.formats import sidecar
from playhead.formats.contract import ScanLimits
from playhead.prepare import prepare
from playhead.store import CountingFiles, LocalFiles, open_file
from small_data import write_jsonl, write_tar

# Where `make test` installs it; or as the environment says.
LHOTSE2 = Path(os.environ.get("PLAYHEAD_LHOTSE2", f"{sys.prefix}/lhotse2"))
HERE = Path(__file__).parent


def run(*arguments: str | Path) -> Any:
    """The answer of lhotse 2.0."""
    assert LHOTSE2.is_dir(), f"{LHOTSE2}: run `make test`, which installs lhotse 2.0 there"
    command = [sys.executable, str(HERE / "lhotse2_process.py"), *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(LHOTSE2)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout or "null")


def write_shar(folder: Path, num_cuts: int = 7) -> list[Any]:
    """Shar in plain lines, of audio and of a field of lines; returns its cuts."""
    (folder / "wavs").mkdir()
    (folder / "shar").mkdir()
    cuts = []
    with SharWriter(folder / "shar", {"recording": "wav", "score": "jsonl"}, 3) as writer:
        for i in range(num_cuts):
            of = recording(folder / "wavs", f"r{i}.wav", 20_000 + 100 * i)
            cuts.append(cut(of, f"cut-{i}", 0.0, of.duration, score=i))
            writer.write(cuts[-1])
    for path in (folder / "shar").glob("*.gz"):
        path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
        path.unlink()
    return cuts


def named(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*.idx"))


@pytest.mark.parametrize("root", [None, "indexes"])
def test_lhotse_reads_shar_by_the_sidecars_we_write(tmp_path: Path, root: str | None) -> None:
    cuts = write_shar(tmp_path)
    about = {} if root is None else {"indexes_root": root}
    recipe = recipe_of(tmp_path, {"path": "shar", "format": "lhotse_shar"}, **about)
    report = prepare(recipe, workers=1, sidecars=True)
    place = tmp_path / "shar" if root is None else Path(f"{tmp_path / root}{tmp_path}/shar")
    files = sorted(path.name for path in (tmp_path / "shar").glob("*.0*") if path.suffix != ".idx")
    assert sorted(path.name for path in place.glob("*.idx")) == [f"{name}.idx" for name in files]
    assert report.sources[0].num_sidecars == len(files)
    expected = [[each.id, hashlib.sha256(each.load_audio().tobytes()).hexdigest()] for each in cuts]
    assert run("shar", tmp_path / "shar", "" if root is None else tmp_path / root) == expected
    assert prepare(recipe, workers=1, sidecars=True).sources[0].num_sidecars == 0


def test_ours_are_the_bytes_that_lhotse_writes(tmp_path: Path) -> None:
    write_shar(tmp_path)
    write_jsonl(tmp_path / "cuts.jsonl", [{"id": "a"}, {"id": "b"}])
    (tmp_path / "blank.jsonl").write_text('{"id": 1}\n\n  \n{"id": 2}')
    data = [*(tmp_path / "shar").iterdir(), tmp_path / "cuts.jsonl", tmp_path / "blank.jsonl"]
    run("write", *data)
    theirs = {path: Path(f"{path}.idx").read_bytes() for path in data}
    for path in data:
        Path(f"{path}.idx").unlink()
    prepare(recipe_of(tmp_path, {"path": "shar", "format": "lhotse_shar"}), workers=1, sidecars=True)
    for name in ("cuts.jsonl", "blank.jsonl"):
        prepare(recipe_of(tmp_path, {"path": name, "format": "jsonl"}), workers=1, sidecars=True)
    assert {path: Path(f"{path}.idx").read_bytes() for path in data} == theirs


def test_lhotse_reads_manifests_of_nemo_by_the_sidecars_we_write(tmp_path: Path) -> None:
    rows = write_shards(tmp_path, [0, 1])
    source = {"path": "manifest_{0..1}.json", "format": "nemo_tarred", "options": {"tar": "audio_{0..1}.tar"}}
    prepare(recipe_of(tmp_path, source), workers=1, sidecars=True)
    assert named(tmp_path) == [
        f"{kind}_{i}.{end}.idx" for kind, end in (("audio", "tar"), ("manifest", "json")) for i in (0, 1)
    ]
    found = run("read", tmp_path / "manifest_0.json", tmp_path / "manifest_1.json")
    assert [row for name in sorted(found) for row in found[name]] == rows


def test_samples_of_nemo_tars_are_members_of_one_stem(tmp_path: Path) -> None:
    names = ["d/a.wav", "d/a.json", "b.wav", "x/b.txt", f"{'k' * 120}.wav", "c.tar.wav", "c.tar.json", "plain"]
    tar = write_tar(tmp_path / "audio_0.tar", [(name, b"abc" * 300) for name in names])
    write_jsonl(tmp_path / "manifest_0.json", [{"audio_filepath": "b.wav", "duration": 1.0}])
    source = {"path": "manifest_0.json", "format": "nemo_tarred", "options": {"tar": "audio_0.tar"}}
    prepare(recipe_of(tmp_path, source), workers=1, sidecars=True)
    with tarfile.open(tar) as opened:
        firsts = {member.name: member.offset for member in opened.getmembers()}
    starts = [firsts[name] for name in ("d/a.wav", "b.wav", f"{'k' * 120}.wav", "c.tar.wav", "plain")]
    assert np.fromfile(f"{tar}.idx", "<u8").tolist() == [*starts, tar.stat().st_size]


def test_we_read_what_lhotse_writes(tmp_path: Path) -> None:
    write_shar(tmp_path, 40)
    source = {"path": "shar", "format": "lhotse_shar"}
    counted = []
    for _ in range(2):
        files = CountingFiles(LocalFiles())
        prepare(recipe_of(tmp_path, source), workers=1, force=True, files=files)
        counted.append(files.counts["read"])
        run("write", *(path for path in (tmp_path / "shar").iterdir() if path.suffix != ".idx"))
    for path in (tmp_path / "shar").glob("cuts.*.jsonl"):
        file = open_file(LocalFiles(), str(path))
        expected = [0, *np.cumsum([len(line) for line in path.read_bytes().splitlines(keepends=True)]).tolist()][:-1]
        assert sidecar.load(file, ScanLimits()).tolist() == expected
    for path in (tmp_path / "shar").glob("*.tar"):
        with tarfile.open(path) as opened:
            firsts = [member.offset for member in opened.getmembers()][::2]
        assert sidecar.offsets_of(open_file(LocalFiles(), str(path)), ScanLimits()).tolist() == firsts
    assert counted[1] < counted[0]


def test_a_tar_of_an_odd_number_of_members_gets_no_sidecar(tmp_path: Path) -> None:
    write_shar(tmp_path)
    prepare(recipe_of(tmp_path, {"path": "shar", "format": "lhotse_shar"}), workers=1)
    odd = tmp_path / "shar" / "recording.000000.tar"
    with tarfile.open(odd) as opened:
        members = [(each.name, opened.extractfile(each).read()) for each in opened.getmembers()]
    write_tar(odd, members[:-1])
    with pytest.raises(Exception, match="odd number of members"):
        prepare(recipe_of(tmp_path, {"path": "shar", "format": "lhotse_shar"}), workers=1, sidecars=True)
    assert not Path(f"{odd}.idx").exists()
