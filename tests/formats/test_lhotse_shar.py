"""Shards that lhotse's SharWriter wrote give the rows, arrays and samples that `CutSet.from_shar` reads."""

from __future__ import annotations

import gc
import gzip
import io
import json
import shutil
import sys
import tarfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lhotse import CutSet
from lhotse.features.io import NumpyFilesWriter
from lhotse.shar import SharWriter

from format_worlds import check_processes, check_worlds
from format_worlds import recipe_of as recipe_of_worlds
from lhotse_data import RATE, check_audio, check_samples, cut, delivered, recipe_of, recording, speech
from playhead import Loader
from playhead.errors import DataError, PlayheadError, RecipeError, SampleError
from playhead.formats.contract import ScanLimits
from playhead.formats.lhotse_shar import LhotseShar
from playhead.formats.media import Media
from playhead.formats.rows import Fetch, Shard
from playhead.formats.spec import Spec
from playhead.index.table import open_table
from playhead.prepare import prepare
from playhead.recipe.tree import leaves
from playhead.store import CountingFiles, Extent, LocalFiles, all_files
from playhead.testing import check_format

SOURCE = {"path": "shar", "format": "lhotse_shar"}


def write(folder: Path, cuts: Any, fields: dict[str, str] | None = None, shard_size: int = 5) -> None:
    folder.mkdir(exist_ok=True)
    with SharWriter(folder, fields or {"recording": "wav"}, shard_size=shard_size, warn_unused_fields=False) as writer:
        for each in cuts:
            writer.write(each)


def unpack(folder: Path) -> None:
    """Cuts as plain lines."""
    for path in folder.glob("*.jsonl.gz"):
        path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
        path.unlink()


