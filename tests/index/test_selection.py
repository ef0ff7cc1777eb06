from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead import Loader
from playhead.errors import DataError, NotPreparedError, PrepareError
from playhead.fingerprint import ArrayDigest
from playhead.prepare import prepare
from playhead.recipe.values import Bucket, Fixed, Length, Pack, Recipe
from playhead.store import MEMORY, CountingFiles, all_files
from small_data import all_lengths, recipe_over, table_of, write_jsonl, write_tar

rows = st.fixed_dictionaries(
    {"n": st.integers(0, 300)},
    optional={
        "d": st.sampled_from([0, 0.1, 1.5, 40, None]),
        "lang": st.sampled_from(["en", "pl", "de", 3]),
        "id": st.sampled_from(["a", "b", "c"]),
    },
)
keeps = st.fixed_dictionaries(
    {},
    optional={
        "n": st.sampled_from([[10, 200], [None, 100], [50, None]]),
        "d": st.sampled_from([[0.1, 40], [None, 0.1]]),
        "n/d": st.sampled_from([[5, 1000], [None, 100]]),
        "@length": st.sampled_from([[10, 200], [None, 100], [50.5, None]]),
        "@length/d": st.sampled_from([[5, 1000]]),
        "lang": st.sampled_from([["en"], ["pl", "de"], "e*", "re:[pd]"]),
    },
)


def accepts(key: str, rule: Any, row: dict[str, Any]) -> bool:
    """A rule, the obvious way."""
    if key == "lang":
        value = row.get("lang")
        texts = {"e*": {"en"}, "re:[pd]": {"pl", "de"}}.get(rule) if isinstance(rule, str) else set(rule)
        return value in texts
    names = key.replace("@length", "n").split("/")
    numbers = [row.get(name) for name in names]
    if None in numbers or (len(numbers) == 2 and numbers == [0, 0]):
        return False
    value = numbers[0] if len(numbers) == 1 else (math.inf if numbers[1] == 0 else numbers[0] / numbers[1])
    low, high = rule
    return (low is None or value >= low) and (high is None or value <= high)


@given(
    shards=st.lists(st.lists(rows, min_size=1, max_size=12), min_size=1, max_size=3),
    keep=keeps,
    limit=st.integers(0, 300),
)
def test_a_selection_is_what_the_rules_leave_with_each_loss_charged_in_order(
    tmp_path_factory: pytest.TempPathFactory, shards: list[list[dict[str, Any]]], keep: dict[str, Any], limit: int
) -> None:
    folder = tmp_path_factory.mktemp("select")
    for i, shard in enumerate(shards):
        write_jsonl(folder / f"{i}.jsonl", shard)
    recipe = recipe_over(folder, keep=keep, batching=Fixed(size=2, max_length=max(limit, 1), overlong="drop"))
    left = [[dict(row, raw=(i, j)) for j, row in enumerate(shard)] for i, shard in enumerate(shards)]
    expected = []
    rules = [(key, lambda row, key=key, rule=rule: accepts(key, rule, row)) for key, rule in keep.items()]
    for _, test in [*rules, ("overlong", lambda row: row["n"] <= max(limit, 1))]:
        gone = [row["n"] for shard in left for row in shard if not test(row)]
        left = [[row for row in shard if test(row)] for shard in left]
        expected.append((len(gone), sum(gone)))
    lengths = [row["n"] for shard in left for row in shard]
    if not lengths:
        with pytest.raises(PrepareError, match="no row is left"):
            prepare(recipe)
        with pytest.raises(DataError, match="no row is left"):
            table_of(recipe)
        return
    report = prepare(recipe).sources[0]
    assert [(loss.num_rows, loss.length) for loss in report.losses] == expected
    table = table_of(recipe)
    digest = ArrayDigest()
    digest.update(np.array(lengths, dtype=np.uint32))
    assert all_lengths(table) == lengths
    assert (table.num_rows, table.length_sum) == (len(lengths), sum(lengths))
    assert table.lengths_digest == digest.hexdigest()
    assert table.shard_rows.tolist() == [len(shard) for shard in left]
    assert table.longest == (lengths.index(max(lengths)), max(lengths))
    assert table.histogram.length_sum == sum(lengths)
    flat = [row["raw"] for shard in left for row in shard]
    starts = [sum(map(len, shards[:i])) for i in range(len(shards))]
    assert table.raw_rows(np.arange(len(flat))).tolist() == [starts[i] + j for i, j in flat]


