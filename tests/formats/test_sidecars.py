from __future__ import annotations

import os
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.errors import PrepareError
from playhead.formats import sidecar
from playhead.formats.contract import ScanLimits
from playhead.formats.jsonl import Jsonl
from playhead.formats.lhotse_shar import LhotseShar
from playhead.formats.nemo_tarred import NemoTarred
from playhead.formats.rows import Shard
from playhead.formats.spec import Spec
from playhead.formats.webdataset import WebDataset
from playhead.prepare import prepare
from playhead.recipe.values import Fixed, Recipe, Source
from playhead.store import MEMORY, CountingFiles, LocalFiles, all_files, open_file
from scanned import scan_file, shard_of
from small_data import recipe_over, table_of, write_jsonl, write_tar


def offsets_of(path: Path) -> list[int]:
    return scan_file(Jsonl(), "jsonl", path, Spec()).offsets.tolist()


def write_idx(path: Path, offsets: list[int]) -> Path:
    target = Path(f"{path}.idx")
    np.array(offsets, dtype="<u8").tofile(target)
    return target


def accepted(path: Path) -> bool:
    return sidecar.load(open_file(all_files(), str(path)), ScanLimits()) is not None


@given(st.lists(st.sampled_from(["{}", "", "  ", '{"a": "ż"}', "\t\r"]), min_size=1, max_size=10), st.booleans())
def test_a_sidecar_of_every_line_gives_the_rows_that_a_scan_gives(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], final: bool
) -> None:
    path = tmp_path_factory.mktemp("idx") / "a.jsonl"
    path.write_text("\n".join(["{}", *lines]) + ("\n" if final else ""))
    scanned = offsets_of(path)
    for name, pieces in Jsonl().sidecars(shard_of("jsonl", path), all_files(), ScanLimits()):
        sidecar.write(name, pieces, ScanLimits())
    assert accepted(path)
    assert offsets_of(path) == scanned


