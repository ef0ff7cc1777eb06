from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from playhead import Loader
from playhead.errors import PrepareError
from playhead.prepare import prepare
from playhead.recipe.values import Length, Recipe
from small_data import all_lengths, recipe_over, table_of, write_jsonl, write_tar


def refuse(folder: Path, *arguments: Any, **fields: Any) -> str:
    with pytest.raises(PrepareError) as caught:
        prepare(recipe_over(folder, *arguments, **fields))
    return str(caught.value)


def test_every_failing_shard_is_listed_and_the_others_are_kept(tmp_path: Path) -> None:
    for i in range(4):
        write_jsonl(tmp_path / f"{i}.jsonl", [{"n": i}])
    (tmp_path / "1.jsonl").write_text('{"n": 1}\n{"n": \n')
    (tmp_path / "3.jsonl").write_text('{"n": -3}\n')
    message = refuse(tmp_path)
    assert "2 problems" in message
    assert f"{tmp_path / '1.jsonl'}, line 2, byte 9: broken JSON" in message
    assert f"{tmp_path / '3.jsonl'}, line 1, byte 0" in message
    write_jsonl(tmp_path / "1.jsonl", [{"n": 1}])
    write_jsonl(tmp_path / "3.jsonl", [{"n": 3}])
    recipe = recipe_over(tmp_path)
    assert prepare(recipe).sources[0].scanned_shards == 2
    assert all_lengths(table_of(recipe)) == [0, 1, 2, 3]


def test_a_row_nested_too_deeply_is_named_with_file_and_line(tmp_path: Path) -> None:
    deep = "[" * 5_000 + "]" * 5_000
    (tmp_path / "1.jsonl").write_text(f'{{"n": 1}}\n{{"n": 2, "deep": {deep}}}\n')
    message = refuse(tmp_path)
    assert f"{tmp_path / '1.jsonl'}, line 2, byte 9: the row is nested too deeply" in message
    assert "remove the line" in message


def test_a_member_of_a_tar_nested_too_deeply_is_named_with_file_and_sample(tmp_path: Path) -> None:
    deep = b'{"n": 2, "deep": ' + b"[" * 5_000 + b"]" * 5_000 + b"}"
    path = write_tar(tmp_path / "1.tar", [("a.json", b'{"n": 1}'), ("b.json", deep)])
    message = refuse(tmp_path, "*.tar", length=Length(field="json.n"))
    assert f'{path}, byte 1,024, sample "b": member json is nested too deeply' in message


def test_of_many_failures_the_first_twenty_are_shown(tmp_path: Path) -> None:
    for i in range(25):
        (tmp_path / f"{i:02d}.jsonl").write_text("x\n")
    message = refuse(tmp_path)
    assert "25 problems" in message
    assert message.count("broken JSON") == 20
    assert "and 5 more" in message


@pytest.mark.parametrize("content", ["", "\n\n  \n"])
def test_a_source_without_a_row_is_refused_by_the_name_of_a_file(tmp_path: Path, content: str) -> None:
    (tmp_path / "1.jsonl").write_text(content)
    assert f"{tmp_path / '1.jsonl'}: has no rows" in refuse(tmp_path)
    (tmp_path / "2.jsonl").write_text(content)
    message = refuse(tmp_path)
    assert f"{tmp_path / '1.jsonl'}: has no rows" in message
    assert "nor in 1 others" in message


@pytest.mark.parametrize("content", ["", "\n\n  \n"])
def test_files_without_rows_beside_others_are_named_and_cost_nothing(tmp_path: Path, content: str) -> None:
    rows = [{"n": i + 1, "id": i} for i in range(5)]
    empty = [tmp_path / f"{i}.jsonl" for i in (0, 2, 4)]
    for path in empty:
        path.write_text(content)
    write_jsonl(tmp_path / "1.jsonl", rows[:2])
    write_jsonl(tmp_path / "3.jsonl", rows[2:])
    recipe = recipe_over(tmp_path, ids="id", shuffle="shards", shuffle_group=2)
    (report,) = prepare(recipe, workers=1).sources
    assert (report.num_rows, report.num_shards) == (5, 5)
    assert report.empty_shards == tuple(map(str, empty))
    assert all_lengths(table_of(recipe)) == [1, 2, 3, 4, 5]
    before = table_of(recipe).index.locate(np.arange(5)).places["jsonl"].firsts.tolist()
    write_jsonl(tmp_path / "5.jsonl", [{"n": 6, "id": 5}])  # the others are taken from the index as it is
    (report,) = prepare(recipe, workers=1).sources
    assert (report.num_rows, report.scanned_shards, len(report.empty_shards)) == (6, 1, 3)
    assert all_lengths(table_of(recipe)) == [1, 2, 3, 4, 5, 6]
    assert table_of(recipe).index.locate(np.arange(5)).places["jsonl"].firsts.tolist() == before
    delivered = Recipe.parse({**recipe.to_dict(), "epochs": 1, "sequence": None, "collate": "list"})
    prepare(delivered, workers=1)
    found = [sample["id"] for batch in Loader(delivered) for sample in batch["samples"]]
    assert sorted(found) == [0, 1, 2, 3, 4, 5]