def test_a_limit_that_no_binary_number_equals_still_belongs_to_the_range(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", [{"n": i, "d": d} for i, d in enumerate([0.7, 0.9, 1.1, 1.11, None])])
    recipe = recipe_over(tmp_path, keep={"d": [0.7, 1.1]})
    prepare(recipe)
    assert all_lengths(table_of(recipe)) == [0, 1, 2]


def test_planned_lengths_are_kept_in_the_units_of_the_recipe(tmp_path: Path) -> None:
    rows = [(0.3, 3), (0.299, 3), (40.0, 400), (40.001, 400), (10.0, 126), (10.0, 125)]
    write_jsonl(tmp_path / "a.jsonl", [{"d": seconds, "t": tokens} for seconds, tokens in rows])
    recipe = recipe_over(
        tmp_path,
        length=Length(field="d", unit="seconds"),
        output_length=Length(field="t"),
        keep={"@length": [0.3, 40], "@output_length": [None, 400], "@output_length/@length": [0, 12.5]},
    )
    report = prepare(recipe).sources[0]
    assert all_lengths(table_of(recipe)) == [300, 40_000, 10_000]
    assert [(loss.rule, loss.num_rows) for loss in report.losses] == [
        ("keep @length: 0.3..40", 2),
        ("keep @output_length: ..400", 0),
        ("keep @output_length/@length: 0..12.5", 1),
    ]


def test_a_length_that_no_32_bit_fraction_equals_is_compared_exactly(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", [{"n": 2**24}, {"n": 2**24 + 1}])
    recipe = recipe_over(tmp_path, keep={"@length": [None, 2**24]})
    prepare(recipe)
    assert all_lengths(table_of(recipe)) == [2**24]


def test_another_limit_on_a_length_needs_no_new_scan(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", [{"n": i} for i in range(9)])
    assert prepare(recipe_over(tmp_path, keep={"@length": [None, 5]})).sources[0].scanned_shards == 1
    assert prepare(recipe_over(tmp_path, keep={"@length": [None, 6]})).sources[0].scanned_shards == 0


def test_no_bitmap_is_kept_where_every_row_is(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", [{"n": i} for i in range(5)])
    for keep in ({}, {"n": [0, 9]}):
        recipe = recipe_over(tmp_path, keep=keep)
        prepare(recipe)
        assert table_of(recipe).selection.bitmap is None


def ids_recipe(folder: Path, **fields: Any) -> Recipe:
    write_jsonl(folder / "a.jsonl", [{"n": i, "id": name} for i, name in enumerate("abcab")])
    return recipe_over(folder, **({"ids": "id"} | fields))


def test_listed_ids_drop_all_their_rows_and_unknown_ones_are_counted(tmp_path: Path) -> None:
    bad = tmp_path / "bad.txt"
    bad.write_text("# known to be bad\na\n\n  c \nnobody\n")
    recipe = ids_recipe(tmp_path, drop_ids=[str(bad)])
    report = prepare(recipe).sources[0]
    assert report.num_unknown_ids == 1
    assert [(loss.rule, loss.num_rows, loss.length) for loss in report.losses] == [("drop_ids", 3, 5)]
    assert all_lengths(table_of(recipe)) == [1, 4]


def test_a_changed_list_of_ids_is_another_selection_of_the_same_index(tmp_path: Path) -> None:
    bad = tmp_path / "bad.txt"
    bad.write_text("a\n")
    recipe = ids_recipe(tmp_path, drop_ids=[str(bad)])
    prepare(recipe)
    bad.write_text("b\n")
    report = prepare(recipe).sources[0]
    assert report.changed
    assert report.scanned_shards == 0
    assert all_lengths(table_of(recipe)) == [0, 2, 3]


def test_keys_of_tars_can_be_dropped_without_saying_ids(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", [(f"k{i}.txt", b"x" * i) for i in range(4)])
    (tmp_path / "bad.txt").write_text("k2\n")
    recipe = recipe_over(tmp_path, "*.tar", length=Length(unit="bytes"), drop_ids=[str(tmp_path / "bad.txt")])
    prepare(recipe)
    assert all_lengths(table_of(recipe)) == [0, 1, 3]


def test_listed_rows_are_raw_rows(tmp_path: Path) -> None:
    (tmp_path / "rows.txt").write_text("4\n0 # not a comment\n".replace(" # not a comment", ""))
    recipe = ids_recipe(tmp_path, drop_rows=[str(tmp_path / "rows.txt")])
    prepare(recipe)
    assert all_lengths(table_of(recipe)) == [1, 2, 3]


@pytest.mark.parametrize("text", ["5", "-1", "x", "1.5"])
def test_a_listed_row_that_does_not_exist_is_named_with_file_and_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "rows.txt").write_text(f"# rows\n0\n{text}\n")
    with pytest.raises(PrepareError, match=r"rows.txt, line 3"):
        prepare(ids_recipe(tmp_path, drop_rows=[str(tmp_path / "rows.txt")]))


def test_a_list_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(PrepareError, match=r"nowhere.txt: no such file"):
        prepare(ids_recipe(tmp_path, drop_ids=[str(tmp_path / "nowhere.txt")]))


def test_lists_are_read_through_the_storage_by_prepare_and_by_loaders(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", [{"n": 1, "id": name} for name in "abcd"])
    lists = {"drop_ids": MEMORY.write(f"memory://{tmp_path.name}/ids", b"b\n"), "drop_rows": "memory://rows"}
    source = {"name": "a", "path": "a.jsonl", "length": "n", "ids": "id", "shuffle": "none", **lists}
    values = {"sources": [source], "batching": {"type": "fixed", "size": 1}, "epochs": 1, "collate": "list"}
    recipe = Recipe.parse({**values, "sequence": None, "lanes": 1}, base_dir=tmp_path)
    with pytest.raises(PrepareError, match=r"memory://rows: no such file"):
        prepare(recipe)
    MEMORY.write("memory://rows", b"# one\n3\n")
    prepare(recipe)
    files = CountingFiles(all_files())
    assert [sample["id"] for batch in Loader(recipe, files=files) for sample in batch["samples"]] == ["a", "c"]
    assert files.counts["stamp"] == 2 * 2  # the plan and the reader each read two lists, and stamp no shard
    MEMORY.write("memory://rows", b"0\n")
    with pytest.raises(NotPreparedError, match="its selection is missing, or older than the recipe"):
        Loader(recipe)


def test_a_limit_on_seconds_drops_by_milliseconds(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", [{"d": 1.0}, {"d": 2.3}, {"d": 2.301}])
    length = Length(field="d", unit="seconds")
    recipe = recipe_over(tmp_path, length=length, batching=Pack(max_length=2.3, overlong="drop"))
    prepare(recipe)
    assert all_lengths(table_of(recipe)) == [1000, 2300]


def test_outputs_beyond_two_dimensional_buckets_are_dropped(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", [{"n": 5, "o": o} for o in (1, 8, 9)])
    batching = Bucket(edges=[(10, 8)], size=2, overlong="drop")
    recipe = recipe_over(tmp_path, output_length=Length(field="o"), batching=batching)
    prepare(recipe)
    table = table_of(recipe)
    assert table.outputs_of(np.arange(2)).tolist() == [1, 8]
    assert table.longest_output == (1, 8)
    assert table.output_histogram.num_rows == 2
