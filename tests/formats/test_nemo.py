"""NeMo manifests: the rows they have, and the audio that each row names, bit for bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from format_worlds import check_worlds, recipe_of
from nemo_data import RATE, AnyPlace, as_floats, delivered, encoded, recipe_in, signal
from playhead import Loader, PrepareError, SampleError
from playhead.feed.state import PayloadWarning
from playhead.prepare import prepare
from playhead.testing import check_format
from small_data import table_of, write_jsonl


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


def test_manifests_keep_the_contract() -> None:
    rows = [{"audio_filepath": f"{i}.wav", "duration": i / 4, "offset": float(i), "text": f"ä{i}"} for i in range(5)]
    lines = [json.dumps(row) for row in rows]
    lines.insert(2, '{"audio_filepath": "x.wav", "_skipme": "noisy"}')
    samples = [
        {**row, "audio": AnyPlace(path=row["audio_filepath"], offset=row["offset"], duration=row["duration"])}
        for row in rows
    ]
    source = {"format": "nemo", "path": "*.json", "ids": "text", "keep": {"text": "*", "duration": [0, 9]}}
    check_format(source, {"a.json": "\n".join(lines).encode()}, samples)


def test_ids_are_those_of_the_rows_or_else_paths_with_offsets(manifest: Path) -> None:
    rows = [json.loads(line) for line in manifest.read_text().splitlines()]
    rows[4]["id"], rows[6]["id"] = "own", 7
    write_jsonl(manifest, rows)
    (manifest.parent / "drop.txt").write_text("sub/b.wav@1.0\na.wav\n7\n")
    source = {"format": "nemo", "path": "manifest.json", "drop_ids": "drop.txt"}
    recipe = recipe_in(manifest.parent, source, fields=["text", "audio"])
    assert [row["text"] for row in delivered(recipe)] == ["start of b", "rounded up"]
    (manifest.parent / "drop.txt").write_text("c.flac\n")  # both of its rows have ids of their own
    report = prepare(recipe, workers=1)
    assert [report.sources[0].selected_rows, report.sources[0].num_unknown_ids] == [5, 1]


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


def test_only_a_newline_ends_a_line_of_text(manifest: Path) -> None:
    lines = ["a\rb", "two\u2028y", "three\x0cz\x85q\r", "four\x0b", "five"]
    (manifest.parent / "lines.txt").write_bytes("\n".join(lines).encode())
    expected = ["a\rb", "two\u2028y", "three\x0cz\x85q", "four\x0b", "five"]
    extra = [{"name": "next", "path": "lines.txt"}, {"name": "any", "type": "text_sample", "path": "lines.txt"}]
    source = {"format": "nemo", "path": "manifest.json", "options": {"extra_fields": extra}}
    rows = delivered(recipe_in(manifest.parent, source, fields=["next", "any", "audio"], epochs=40))
    assert [row["next"] for row in rows[:5]] == expected
    assert {row["any"] for row in rows} == set(expected)


def test_other_texts_to_draw_from_are_noticed_when_a_run_goes_on(manifest: Path) -> None:
    prompts = manifest.parent / "prompts.txt"
    prompts.write_text("say it\nwrite it\n")
    extra = [{"name": "prompt", "type": "text_sample", "path": "prompts.txt"}]
    source = {"format": "nemo", "path": "manifest.json", "options": {"extra_fields": extra}}
    recipe = recipe_in(manifest.parent, source, fields=["prompt", "audio"])
    state = Loader(recipe).state_dict()
    prompts.write_text("say it\nwrite it\n")
    Loader(recipe).load_state_dict(state)
    prompts.write_text("say it\nspell it\n")
    with pytest.warns(PayloadWarning, match="other files that samples depend on"):
        Loader(recipe).load_state_dict(state)


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


def test_the_recipe_says_how_much_shorter_than_its_row_audio_may_be(manifest: Path) -> None:
    rows = [{"audio_filepath": "a.wav", "duration": 1.125 + short, "text": ""} for short in (0.3, 0.001)]
    write_jsonl(manifest, rows)
    source = {"format": "nemo", "path": "manifest.json"}
    for tolerance, num_passing in ((0.5, 2), (0.25, 0), (0.31, 2)):
        recipe = recipe_in(manifest.parent, source, fields=["audio"], length_tolerance=tolerance)
        if num_passing:
            assert [len(row["audio"]) for row in delivered(recipe)] == [9_000] * num_passing
        else:
            with pytest.raises(SampleError, match="not within the recording") as caught:
                delivered(recipe)
            assert "1.425 s" in caught.value.found
            assert f"1.125 s, which may be passed by {tolerance} s" in caught.value.expected
    write_jsonl(manifest, [rows[1], rows[1]])
    exact = recipe_in(manifest.parent, source, fields=["audio"], length_tolerance=0, on_length_mismatch="truncate")
    assert [len(row["audio"]) for row in delivered(exact)] == [9_000] * 2  # a millisecond may be rounding


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"duration": 1, "text": "x"}, 'the row has no "audio_filepath"'),
        ({"audio_filepath": "a.wav", "duration": 1, "offset": "late"}, '"offset" is not a valid time'),
        ({"audio_filepath": "a.wav", "duration": 1, "offset": 5}, "not within the recording"),
        ({"audio_filepath": "gone.wav", "duration": 1}, "no such file"),
        ({"audio_filepath": "manifest.json", "duration": 1}, "unsupported audio format"),
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
