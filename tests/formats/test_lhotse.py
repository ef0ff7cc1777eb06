"""Manifests of cuts that lhotse wrote give the rows, texts and samples that lhotse reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from lhotse import CutSet, MonoCut, Recording
from lhotse.array import Array as ArrayManifest
from lhotse.audio import AudioSource

from format_worlds import check_worlds
from format_worlds import recipe_of as recipe_of_worlds
from lhotse_data import RATE, channel_files, check_audio, check_samples, cut, delivered, recipe_of, recording, speech
from playhead.errors import DataError, PlayheadError, PrepareError, RecipeError, SampleError
from playhead.formats.collect import Collector
from playhead.formats.contract import ScanLimits, Section
from playhead.formats.fields import fast_decoder
from playhead.formats.jsonl import _line_by_line, scan_lines
from playhead.formats.lhotse_cuts import BY_DURATION, CUTS
from playhead.formats.lines import read_lines
from playhead.formats.media import Media
from playhead.formats.spec import Match, Spec
from playhead.index.table import open_table
from playhead.prepare import prepare
from playhead.recipe.tree import leaves
from playhead.recipe.values import Length
from playhead.store import MEMORY, all_files, open_file
from playhead.testing import check_format

SOURCE = {"path": "cuts.jsonl", "format": "lhotse"}


def written(folder: Path, cuts: Any, name: str = "cuts.jsonl", **source: Any) -> Any:
    CutSet.from_cuts(cuts).to_file(folder / name)
    recipe = recipe_of(folder, {**SOURCE, "path": name, **source})
    prepare(recipe, workers=1)
    return recipe


@pytest.mark.parametrize("name", ["cuts.jsonl", "cuts.jsonl.gz"])
def test_cuts_give_what_lhotse_reads(tmp_path: Path, name: str) -> None:
    recipe = written(tmp_path, speech(tmp_path / "audio"), name)
    cuts = CutSet.from_file(tmp_path / name)
    samples = delivered(recipe)
    check_samples(samples, cuts)
    assert [(sample["lang"], sample["score"]) for sample in samples] == [(cut.lang, cut.score) for cut in cuts]
    assert {sample["audio"].ndim for sample in samples} == {1, 2}


def test_cuts_keep_the_contract() -> None:
    cuts = [
        {
            "id": f"c{i}",
            "start": 0,
            "duration": i / 8,
            "channel": 0,
            "type": "MonoCut",
            "custom": {"lang": "en", "n": i},
        }
        for i in range(5)
    ]
    for row in cuts[::2]:
        row["supervisions"] = [{"id": "s", "recording_id": "r", "start": 0, "duration": 1, "text": "ä"}]
    lines = [json.dumps(row).encode() + b"\n" for row in cuts]
    samples = [
        {
            "id": row["id"],
            "duration": row["duration"],
            "text": "ä" if "supervisions" in row else "",
            "supervisions": row.get("supervisions", []),
            "lang": "en",
            "n": i,
        }
        for i, row in enumerate(cuts)
    ]
    source = {"format": "lhotse", "path": "*.jsonl", "ids": "id", "keep": {"lang": ["en"], "text": "*"}}
    check_format(source, {"a.jsonl": b"".join(lines)}, samples)


def test_ranks_share_cuts_and_resume_exactly(tmp_path: Path) -> None:
    mono = recording(tmp_path, "mono.wav", 2 * RATE)
    cuts = [cut(mono, f"c{i}", i / 100, (1 + i) / 100) for i in range(87)]
    CutSet.from_cuts(cuts).to_file(tmp_path / "cuts.jsonl")
    fields = ["id", "audio", "text", "duration"]
    recipe = recipe_of_worlds(tmp_path, SOURCE, fields=fields, sequence="audio", sequence_rate=RATE)
    check_worlds(recipe, 87)


def test_lengths_are_durations_and_ids_are_those_of_cuts(tmp_path: Path) -> None:
    cuts = speech(tmp_path / "audio")
    (tmp_path / "bad.txt").write_text("cut-003\ncut-007\n")
    recipe = written(tmp_path, cuts, drop_ids=["bad.txt"], keep={"lang": "p*"}, columns=["score"])
    table = open_table(leaves(recipe)[0], recipe)
    kept = [cut for cut in cuts if cut.lang == "pl" and cut.id not in ("cut-003", "cut-007")]
    lengths = table.lengths_of(np.arange(table.num_rows))
    assert lengths.tolist() == [int(np.ceil(cut.duration * 1000 - 1e-6)) for cut in kept]
    assert [sample["id"] for sample in delivered(recipe)] == [cut.id for cut in kept]


@pytest.mark.parametrize(
    "spec",
    [
        Spec(length=BY_DURATION),
        Spec(length=BY_DURATION, ids="id", columns=("score", "missing", "start")),
        Spec(length=BY_DURATION, matches=(Match("lang", any_of=("en",)), Match("text", pattern="first*"))),
        Spec(length=BY_DURATION, columns=("recording.sampling_rate", "custom.score")),
        Spec(length=Length(unit="bytes"), ids="lang"),
        Spec(length=Length(field="text", unit="bytes")),
    ],
)
def test_a_scan_sees_the_fields_of_the_sample_whichever_way_it_goes(tmp_path: Path, spec: Spec) -> None:
    cuts = speech(tmp_path / "audio")
    cuts.to_file(tmp_path / "cuts.jsonl")
    file = open_file(all_files(), str(tmp_path / "cuts.jsonl"))
    (lines,) = read_lines(file, ScanLimits())
    slow = _line_by_line(file, lines, Collector(spec), CUTS)
    ((_, found),) = scan_lines(file, Section(0, file.size), spec, ScanLimits(), CUTS)
    assert found.keys() == slow.keys()
    for name in found:
        np.testing.assert_array_equal(found[name], slow[name])
    if "columns/score" in slow:
        assert slow["columns/score"].tolist() == [cut.score for cut in cuts]
    asks_for_text = "text" in str(spec)
    decode = fast_decoder(spec, CUTS.place, CUTS.required)
    assert (decode is None or decode(lines) is None) == (asks_for_text or "recording" in str(spec))


def test_a_custom_recording_is_audio_and_a_custom_array_stays_its_manifest(tmp_path: Path) -> None:
    mono, stereo = recording(tmp_path, "mono.wav", RATE), recording(tmp_path, "stereo.wav", RATE, channels=2)
    array = ArrayManifest("numpy_files", str(tmp_path), "a.npy", [3])
    custom = {"target": stereo, "target_channel_selector": 1, "other": stereo, "whole": mono, "whole_unaligned": True}
    made = cut(mono, "c", 0.25, 0.5, codes=array, id="hidden", **custom)
    (sample,) = delivered(written(tmp_path, [made]))
    check_audio(sample["target"], made.load_custom("target"))
    check_audio(sample["other"], made.load_custom("other"))
    check_audio(sample["whole"], made.load_custom("whole"))
    assert sample["target_rate"] == RATE
    assert sample["codes"] == array.to_dict()
    assert sample["id"] == "c"


def test_cuts_without_recording_are_texts(tmp_path: Path) -> None:
    (sample,) = delivered(written(tmp_path, [MonoCut("c", 0, 1, 0)]))
    assert sample == {"id": "c", "duration": 1, "text": "", "supervisions": []}


def test_relative_recordings_begin_at_the_working_directory_or_at_a_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "lists").mkdir()
    monkeypatch.chdir(tmp_path / "data")
    made = cut(recording(Path(), "mono.wav", RATE), "c", 0.25, 0.5)
    assert made.recording.sources[0].source == "mono.wav"
    recipe = written(tmp_path / "lists", [made])
    check_samples(delivered(recipe), CutSet.from_cuts([made]))
    expected = made.load_audio()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PlayheadError, match="no such file"):
        delivered(recipe)
    (sample,) = delivered(written(tmp_path / "lists", [made], options={"root": "../data"}))
    check_audio(sample["audio"], expected)
    with pytest.raises(PlayheadError, match="`root` is one directory"):
        written(tmp_path / "lists", [made], options={"root": ["../data", "."]})


def test_a_remote_manifest_names_what_is_beside_it_and_no_local_file(tmp_path: Path) -> None:
    local = recording(tmp_path, "mono.wav", RATE)
    beside = cut(local, "c", 0.25, 0.5).to_dict()
    beside["recording"]["sources"][0]["source"] = "mono.wav"
    MEMORY.write("memory://lists/mono.wav", (tmp_path / "mono.wav").read_bytes())
    MEMORY.write("memory://lists/cuts.jsonl", json.dumps(beside).encode())
    recipe = recipe_of(tmp_path, {**SOURCE, "path": "memory://lists/cuts.jsonl"})
    prepare(recipe, workers=1)
    check_audio(delivered(recipe)[0]["audio"], cut(local, "c", 0.25, 0.5).load_audio())
    MEMORY.write("memory://lists/cuts.jsonl", json.dumps(cut(local, "c", 0, 1).to_dict()).encode())
    for options in ({}, {"root": str(tmp_path)}):
        recipe = recipe_of(tmp_path, {**SOURCE, "path": "memory://lists/cuts.jsonl", "options": options})
        prepare(recipe, workers=1)
        with pytest.raises(SampleError, match="rows of a remote file may not name local paths"):
            delivered(recipe)


def bad_lines(folder: Path) -> dict[str, tuple[Any, str]]:
    mono = recording(folder, "mono.wav", 2 * RATE)
    good = cut(mono, "c", 0.25, 0.5)
    plain = good.to_dict()
    return {
        "padding": (good.pad(3.0).tracks[1].cut.to_dict(), "a cut of type PaddingCut cannot be read"),
        "mixed": (good.pad(3.0).to_dict(), "a cut of type MixedCut cannot be read"),
        "speed": (good.perturb_speed(1.1).to_dict(), r"a recording with transforms \(Speed\)"),
        "resampled": (good.resample(8000).to_dict(), r"a recording with transforms \(Resample\)"),
        "not a cut": ({"audio_filepath": "a.wav", "duration": 1}, "the line is not a lhotse cut"),
        "no recording": ({**plain, "recording": 5}, "the recording of a cut is not an object"),
        "no duration": ({**plain, "duration": None}, 'field "duration" is not a length'),
    }


@pytest.mark.parametrize("case", ["padding", "mixed", "speed", "resampled", "not a cut", "no recording", "no duration"])
def test_prepare_refuses_what_is_not_such_a_cut_with_file_and_line(tmp_path: Path, case: str) -> None:
    line, problem = bad_lines(tmp_path)[case]
    good = cut(recording(tmp_path, "mono.wav", RATE), "c", 0.25, 0.5).to_dict()
    (tmp_path / "cuts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in (good, good, line)))
    with pytest.raises(PrepareError, match=rf"cuts.jsonl, line 3, byte [\d,]+: {problem}"):
        prepare(recipe_of(tmp_path, SOURCE), workers=1)


def changed(made: Any, **source: Any) -> dict[str, Any]:
    row: dict[str, Any] = made.to_dict()
    row["recording"]["sources"][0] |= source
    return row


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"type": "command", "source": "cat a.wav"}, 'a recording of type "command" cannot be read'),
        ({"type": "shar", "source": ""}, "lhotse_shar"),
        ({"channels": [1]}, "does not have the channels of its cut"),
        ({"source": "https://example.com/a.wav", "type": "url"}, "is outside the locations"),
        ({"source": "/nowhere/a.wav"}, "/nowhere/a.wav: no such file"),
    ],
)
def test_a_recording_that_cannot_be_read_is_a_bad_sample(tmp_path: Path, change: dict[str, Any], problem: str) -> None:
    made = cut(recording(tmp_path, "mono.wav", RATE), "c", 0.25, 0.5)
    (tmp_path / "cuts.jsonl").write_text(json.dumps(changed(made, **change)))
    recipe = recipe_of(tmp_path, SOURCE)
    prepare(recipe, workers=1)
    with pytest.raises((SampleError, DataError), match=problem) as caught:
        delivered(recipe)
    assert "cuts.jsonl, byte 0" in str(caught.value)


def test_audio_shorter_than_its_cut_is_a_bad_sample_beyond_the_tolerance_of_the_recipe(tmp_path: Path) -> None:
    cuts = [cut(recording(tmp_path, "mono.wav", RATE), "c", 0.75, 0.5)]
    with pytest.raises(SampleError, match=r"mono.wav: the segment is not within the recording"):
        delivered(written(tmp_path, cuts))
    CutSet.from_cuts(cuts).to_file(tmp_path / "cuts.jsonl")
    recipe = recipe_of(tmp_path, SOURCE, sequence="audio", sequence_rate=RATE, length_tolerance=0.25)
    prepare(recipe, workers=1)
    assert [len(sample["audio"]) for sample in delivered(recipe)] == [RATE // 4]
    cuts = [cut(recording(tmp_path, "mono.wav", RATE), "c", 0.0, 1.1)]
    (sample,) = delivered(written(tmp_path, cuts))
    assert len(sample["audio"]) == RATE


def test_channels_in_several_files_are_those_that_lhotse_stacks(tmp_path: Path) -> None:
    """Files of one and of two channels, one of them a little shorter; cuts of all of them, of some, and of one."""
    parts = [
        recording(tmp_path, "a.wav", 2 * RATE, channels=2),
        recording(tmp_path, "b.flac", 2 * RATE - 40),
        recording(tmp_path, "c.wav", 2 * RATE),
    ]
    channels = ([3, 0], [1], [2])
    sources = [AudioSource("file", ids, part.sources[0].source) for ids, part in zip(channels, parts, strict=True)]
    apart = Recording("apart", sources, RATE, 2 * RATE, 2.0, [0, 1, 2, 3])
    cuts = [
        cut(apart, f"c{i}", start, duration, wanted)
        for i, (start, duration, wanted) in enumerate(
            [(0, 2.0, [0, 1, 2, 3]), (0.3, 1.2, [2, 1]), (0.5, 0.25, [0, 2]), (0.1, 1.9, [1, 3]), (1.0, 0.5, 1)]
        )
    ]
    recipe = written(tmp_path, cuts)
    samples = delivered(recipe)
    check_samples(samples, CutSet.from_file(tmp_path / "cuts.jsonl"))
    assert [sample["audio"].ndim for sample in samples] == [2, 2, 2, 2, 1]
    for how, expected in (
        ({"channels": "mono"}, [sample["audio"].reshape(len(sample["audio"]), -1).mean(axis=1) for sample in samples]),
        ({"channels": [0]}, [sample["audio"].reshape(len(sample["audio"]), -1)[:, 0] for sample in samples]),
    ):
        for sample, wanted in zip(delivered(recipe_of(tmp_path, SOURCE, audio=how)), expected, strict=True):
            np.testing.assert_allclose(sample["audio"], wanted, atol=1e-7)
    cropped = recipe_of(tmp_path, SOURCE, augment=[{"type": "crop", "seconds": 0.2, "field": "audio"}])
    prepare(cropped, workers=1)
    for sample, whole in zip(delivered(cropped), samples, strict=True):
        assert len(sample["audio"]) == RATE // 5
        starts = np.flatnonzero((whole["audio"] == sample["audio"][0]).reshape(len(whole["audio"]), -1).all(axis=1))
        assert any(np.array_equal(whole["audio"][at : at + RATE // 5], sample["audio"]) for at in starts)


def test_files_of_a_recording_that_differ_in_rate_or_are_missing_are_a_bad_sample(tmp_path: Path) -> None:
    made = channel_files(tmp_path, "apart", RATE)
    recipe = written(tmp_path, [cut(made, "c", 0, 0.5, [0, 1])])
    soundfile.write(tmp_path / "apart-1.wav", np.zeros(8000), 8000)
    with pytest.raises(SampleError, match="differ in their sampling rates"):
        delivered(recipe)
    (tmp_path / "apart-1.wav").unlink()
    with pytest.raises(DataError, match=r"apart-1.wav: no such file"):
        delivered(recipe)


def test_a_channel_that_the_file_does_not_have_is_a_bad_sample(tmp_path: Path) -> None:
    made = cut(recording(tmp_path, "mono.wav", RATE), "c", 0.25, 0.5, 1)
    (tmp_path / "cuts.jsonl").write_text(json.dumps(changed(made, channels=[0, 1])))
    recipe = recipe_of(tmp_path, SOURCE)
    prepare(recipe, workers=1)
    with pytest.raises(SampleError, match=r"mono.wav: has no channel 1"):
        delivered(recipe)


def test_media_are_left_alone_where_that_is_said(tmp_path: Path) -> None:
    made = cut(recording(tmp_path, "stereo.wav", RATE, channels=2), "c", 0.25, 0.5, 1)
    written(tmp_path, [made])
    recipe = recipe_of(tmp_path, SOURCE, media=False)
    path = str(tmp_path / "stereo.wav")
    expected = Media("audio", path=path, offset=0.25, duration=0.5, base=str(tmp_path), channels=(1,))
    assert delivered(recipe)[0]["audio"] == expected


def test_options_are_checked(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="roots"):
        prepare(recipe_of(tmp_path, {**SOURCE, "options": {"roots": "."}}), workers=1)