def test_an_empty_tar_beside_others_is_named_and_one_without_its_end_is_refused(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", [("a.txt", b"1")])
    path = write_tar(tmp_path / "b.tar", [])
    (report,) = prepare(recipe_over(tmp_path, "*.tar", length=None), workers=1).sources
    assert (report.num_rows, report.empty_shards) == (1, (str(path),))
    path.write_bytes(b"")
    assert "b.tar, byte 0: the tar is truncated" in refuse(tmp_path, "*.tar", length=None)


def test_an_empty_tar_is_refused_by_name(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", [])
    assert "a.tar: has no rows" in refuse(tmp_path, "*.tar", length=None)


def test_a_missing_file_and_a_pattern_in_vain_are_refused(tmp_path: Path) -> None:
    assert "x.jsonl: no such file" in refuse(tmp_path, "x.jsonl")
    assert "*.jsonl: no file matches" in refuse(tmp_path)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").mkdir()
    assert "a.jsonl: cannot be read" in refuse(tmp_path, "a.jsonl")


def test_a_link_to_nowhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").symlink_to(tmp_path / "nowhere")
    assert "a.jsonl: no such file" in refuse(tmp_path)


def test_a_file_listed_twice_is_refused(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", [{"n": 1}])
    assert "is listed twice" in refuse(tmp_path, path=[str(path), str(tmp_path / "*.jsonl")])


def test_a_truncated_tar_is_refused_by_name_and_offset(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", [("k.txt", b"x" * 3000)])
    path.write_bytes(path.read_bytes()[:1500])
    message = refuse(tmp_path, "*.tar", length=None)
    assert f'{path}, byte 0: the tar is truncated in member "k.txt"' in message


def test_a_source_that_its_rules_empty_names_the_rule_that_took_most(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", [{"n": i, "lang": "en"} for i in range(10)])
    message = refuse(tmp_path, keep={"n": [8, None], "lang": ["pl"]})
    assert "no row is left" in message
    assert '"keep n: 8.." drops 8' in message


def test_a_rule_on_a_field_that_no_row_has_names_the_field(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", [{"n": i, "duration": 3.0} for i in range(10)])
    message = refuse(tmp_path, keep={"durration": [1, 40]})
    assert 'no row is left: none has a number in "durration"' in message
    assert "correct the name in `keep`" in message


def test_failures_in_worker_processes_are_told_the_same(tmp_path: Path) -> None:
    for i in range(3):
        (tmp_path / f"{i}.jsonl").write_text('{"n": 1}\n[]\n')
    inline = refuse(tmp_path)
    with pytest.raises(PrepareError) as caught:
        prepare(recipe_over(tmp_path), processes=True, workers=2)
    assert sorted(str(caught.value).splitlines()) == sorted(inline.splitlines())


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", [{"n": 1}])
    (tmp_path / "cache").write_text("a file is in the way")
    message = refuse(tmp_path)
    assert str(tmp_path / "cache") in message
    assert "cannot be written" in message


NO_CONTENT = {"length": None, "ids": None}


@pytest.mark.parametrize("processes", [False, True])
def test_rows_that_nothing_was_read_of_are_checked_with_verify(tmp_path: Path, processes: bool) -> None:
    for i in range(3):
        write_jsonl(tmp_path / f"{i}.jsonl", [{"n": j} for j in range(5_000)])
    lines = (tmp_path / "1.jsonl").read_text().splitlines()
    lines[4_200], lines[7] = '{"n": ', "[1]"
    (tmp_path / "1.jsonl").write_text("\n".join(lines) + "\n")
    recipe = recipe_over(tmp_path, **NO_CONTENT)
    assert prepare(recipe).sources[0].num_rows == 15_000
    with pytest.raises(PrepareError) as caught:
        prepare(recipe, verify=True, workers=2, processes=processes)
    first, second = sorted(failure.problem for failure in caught.value.failures)
    byte = sum(len(line) + 1 for line in lines[:7])
    assert f"raw row 5,007: {tmp_path}/1.jsonl, byte {byte:,}: not an object" in first
    assert "raw row 9,200" in second
    assert "broken JSON" in second
    write_jsonl(tmp_path / "1.jsonl", [{"n": 1}])
    report = prepare(recipe, verify=True, workers=2, processes=processes)
    assert report.sources[0].verified_rows == 10_001
    assert prepare(recipe).sources[0].verified_rows == 0


def test_a_tar_is_verified_sample_by_sample(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", [(f"{i:03}.{kind}", b"x") for i in range(40) for kind in ("txt", "cls")])
    recipe = recipe_over(tmp_path, "*.tar", **NO_CONTENT)
    assert prepare(recipe, verify=True).sources[0].verified_rows == 40


@pytest.mark.parametrize("fields", [NO_CONTENT, {}])
def test_json_nested_too_deeply_is_refused_by_line(tmp_path: Path, fields: dict[str, Any]) -> None:
    deep = '{"n": 1, "x": ' + "[" * 5_000 + "]" * 5_000 + "}"
    (tmp_path / "a.jsonl").write_text(f'{{"n": 1}}\n{deep}\n')
    with pytest.raises(PrepareError, match=r"a\.jsonl.*byte 9: the row is nested too deeply"):
        prepare(recipe_over(tmp_path, **fields), verify=True)


def test_after_a_failure_nothing_is_left_but_finished_parts(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("x\n")
    refuse(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]
    write_jsonl(tmp_path / "b.jsonl", [{"n": 1}])
    refuse(tmp_path)
    assert [path.suffix for path in (tmp_path / "cache").rglob("*")] == [".parts", ".npz"]
    write_jsonl(tmp_path / "a.jsonl", [{"n": 1}])
    assert prepare(recipe_over(tmp_path)).sources[0].scanned_shards == 1
    (left,) = (tmp_path / "cache").iterdir()
    assert left.name.startswith("s-")
    assert left.suffix == ""
