from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.errors import DataError
from playhead.formats.collect import Collector
from playhead.formats.contract import ScanLimits
from playhead.formats.fields import fast_decoder
from playhead.formats.jsonl import ROW_ID, Jsonl, _line_by_line
from playhead.formats.lengths import whole_number, whole_numbers
from playhead.formats.lines import gather_lines, read_lines
from playhead.formats.schema import IDS, LENGTHS, OUTPUTS, column
from playhead.formats.spec import Match, Spec
from playhead.prepare import prepare
from playhead.recipe.values import Length
from playhead.seeds import hash_text
from playhead.store import all_files, open_file
from scanned import Scanned, joined, read_file, scan_file, shard_of
from small_data import all_lengths, recipe_over, table_of

TOKENS = Spec(length=Length(field="n"))
SECONDS = Spec(length=Length(field="d", unit="seconds"))


def twice(row: dict[str, Any]) -> Any:
    return row["n"] * 2


def scan(path: Path, spec: Spec = TOKENS, chunk_bytes: int = 1 << 19) -> Scanned:
    return scan_file(Jsonl(), "jsonl", path, spec, ScanLimits(chunk_bytes=chunk_bytes))


def refuse(tmp_path: Path, content: bytes, spec: Spec = TOKENS) -> str:
    path = tmp_path / "bad.jsonl"
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        scan(path, spec)
    assert str(path) in str(caught.value)
    return str(caught.value)


white = st.text(" \t\r", max_size=4)
row_texts = st.dictionaries(st.text(max_size=5), st.text(max_size=8), max_size=3).map(
    lambda other: json.dumps({"n": 1} | {f"x{key}": value for key, value in other.items()}, ensure_ascii=False)
)
line_texts = st.one_of(white, st.tuples(white, row_texts, white).map("".join))


@given(
    lines=st.lists(line_texts, max_size=12),
    final=st.sampled_from(["", "\n", "\r\n"]),
    bom=st.booleans(),
    chunk_bytes=st.integers(1, 200),
)
def test_offsets_are_those_of_the_lines_that_are_not_blank(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], final: str, bom: bool, chunk_bytes: int
) -> None:
    data = (b"\xef\xbb\xbf" if bom else b"") + ("\n".join(lines) + final).encode("utf-8", "surrogatepass")
    path = tmp_path_factory.mktemp("lines") / "a.jsonl"
    path.write_bytes(data)
    expected, lengths, position = [], [], 0
    for number, line in enumerate(data.split(b"\n")):
        start = position + (3 if bom and number == 0 else 0)
        content = data[start : position + len(line)]
        if content.strip(b" \t\r"):
            expected.append(start)
            lengths.append(len(content.rstrip(b" \t\r")))
        position += len(line) + 1
    for spec in (Spec(), Spec(length=Length(unit="bytes"))):
        found = scan(path, spec, chunk_bytes)
        assert found.num_rows == len(expected)
        if expected:
            assert found.offsets.tolist() == expected
            assert found.end == len(data)
    assert not expected or found.lengths.tolist() == lengths


values = st.one_of(
    st.integers(-3, 2**33),
    st.floats(width=32),
    st.floats(0, 5).map(lambda value: round(value, 2)),
    st.sampled_from([None, True, "12", 12.0, 1e300, [], {}]),
)


@st.composite
def rows_of_fields(draw: st.DrawFn) -> dict[str, Any]:
    row = {name: draw(values) for name in draw(st.sets(st.sampled_from(["n", "d", "c", "id", "lang"])))}
    good = {"n": 1, "d": 2.3, "id": "y", "lang": "pl"}
    row |= draw(st.sampled_from([{}, {"id": "x"}, {"lang": "en", "id": 7}, good]))
    if draw(st.booleans()):
        row["m"] = draw(st.sampled_from([{}, {"c": 3}, {"c": None}, None, 3]))
    return row


