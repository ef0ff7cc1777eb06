"""NeMo manifests and tarred datasets: the rows they have, and the audio that each row names, bit for bit."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from format_worlds import check_worlds, recipe_of
from playhead import Loader, PrepareError, Recipe, SampleError
from playhead.prepare import prepare
from small_data import table_of, write_jsonl, write_tar

RATE = 8_000


def signal(num_frames: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-(2**15), 2**15, num_frames).astype(np.int16)


def encoded(samples: np.ndarray, container: str = "WAV") -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, RATE, format=container, subtype="PCM_16")
    return file.getvalue()


def as_floats(samples: np.ndarray) -> np.ndarray:
    return samples.astype(np.float32) / np.float32(2**15)


def delivered(recipe: Recipe) -> list[dict[str, Any]]:
    """The samples in order, with their audio as it was before padding."""
    found = []
    for batch in Loader(recipe):
        for slot in range(batch.num_samples):
            row = {name: value[slot] for name, value in batch.items()}
            row["audio"] = row["audio"][: row["audio_lengths"]]
            found.append(row)
    return found


def recipe_in(folder: Path, source: dict[str, Any], **fields: Any) -> Recipe:
    values = {"sources": [{"name": "s", "shuffle": "none", **source}], "batching": {"type": "fixed", "size": 2}}
    recipe = Recipe.parse({**values, "epochs": 1, "audio": {"sample_rate": RATE}, **fields}, folder)
    prepare(recipe, workers=1)
    return recipe


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    """Three files, one of them FLAC, segments of one of them, and rows to leave out."""
    for name, size in (("a.wav", 9_000), ("sub/b.wav", 16_000)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(encoded(signal(size)))
    (tmp_path / "c.flac").write_bytes(encoded(signal(12_000), "FLAC"))
    rows = [
        {"audio_filepath": "a.wav", "duration": 1.125, "text": "whole", "lang": "en"},
        {"audio_filepath": "sub/b.wav", "duration": 0.5, "offset": 1.0, "text": "end of b", "lang": "de"},
        {"audio_filepath": "no such file", "duration": 3, "text": "", "_skipme": "too noisy", "lang": "en"},
        {"audio_filepath": str(tmp_path / "sub/b.wav"), "duration": 0.25, "text": "start of b", "lang": "fr"},
        {"audio_filepath": "c.flac", "duration": 1.6, "text": "rounded up", "lang": "en", "_skipme": False},
        {"audio_filepath": "no such file", "duration": 3, "text": "", "_skipme": True, "lang": "en"},
        {"audio_filepath": "c.flac", "duration": 1.4, "text": "rounded down", "lang": "en", "_skipme": 0},
    ]
    write_jsonl(tmp_path / "manifest.json", rows)
    return tmp_path / "manifest.json"


def test_rows_are_those_without_skipme_and_their_audio_is_what_they_name(manifest: Path) -> None:
    recipe = recipe_in(manifest.parent, {"format": "nemo", "path": "manifest.json"}, fields=["text", "lang", "audio"])
    assert (recipe.sequence, recipe.sequence_rate) == ("audio", RATE)
    rows = delivered(recipe)
    assert [row["text"] for row in rows] == ["whole", "end of b", "start of b", "rounded up", "rounded down"]
    b, c = as_floats(signal(16_000)), as_floats(signal(12_000))
    expected = [as_floats(signal(9_000)), b[8_000:12_000], b[:2_000], c, c[: 1_400 * 8]]
    for row, samples in zip(rows, expected, strict=True):
        np.testing.assert_array_equal(row["audio"], samples)
    lengths = table_of(recipe).lengths_of(np.arange(5))
    assert lengths.tolist() == [1125, 500, 250, 1600, 1400]
    rows = [{"audio_filepath": "a.wav", "offset": i / 100, "duration": 0.1, "text": str(i)} for i in range(90)]
    write_jsonl(manifest.parent / "more.json", rows)
    check_worlds(recipe_of(manifest.parent, {"format": "nemo", "path": "more.json"}, fields=["audio", "text"]), 90)


def test_ids_are_paths_with_offsets_unless_a_field_is_named(manifest: Path) -> None:
    (manifest.parent / "drop.txt").write_text("sub/b.wav@1.0\na.wav\n")
    source = {"format": "nemo", "path": "manifest.json", "drop_ids": "drop.txt"}
    recipe = recipe_in(manifest.parent, source, fields=["text", "audio"])
    assert [row["text"] for row in delivered(recipe)] == ["start of b", "rounded up", "rounded down"]


def test_lines_of_other_files_go_with_the_rows_that_are_kept(manifest: Path) -> None:
    (manifest.parent / "lines.txt").write_text("one\r\ntwo\n\nfour\nfive\nsix\n")
    (manifest.parent / "prompts.txt").write_text("say it\nwrite it\n")
    extra = [
        {"name": "next", "path": "lines.txt"},
        {"name": "prompt", "type": "text_sample", "path": "prompts.txt"},
    ]
    source = {"format": "nemo", "path": "manifest.json", "options": {"extra_fields": extra}}
    recipe = recipe_in(manifest.parent, source, fields=["text", "next", "prompt", "audio"])
    rows = delivered(recipe)
    assert [row["next"] for row in rows] == ["one", "two", "", "four", "five"]
    assert {row["prompt"] for row in rows} == {"say it", "write it"}
    assert [row["prompt"] for row in delivered(recipe)] == [row["prompt"] for row in rows]
    (manifest.parent / "lines.txt").write_text("one\ntwo\n")
    with pytest.raises(PrepareError, match="has fewer lines than the manifest has rows"):
        prepare(recipe, workers=1)


def test_a_row_far_from_its_audio_is_a_bad_sample_with_both_numbers(manifest: Path) -> None:
    rows = [{"audio_filepath": "a.wav", "duration": d, "text": str(d)} for d in (1.125, 1.3, 1.4)]
    write_jsonl(manifest, rows)
    recipe = recipe_in(manifest.parent, {"format": "nemo", "path": "manifest.json"}, fields=["audio"])
    batches = iter(Loader(recipe))
    assert next(batches)["audio_lengths"].tolist() == [9_000, 9_000]  # 0.175 s short is within the tolerance
    with pytest.raises(SampleError, match="not within the recording") as caught:
        next(batches)
    assert "1.4 s" in caught.value.found
    assert "1.125 s" in caught.value.expected


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"duration": 1, "text": "x"}, 'the row has no "audio_filepath"'),
        ({"audio_filepath": "a.wav", "duration": 1, "offset": "late"}, '"offset" is no time'),
        ({"audio_filepath": "a.wav", "duration": 1, "offset": 5}, "not within the recording"),
        ({"audio_filepath": "gone.wav", "duration": 1}, "no such file"),
        ({"audio_filepath": "manifest.json", "duration": 1}, "no decoder for this audio"),
    ],
)
def test_a_row_that_is_wrong_is_named_with_its_place(manifest: Path, row: dict[str, Any], problem: str) -> None:
    write_jsonl(manifest, [row])
    recipe = recipe_in(manifest.parent, {"format": "nemo", "path": "manifest.json"}, fields=["audio"])
    with pytest.raises(Exception, match=problem) as caught:
        next(iter(Loader(recipe)))
    assert f"{manifest}, byte 0" in str(caught.value)


def test_a_manifest_without_durations_needs_its_audio_when_it_is_prepared(manifest: Path) -> None:
    write_jsonl(manifest, [{"audio_filepath": "absent.wav"}])
    with pytest.raises(PrepareError, match="raw row 0") as caught:
        recipe_in(manifest.parent, {"format": "nemo", "path": "manifest.json"})
    assert "absent.wav" in str(caught.value)


def write_shards(folder: Path, numbers: Sequence[int], *, prefix: str = "") -> list[dict[str, Any]]:
    """Tars of three members in another order than their rows, two of which are segments of one member."""
    kept = []
    for number in numbers:
        names = [f"{prefix}{number}-{i}.wav" for i in range(3)]
        sizes = {name: 4_000 + 1_000 * i + number for i, name in enumerate(names)}
        (folder / prefix).mkdir(exist_ok=True, parents=True)
        members = [(name, encoded(signal(size, size))) for name, size in reversed(sizes.items())]
        write_tar(folder / f"{prefix}audio_{number}.tar", [*members, ("unused.wav", encoded(signal(10)))])
        rows: list[dict[str, Any]] = [
            {"audio_filepath": name, "duration": sizes[name] / RATE, "text": name, "shard_id": number}
            for name in names[:2]
        ]
        for part, (offset, duration) in enumerate([(0.0, 0.25), (0.25, 0.5)], 1):
            name = names[2].replace(".wav", f"-sub{part}.wav")
            rows.append(
                {"audio_filepath": name, "offset": offset, "duration": duration, "text": name, "shard_id": number}
            )
        write_jsonl(folder / f"{prefix}manifest_{number}.json", rows)
        kept += rows
    return kept


def expected_audio(row: dict[str, Any]) -> np.ndarray:
    name = row["audio_filepath"].split("-sub")[0].removesuffix(".wav")
    size = 4_000 + 1_000 * int(name.rsplit("-", 1)[1]) + row["shard_id"]
    first = round(row.get("offset", 0) * RATE)
    return as_floats(signal(size, size))[first : first + round(row["duration"] * RATE)]


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
    check_worlds(recipe_of(tmp_path, tarred, fields=["audio", "text"]), 48)


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
