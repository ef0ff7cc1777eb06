from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
import soundfile
import webdataset
from hypothesis import given
from hypothesis import strategies as st
from webdataset.tariterators import group_by_keys, tar_file_iterator

from format_worlds import check_processes, check_worlds, recipe_of
from playhead import Loader, PrepareError, Recipe
from playhead.errors import DataError
from playhead.formats.spec import Match, Spec
from playhead.formats.webdataset import WebDataset
from playhead.prepare import prepare
from playhead.recipe.values import Length, Source
from playhead.seeds import hash_text
from playhead.store import MEMORY, Extent, all_files
from scanned import Scanned, read_file, rows_of, scan_file
from small_data import write_tar

KINDS = (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)
SECONDS = Spec(length=Length(field="json.duration", unit="seconds"))


def scan(path: Path, spec: Spec = Spec()) -> Scanned:  # noqa: B008 - a frozen value
    return scan_file(WebDataset(), "tar", path, spec)


def read(path: Path, found: Scanned) -> list[dict[str, object]]:
    return read_file(WebDataset(), "tar", path, found.bounds, np.arange(found.num_rows))


def refuse(path: Path, spec: Spec = SECONDS) -> str:
    with pytest.raises(DataError) as caught:
        scan(path, spec)
    assert str(path) in str(caught.value)
    return str(caught.value)


folders = st.sampled_from(["", "a/", "a.b/", "d" * 90 + "/", f"{'e' * 70}/{'f' * 70}/", "ż/"])
stems = st.sampled_from(["k", "key", "s" * 60, "ó", "x y"])


@given(
    kind=st.sampled_from(KINDS),
    samples=st.lists(
        st.tuples(folders, stems, st.sets(st.sampled_from(["wav", "json", "txt", "seg.json"]), min_size=1)), max_size=6
    ),
    data=st.data(),
)
def test_samples_are_found_where_tarfile_finds_their_first_members(
    tmp_path_factory: pytest.TempPathFactory, kind: int, samples: list[tuple[str, str, set[str]]], data: st.DataObject
) -> None:
    members, expected = [], []
    for number, (folder, stem, extensions) in enumerate(samples):
        contents = {extension: data.draw(st.binary(max_size=1200)) for extension in sorted(extensions)}
        key = f"{folder}{stem}{number}"
        expected.append({"__key__": key} | contents)
        members += [(f"{key}.{extension}", content) for extension, content in contents.items()]
    path = write_tar(tmp_path_factory.mktemp("tar") / "a.tar", members, kind)
    with tarfile.open(path) as tar:
        names = [(member.name.rpartition("/")[2].partition(".")[0], member.offset) for member in tar.getmembers()]
        first = dict(reversed(names))
    chunk = scan(path)
    assert chunk.num_rows == len(expected)
    assert chunk.offsets.tolist() == sorted(first.values())
    assert read(path, chunk) == expected


@given(
    kind=st.sampled_from(KINDS),
    rows=st.lists(
        st.lists(st.sampled_from([0, 1, 700, 3_000, 16_383, 16_384, 90_000]), min_size=1, max_size=4), max_size=4
    ),
    chosen=st.lists(st.integers(0, 3)),
)
def test_rows_of_which_the_heads_are_read_hold_the_same_members(
    tmp_path_factory: pytest.TempPathFactory, kind: int, rows: list[list[int]], chosen: list[int]
) -> None:
    random = np.random.default_rng(0)
    members = [(f"{i}.{j}", random.bytes(size)) for i, sizes in enumerate(rows) for j, size in enumerate(sizes)]
    path = write_tar(tmp_path_factory.mktemp("tar") / "a.tar", members, kind)
    found = scan(path)
    numbers = np.array([number for number in chosen if number < found.num_rows], np.int64)
    reader = WebDataset().open(Source(name="a", path=[str(path)]), all_files())
    located = rows_of("tar", path, found.bounds, numbers)
    expected = list(reader.read(located))
    for sample, plain in zip(reader.read_heads(located), expected, strict=True):
        assert list(sample) == list(plain)
        for name, value in sample.items():
            large = name != "__key__" and len(plain[name]) >= 16_384
            assert (type(value) is Extent) == large
            assert (value.read() if large else value) == plain[name]
            assert not large or bytes(value.part(5, 9)) == plain[name][5:9]