@given(
    rows=st.lists(rows_of_fields(), min_size=1, max_size=5),
    spec=st.builds(
        Spec,
        length=st.sampled_from([None, TOKENS.length, SECONDS.length]),
        output_length=st.sampled_from([None, Length(field="m.c")]),
        ids=st.sampled_from([None, "id", "n"]),
        columns=st.sampled_from([(), ("c",), ("c", "m.c"), ("d",)]),
        matches=st.sampled_from([(), (Match("lang", any_of=("en",)),), (Match("id", pattern="x*"), Match("m"))]),
    ),
)
def test_the_fast_way_finds_what_the_slow_way_finds_or_leaves_it_to_it(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]], spec: Spec
) -> None:
    path = tmp_path_factory.mktemp("fields") / "a.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    decode = fast_decoder(spec)
    file = open_file(all_files(), str(path))
    (lines,) = read_lines(file, ScanLimits())
    fast = None if decode is None else decode(lines)
    try:
        slow = _line_by_line(file, lines, Collector(spec))
    except DataError:
        assert fast is None
        return
    if fast is None:
        return
    assert fast.keys() == slow.keys()
    for name in fast:
        np.testing.assert_array_equal(fast[name], slow[name])


@given(
    st.lists(st.sampled_from(['{"n": 1}', "", '{"n": 22, "x": "longer"}', "  "]), min_size=1, max_size=12),
    st.integers(1, 40),
    st.booleans(),
)
def test_sections_of_any_size_give_the_rows_of_the_whole_file(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], section_bytes: int, final: bool
) -> None:
    path = tmp_path_factory.mktemp("sections") / "a.jsonl"
    path.write_text("\n".join(['{"n": 7}', *lines]) + ("\n" if final else ""))
    divided = Jsonl()
    divided.section_bytes = section_bytes
    how = (TOKENS, all_files(), ScanLimits(chunk_bytes=16))
    shard = shard_of("jsonl", path)
    sections = divided.sections(shard, *how)
    assert [section.first for section in sections] == [*range(0, path.stat().st_size, section_bytes)]
    chunks = [chunk for section in sections for chunk in divided.scan_section(shard, section, *how)]
    whole, found = scan(path), joined(chunks, "jsonl")
    assert found.num_rows == whole.num_rows
    assert found.bounds.tolist() == whole.bounds.tolist()
    assert found.lengths.tolist() == whole.lengths.tolist()


@given(
    lines=st.lists(line_texts, min_size=1, max_size=12),
    bounds=st.lists(st.tuples(st.integers(0, 11), st.integers(1, 4)), max_size=6),
    chunk_bytes=st.integers(1, 120),
)
def test_lines_of_stretches_are_those_that_each_stretch_has(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], bounds: list[tuple[int, int]], chunk_bytes: int
) -> None:
    path = tmp_path_factory.mktemp("jsonl") / "a.jsonl"
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    begins = np.cumsum([0, *(len(line.encode()) + 1 for line in lines)]).tolist()
    stretches = [(begins[low], begins[min(low + count, len(lines))]) for low, count in bounds if low < len(lines)]
    file, limits = open_file(all_files(), str(path)), ScanLimits(chunk_bytes=chunk_bytes)
    firsts, ends = np.array(stretches, np.int64).reshape(-1, 2).T
    found = [row for run in gather_lines(file, limits, firsts, ends) for row in run.rows()]
    each = [row for low, high in stretches for run in read_lines(file, limits, low, end=high) for row in run.rows()]
    assert found == each


def test_the_line_of_an_error_in_a_later_section_is_numbered_from_the_start_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"n": 1}\n' * 10 + '{"n": "x"}\n')
    divided = Jsonl()
    divided.section_bytes = 30
    how = (TOKENS, all_files(), ScanLimits())
    last = divided.sections(shard_of("jsonl", path), *how)[-1]
    with pytest.raises(DataError, match=r"a.jsonl, line 11, byte 90: field"):
        list(divided.scan_section(shard_of("jsonl", path), last, *how))


ordinary_rows = st.fixed_dictionaries(
    {"n": st.integers(0, 2**32 - 2), "d": st.floats(0, 1000), "id": st.integers() | st.text(), "m": st.just({"c": 3})},
    optional={"c": st.none() | st.integers(-9, 9), "lang": st.none() | st.text(), "note": st.text()},
)


@given(
    rows=st.lists(ordinary_rows, min_size=1, max_size=5),
    spec=st.builds(
        Spec,
        length=st.sampled_from([None, TOKENS.length, SECONDS.length]),
        output_length=st.sampled_from([None, Length(field="m.c")]),
        ids=st.sampled_from([None, "id", "n"]),
        columns=st.sampled_from([(), ("c",), ("c", "m.c"), ("d",)]),
        matches=st.sampled_from([(), (Match("lang", any_of=("en",)),), (Match("id", pattern="x*"),)]),
    ),
)
def test_ordinary_rows_go_the_fast_way_whatever_is_asked_of_them(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]], spec: Spec
) -> None:
    path = tmp_path_factory.mktemp("ordinary") / "a.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    decode = fast_decoder(spec)
    assert decode is not None
    (lines,) = read_lines(open_file(all_files(), str(path)), ScanLimits())
    assert decode(lines) is not None