def from_shar(**where: Any) -> list[Any]:
    """What lhotse reads; it does not close its files."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        cuts = list(CutSet.from_shar(**where))
        gc.collect()
    return cuts


def prepared(folder: Path, source: dict[str, Any] = SOURCE, **fields: Any) -> Any:
    recipe = recipe_of(folder, source, **fields)
    prepare(recipe, workers=1)
    return recipe


@pytest.mark.parametrize(
    ("how", "packed"),
    [("wav", True), ("wav", False), ("flac", False), ("mp3", False), ("original", False), ("opus", False)],
)
def test_shards_give_what_lhotse_reads(tmp_path: Path, how: str, packed: bool) -> None:
    write(tmp_path / "shar", speech(tmp_path / "audio"), {"recording": how})
    if not packed:
        unpack(tmp_path / "shar")
    cuts = from_shar(in_dir=tmp_path / "shar")
    samples = delivered(prepared(tmp_path))
    check_samples(samples, cuts, 1e-5 if how == "mp3" else 0.0)  # whose last bits depend on how much is read at once
    assert len(samples) == 23
    assert [sample["lang"] for sample in samples] == [cut.lang for cut in cuts]


def with_fields(folder: Path, num_cuts: int = 13) -> list[Any]:
    """Cuts with features, an array, a second recording and a value; some of them without."""
    mono, stereo = recording(folder, "mono.wav", 2 * RATE), recording(folder, "stereo.wav", 2 * RATE, channels=2)
    random = np.random.default_rng(3)
    cuts = []
    with NumpyFilesWriter(folder / "arrays") as writer:
        for i in range(num_cuts):
            made = cut(mono, f"dir/cut.{i}", 0.01 * i, 0.5 + 0.01 * i)
            if i % 4 != 1:
                made.target = stereo
                made.target_channel_selector = [1] if i % 2 else [0, 1]
                made.codes = writer.store_array(f"codes-{i}", random.integers(0, 99, (i + 1, 2)).astype(np.int16))
                made.score = {"value": i}
            if i == 6:
                made.recording = None
            cuts.append(made)
    return cuts


FIELDS = {"recording": "flac", "target": "wav", "codes": "numpy", "score": "jsonl"}


def check_fields(samples: list[dict[str, Any]], cuts: list[Any]) -> None:
    for sample, made in zip(samples, cuts, strict=True):
        assert sample["id"] == made.id
        if made.has_recording:
            check_audio(sample["audio"], made.load_audio())
        else:
            assert sample["audio"] is None
        if made.has_custom("codes"):
            check_audio(sample["target"], made.load_custom("target"))
            codes = made.load_custom("codes")
            assert sample["codes"].dtype == codes.dtype
            np.testing.assert_array_equal(sample["codes"], codes)
            assert sample["score"] == made.score
        else:
            assert (sample["target"], sample["codes"], sample["score"]) == (None, None, None)


def test_fields_are_read_beside_the_recording(tmp_path: Path) -> None:
    write(tmp_path / "shar", with_fields(tmp_path), FIELDS)
    check_fields(delivered(prepared(tmp_path)), from_shar(in_dir=tmp_path / "shar"))


def test_fields_may_be_named_and_be_elsewhere(tmp_path: Path) -> None:
    write(tmp_path / "shar", with_fields(tmp_path), FIELDS)
    unpack(tmp_path / "shar")
    (tmp_path / "other").mkdir()
    for path in (tmp_path / "shar").glob("codes.*"):
        path.rename(tmp_path / "other" / path.name)
    fields = {"cuts": "shar/cuts.*.jsonl", "recording": ["shar/recording.{000000..000002}.tar"], "codes": "other/*"}
    recipe = prepared(tmp_path, {"format": "lhotse_shar", "options": {"fields": fields}})
    expected = from_shar(
        fields={
            "cuts": sorted((tmp_path / "shar").glob("cuts.*")),
            "recording": sorted((tmp_path / "shar").glob("recording.*")),
            "codes": sorted((tmp_path / "other").iterdir()),
        }
    )
    samples = delivered(recipe)
    for sample, made in zip(samples, expected, strict=True):
        assert sample["id"] == made.id
        assert "target" not in sample
        if made.has_custom("codes"):
            np.testing.assert_array_equal(sample["codes"], made.load_custom("codes"))


def test_cuts_of_one_id_are_read_one_by_one_as_lhotse_reads_them(tmp_path: Path) -> None:
    """Rows align by their place: two of one id, as oversampling makes them, are two rows with audio of their own."""
    mono = recording(tmp_path, "mono.wav", 2 * RATE)
    write(tmp_path / "shar", [cut(mono, "same", i / 10, 0.5 + i / 10) for i in range(4)], {"recording": "flac"})
    check_samples(delivered(prepared(tmp_path)), from_shar(in_dir=tmp_path / "shar"))


def test_several_directories_are_one_source(tmp_path: Path) -> None:
    cuts = list(speech(tmp_path / "audio"))
    write(tmp_path / "shar_0", cuts[:11])
    write(tmp_path / "shar_1", cuts[11:])
    (tmp_path / "shar_1" / "notes.md").write_text("not a field")
    for path in ("shar_*", ["shar_0", "shar_1"]):
        found = delivered(prepared(tmp_path, {**SOURCE, "path": path}))
        assert [sample["id"] for sample in found] == [made.id for made in cuts]


def test_a_shard_without_number_is_read(tmp_path: Path) -> None:
    write(tmp_path / "shar", speech(tmp_path / "audio"), shard_size=0)
    assert {path.name for path in (tmp_path / "shar").iterdir()} == {"cuts.jsonl.gz", "recording.tar"}
    check_samples(delivered(prepared(tmp_path)), from_shar(in_dir=tmp_path / "shar"))


def test_a_cut_may_cover_a_part_of_its_member(tmp_path: Path) -> None:
    write(tmp_path / "shar", [cut(recording(tmp_path, "stereo.wav", RATE, channels=2), "c", 0, 1, [0, 1])])
    unpack(tmp_path / "shar")
    (path,) = (tmp_path / "shar").glob("cuts.*")
    row = json.loads(path.read_text()) | {"start": 0.25, "duration": 0.3, "channel": 1, "type": "MonoCut"}
    path.write_text(json.dumps(row))
    (made,) = from_shar(in_dir=tmp_path / "shar")
    (sample,) = delivered(prepared(tmp_path))
    check_audio(sample["audio"], made.load_audio())


def tar(members: list[tuple[str, bytes]]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as file:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            file.addfile(info, io.BytesIO(data))
    return out.getvalue()


MANIFEST = {"id": "r", "sources": [{"type": "shar", "channels": [0], "source": ""}], "sampling_rate": 8000}
MANIFEST |= {"num_samples": 8000, "duration": 1.0}


def line(i: int, **fields: Any) -> bytes:
    return json.dumps({"id": f"c{i}", "start": 0, "duration": 1.0, "channel": 0, "type": "MonoCut", **fields}).encode()


def small(num_rows: int = 3) -> dict[str, bytes]:
    """Files of one shard, that need not be decodable."""
    data = [(f"c{i}.wav", bytes([i]) * (100 + i)) for i in range(num_rows)]
    about = [(f"c{i}.json", json.dumps(MANIFEST).encode()) for i in range(num_rows)]
    members = [each for pair in zip(data, about, strict=True) for each in pair]
    values = [json.dumps({"cut_id": f"c{i}", "note": i}).encode() for i in range(num_rows)]
    return {
        "shar/cuts.000000.jsonl": b"\n".join(line(i) for i in range(num_rows)),
        "shar/recording.000000.tar": tar(members),
        "shar/note.000000.jsonl": b"\n".join(values),
    }


def test_shards_keep_the_contract() -> None:
    samples = [
        {
            "id": f"c{i}",
            "audio": Media("audio", bytes([i]) * (100 + i), f'member "c{i}.wav"', 0.0, 1.0),
            "duration": 1.0,
            "text": "",
            "supervisions": [],
            "note": i,
        }
        for i in range(3)
    ]
    check_format({**SOURCE, "ids": "id"}, small(), samples)


@pytest.mark.parametrize("packed", [True, False])
def test_ranks_share_shards_and_resume_exactly(tmp_path: Path, packed: bool) -> None:
    mono = recording(tmp_path, "mono.wav", 2 * RATE)
    cuts = [cut(mono, f"c{i}", i / 100, (1 + i) / 100) for i in range(87)]
    write(tmp_path / "shar", cuts, shard_size=9)
    if not packed:
        unpack(tmp_path / "shar")
    fields = ["id", "audio", "text", "duration"]
    source = SOURCE | ({"shuffle": "shards"} if packed else {})
    recipe = recipe_of_worlds(tmp_path, source, fields=fields, sequence="audio", sequence_rate=RATE)
    check_worlds(recipe, 87)
    if packed:
        check_processes(recipe)


def test_worker_processes_deliver_the_same(tmp_path: Path) -> None:
    write(tmp_path / "shar", with_fields(tmp_path), FIELDS)
    recipe = prepared(tmp_path)
    with Loader(recipe, workers=2) as loader:
        found = [sample for batch in loader if not batch.idle for sample in batch["samples"]]
    check_fields(found, from_shar(in_dir=tmp_path / "shar"))


def test_no_shard_is_read_whole_for_a_few_rows(tmp_path: Path) -> None:
    mono = recording(tmp_path, "long.wav", 10 * RATE)
    write(tmp_path / "shar", [cut(mono, f"c{i}", 0, 10) for i in range(20)], shard_size=20)
    unpack(tmp_path / "shar")
    recipe = prepared(tmp_path, batching={"type": "fixed", "size": 2})
    files = CountingFiles(LocalFiles())
    with Loader(recipe, files=files) as loader:
        batch = next(iter(loader))
    assert [len(sample["audio"]) for sample in batch["samples"]] == [10 * RATE] * 2
    audio = 2 * 2 * 10 * RATE
    assert files.counts["bytes"] < 1.1 * audio
    leaf, files = leaves(recipe)[0], CountingFiles(LocalFiles())
    table = open_table(leaf, recipe)
    rows = table.locate(np.arange(3), Fetch(files, table.index.stamps))
    unread = list(LhotseShar().open(leaf.source, files).read_heads(rows))  # type: ignore[attr-defined]
    assert files.counts["bytes"] < 20_000
    assert [type(sample["audio"].data) for sample in unread] == [Extent] * 3
    whole = LhotseShar().open(leaf.source, files).read(rows)
    assert [sample["audio"].data for sample in whole] == [sample["audio"].data.read() for sample in unread]


def with_members(change: Callable[[list[tuple[str, bytes]]], list[tuple[str, bytes]]]) -> dict[str, bytes]:
    files = small()
    with tarfile.open(fileobj=io.BytesIO(files["shar/recording.000000.tar"])) as file:
        members = [(info.name, file.extractfile(info).read()) for info in file]  # type: ignore[union-attr]
    return files | {"shar/recording.000000.tar": tar(change(members))}


def without(*names: str) -> dict[str, bytes]:
    return with_members(lambda members: [each for each in members if each[0] not in names])


CUTS = "cuts.000000.jsonl"
BAD: dict[str, tuple[dict[str, bytes], list[str]]] = {
    "a sample is missing": (without("c1.wav", "c1.json"), ["recording.000000.tar", 'row 1 is "c2"', CUTS, '"c1"']),
    "the last sample is missing": (without("c2.wav", "c2.json"), ["recording.000000.tar", "ends after 2 rows", CUTS]),
    "a sample too many": (
        with_members(lambda members: [*members, ("c3.wav", b"x"), ("c3.json", b"{}")]),
        ["recording.000000.tar", "more rows than there are cuts", 'row 3 "c3"', CUTS],
    ),
    "an odd number": (without("c2.json"), ["recording.000000.tar, byte", "odd number of members", '"c2.wav"']),
    "data is missing": (without("c1.wav"), ["recording.000000.tar, byte", 'member "c1.json" has no manifest']),
    "a manifest is missing": (without("c1.json"), ["recording.000000.tar, byte", 'member "c1.wav" has no manifest']),
    "another order": (
        with_members(lambda members: members[2:4] + members[:2] + members[4:]),
        ["recording.000000.tar", 'row 0 is "c1"', '"c0"'],
    ),
    "truncated tar": (
        small() | {"shar/recording.000000.tar": small()["shar/recording.000000.tar"][:560]},
        ["recording.000000.tar", "truncated"],
    ),
    "a line too few": (
        small() | {"shar/note.000000.jsonl": b'{"cut_id": "c0"}\n'},
        ["note.000000.jsonl", "ends after 1 rows", CUTS],
    ),
    "a line of another cut": (
        small() | {"shar/note.000000.jsonl": b'{"cut_id": "c0"}\n{"cut_id": "c2"}\n{"cut_id": "c1"}\n'},
        ["note.000000.jsonl", 'row 1 is "c2"', CUTS],
    ),
    "a line without an id": (
        small() | {"shar/note.000000.jsonl": b'{"cut_id": "c0"}\n{"note": 3}\n'},
        ["note.000000.jsonl, line 2, byte 17", 'no id in field "cut_id"'],
    ),
    "wrong type of cut": (
        small() | {"shar/cuts.000000.jsonl": line(0) + b"\n" + line(1, type="PaddingCut") + b"\n" + line(2)},
        [f"{CUTS}, line 2", "a cut of type PaddingCut"],
    ),
    "a compressed tar": (
        {**without("c9"), "shar/extra.000000.tar.gz": b""},
        ["extra.000000.tar.gz: a compressed tar cannot be read"],
    ),
    "a field of another shard": (
        {**small(), "shar/recording.000001.tar": b""},
        ["recording.000001.tar", 'the shard has no field "cuts"'],
    ),
    "a field twice": (
        {**small(), "shar/cuts.000000.jsonl.gz": gzip.compress(b"")},
        ["cuts.000000.jsonl.gz: the shard has this field twice"],
    ),
    "no Shar": ({"shar/a.txt": b""}, ["is not a Lhotse Shar directory"]),
}


@pytest.mark.parametrize("case", BAD)
def test_prepare_refuses_files_that_do_not_align(tmp_path: Path, case: str) -> None:
    files, words = BAD[case]
    for name, data in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    with pytest.raises(PlayheadError) as caught:
        prepared(tmp_path)
    for word in words:
        assert word in str(caught.value)


def test_lilcom_is_used_where_it_is_and_named_where_it_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mono = recording(tmp_path, "mono.wav", RATE)
    made = cut(mono, "c", 0, 1)
    with NumpyFilesWriter(tmp_path / "arrays") as writer:
        made.feats = writer.store_array("a", np.linspace(-3, 3, 400, dtype=np.float32).reshape(5, 80))
    write(tmp_path / "shar", [made], {"recording": "wav", "feats": "lilcom"})
    (sample,) = delivered(prepared(tmp_path))
    np.testing.assert_array_equal(sample["feats"], from_shar(in_dir=tmp_path / "shar")[0].load_custom("feats"))
    monkeypatch.setitem(sys.modules, "lilcom", None)
    with pytest.raises(PlayheadError, match=r"feats.000000.tar, byte 0: an array compressed by lilcom, which is not"):
        prepared(tmp_path, {**SOURCE, "name": "another"})
    with pytest.raises(PlayheadError, match=r"feats.000000.tar, byte 0.*compressed by lilcom"):
        delivered(recipe_of(tmp_path, SOURCE))


def test_a_field_that_other_shards_have_is_asked_for(tmp_path: Path) -> None:
    write(tmp_path / "shar", speech(tmp_path / "audio"))
    (tmp_path / "shar" / "recording.000001.tar").unlink()
    with pytest.raises(PlayheadError, match=r'cuts.000001.jsonl.gz: the shard has no field "recording"'):
        prepared(tmp_path)


def test_named_fields_are_checked(tmp_path: Path) -> None:
    write(tmp_path / "shar", speech(tmp_path / "audio"))
    named = {"cuts": "shar/cuts.*", "recording": "shar/recording.000000.tar"}
    with pytest.raises(PlayheadError, match="a different number of shards than the cuts"):
        prepared(tmp_path, {"format": "lhotse_shar", "options": {"fields": named}})
    with pytest.raises(PlayheadError, match="does not name the cuts"):
        prepared(tmp_path, {"format": "lhotse_shar", "options": {"fields": {"recording": "shar/rec*"}}})
    with pytest.raises(PlayheadError, match="has both `path` and"):
        prepared(tmp_path, {**SOURCE, "options": {"fields": named}})
    with pytest.raises(PlayheadError, match="is not a file of field"):
        prepared(tmp_path, {"format": "lhotse_shar", "options": {"fields": {"cuts": "shar/recording.*"}}})
    with pytest.raises(RecipeError, match="`path` is missing"):
        prepared(tmp_path, {"format": "lhotse_shar"})


def test_audio_shorter_than_its_cut_is_a_bad_sample(tmp_path: Path) -> None:
    write(tmp_path / "shar", [cut(recording(tmp_path, "mono.wav", RATE), "c", 0.5, 0.5)])
    unpack(tmp_path / "shar")
    (path,) = (tmp_path / "shar").glob("cuts.*")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"duration": 0.8}))
    with pytest.raises(SampleError, match=r'member "c.wav": the segment is not within the recording') as caught:
        delivered(prepared(tmp_path))
    assert "recording.000000.tar, byte 0" in str(caught.value)


def test_a_member_that_is_no_array_or_has_no_manifest_is_a_bad_sample(tmp_path: Path) -> None:
    for data, problem in (
        (("c0.npy", b"junk"), "is not an array"),
        (("c0.wav", b"junk"), "is not that of a recording"),
    ):
        shutil.rmtree(tmp_path / "shar", ignore_errors=True)
        (tmp_path / "shar").mkdir()
        (tmp_path / "shar" / "cuts.000000.jsonl").write_bytes(line(0))
        (tmp_path / "shar" / "recording.000000.tar").write_bytes(tar([data, ("c0.json", b'{"a": 1}')]))
        with pytest.raises(DataError, match=problem) as caught:
            delivered(prepared(tmp_path))
        assert "recording.000000.tar, byte 0" in str(caught.value)


def test_ids_are_checked_where_nothing_else_is_asked_of_the_lines(tmp_path: Path) -> None:
    for name, data in (small() | {"shar/cuts.000000.jsonl": b'{"id": 1}\n{"id": \n'}).items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    shard = Shard((("cuts", str(tmp_path / "shar" / CUTS)),))
    with pytest.raises(DataError, match=r"cuts.000000.jsonl, line 2, byte 10: broken JSON"):
        list(LhotseShar().scan(shard, Spec(), all_files(), ScanLimits()))