def test_tars_that_webdataset_wrote_give_the_samples_that_webdataset_reads(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with webdataset.TarWriter(str(path)) as writer:
        for i in range(5):
            contents = {"txt": f"text {i}", "json": {"duration": i / 2}, "wav": b"x" * i}
            writer.write({"__key__": f"dir/sample{i}"} | contents)
    with path.open("rb") as file:
        theirs = list(group_by_keys(member | {"__url__": "a"} for member in tar_file_iterator(file)))
    theirs = [{name: sample[name] for name in sample if name not in ("__url__", "__local_path__")} for sample in theirs]
    chunk = scan(path, SECONDS)
    assert read(path, chunk) == theirs
    assert chunk.lengths.tolist() == [0, 500, 1000, 1500, 2000]


def test_directories_global_headers_and_odd_owners_do_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT, pax_headers={"comment": "made by hand"}) as tar:
        for i, owner in enumerate((2**31, 2**22, 0)):
            info = tarfile.TarInfo(f"d/k{i}.txt")
            info.size, info.uid, info.uname = 3, owner, "Łukasz"
            tar.addfile(info, io.BytesIO(b"abc"))
            folder = tarfile.TarInfo(f"d{i}.d")
            folder.type = tarfile.DIRTYPE
            tar.addfile(folder)
    with tarfile.open(path) as tar:
        offsets = [member.offset for member in tar.getmembers() if member.isfile()]
    chunk = scan(path)
    assert chunk.offsets.tolist() == offsets
    assert [sample["__key__"] for sample in read(path, chunk)] == ["d/k0", "d/k1", "d/k2"]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE])
def test_a_link_has_no_bytes_and_is_refused_not_skipped(tmp_path: Path, kind: bytes) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as tar:
        link = tarfile.TarInfo("b.json")
        link.type, link.linkname = kind, "a.json"
        tar.addfile(link)
    with pytest.raises(DataError, match="is a link"):
        scan(path)


def test_tars_joined_end_to_end_are_refused_not_cut_short(tmp_path: Path) -> None:
    first = write_tar(tmp_path / "a.tar", [("a.txt", b"1")])
    path = tmp_path / "both.tar"
    path.write_bytes(first.read_bytes() + write_tar(tmp_path / "b.tar", [("b.txt", b"2")]).read_bytes())
    with pytest.raises(DataError, match="data after the end marker"):
        scan(path)


def test_lengths_come_from_json_members_sizes_and_functions(tmp_path: Path) -> None:
    members = [("a.json", b'{"duration": 1.5, "lang": "en"}'), ("a.wav", b"12345"), ("a.len", b"7\n")]
    path = write_tar(tmp_path / "a.tar", members)
    for length, expected in (
        (Length(field="json.duration", unit="seconds"), 1500),
        (Length(field="wav", unit="bytes"), 5),
        (Length(unit="bytes"), 31 + 5 + 2),
        (Length(field="len"), 7),
        (Length(function="test_webdataset:num_letters"), 6),
    ):
        assert scan(path, Spec(length=length)).lengths.tolist() == [expected]
    match = Match("json.lang", pattern="e*")
    found = scan(path, Spec(ids="__key__", columns=("json.duration",), matches=(match,)))
    assert found.ids.tolist() == [hash_text("a")]
    assert found.columns["json.duration"].tolist() == [1.5]
    assert found.columns[match.column].tolist() == [1]


def num_letters(sample: dict[str, bytes]) -> int:
    return len(sample["wav"]) + len(sample["__key__"])


@pytest.mark.parametrize("cut", [100, 512, 700, 1536, 2048, 3000])
@pytest.mark.parametrize("kind", KINDS)
def test_a_tar_cut_short_anywhere_is_an_error_with_file_and_offset(tmp_path: Path, cut: int, kind: int) -> None:
    samples = [(f"{'k' * 120}{i}.json", json.dumps({"duration": 1, "pad": "x" * 600}).encode()) for i in range(4)]
    if kind == tarfile.USTAR_FORMAT:
        samples = [(name[100:], content) for name, content in samples]
    path = write_tar(tmp_path / "a.tar", samples, kind)
    path.write_bytes(path.read_bytes()[:cut])
    message = refuse(path)
    assert "truncated" in message
    assert "byte" in message