def test_the_fast_way_is_taken_for_ordinary_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    rows = [{"n": 3, "m": {"d": 2.5}, "id": "a", "lang": "en", "c": None}, {"n": 4.0, "m": {"d": 1}, "id": 7}]
    path.write_text("\n\n".join(map(json.dumps, rows)))
    spec = Spec(TOKENS.length, Length(field="m.d", unit="seconds"), "id", ("c",), (Match("lang", any_of=("en",)),))
    decode = fast_decoder(spec)
    assert decode is not None
    (lines,) = read_lines(open_file(all_files(), str(path)), ScanLimits())
    found = decode(lines)
    assert found is not None
    assert found[LENGTHS].tolist() == [3, 4]
    assert found[OUTPUTS].tolist() == [2500, 1000]
    assert found[IDS].tolist() == [hash_text("a"), hash_text("7")]
    assert np.isnan(found[column("c")]).all()
    assert found[column(spec.matches[0].column)].tolist() == [1, 0]


@given(st.lists(st.one_of(st.floats(), st.integers(0, 2**33).map(float)), min_size=1, max_size=4), st.data())
def test_many_lengths_at_once_are_the_lengths_one_by_one(found: list[float], data: st.DataObject) -> None:
    unit = data.draw(st.sampled_from(["tokens", "seconds"]))
    try:
        expected = [whole_number(value, unit, "it") for value in found]
    except DataError:
        assert whole_numbers(np.array(found), unit) is None
        return
    assert whole_numbers(np.array(found), unit).tolist() == expected


@pytest.mark.parametrize(
    "line",
    ['{"n": -1}', '{"n": NaN}', '{"n": Infinity}', "{}", '{"n": true}', '{"n": "7"}', '{"n": 1.5}', '{"n": 4294967296}',
     '{"n": null}', '{"n": [1]}', '{"n": 1%s}' % ("0" * 400)],
)  # fmt: skip
def test_a_length_that_is_none_is_named_with_file_line_offset_and_field(tmp_path: Path, line: str) -> None:
    message = refuse(tmp_path, b'{"n": 1}\n\n{"n": 2}\n' + line.encode() + b'\n{"n": 3}\n')
    assert "line 4, byte 19" in message
    assert '"n"' in message
    assert "found" in message


def test_a_length_in_seconds_may_be_fractional_and_rounds_up_to_milliseconds(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"d": 2.3}\n{"d": 0.0001}\n{"d": 7}\n')
    assert scan(path, SECONDS).lengths.tolist() == [2300, 1, 7000]


def test_a_nested_field_is_reached_by_a_dotted_path(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"meta": {"tokens": 5}}\n{"meta": {"tokens": 6, "x": 1}}\n')
    assert scan(path, Spec(length=Length(field="meta.tokens"))).lengths.tolist() == [5, 6]


def test_a_function_of_the_users_gives_the_length(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"n": 5}\n{"n": 6}\n')
    assert scan(path, Spec(length=Length(function="test_jsonl:twice"))).lengths.tolist() == [10, 12]


def test_a_function_that_fails_is_named_with_the_line(tmp_path: Path) -> None:
    message = refuse(tmp_path, b'{"n": 5}\n{"m": 6}\n', Spec(length=Length(function="test_jsonl:twice")))
    assert "line 2" in message
    assert "KeyError" in message


@pytest.mark.parametrize(
    "line",
    [b'{"n": 1', b'{"n": 1}{"n": 2}', b"[1]", b"7", b'{"n": 01}', b"\x00\x01", b'{"n":', b'"n"', b'{"n": 1},'],
)
def test_a_broken_line_is_named_with_file_line_and_offset(tmp_path: Path, line: bytes) -> None:
    message = refuse(tmp_path, b'{"n": 1}\n' * 3 + b"\n" + line + b'\n{"n": 3}\n')
    assert "line 5, byte 28" in message


