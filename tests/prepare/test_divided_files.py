"""Large files scanned in sections, and parts in several files: the same bytes, and nothing done twice."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import track_formats
from playhead import Loader, PrepareError, Recipe
from playhead.formats.jsonl import Jsonl
from playhead.prepare import Progress, parts, prepare
from playhead.prepare.report import Event
from small_data import all_lengths, bytes_of, recipe_over, table_of, write_jsonl

MAPS = """
def blocks(sample):
    return {"text": list(sample["text"])}


def members(sample):
    return sample
"""


def rows(count: int) -> list[dict[str, Any]]:
    return [{"n": i % 7 + 1, "id": f"r{i}", "text": "x" * (i % 11)} for i in range(count)]


def events_of(recipe: Recipe, **how: Any) -> list[Progress]:
    events: list[Event] = []
    prepare(recipe, progress=events.append, **how)
    return [event for event in events if isinstance(event, Progress)]


def test_a_large_file_is_scanned_in_sections_with_the_bytes_of_a_whole_scan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_jsonl(tmp_path / "a.jsonl", rows(200))
    write_jsonl(tmp_path / "b.jsonl", rows(3))
    recipe = recipe_over(tmp_path, ids="id", keep={"n": [2, None]})
    assert len(events_of(recipe)) == 2
    expected = bytes_of(tmp_path / "cache")
    shutil.rmtree(tmp_path / "cache")
    monkeypatch.setattr(Jsonl, "section_bytes", 1000)
    found = events_of(recipe)
    assert len(found) == -(-(tmp_path / "a.jsonl").stat().st_size // 1000) + 1
    assert found[-1].done_bytes == found[-1].total_bytes
    assert bytes_of(tmp_path / "cache") == expected


def test_sections_that_were_finished_are_not_scanned_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", rows(200))
    monkeypatch.setattr(Jsonl, "section_bytes", 1000)
    recipe = recipe_over(tmp_path)
    total = len(events_of(recipe))
    expected = bytes_of(tmp_path / "cache")
    shutil.rmtree(tmp_path / "cache")
    seen: list[Event] = []

    def stop(event: Event) -> None:
        seen.append(event)
        if len(seen) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(recipe, progress=stop)
    assert len(events_of(recipe)) == total - 3
    assert bytes_of(tmp_path / "cache") == expected
    assert all_lengths(table_of(recipe)) == [row["n"] for row in rows(200)]
    assert path.exists()


def test_a_part_in_several_files_is_put_together_and_one_that_is_damaged_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_jsonl(tmp_path / "a.jsonl", rows(3000))
    recipe = recipe_over(tmp_path, ids="id")
    prepare(recipe)
    expected = bytes_of(tmp_path / "cache")
    shutil.rmtree(tmp_path / "cache")
    monkeypatch.setattr(parts, "_MOST_BYTES", 2000)
    written: list[Path] = []
    finish = parts.PartWriter.finish

    def damage(writer: parts.PartWriter) -> parts.PartSummary:
        summary = finish(writer)
        written.extend(sorted((tmp_path / "cache").rglob("*-0.npz")))
        return summary

    monkeypatch.setattr(parts.PartWriter, "finish", damage)
    prepare(recipe, memory_mb=8)
    assert bytes_of(tmp_path / "cache") == expected
    assert written  # there were several files

    def spoil(writer: parts.PartWriter) -> parts.PartSummary:
        summary = finish(writer)
        for path in (tmp_path / "cache").rglob("*-0.npz"):
            path.write_bytes(path.read_bytes()[:-40])
        return summary

    monkeypatch.setattr(parts.PartWriter, "finish", spoil)
    with pytest.raises(PrepareError, match="a scanned part of an earlier run is damaged"):
        prepare(recipe, force=True, memory_mb=8)


@pytest.mark.parametrize("kind", ["blocks", "members"])
def test_rows_in_blocks_and_spans_are_verified_and_measured(tmp_path: Path, kind: str) -> None:
    if kind == "blocks":
        texts = [["a", "bb", "ccc"], ["dddd"], ["e", "ff"]]
        (tmp_path / "a.blocks").write_bytes(track_formats.block_file(texts))
        field, expected = "text", [len(text) for block in texts for text in block]
    else:
        spans = [("x", 5, 3), ("y", 0, 5), ("z", 5, 3)]
        for name, data in track_formats.lines_and_bytes(spans, b"01234567").items():
            (tmp_path / name).write_bytes(data)
        field, expected = "data", [3, 5, 3]
    (tmp_path / "block_maps.py").write_text(MAPS)
    source = {"name": "s", "path": f"*.{kind}", "length": {"measure": True}, "shuffle": "none"}
    values = {"sources": [source], "batching": {"type": "fixed", "size": 2}, "sequence": field, "epochs": 1, "lanes": 1}
    recipe = Recipe.parse({**values, "map": f"block_maps:{kind}", "collate": "list"}, base_dir=tmp_path)
    (report,) = prepare(recipe, measure=True, verify=True).sources
    assert (report.measured_rows, report.verified_rows) == (len(expected), len(expected))
    assert np.array(all_lengths(table_of(recipe))).tolist() == expected
    samples = [sample for batch in Loader(recipe) for sample in batch["samples"]]
    assert [len(sample[field]) for sample in samples] == expected
