"""PH030 to PH044: numbers of ranks, weights and batches."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from checked_recipes import Row, found, report_on, rows, sound, source, the_one, written

from commands import as_json
from playhead import Recipe, open_plan

PAIR = {"lanes": 4, "batching": {"type": "fixed", "size": 2}}


def weighted(folder: Path, a: float, b: float, **fields: Any) -> Path:
    sources = [source(folder, "a", rows("a", 400), weight=a), source(folder, "b", rows("b", 40), weight=b)]
    return written(folder, *sources, **fields)


def test_numbers_of_ranks_that_do_not_divide_the_lanes_are_found_with_better_lanes(tmp_path: Path) -> None:
    path = sound(tmp_path, lanes=8)
    finding = the_one("PH030", path, worlds=(8, 64, 512))
    assert (finding.severity, finding.place, finding.line) == ("error", "lanes", 2)
    assert finding.problem == "64, 512 ranks cannot share 8 lanes evenly"
    assert finding.expected == "numbers of ranks that divide the lanes: 1, 2, 4, 8"
    assert "`lanes: 512`" in finding.fix
    assert found("PH030", path, worlds=(1, 2, 8)) == []
    assert "`lanes: 24`" in the_one("PH030", sound(tmp_path, lanes=20), worlds=(8, 12)).fix


def test_lanes_of_evaluation_sets_are_compared_too(tmp_path: Path) -> None:
    dev = {"sources": [source(tmp_path, "dev", rows("dev", 9))], "batching": {"type": "fixed", "size": 2}, "lanes": 3}
    finding = the_one("PH030", sound(tmp_path, evaluation={"dev": dev}), worlds=(2,))
    assert (finding.place, finding.fix) == ("evaluation.dev.lanes", "write `evaluation.dev.lanes: 4`")


def test_worlds_without_common_lanes_are_told_so(tmp_path: Path) -> None:
    assert "a smaller common multiple" in the_one("PH030", sound(tmp_path), worlds=(1021, 1031, 7)).fix


def test_lanes_that_are_not_set_are_a_note(tmp_path: Path) -> None:
    assert the_one("PH031", sound(tmp_path, lanes=None)).severity == "note"
    assert "`lanes: 8`" in the_one("PH030", sound(tmp_path, lanes=None), worlds=(8,)).fix
    assert found("PH031", sound(tmp_path)) == []


def test_a_source_that_is_repeated_too_often_is_found(tmp_path: Path) -> None:
    path = weighted(tmp_path, 1, 1, **PAIR)
    finding = the_one("PH032", path, steps=100)
    assert finding.place == "sources[1].weight"
    assert finding.problem.startswith('"b" is seen 10')
    assert finding.found.endswith("draws of 40 rows in 100 steps")
    assert found("PH032", path, steps=30) == []


def test_repetitions_are_those_of_the_plan(tmp_path: Path) -> None:
    path = weighted(tmp_path, 3, 1, lanes=4, batching={"type": "bucket", "num": 3, "budget": 200})
    drawn = [0, 0]
    for step, _ in islice(open_plan(Recipe.load(path)).steps(), 300):
        for batch in step.micro_batches:
            drawn[0] += int((batch.picks.source == 0).sum())
            drawn[1] += int((batch.picks.source == 1).sum())
    findings = found("PH032", path, steps=300)
    told = [int(each.found.split()[0].replace(",", "")) for each in findings]
    assert [each.place for each in findings] == ["sources[0].weight", "sources[1].weight"]
    assert [abs(a - b) < 0.05 * b for a, b in zip(told, drawn, strict=True)] == [True, True]


def test_a_source_that_is_never_drawn_is_found(tmp_path: Path) -> None:
    path = weighted(tmp_path, 10_000, 1, **PAIR)
    finding = the_one("PH033", path, steps=2)
    assert finding.problem == '"b" is never drawn within the planned steps'
    assert found("PH033", path, steps=20_000) == []


def test_a_stream_that_ends_before_the_planned_steps_is_found(tmp_path: Path) -> None:
    path = sound(tmp_path, epochs=2)
    finding = the_one("PH034", path, steps=100)
    assert (finding.place, finding.expected) == ("epochs", "100 steps")
    assert finding.found.startswith("about 28 steps")  # twice 110 rows, 8 to a step
    assert found("PH034", path, steps=20) == []
    assert found("PH034", sound(tmp_path), steps=100) == []


@pytest.mark.parametrize("weights_in", ["samples", "length"])
def test_a_weight_far_from_the_size_of_its_source_is_found(tmp_path: Path, weights_in: str) -> None:
    finding = the_one("PH035", weighted(tmp_path, 1, 999, **PAIR, weights_in=weights_in))
    assert finding.place == "sources[0].weight"
    assert "times less" in finding.found
    assert found("PH035", weighted(tmp_path, 1, 1, **PAIR, weights_in=weights_in)) == []


def test_fractions_that_do_not_add_up_to_one_are_a_note(tmp_path: Path) -> None:
    finding = the_one("PH036", weighted(tmp_path, 0.5, 0.3, **PAIR))
    assert (finding.severity, finding.place, finding.found) == ("note", "sources", "0.5, 0.3: 0.8 in all")
    assert found("PH036", weighted(tmp_path, 0.7, 0.3, **PAIR)) == []
    assert found("PH036", weighted(tmp_path, 3, 1, **PAIR)) == []


def test_a_sample_that_is_too_long_is_an_error(tmp_path: Path) -> None:
    path = sound(tmp_path, batching={"type": "fixed", "size": 2, "max_length": 20})
    findings = found("PH040", path)
    assert [(each.severity, each.place) for each in findings] == [("error", "sources[0]"), ("error", "sources[1]")]
    assert "is longer than batching can hold" in findings[0].problem
    assert report_on(path).not_checked["PH042"] == "no plan: a source is not prepared, or refused"
    assert found("PH004", path) == []
    assert found("PH040", sound(tmp_path)) == []


@pytest.mark.parametrize("overlong", ["drop", "truncate", "alone"])
def test_much_that_is_lost_to_a_limit_is_a_warning(tmp_path: Path, overlong: str) -> None:
    pack = {"type": "pack", "max_length": 20, "overlong": overlong}
    one = written(tmp_path, source(tmp_path, "a", rows("a", 100)), batching=pack)
    finding = the_one("PH040", one)
    assert (finding.severity, finding.place) == ("warning", "batching.overlong")
    assert finding.found.startswith(f"`overlong: {overlong}` concerns ")
    longer = {**pack, "max_length": 60}
    assert found("PH040", written(tmp_path, source(tmp_path, "a", rows("a", 100)), batching=longer)) == []


def test_empty_and_starved_buckets_are_found(tmp_path: Path) -> None:
    lengths = [6] * 300 + [30]
    some: list[Row] = [{"id": str(i), "n": n, "tokens": [1] * n} for i, n in enumerate(lengths)]
    buckets = {"type": "bucket", "edges": [10, 20, 40], "size": [4, 4, 64]}
    path = written(tmp_path, source(tmp_path, "a", some), batching=buckets, window_size=320)
    empty, starved = found("PH041", path)
    assert empty.problem == "1 of 3 buckets of main are empty in a window"
    assert empty.found == "up to 20: 0.0 samples in a window, 4 to a micro-batch"
    assert starved.problem == "1 of 3 buckets of main are never filled in a window"
    assert starved.found.startswith("up to 40: ")
    even = written(tmp_path, source(tmp_path, "a", rows("a", 300)), batching={"type": "bucket", "num": 2, "size": 4})
    assert found("PH041", even) == []


def test_padding_is_a_note_and_much_of_it_a_warning(tmp_path: Path) -> None:
    finding = the_one("PH042", sound(tmp_path, batching={"type": "pack", "max_length": 200}, weights_in="length"))
    assert (finding.severity, finding.place) == ("note", "batching")
    some: list[Row] = [{"id": str(i), "n": n, "tokens": [1] * n} for i, n in enumerate([1, 1, 1, 90] * 50)]
    uneven = written(tmp_path, source(tmp_path, "a", some), batching={"type": "fixed", "size": 8})
    finding = the_one("PH042", uneven)
    assert finding.severity == "warning"
    assert finding.problem.endswith("% of the batches of main is padding")


def test_the_costliest_micro_batch_is_named_by_its_step_and_its_longest_sample(tmp_path: Path) -> None:
    rules = {"a": {"type": "bucket", "num": 3, "budget": 200}, "b": {"type": "budget", "budget": 300}}
    groups = [
        {"name": f"of {name}", "batching": rule, "sources": [source(tmp_path, name, rows(name, 90))]}
        for name, rule in rules.items()
    ]
    path = written(tmp_path, *groups, batching=None, fuse={"of a": 1, "of b": 3})
    findings = found("PH043", path)
    assert [each.place for each in findings] == ["sources[0].batching", "sources[1].batching"]
    for finding, name in zip(findings, rules, strict=True):
        step, lane = (int(part.split()[1]) for part in finding.found.split("; ")[0].split(", ")[:2])
        listed = as_json(tmp_path, "plan", "recipe.yaml", "--step", str(step), "--world", "4", "--rank", str(lane))
        ((picks,),) = [[lane["picks"] for lane in listed["lanes"]]]
        longest = max(picks, key=lambda pick: pick["length"])
        assert f'"{name}-' in finding.found
        assert f"row {longest['row']:,} of" in finding.found
        assert f"{len(picks)} sample" in finding.problem


def test_a_window_of_few_steps_is_found(tmp_path: Path) -> None:
    buckets = {"type": "bucket", "num": 4, "budget": 200}
    sources = source(tmp_path, "a", rows("a", 300))
    finding = the_one("PH044", written(tmp_path, sources, lanes=8, batching=buckets, window_size=64))
    assert (finding.place, finding.line) == ("window_size", 7)
    assert finding.found.startswith("64 draws, ")
    assert found("PH044", written(tmp_path, sources, lanes=8, batching=buckets)) == []
