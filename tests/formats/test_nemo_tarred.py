"""NeMo's tarred datasets: every row finds its member, and none is lost."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

from format_worlds import check_processes, check_worlds, recipe_of
from nemo_data import AnyPlace, delivered, expected_audio, recipe_in, write_shards
from playhead import Loader, PrepareError, Recipe
from playhead.prepare import prepare
from playhead.store import CountingFiles, LocalFiles
from playhead.testing import check_format
from small_data import write_jsonl, write_tar

TARRED = {"format": "nemo_tarred", "path": "manifest_{0..2}.json", "options": {"tar": "audio_{0..2}.tar"}}


def check_rows(recipe: Recipe, rows: list[dict[str, Any]]) -> None:
    found = delivered(recipe)
    assert [row["text"] for row in found] == [row["text"] for row in rows]
    for row, expected in zip(found, rows, strict=True):
        np.testing.assert_array_equal(row["audio"], expected_audio(expected))


def test_rows_of_tars_are_those_of_the_manifests_and_members_are_found_whatever_their_order(tmp_path: Path) -> None:
    rows = write_shards(tmp_path, range(12))
    tarred = {"format": "nemo_tarred", "path": "manifest_{0..11}.json", "options": {"tar": "audio_{0..11}.tar"}}
    check_rows(recipe_in(tmp_path, tarred, fields=["text", "audio"]), rows)
    recipe = recipe_of(tmp_path, tarred, fields=["audio", "text"])
    check_worlds(recipe, 48)
    check_processes(recipe)


def test_shards_of_the_same_number_pair_by_occurrence_and_one_manifest_serves_many_tars(tmp_path: Path) -> None:
    rows = [row for prefix in ("x/", "y/") for row in write_shards(tmp_path, range(2), prefix=prefix)]
    tars = ["x/audio_0.tar", "x/audio_1.tar", "y/audio_0.tar", "y/audio_1.tar"]
    source = {
        "format": "nemo_tarred",
        "path": [tar.replace("audio", "manifest").replace("tar", "json") for tar in tars],
    }
    check_rows(recipe_in(tmp_path, {**source, "options": {"tar": tars}}, fields=["text", "audio"]), rows)
    rows = write_shards(tmp_path, range(3))
    write_jsonl(tmp_path / "all.json", [row for _, row in sorted(enumerate(rows), key=lambda pair: -pair[0] % 5)])
    whole = recipe_in(tmp_path, {**TARRED, "path": "all.json"}, fields=["text", "audio"])
    found = {row["text"]: row["audio"] for row in delivered(whole)}
    assert len(found) == len(rows)
    for row in rows:
        np.testing.assert_array_equal(found[row["text"]], expected_audio(row))


def one_manifest(folder: Path, rows: list[dict[str, Any]], name: str = "train.json") -> dict[str, Any]:
    """The rows of several tars in one manifest, mixed."""
    mixed = np.random.default_rng(3).permutation(len(rows))
    write_jsonl(folder / name, [rows[i] for i in mixed])
    return {**TARRED, "path": name, "options": {"tar": "audio_*.tar"}}


def test_rows_keep_the_contract() -> None:
    rows = [{"audio_filepath": f"{i}.wav", "duration": (i + 1) / 4, "text": f"ä{i}"} for i in range(5)]
    members = [(f"{i}.wav", bytes([i]) * (300 * i + 100)) for i in range(5)]
    with TemporaryDirectory() as folder:
        tar = write_tar(Path(folder) / "a.tar", members[::-1]).read_bytes()
    samples = [
        {**row, "audio": AnyPlace(data, f'audio_0.tar, member "{name}"', duration=row["duration"])}
        for row, (name, data) in zip(rows, members, strict=True)
    ]
    files = {"manifest_0.json": b"".join(json.dumps(row).encode() + b"\n" for row in rows), "audio_0.tar": tar}
    source = {"format": "nemo_tarred", "path": "manifest_*.json", "options": {"tar": "audio_*.tar"}, "ids": "text"}
    check_format(source, files, samples)


@pytest.mark.parametrize("manifest", ["manifest_{}_clean.json", "sharded/manifest_v2_{}.jsonl", "part_{}.json"])
def test_the_last_number_after_an_underscore_pairs_manifests_and_tars(tmp_path: Path, manifest: str) -> None:
    rows = write_shards(tmp_path, range(3))
    (tmp_path / "sharded").mkdir()
    for number in range(3):
        (tmp_path / f"manifest_{number}.json").rename(tmp_path / manifest.format(number))
        (tmp_path / f"audio_{number}.tar").rename(tmp_path / f"tar2_audio_{number}_clean.tar")
    source = {"format": "nemo_tarred", "path": manifest.format("*"), "options": {"tar": "tar2_*.tar"}}
    check_rows(recipe_in(tmp_path, source, fields=["text", "audio"]), rows)


@pytest.mark.parametrize("name", ["train.json", "train_2020.json", "manifest_1.json"])
def test_one_manifest_of_many_tars_gives_each_tar_its_rows_in_order(tmp_path: Path, name: str) -> None:
    rows = write_shards(tmp_path, range(12))
    recipe = recipe_in(tmp_path, one_manifest(tmp_path, rows, name), fields=["text", "audio"])
    written = [json.loads(line) for line in (tmp_path / name).read_text().splitlines()]
    tars = sorted(map(str, range(12)))  # files are in the order of their names
    check_rows(recipe, sorted(written, key=lambda row: tars.index(str(row["shard_id"]))))
    check_worlds(recipe_of(tmp_path, one_manifest(tmp_path, rows, name), fields=["audio", "text"]), 48)


def test_one_manifest_of_many_tars_is_not_read_for_each_of_them(tmp_path: Path) -> None:
    rows = [row | {"note": "x" * 3000} for row in write_shards(tmp_path, range(30))]
    source = one_manifest(tmp_path, rows)
    values = {"sources": [{"name": "s", **source}], "batching": {"type": "fixed", "size": 2}}
    files = CountingFiles(LocalFiles())
    prepare(Recipe.parse(values, tmp_path), workers=1, files=files)
    tars = sum(path.stat().st_size for path in tmp_path.glob("*.tar"))
    assert files.counts["bytes"] < tars + 4 * (tmp_path / "train.json").stat().st_size


def test_one_manifest_and_one_tar_need_no_numbers(tmp_path: Path) -> None:
    rows = write_shards(tmp_path, [0])
    plain = [{name: value for name, value in row.items() if name != "shard_id"} for row in rows]
    (tmp_path / "audio_0.tar").rename(tmp_path / "all.tar")
    write_jsonl(tmp_path / "train_2020.json", plain)
    source = {"format": "nemo_tarred", "path": "train_2020.json", "options": {"tar": "all.tar"}}
    check_rows(recipe_in(tmp_path, source, fields=["text", "audio"]), rows)
    (tmp_path / "all.tar").rename(tmp_path / "audio_0.tar")
    source["options"] = {"tar": "audio_0.tar"}
    check_rows(recipe_in(tmp_path, source, fields=["text", "audio"]), rows)
    write_jsonl(tmp_path / "train_2020.json", [*rows[:2], rows[2] | {"shard_id": 3}])
    with pytest.raises(PrepareError, match=r"train_2020.json, line 3, .*no tar for the row: shard_id 3"):
        recipe_in(tmp_path, source)


def test_a_row_whose_tar_is_not_there_is_refused_with_its_line(tmp_path: Path) -> None:
    rows = write_shards(tmp_path, range(4))
    source = one_manifest(tmp_path, rows)
    lines = (tmp_path / "train.json").read_text().splitlines()
    recipe = recipe_in(tmp_path, source, fields=["text", "audio"])
    (tmp_path / "audio_3.tar").unlink()
    first = 1 + next(i for i, line in enumerate(lines) if json.loads(line)["shard_id"] == 3)
    with pytest.raises(PrepareError, match=rf"train.json, line {first}, .*no tar for the row: shard_id 3"):
        prepare(recipe, workers=1)
    skipped = [json.dumps(json.loads(line) | {"_skipme": json.loads(line)["shard_id"] == 3}) for line in lines]
    skipped.append('{"_skipme": true}')
    (tmp_path / "train.json").write_text("\n".join(skipped))
    prepare(recipe, workers=1)
    assert {row["text"] for row in delivered(recipe)} == {row["text"] for row in rows if row["shard_id"] != 3}
    for number in ("null", "-1", '"2"', "true", "1e3", str(10**30)):
        row = f'{{"audio_filepath": "a.wav", "duration": 1, "shard_id": {number}}}'
        (tmp_path / "train.json").write_text("\n".join([*skipped, row]))
        with pytest.raises(PrepareError, match=r"train.json, line 18, .*cannot tell which tar holds the row"):
            prepare(recipe, workers=1)


def test_tars_that_numbers_do_not_tell_apart_are_refused_for_one_manifest(tmp_path: Path) -> None:
    source = one_manifest(tmp_path, write_shards(tmp_path, range(2)))
    (tmp_path / "audio_1.tar").rename(tmp_path / "audio_00.tar")
    with pytest.raises(PrepareError, match="whose numbers are not distinct"):
        recipe_in(tmp_path, source)
    (tmp_path / "audio_00.tar").rename(tmp_path / "audio_x.tar")
    with pytest.raises(PrepareError, match=r"audio_x.tar: no number in its name"):
        recipe_in(tmp_path, source)


def test_two_members_of_one_name_are_refused_with_both_places(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a_0.json", [{"audio_filepath": "a.wav", "duration": 1}])
    write_tar(tmp_path / "a_0.tar", [("a.wav", b"x" * 2000), ("b.wav", b""), ("a.wav", b"y")])
    with pytest.raises(PrepareError, match=r'a_0.tar, byte 3,072: member "a.wav" is a duplicate') as caught:
        recipe_in(tmp_path, {"format": "nemo_tarred", "path": "a_0.json", "options": {"tar": "a_0.tar"}})
    assert "at byte 0" in str(caught.value)


def test_manifests_and_tars_that_do_not_pair_are_refused(tmp_path: Path) -> None:
    write_shards(tmp_path, range(3))
    with pytest.raises(PrepareError, match="manifests and tars do not pair") as caught:
        recipe_in(tmp_path, {**TARRED, "options": {"tar": "audio_{0..1}.tar"}})
    assert "3 manifests, 2 tars" in str(caught.value)
    assert "manifest_2.json" in str(caught.value)
    with pytest.raises(PrepareError, match="manifests and tars do not pair") as caught:
        recipe_in(tmp_path, {**TARRED, "path": "manifest_{0..1}.json"})
    assert "audio_2.tar" in str(caught.value)


def test_a_row_without_its_member_is_an_error_unless_such_rows_are_skipped(tmp_path: Path) -> None:
    rows = write_shards(tmp_path, [0])
    path = tmp_path / "manifest_0.json"
    path.write_text(path.read_text() + json.dumps({"audio_filepath": "gone.wav", "duration": 1, "text": "gone"}) + "\n")
    source = {**TARRED, "path": "manifest_0.json", "options": {"tar": "audio_0.tar"}}
    with pytest.raises(PrepareError, match=r'its audio is not in the tar: "gone\.wav"') as caught:
        recipe_in(tmp_path, source)
    assert f"{path}, line 5, byte" in str(caught.value)
    skipping = {**source, "options": {"tar": "audio_0.tar", "skip_missing": True}}
    check_rows(recipe_in(tmp_path, skipping, fields=["text", "audio"]), rows)


def test_a_tar_that_changed_is_refused(tmp_path: Path) -> None:
    write_shards(tmp_path, [0])
    source = {**TARRED, "path": "manifest_0.json", "options": {"tar": "audio_0.tar"}}
    recipe = recipe_in(tmp_path, source, fields=["audio"], on_error="substitute", max_bad=1.0)
    tar = tmp_path / "audio_0.tar"
    tar.write_bytes(tar.read_bytes() + b"\0" * 512)
    with pytest.raises(Exception, match="changed since it was indexed"):
        next(iter(Loader(recipe)))
