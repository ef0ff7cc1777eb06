"""All files of a source have the same columns, of types that give the same values; `prepare` says which do not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from columnar_data import AUDIO_FEATURES, parquet, plain, read_rows, recipe_of, stream, wav
from playhead import Loader
from playhead.errors import PrepareError
from playhead.formats.media import Media
from playhead.index.layout import layout_of
from playhead.index.opened import read_meta
from playhead.prepare import prepare
from playhead.recipe.tree import leaves
from playhead.recipe.values import Recipe

WRITERS: dict[str, Callable[[pa.Table, int], bytes]] = {"parquet": parquet, "arrow": stream}


@pytest.fixture(params=WRITERS)
def write(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Recipe]:
    """Writes tables to a.<format>, b.<format>, ..., and gives a recipe of them."""

    def written(*tables: pa.Table, options: dict[str, Any] | None = None, **fields: Any) -> Recipe:
        for old in tmp_path.glob(f"*.{request.param}"):
            old.unlink()
        for letter, table in zip("abcdef", tables, strict=False):
            (tmp_path / f"{letter}.{request.param}").write_bytes(WRITERS[request.param](table, 5))
        source = {"path": f"*.{request.param}", "options": options or {}}
        return recipe_of(tmp_path, {**source, **fields.pop("source", {})}, **fields)

    return written


def failure(recipe: Recipe) -> str:
    with pytest.raises(PrepareError) as caught:
        prepare(recipe)
    return str(caught.value)


BOTH = pa.table({"x": range(20), "y": [f"y{i}" for i in range(20)]})


def test_a_column_that_one_file_lacks_is_refused_by_prepare_with_both_files(write: Callable[..., Recipe]) -> None:
    for tables, without, other in (((BOTH, BOTH.select(["x"])), "b", "a"), ((BOTH.select(["x"]), BOTH), "a", "b")):
        for fields in ({}, {"on_error": "substitute", "max_bad": 1.0}):
            found = failure(write(*tables, **fields))
            assert f"/{without}." in found.split(': there is no column "y"')[0]
            assert f"/{other}." in found.split("in every file of a source: ")[1].split(" has it")[0]
    recipe = write(BOTH, BOTH.select(["x"]), options={"columns": ["x"]})
    assert read_rows(recipe, [39, 3]) == [{"x": 19}, {"x": 3}]
    found = failure(write(BOTH, BOTH.select(["x"]), options={"columns": ["x", "y"]}))
    assert 'there is no column "y"' in found


def test_a_column_of_rules_that_one_file_lacks_is_refused(write: Callable[..., Recipe]) -> None:
    source = {"keep": {"y": ["y1"]}}
    assert 'there is no column "y"' in failure(
        write(BOTH, BOTH.select(["x"]), options={"columns": ["x"]}, source=source)
    )


def test_a_column_of_another_type_is_refused_by_prepare_with_both_files(write: Callable[..., Recipe]) -> None:
    texts = pa.table({"x": [str(i) for i in range(20)], "y": ["a"] * 20})
    found = failure(write(BOTH, BOTH, texts))
    assert "/c." in found.split(': column "x" has another type than in ')[0]
    assert "/a." in found.split(" has another type than in ")[1].split("\n")[0]
    assert "found     text" in found
    assert "expected  integer, as there" in found


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pa.float64(), pa.int64()),
        (pa.list_(pa.int32()), pa.list_(pa.int64())),
        (pa.struct({"a": pa.int64()}), pa.struct({"a": pa.string()})),
        (pa.struct({"a": pa.int64()}), pa.struct({"a": pa.int64(), "b": pa.int64()})),
        (pa.binary(), pa.string()),
        (pa.timestamp("ms"), pa.timestamp("ms", "UTC")),
        (pa.list_(pa.string()), pa.list_(pa.binary())),
    ],
)
def test_types_whose_values_differ_do_not_agree(write: Callable[..., Recipe], one: Any, other: Any) -> None:
    tables = [pa.table({"x": pa.array([None, None], kind)}) for kind in (one, other)]
    assert 'column "x" has another type than in' in failure(write(*tables))


@pytest.mark.parametrize(
    ("one", "other", "values"),
    [
        (pa.string(), pa.large_string(), ["a", None]),
        (pa.string(), pa.dictionary(pa.int32(), pa.string()), ["a", "a"]),
        (pa.string_view(), pa.string(), ["a" * 20, None]),
        (pa.int32(), pa.int64(), [1, None]),
        (pa.float32(), pa.float64(), [0.5, 1.5]),
        (pa.null(), pa.string(), [None, None]),
        (pa.list_(pa.int16()), pa.large_list(pa.int16()), [[1], []]),
        (
            pa.struct({"a": pa.int8(), "b": pa.string()}),
            pa.struct({"b": pa.large_string(), "a": pa.int64()}),
            [None, {"a": 1, "b": "c"}],
        ),
        (pa.binary(3), pa.binary(), [b"abc", b"def"]),
    ],
)
def test_types_whose_values_are_alike_agree(write: Callable[..., Recipe], one: Any, other: Any, values: Any) -> None:
    for kinds in ((one, other), (other, one)):
        recipe = write(*(pa.table({"x": pa.array(values, kind)}) for kind in kinds))
        assert [plain(sample["x"]) for sample in read_rows(recipe)] == values * 2


def test_a_column_of_nulls_agrees_with_any_but_others_must_agree_past_it(write: Callable[..., Recipe]) -> None:
    nulls, texts, numbers = (pa.table({"x": pa.array(values)}) for values in ([None, None], ["a", "b"], [1, 2]))
    assert [sample["x"] for sample in read_rows(write(nulls, texts, nulls))] == [None, None, "a", "b", None, None]
    found = failure(write(nulls, texts, nulls, numbers))
    assert "/d." in found.split(': column "x"')[0]
    assert "/b." in found.split(" has another type than in ")[1].split("\n")[0]


def test_media_in_one_file_and_none_in_another_do_not_agree(write: Callable[..., Recipe]) -> None:
    held = pa.table({"audio": [{"bytes": wav(10), "path": "x.wav"}] * 2})
    marked = held.replace_schema_metadata(AUDIO_FEATURES)
    assert 'column "audio" has another type than in' in failure(write(marked, held))
    assert type(read_rows(write(marked, marked))[3]["audio"]) is Media
    slow = {b"huggingface": json.dumps({"info": {"features": {"audio": {"_type": "Audio", "sampling_rate": 8000}}}})}
    found = failure(write(marked, held.replace_schema_metadata(slow)))
    assert "found     Audio at 8,000 Hz" in found
    recipe = write(marked, held, options={"features": {"audio": {"type": "Audio"}}})
    assert type(read_rows(recipe)[3]["audio"]) is Media


def test_a_file_that_is_added_later_is_compared_with_those_that_are_indexed(
    write: Callable[..., Recipe], tmp_path: Path
) -> None:
    recipe = write(BOTH, BOTH)
    prepare(recipe)
    assert read_meta(layout_of(leaves(recipe)[0], recipe).directory).types == {"x": "integer", "y": "text"}
    ending = next(tmp_path.glob("a.*")).suffix
    (tmp_path / f"c{ending}").write_bytes(WRITERS[ending[1:]](BOTH.select(["x"]), 5))
    assert 'there is no column "y"' in failure(recipe)
    (tmp_path / f"c{ending}").write_bytes(WRITERS[ending[1:]](BOTH, 5))
    assert prepare(recipe).sources[0].scanned_shards == 1
    assert len(read_rows(recipe)) == 60


def test_what_is_delivered_does_not_depend_on_the_number_of_workers(write: Callable[..., Recipe]) -> None:
    """Columns in another order are no other columns."""
    recipe = write(BOTH, BOTH.select(["y", "x"]), BOTH, lanes=4, epochs=1)
    prepare(recipe)
    alone = [batch["samples"] for batch in Loader(recipe)]
    with Loader(recipe, workers=3) as loader:
        assert [batch["samples"] for batch in loader] == alone


VIEWS = pa.table(
    {
        "text": pa.array(["a" * 20, "b", None]).cast(pa.string_view()),
        "raw": pa.array([b"a" * 20, b"", None]).cast(pa.binary_view()),
        "deep": pa.array([{"a": ["x", None]}, {"a": None}, None], pa.struct({"a": pa.list_(pa.string_view())})),
        "pairs": pa.array([["x", "y"], None, ["z", None]], pa.list_(pa.string_view(), 2)),
        "n": [1, 2, 3],
    }
)


def test_columns_of_views_are_read_and_scanned_like_others(write: Callable[..., Recipe]) -> None:
    fields = {"ids": "n", "keep": {"text": "re:."}, "length": {"field": "raw", "unit": "bytes"}}
    found = read_rows(write(VIEWS.slice(0, 2), source=fields))
    assert [plain(sample) for sample in found] == VIEWS.slice(0, 2).to_pylist()
    assert [plain(sample) for sample in read_rows(write(VIEWS), [2, 0, 1])] == [VIEWS.to_pylist()[i] for i in (2, 0, 1)]


@pytest.mark.parametrize("kind", [pa.list_view(pa.int32()), pa.struct({"a": pa.large_list_view(pa.string())})])
def test_views_of_lists_are_refused_by_prepare_with_the_remedy(write: Callable[..., Recipe], kind: Any) -> None:
    found = failure(write(pa.table({"x": pa.array([None], kind), "n": [1]})))
    assert "has an unsupported type" in found
    assert "list_view" in found
    assert "leave it out with `options: {columns: [...]}`" in found
    recipe = write(pa.table({"x": pa.array([None], kind), "n": [1]}), options={"columns": ["n"]})
    assert read_rows(recipe) == [{"n": 1}]
