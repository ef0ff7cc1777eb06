from __future__ import annotations

import json
import pickle
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from alm_rows import conversation
from playhead.curate import WindowConfig, build_windows, run
from playhead.curate.curated import Curator
from playhead.curate.rows import RowError
from playhead.errors import DataError

curate_windows = partial(run.curate_windows, workers=1)  # more only where a test says so

PLAIN = {"audio_filepath": "a.wav", "audio_sample_rate": 16000}
LONG = {"start": 0.0, "end": 400.0, "speaker": "a", "metrics": {"bandwidth": 8000}}


def row_with(**changes: Any) -> dict[str, Any]:
    """A row whose third segment is changed; a field set to ... is left out."""
    row = conversation()
    segment = {**row["segments"][2], **changes}
    row["segments"][2] = {key: value for key, value in segment.items() if value is not ...}
    return row


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in conversation().items() if key != name}


BAD_ROWS = [
    (row_with(start=...), "segments[2].start", "missing"),
    (row_with(end=...), "segments[2].end", "missing"),
    (row_with(end=0.5), "segments[2].end", "the end is before the start"),
    (row_with(end=float("nan")), "segments[2].end", "not a finite number"),
    (row_with(end=float("inf")), "segments[2].end", "not a finite number"),
    (row_with(end="12.5"), "segments[2].end", "not a number"),
    (row_with(end=None), "segments[2].end", "not a number"),
    (row_with(start=True), "segments[2].start", "not a number"),
    (row_with(end=10**301), "segments[2].end", "too large"),
    (row_with(start=0.0), "segments[2].start", "segments are not sorted by start"),
    (row_with(speaker=["a"]), "segments[2].speaker", "not a name"),
    (row_with(speaker=True), "segments[2].speaker", "not a name"),
    (row_with(metrics=None), "segments[2].metrics", "not an object"),
    (row_with(metrics=[8000]), "segments[2].metrics", "not an object"),
    (row_with(metrics={"bandwidth": None}), "segments[2].metrics.bandwidth", "not a number"),
    (row_with(metrics={"bandwidth": "8000"}), "segments[2].metrics.bandwidth", "not a number"),
    (row_with(text=3), "segments[2].text", "not text"),
    (without("segments"), "segments", "missing"),
    (without("audio_sample_rate"), "audio_sample_rate", "missing"),
    (without("audio_filepath"), "audio_filepath", "missing"),
    ({**conversation(), "audio_filepath": None}, "audio_filepath", "not text"),
    ({**conversation(), "audio_filepath": 5}, "audio_filepath", "not text"),
    ({**conversation(), "audio_filepath": ["a.wav"]}, "audio_filepath", "not text"),
    ({**conversation(), "audio_filepath": ""}, "audio_filepath", "empty"),
    (row_with(start=-0.5), "segments[2].start", "before the recording"),
    ({**PLAIN, "segments": [{"start": -4, "end": 3}]}, "segments[0].start", "before the recording"),
    ({**conversation(), "segments": {}}, "segments", "not a list"),
    ({**conversation(), "segments": None}, "segments", "not a list"),
    ({**conversation(), "segments": ["a"]}, "segments[0]", "not an object"),
    ({**conversation(), "audio_sample_rate": "16000"}, "audio_sample_rate", "not a number"),
    ({**conversation(), "audio_sample_rate": None}, "audio_sample_rate", "not a number"),
    (
        {**PLAIN, "segments": [{**LONG, "words": [{"word": "a"}]}]},
        "segments[0].words[0].end",
        "missing",
    ),
    ({**PLAIN, "segments": [{**LONG, "words": None}]}, "segments[0].words", "not a list"),
    ({**PLAIN, "segments": [{**LONG, "words": ["a"]}]}, "segments[0].words[0]", "not an object"),
    (
        {**PLAIN, "segments": [{**LONG, "words": [{"word": 3, "end": 1}]}]},
        "segments[0].words[0].word",
        "not text",
    ),
    ([1], "", "not an object"),
    ("text", "", "not an object"),
    (None, "", "not an object"),
]
BAD_LINES = [
    (b'{"segments": [', "", "broken JSON"),
    (b'{"audio_filepath": "\xff"}', "", "not UTF-8"),
    (
        b'{"audio_filepath": "\\ud800", "audio_sample_rate": 16000, "segments": []}',
        "",
        "text with half a surrogate pair",
    ),
    (b"[" * 100_000, "", "broken JSON"),
]


@pytest.mark.parametrize(("row", "field", "reason"), BAD_ROWS)
def test_a_bad_row_is_a_fault_with_its_field_in_the_stage_and_in_the_fast_way(
    row: Any, field: str, reason: str
) -> None:
    for attempt in (
        lambda: build_windows(row, WindowConfig()),
        lambda: Curator(WindowConfig()).curate(json.dumps(row).encode()),
    ):
        with pytest.raises(RowError) as fault:
            attempt()
        assert (fault.value.field, fault.value.reason) == (field, reason)
        assert isinstance(fault.value, DataError)
        assert str(pickle.loads(pickle.dumps(fault.value))) == str(fault.value)  # noqa: S301 - our own