def test_a_tar_without_an_end_marker_is_read_only_when_the_recipe_says_so(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", [("a.txt", b"x" * 512)], tarfile.USTAR_FORMAT)
    path.write_bytes(path.read_bytes()[:1024])
    assert "allow_no_end" in refuse(path, Spec())
    assert scan(path, Spec(options={"allow_no_end": True})).num_rows == 1


def test_a_member_cut_short_is_an_error_whatever_the_recipe_says(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", [("a.txt", b"x" * 512), ("b.txt", b"x" * 600)], tarfile.USTAR_FORMAT)
    path.write_bytes(path.read_bytes()[: 1024 + 512 + 512])
    message = refuse(path, Spec(options={"allow_no_end": True}))
    assert 'byte 1,024: the tar is truncated in member "b.txt"' in message


def test_a_compressed_tar_is_refused_as_such(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w:gz") as tar:
        info = tarfile.TarInfo("a.txt")
        info.size = 3000
        tar.addfile(info, io.BytesIO(bytes(range(250)) * 12))
    short = path.read_bytes()
    for data in (short, short.ljust(600, b"x")):
        path.write_bytes(data)
        assert "a.tar: is compressed" in refuse(path, Spec())


def test_a_sample_whose_members_are_apart_is_refused(tmp_path: Path) -> None:
    message = refuse(write_tar(tmp_path / "a.tar", [("a.txt", b""), ("b.txt", b""), ("a.wav", b"")]), Spec())
    assert 'sample "a" is split' in message


def test_a_member_that_comes_twice_in_a_sample_is_refused(tmp_path: Path) -> None:
    assert "is a duplicate" in refuse(write_tar(tmp_path / "a.tar", [("a.txt", b""), ("a.txt", b"")]), Spec())


def test_a_sample_without_the_member_is_named_with_file_and_offset(tmp_path: Path) -> None:
    members = [("a.json", b'{"duration": 1}'), ("b.wav", b"")]
    message = refuse(write_tar(tmp_path / "a.tar", members, tarfile.USTAR_FORMAT))
    assert 'sample "b"' in message
    assert "byte 1,024" in message
    assert '"json.duration"' in message
    sizes = Spec(length=Length(field="wav", unit="bytes"))
    assert 'no member "wav"' in refuse(tmp_path / "a.tar", sizes)


@pytest.mark.parametrize("content", [b'{"duration": -1}', b'{"duration": NaN}', b"{", b"[]", b'{"duration": "1"}'])
def test_a_bad_length_in_a_member_is_refused(tmp_path: Path, content: bytes) -> None:
    assert 'sample "a"' in refuse(write_tar(tmp_path / "a.tar", [("a.json", content)]))


def written_by_webdataset(folder: Path, num_samples: int = 45) -> list[dict[str, object]]:
    """Shards of ten samples of audio, text and more, as webdataset's own writer makes them."""
    samples = []
    with webdataset.ShardWriter(f"{folder}/part-%04d.tar", maxcount=10, verbose=0) as writer:
        for i in range(num_samples):
            file = io.BytesIO()
            signal = np.random.default_rng(i).uniform(-0.5, 0.5, 1_000 + 9 * i)
            soundfile.write(file, signal, 8_000, format=("WAV", "FLAC", "MP3")[i % 3])
            sample = {"__key__": f"dir/{i:04}", "audio.wav": file.getvalue(), "txt": f"text {i} ü", "json": {"n": i}}
            writer.write(sample)
            samples.append(sample)
    return samples


def by_webdataset(path: Path) -> list[dict[str, bytes]]:
    with path.open("rb") as file:
        return list(group_by_keys(member | {"__url__": "a"} for member in tar_file_iterator(file)))


def test_ranks_share_shards_of_webdataset_and_resume_exactly(tmp_path: Path) -> None:
    samples = written_by_webdataset(tmp_path, 87)
    recipe = recipe_of(tmp_path, {"path": "part-*.tar"}, fields=["__key__", "audio.wav", "txt"], sequence=None)
    check_worlds(recipe, 87)
    check_processes(recipe)
    delivered = {
        key: (text, signal[:size])
        for batch in Loader(recipe, rank=0, world_size=1)
        if not batch.idle
        for key, text, signal, size in zip(
            batch["__key__"], batch["txt"], batch["audio.wav"], batch["audio.wav_lengths"], strict=True
        )
    }
    assert len(delivered) == 87
    for sample in (sample for path in sorted(tmp_path.glob("*.tar")) for sample in by_webdataset(path)):
        text, signal = delivered[sample["__key__"]]
        assert text == sample["txt"].decode()
        expected = soundfile.read(io.BytesIO(sample["audio.wav"]), dtype="float32")[0]
        np.testing.assert_array_equal(signal, expected)
    assert [sample["__key__"] for sample in samples] == sorted(delivered)


def prepared(folder: Path, path: object, **fields: object) -> Recipe:
    values = {"sources": [{"name": "s", "path": path, "shuffle": "none"}], "batching": {"type": "fixed", "size": 2}}
    recipe = Recipe.parse({**values, "epochs": 1, "collate": "list", "sequence": None, **fields}, folder)
    prepare(recipe, workers=1)
    return recipe


def keys(recipe: Recipe) -> list[str]:
    return [sample["__key__"] for batch in Loader(recipe) for sample in batch["samples"]]


def write_list(folder: Path, shards: list[dict[str, object]], **more: object) -> None:
    (folder / "wids-meta.json").write_text(json.dumps({"wids_version": 1, "shardlist": shards, **more}))


def test_a_list_of_shards_names_the_tars_and_their_order(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    written = [str(sample["__key__"]) for sample in written_by_webdataset(tmp_path / "data")]
    expected = written[30:40] + written[40:] + written[:10]
    shards = [{"url": f"part-000{i}.tar", "nsamples": 10 if i < 4 else 5, "filesize": 1} for i in (3, 4, 0)]
    write_list(tmp_path / "data", shards)
    for path in ("data/wids-meta.json", ["data/wids-meta.json"], "*/wids-meta.json"):
        assert keys(prepared(tmp_path, path)) == expected
    source = {"name": "s", "path": "data", "format": "webdataset", "shuffle": "none"}
    assert keys(prepared(tmp_path, "data", sources=[source])) == expected
    (tmp_path / "lists").mkdir()
    for more in ({"base": "../data"}, {"base": str(tmp_path / "data")}, {"base": f"file://{tmp_path}/data"}):
        write_list(tmp_path / "lists", shards, **more)
        assert keys(prepared(tmp_path, "lists/wids-meta.json")) == expected
    assert keys(prepared(tmp_path, ["lists/wids-meta.json", "data/part-0001.tar"])) == expected + written[10:20]


@pytest.mark.parametrize(
    ("about", "problem"),
    [
        ({"shardlist": [{"url": "part-0000.tar", "nsamples": 9}]}, r"part-0000.tar: has a different number of rows"),
        ({"shardlist": [{"url": "part-0000.tar"}, {"url": "part-0000.tar"}]}, "names .*part-0000.tar twice"),
        ({"shardlist": [{"url": "gone.tar", "nsamples": 9}]}, r"gone.tar: no such file"),
        ({"shardlist": [{"url": "pipe:cat part-0000.tar"}]}, "cannot be read in any order"),
        ({"shardlist": []}, "lists no shards"),
        ({"datasets": [{"source_url": "a/wids-meta.json"}]}, "lists datasets"),
        ({"shardlist": [{"nsamples": 9}]}, r"wids-meta.json: is not a list of shards"),
        ([], r"wids-meta.json: is not a list of shards"),
    ],
)
def test_a_list_that_is_wrong_is_refused(tmp_path: Path, about: object, problem: str) -> None:
    written_by_webdataset(tmp_path, 10)
    (tmp_path / "wids-meta.json").write_text(json.dumps(about))
    with pytest.raises(PrepareError, match=problem):
        prepared(tmp_path, "wids-meta.json")


def test_a_list_in_a_store_names_what_is_beside_it_and_nothing_elsewhere(tmp_path: Path) -> None:
    written = [str(sample["__key__"]) for sample in written_by_webdataset(tmp_path, 10)]
    MEMORY.write("memory://listed/sub/part-0000.tar", (tmp_path / "part-0000.tar").read_bytes())
    for url in ("part-0000.tar", "../sub/part-0000.tar", "memory://listed/sub/part-0000.tar"):
        listed = json.dumps({"shardlist": [{"url": url, "nsamples": 10}]})
        MEMORY.write("memory://listed/sub/wids-meta.json", listed.encode())
        assert keys(prepared(tmp_path, "memory://listed/sub/wids-meta.json", cache_dir="c")) == written
    for url in (str(tmp_path / "part-0000.tar"), "s3://other/part-0000.tar", "../../../listed2/part-0000.tar"):
        MEMORY.write("memory://listed/sub/wids-meta.json", json.dumps({"shardlist": [{"url": url}]}).encode())
        with pytest.raises(PrepareError, match="names a file outside that store"):
            prepared(tmp_path, "memory://listed/sub/wids-meta.json")
