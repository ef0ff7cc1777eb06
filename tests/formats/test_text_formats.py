"""Lines of text, texts in JSON lines, and pairs of lines."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from format_worlds import check_worlds, recipe_of
from playhead import Loader
from playhead.errors import DataError, PrepareError
from playhead.formats.contract import ScanLimits, Section
from playhead.formats.rows import Fetch, Places, Rows, Sample, Shard
from playhead.formats.spec import Spec
from playhead.formats.text import Text
from playhead.index.layout import layout_of
from playhead.index.opened import open_index
from playhead.recipe.tree import leaves
from playhead.recipe.values import Length, Recipe, Source
from playhead.store import MEMORY
from playhead.testing import check_format
from scanned import joined
from small_data import all_lengths, table_of

# Every beginning of a line is a line too: a file cut short has no wrong sample.
LINES = ["aaaa", "aaa", "", "aa", "a"]


def samples_of(folder: Path, source: dict[str, Any]) -> list[dict[str, Any]]:
    """Every sample, in file order."""
    recipe = recipe_of(folder, {"shuffle": "none", **source}, lanes=1, collate="list", sequence=None)
    return [sample for batch in Loader(recipe) for sample in batch["samples"]]


def lengths_of(recipe: Recipe) -> list[int]:
    index = open_index(layout_of(leaves(recipe)[0], recipe).directory)
    assert index is not None
    assert index.lengths is not None
    return index.lengths.tolist()


@pytest.mark.parametrize("length", [{}, {"length": {"unit": "bytes"}}, {"length": {"unit": "bytes", "field": "text"}}])
def test_text_keeps_the_contract(length: dict[str, Any]) -> None:
    data = "\n".join(LINES).encode()
    files = {"a.txt": data + b"\n", "b.txt": data.replace(b"\n", b"\r\n")}
    check_format({"path": "*.txt", **length}, files, [{"text": line} for line in LINES] * 2)


def test_compressed_text_keeps_the_contract() -> None:
    data = gzip.compress(("\n".join(LINES) + "\n").encode())
    check_format({"path": "*.txt.gz"}, {"a.txt.gz": data}, [{"text": line} for line in LINES])


def test_text_in_json_lines_keeps_the_contract() -> None:
    rows = [{"content": f"text {i}", "id": i} for i in range(9)]
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    source = {"format": "text_jsonl", "path": "*.jsonl", "options": {"field": "content"}, "ids": "id"}
    length = {"unit": "bytes", "field": "text"}
    samples = [{"text": row["content"]} for row in rows]
    check_format({**source, "length": length}, {"a.jsonl": data, "b.jsonl": data}, samples * 2)


def test_pairs_keep_the_contract() -> None:
    files = {"a.en": b"one\r\n\r\nthree\r\nx", "a.de": b"eins\nzwei\n\ny\n"}
    source = {"format": "text_pair", "path": "*.en", "options": {"second": "*.de", "names": ["en", "de"]}}
    pairs = [("one", "eins"), ("", "zwei"), ("three", ""), ("x", "y")]
    samples = [{"en": en, "de": de} for en, de in pairs]
    check_format({**source, "length": {"unit": "bytes", "field": "de"}, "keep": {}}, files, samples)


LINE = st.text(st.characters(exclude_characters="\n\ufeff", exclude_categories=["Cs"]))


def read_back(shard: Shard, bounds: Any) -> list[Sample]:
    order = np.arange(len(bounds) - 1)
    fetch = Fetch(MEMORY, {shard.name: MEMORY.stamp(shard.name)})
    rows = Rows([shard] * len(order), order, {"text": Places(bounds[:-1], bounds[1:])}, fetch)
    return list(Text().open(Source(name="a", path=[shard.name]), MEMORY).read(rows))


@given(st.lists(LINE, min_size=1), st.booleans(), st.booleans(), st.integers(1, 30), st.integers(1, 200))
@settings(max_examples=80, deadline=None)
def test_lines_are_those_that_were_written(
    texts: list[str], windows: bool, ended: bool, chunk_bytes: int, section_bytes: int
) -> None:
    """Whatever the line ends, the size of the pieces that are read, and the sections that are scanned apart."""
    texts = [text.rstrip("\r") for text in texts]
    end = "\r\n" if windows else "\n"
    content = (end.join(texts) + (end if ended or not texts[-1] else "")).encode()
    shard = Shard((("text", MEMORY.write("memory://written.txt", content)),))
    spec, limits = Spec(length=Length(unit="bytes")), ScanLimits(chunk_bytes=chunk_bytes)
    whole = joined(list(Text().scan(shard, spec, MEMORY, limits)), "text")
    assert whole.lengths.tolist() == [len(text.encode()) for text in texts]
    assert [sample["text"] for sample in read_back(shard, whole.bounds)] == texts
    firsts = range(0, len(content), section_bytes)
    sections = [Section(first, min(first + section_bytes, len(content))) for first in firsts]
    parts = [chunk for part in sections for chunk in Text().scan_section(shard, part, spec, MEMORY, limits)]
    assert joined(parts, "text").bounds.tolist() == whole.bounds.tolist()
    assert joined(parts, "text").lengths.tolist() == whole.lengths.tolist()


def test_a_byte_order_mark_is_not_part_of_the_first_line(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone\ntwo\n")
    assert samples_of(tmp_path, {"path": "a.txt"}) == [{"text": "one"}, {"text": "two"}]


def test_rows_are_kept_by_their_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n\ntwo\nthree\n")
    assert samples_of(tmp_path, {"path": "a.txt", "keep": {"text": "re:."}}) == [
        {"text": text} for text in ("one", "two", "three")
    ]


def test_a_line_that_is_not_utf8_is_named_by_a_scan_that_reads_it(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("één\ntwee\n".encode() + b"dr\xfbe\n")
    with pytest.raises(PrepareError, match=r"a\.txt, line 3: not UTF-8"):
        recipe_of(tmp_path, {"path": "a.txt", "keep": {"text": "*"}})


@pytest.mark.parametrize("source", [{"path": "a.txt"}, {"path": "b.txt", "format": "text_pair", "second": "a.txt"}])
def test_a_line_that_is_not_utf8_is_named_when_it_is_read(tmp_path: Path, source: dict[str, Any]) -> None:
    (tmp_path / "a.txt").write_bytes("één\ntwee\n".encode() + b"dr\xfbe\n")
    (tmp_path / "b.txt").write_bytes(b"1\n2\n3\n")
    given = dict(source)
    options = {"options": {"second": given.pop("second")}} if "second" in given else {}
    with pytest.raises(DataError, match=r"a\.txt, line 3: not UTF-8"):
        samples_of(tmp_path, given | options)


def test_the_field_of_json_lines_may_be_inside_an_object(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"a": {"b": "one"}, "n": 2}\n\n{"a": {"b": "two"}, "n": 3}\n')
    source = {"path": "a.jsonl", "format": "text_jsonl", "options": {"field": "a.b"}, "keep": {"n": [3, None]}}
    assert samples_of(tmp_path, source) == [{"text": "two"}]


def test_text_names_the_field_that_is_delivered_in_rules_lengths_and_ids(tmp_path: Path) -> None:
    rows = [{"content": f"line {i}", "text": f"other {i}", "n": i} for i in range(12)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = {"path": "a.jsonl", "format": "text_jsonl", "options": {"field": "content"}}
    for keep in ({"text": "line 1*"}, {"content": "line 1*"}, {"text": "line 1*", "content": "line 1*", "n": [0, 11]}):
        found = samples_of(tmp_path, {**source, "keep": keep})
        assert [sample["text"] for sample in found] == ["line 1", "line 10", "line 11"]
    (tmp_path / "drop.txt").write_text("line 3\nother 4\n")
    found = samples_of(tmp_path, {**source, "ids": "text", "drop_ids": "drop.txt"})
    assert [sample["text"] for sample in found] == [row["content"] for row in rows if row["n"] != 3]
    for unit in ("characters", "bytes"):
        length = {"field": "text", "unit": unit}
        recipe = recipe_of(tmp_path, {**source, "length": length, "keep": {"content": "line 1*"}}, sequence=None)
        assert all_lengths(table_of(recipe)) == [6, 7, 7]


@pytest.mark.parametrize("row", ['{"txt": "a"}', '{"text": 5}', '{"text": null}'])
def test_a_row_without_the_text_is_named(tmp_path: Path, row: str) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n' + row + "\n")
    with pytest.raises(DataError, match=r'a\.jsonl, byte 16.*has no text in field "text"'):
        samples_of(tmp_path, {"path": "a.jsonl", "format": "text_jsonl"})


def test_pairs_of_many_files_are_aligned_by_order(tmp_path: Path) -> None:
    for part in range(3):
        (tmp_path / f"{part}.en").write_text("".join(f"en {part} {i}\n" for i in range(part + 1)))
        (tmp_path / f"{part}.de").write_text("".join(f"de {part} {i}\n" for i in range(part + 1)))
    source = {"path": "{0..2}.en", "format": "text_pair", "options": {"second": "{0..2}.de"}}
    found = samples_of(tmp_path, source)
    assert found == [{"source": f"en {p} {i}", "target": f"de {p} {i}"} for p in range(3) for i in range(p + 1)]


def test_pairs_are_found_whatever_the_memory(tmp_path: Path) -> None:
    (tmp_path / "a.en").write_text("".join(f"{'x' * (i % 90)}\n" for i in range(30_000)))
    (tmp_path / "a.de").write_text("".join(f"{'y' * (i % 7)}\n" for i in range(30_000)))
    length = {"unit": "bytes", "field": "source"}
    source = {"path": "a.en", "format": "text_pair", "options": {"second": "a.de"}, "length": length}
    recipe = recipe_of(tmp_path, source, sequence=None)
    assert lengths_of(recipe) == [i % 90 for i in range(30_000)]


@pytest.mark.parametrize("second", ["1\n2\n", "1\n2\n3\n4", "1\n2\n3\n\n", ""])
def test_files_of_different_numbers_of_lines_are_refused(tmp_path: Path, second: str) -> None:
    (tmp_path / "a.en").write_text("1\n2\n3\n")
    (tmp_path / "a.de").write_text(second)
    with pytest.raises(PrepareError, match="has a different number of lines") as caught:
        recipe_of(tmp_path, {"path": "a.en", "format": "text_pair", "options": {"second": "a.de"}})
    assert f"3 lines and {len(second.splitlines())}" in str(caught.value)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "do not name two texts"),
        ({"second": "a.de", "names": ["a", "a"]}, "do not name two texts"),
        ({"second": "*.en"}, "name different numbers of files"),
        ({"second": "b.de"}, "no such file"),
    ],
)
def test_options_that_name_no_pair_are_refused(tmp_path: Path, options: dict[str, Any], problem: str) -> None:
    for name in ("a.en", "b.en", "a.de"):
        (tmp_path / name).write_text("1\n")
    with pytest.raises(PrepareError, match=problem):
        recipe_of(tmp_path, {"path": "a.en", "format": "text_pair", "options": options})


@pytest.mark.parametrize("name", ["text", "text_jsonl", "text_pair"])
def test_ranks_are_disjoint_and_complete_and_resume_on_another_world_size(tmp_path: Path, name: str) -> None:
    texts = [f"line {i}" for i in range(137)]
    write = json.dumps if name == "text_jsonl" else str
    rows = [write({"text": text} if name == "text_jsonl" else text) for text in texts]
    for path in ("a.in", "b.in"):
        (tmp_path / path).write_text("\n".join(rows) + "\n")
    options = {"options": {"second": "b.in"}} if name == "text_pair" else {}
    source = {"path": "a.in", "format": name, **options}
    check_worlds(recipe_of(tmp_path, source, sequence=None), len(texts))