def test_an_object_over_two_lines_is_refused_even_where_the_counts_would_match(tmp_path: Path) -> None:
    message = refuse(tmp_path, b'{"n": 1}{"n": 2}\n{"n":\n3}\n')
    assert "line 1, byte 0" in message


def test_nan_in_a_field_that_nobody_asked_for_is_no_matter(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"n": 5, "score": NaN}\n{"n": 6}\n')
    assert scan(path).lengths.tolist() == [5, 6]


def test_a_missing_number_is_nan_and_a_missing_string_does_not_match(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"c": 1.5, "lang": "en"}\n{}\n{"c": null, "lang": 3}\n')
    match = Match("lang", any_of=("en", "pl"))
    found = scan(path, Spec(columns=("c",), matches=(match,)))
    assert found.columns["c"][0] == 1.5
    assert np.isnan(found.columns["c"][1:]).all()
    assert found.columns[match.column].tolist() == [1, 0, 0]


def test_a_number_column_that_holds_text_is_refused(tmp_path: Path) -> None:
    assert "line 1" in refuse(tmp_path, b'{"c": "1.5"}\n', Spec(columns=("c",)))


@pytest.mark.parametrize(
    ("pattern", "accepted"),
    [("*.wav", ["a.wav"]), ("re:^b", ["b.flac"]), ("[ab].*", ["a.wav", "b.flac"]), ("re:v|f", ["a.wav", "b.flac"])],
)
def test_patterns_are_shell_style_or_regular_expressions(pattern: str, accepted: list[str]) -> None:
    accepts = Match("f", pattern=pattern).compile()
    assert [name for name in ("a.wav", "b.flac", "c.txt") if accepts(name)] == accepted


def test_without_a_field_of_ids_a_row_has_its_own_or_its_file_and_number(tmp_path: Path) -> None:
    path = tmp_path / "part.jsonl"
    path.write_text('{"n": 1, "id": "a"}\n\n{"n": 2}\n{"n": 3, "id": 7}\n  \n{"n": 4, "id": null}\n')
    spec = Spec(length=Length(field="n"), ids=ROW_ID)
    for chunk_bytes in (1, 1 << 19):
        found = scan(path, spec, chunk_bytes)
        assert found.ids.tolist() == [hash_text(each) for each in ("a", "part.jsonl:1", "7", "part.jsonl:3")]
        assert found.lengths.tolist() == [1, 2, 3, 4]
    assert "line 1, byte 0" in refuse(tmp_path, b'{"n": 1, "id": [1]}\n', spec)
    (tmp_path / "drop.txt").write_text("part.jsonl:1\n7\n")
    recipe = recipe_over(tmp_path, "part.jsonl", drop_ids=[str(tmp_path / "drop.txt")])
    assert prepare(recipe, workers=1).sources[0].num_unknown_ids == 0
    assert all_lengths(table_of(recipe)) == [1, 4]


def test_a_missing_id_is_refused(tmp_path: Path) -> None:
    assert "line 2" in refuse(tmp_path, b'{"id": "a"}\n{"n": 1}\n', Spec(ids="id"))


def test_a_line_longer_than_memory_allows_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"n": 1}\n' + b"x" * 10_000)
    with pytest.raises(DataError, match="line longer than"):
        scan_file(Jsonl(), "jsonl", path, TOKENS, ScanLimits(chunk_bytes=64, longest_row_bytes=1000))


@given(st.lists(st.dictionaries(st.text(max_size=3), st.integers(), max_size=3), min_size=1, max_size=8))
def test_rows_read_back_are_the_rows_written(tmp_path_factory: pytest.TempPathFactory, rows: list[Any]) -> None:
    path = tmp_path_factory.mktemp("read") / "a.jsonl"
    path.write_text(" \n".join(map(json.dumps, rows)) + "\n\n")
    found = scan(path, Spec(), chunk_bytes=16)
    order = np.arange(len(rows))[::-1]
    assert read_file(Jsonl(), "jsonl", path, found.bounds, order) == rows[::-1]


def test_seconds_far_beyond_the_limit_are_refused_not_overflowed() -> None:
    with pytest.raises(DataError, match="too long"):
        whole_number(1e300, "seconds", "it")
    assert math.isfinite(1e300)


def test_broken_text_is_never_delivered(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"id": "\xe9"}\n')
    with pytest.raises(DataError, match="broken JSON"):
        read_file(Jsonl(), "jsonl", path, np.array([0, 12], np.uint64), np.arange(1))