@pytest.mark.parametrize(("line", "field", "reason"), BAD_LINES)
def test_a_line_that_is_no_row_is_a_fault(line: bytes, field: str, reason: str) -> None:
    with pytest.raises(RowError) as fault:
        Curator(WindowConfig()).curate(line)
    assert (fault.value.field, fault.value.reason) == (field, reason)


def lines_with_faults(folder: Path) -> Path:
    """Good rows at lines 1, 4 and at the end; a blank line; every fault; and a good last line without its newline."""
    good = json.dumps(conversation()).encode()
    bad = [json.dumps(row).encode() for row, _, _ in BAD_ROWS] + [line for line, _, _ in BAD_LINES]
    path = folder / "in" / "rows.jsonl"
    path.parent.mkdir()
    path.write_bytes(b"\n".join([good, b"", b" \x0b\xc2\xa0", good, *bad, good]))
    return path


def test_a_bad_row_stops_the_run_with_file_line_and_field(tmp_path: Path) -> None:
    path = lines_with_faults(tmp_path)
    with pytest.raises(DataError, match=r"rows\.jsonl, line 5: segments\[2\]\.start: missing") as refused:
        curate_windows([str(path)], tmp_path / "out")
    assert "--on-error reject" in str(refused.value)
    with pytest.raises(DataError, match="line 5: "):
        curate_windows([str(path)], tmp_path / "out", rows_per_shard=1, force=True, workers=2)


def test_bad_rows_are_written_down_and_counted_and_the_others_are_done(tmp_path: Path) -> None:
    path = lines_with_faults(tmp_path)
    (tmp_path / "in" / "empty.jsonl").touch()
    report = curate_windows([str(tmp_path / "in")], tmp_path / "out", on_error="reject", rows_per_shard=7)
    summary = report.summary
    rejected = [json.loads(line) for line in (tmp_path / "out" / "rejected.jsonl").read_text().splitlines()]
    expected = [("", "no rows in the file"), *((field, reason) for _, field, reason in [*BAD_ROWS, *BAD_LINES])]
    assert [(entry["field"], entry["reason"]) for entry in rejected] == expected
    assert [entry["line"] for entry in rejected] == [1, *range(5, 5 + len(expected) - 1)]
    assert {entry["file"] for entry in rejected[1:]} == {str(path)}
    assert rejected[0]["file"] == str(tmp_path / "in" / "empty.jsonl")
    assert json.loads(rejected[1]["row"]) == BAD_ROWS[0][0]
    assert (summary.num_rows, summary.num_rejected) == (3, len(expected))
    assert sum(summary.rejected.values()) == len(expected)
    assert msgspec.json.decode((tmp_path / "out" / "summary.json").read_bytes())["rejected"] == summary.rejected
    done = b"".join(shard.read_bytes() for shard in sorted((tmp_path / "out").glob("rows-*.jsonl")))
    assert done.count(b"\n") == 3


@pytest.mark.parametrize("rows_per_shard", [1, 2, 3])
def test_empty_files_are_written_down_wherever_they_are(tmp_path: Path, rows_per_shard: int) -> None:
    for number in range(6):
        text = "" if number in (0, 3, 5) else json.dumps(conversation(number)) + "\n"
        (tmp_path / f"{number}.jsonl").write_text(text)
    given = [str(tmp_path / "*.jsonl")]
    summary = curate_windows(given, tmp_path / "out", on_error="reject", rows_per_shard=rows_per_shard).summary
    assert (summary.num_rows, summary.num_shards) == (3, -(-3 // rows_per_shard))
    rejected = (tmp_path / "out" / "rejected.jsonl").read_text().splitlines()
    assert [Path(json.loads(entry)["file"]).stem for entry in rejected] == ["0", "3", "5"]


def test_an_empty_file_stops_the_run(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("\n  \n")
    with pytest.raises(DataError, match=r"empty\.jsonl, line 1: no rows in the file"):
        curate_windows([str(tmp_path / "empty.jsonl")], tmp_path / "out")


@pytest.mark.parametrize("finished", [True, False])
def test_a_run_that_is_to_stop_at_bad_rows_takes_no_shard_that_left_them_out(tmp_path: Path, finished: bool) -> None:
    manifest, out = tmp_path / "a.jsonl", tmp_path / "out"
    manifest.write_text('{"segments": 3}\n' + ("" if finished else "{\n"))
    curate_windows([str(manifest)], out, on_error="reject", rows_per_shard=1, workers=1)
    if not finished:  # as if it had been killed after the first shard
        (out / "curate.json").write_text((out / "curate.json").read_text().replace('"outputs": {', '"other": {'))
    with pytest.raises(DataError, match="left out by an earlier run" if finished else "line 1: segments: not a list"):
        curate_windows([str(manifest)], out, rows_per_shard=1, workers=1)
    report = curate_windows([str(manifest)], out, on_error="reject", rows_per_shard=1, workers=1)
    assert report.changed is not finished