def test_a_valid_sidecar_is_believed_where_only_offsets_are_needed(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", [{"n": 1}] * 5)
    # One of the lines is left out: a scan would have found it.
    write_idx(path, [0, 9, 27, 36, 45])
    assert offsets_of(path) == [0, 9, 27, 36]


def test_a_sidecar_without_a_sentinel_is_accepted(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", [{"n": 1}] * 3)
    write_idx(path, [0, 9, 18])
    assert accepted(path)
    assert offsets_of(path) == [0, 9, 18]


@pytest.mark.parametrize(
    "offsets", [[], [0, 18, 9, 27], [0, 9, 18, 99], [0, 5, 18, 27], [9, 18, 27], [27], [0, 0, 9, 18, 27]]
)
def test_an_impossible_sidecar_counts_as_absent(tmp_path: Path, offsets: list[int]) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", [{"n": 1}] * 3)
    write_idx(path, offsets)
    assert not accepted(path)
    assert offsets_of(path) == [0, 9, 18]


def test_a_misaligned_or_an_older_sidecar_counts_as_absent(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", [{"n": 1}] * 3)
    idx = write_idx(path, [0, 9, 18, 27])
    assert accepted(path)
    os.utime(idx, ns=(0, path.stat().st_mtime_ns - 1))
    assert not accepted(path)
    idx.write_bytes(idx.read_bytes()[:-3])
    assert not accepted(path)


def test_written_sidecars_hold_the_place_of_every_line_and_the_size(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"n": 1}\n\n{"n": 22}\n  \n{"n": 3}\n')
    # What lhotse 1.33 keeps under this name is text; it is no sidecar to us, and is replaced.
    Path(f"{path}.idx").write_text("0\n9\n10\n20\n23\n32\n")
    assert not accepted(path)
    prepare(recipe_over(tmp_path), sidecars=True)
    expected = []
    with path.open("rb") as file:
        expected = [0] + [file.tell() for _ in iter(file.readline, b"")]
    assert np.fromfile(f"{path}.idx", dtype="<u8").tolist() == expected
    assert expected[-1] == path.stat().st_size


def test_written_sidecars_of_tars_point_at_first_headers(tmp_path: Path) -> None:
    names = [f"{'k' * 120}{i}.{extension}" for i in range(3) for extension in ("txt", "wav")]
    path = write_tar(tmp_path / "a.tar", [(name, b"abc") for name in names])
    prepare(recipe_over(tmp_path, "*.tar", length=None), sidecars=True)
    offsets = np.fromfile(f"{path}.idx", dtype="<u8")
    with tarfile.open(path) as tar:
        assert offsets[:-1].tolist() == [member.offset for member in tar.getmembers()][::2]
        end = tar.getmembers()[-1].offset_data + 512
    assert end <= offsets[-1] <= path.stat().st_size


def test_an_indexes_root_holds_the_sidecars_of_data_elsewhere(tmp_path: Path) -> None:
    assert sidecar.sidecar_path("/data/foo/bar.jsonl", "/root") == "/root/data/foo/bar.jsonl.idx"
    assert sidecar.sidecar_path("s3://b/k/m.jsonl", "/root") == "/root/b/k/m.jsonl.idx"
    assert sidecar.sidecar_path("/data/m.jsonl", None) == "/data/m.jsonl.idx"
    assert sidecar.sidecar_path("s3://b/k/m.jsonl", None) == "s3://b/k/m.jsonl.idx"
    path = write_jsonl(tmp_path / "a.jsonl", [{"n": 1}] * 3)
    root = tmp_path / "root"
    recipe = recipe_over(tmp_path, indexes_root=str(root), length=None)
    prepare(recipe, sidecars=True)
    written = sidecar.sidecar_path(str(path), str(root))
    assert np.fromfile(written, dtype="<u8").tolist() == [0, 9, 18, 27]
    # It is also where they are looked for.
    np.array([0, 9, 27], dtype="<u8").tofile(written)
    prepare(recipe, force=True)
    assert table_of(recipe).num_rows == 2


def test_a_sidecar_of_an_object_is_beside_it_in_the_store(tmp_path: Path) -> None:
    path = MEMORY.write("memory://sidecars/a.jsonl", b'{"n": 1}\n' * 3)
    MEMORY.write("memory://sidecars/a.jsonl.idx", np.array([0, 9, 27], "<u8").tobytes())
    sources = [Source(name="s", path=[path])]
    recipe = Recipe(sources=sources, batching=Fixed(size=1), cache_dir=str(tmp_path / "cache"))
    prepare(recipe)
    assert table_of(recipe).num_rows == 2
    MEMORY.remove("memory://sidecars/a.jsonl.idx")
    with pytest.raises(PrepareError, match="`indexes_root` in the recipe: a local directory or a bucket"):
        prepare(recipe, sidecars=True)


def large_members(folder: Path) -> Path:
    """A tar of samples of audio, text and a long name, some of them large."""
    random = np.random.default_rng(2)
    members = []
    for i in range(300):
        key = f"{'d' * 110 if i % 7 == 0 else ''}{i:04}"
        members += [(f"{key}.wav", random.bytes(30_000)), (f"{key}.txt", b"text" * (i % 300)), (f"{key}.json", b"{}")]
    return write_tar(folder / "a.tar", members)


def scanned_tar(path: Path, counted: CountingFiles | None = None) -> list[int]:
    files = counted or all_files()
    chunks = WebDataset().scan(shard_of("tar", path), Spec(), files, ScanLimits())
    return [int(offset) for chunk in chunks for offset in chunk.arrays["tracks/tar/offsets"]]


def test_with_the_sidecar_of_a_tar_the_headers_of_many_samples_are_read_at_once(tmp_path: Path) -> None:
    path = large_members(tmp_path)
    plain, hinted = CountingFiles(LocalFiles()), CountingFiles(LocalFiles())
    expected = scanned_tar(path, plain)
    prepare(recipe_over(tmp_path, "*.tar", length=None), sidecars=True)
    assert np.fromfile(f"{path}.idx", dtype="<u8").tolist() == expected
    assert scanned_tar(path, hinted) == expected
    assert hinted.counts["read"] < plain.counts["read"] / 5
    assert hinted.counts["bytes"] < plain.counts["bytes"] / 2


def test_a_sidecar_of_a_tar_that_is_wrong_changes_nothing(tmp_path: Path) -> None:
    path = large_members(tmp_path)
    expected = scanned_tar(path)
    size, random = path.stat().st_size, np.random.default_rng(4)
    for offsets in (
        expected[::2],
        [offset + 512 for offset in expected[:-1]],
        [offset + 7 for offset in expected[:-1]],
        sorted(set(random.integers(0, size, 200).tolist())),
        [0],
        [size - 1],
    ):
        write_idx(path, offsets)
        assert scanned_tar(path) == expected


def test_sidecars_serve_tars_of_lhotse_and_nemo_too(tmp_path: Path) -> None:
    data = np.random.default_rng(0).bytes(40_000)
    members = [(f"{i}.{ending}", data if ending == "wav" else b"{}") for i in range(200) for ending in ("wav", "json")]
    tar = write_tar(tmp_path / "recording.000000.tar", members)
    cuts = [{"id": f"{i}", "start": 0, "duration": 1, "channel": 0, "type": "MonoCut"} for i in range(200)]
    write_jsonl(tmp_path / "cuts.000000.jsonl", cuts)
    write_jsonl(tmp_path / "a_0.json", [{"audio_filepath": f"{i}.wav", "duration": 1} for i in range(200)])
    shar = Shard((("cuts", str(tmp_path / "cuts.000000.jsonl")), ("recording", str(tar))))
    nemo = Shard((("manifest", str(tmp_path / "a_0.json")), ("tar", str(tar))))
    spec = Spec(options={"tar": [str(tar)]})
    found: dict[str, list[Any]] = {"shar": [], "nemo": []}
    for _ in range(2):
        for name, known, shard, asked in (("shar", LhotseShar(), shar, Spec()), ("nemo", NemoTarred(), nemo, spec)):
            files = CountingFiles(LocalFiles())
            arrays = [chunk.arrays for chunk in known.scan(shard, asked, files, ScanLimits())]  # type: ignore[attr-defined]
            plain = [{array: values.tolist() for array, values in chunk.items()} for chunk in arrays]
            found[name].append((plain, files.counts["read"]))
        with tarfile.open(tar) as opened:
            write_idx(tar, [member.offset for member in opened.getmembers()][::2])
    for (expected, num_plain), (hinted, num_hinted) in found.values():
        assert hinted == expected
        assert num_hinted < num_plain / 5


def test_sidecars_beside_read_only_data_name_the_way_out(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        data = Path("/proc")  # root may write anywhere but here
        with pytest.raises(PrepareError, match="cannot be written"):
            sidecar.write(str(data / "a.jsonl"), [np.zeros(1, np.uint64)], ScanLimits())
        return
    path = write_jsonl(tmp_path / "a.jsonl", [{"n": 1}])
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(PrepareError, match="indexes_root"):
            sidecar.write(str(path), [np.zeros(1, np.uint64)], ScanLimits())
    finally:
        tmp_path.chmod(0o700)
