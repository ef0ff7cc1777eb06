"""Samples too long for their batching, under each policy, from real files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from corpora import named_rows, once_each, plan_in, real_batches, recipe_in, take, write_speech, write_text
from playhead.errors import DataError, RecipeError
from playhead.plan.plan import Plan
from playhead.prepare import prepare
from small_data import write_jsonl

# The limit of each is 100, or for the quadratic one: 62 + 62 * 62 / 100 is within 101, 63 is not.
LIMIT = 100
QUADRATIC_LIMIT = 62
BATCHINGS = {
    "fixed": {"type": "fixed", "size": 2, "max_length": 100},
    "budget": {"type": "budget", "budget": 100},
    "quadratic": {"type": "budget", "budget": 101, "quadratic": 100},
    "bucket": {"type": "bucket", "edges": [30, 100], "size": [4, 2]},
    "pack": {"type": "pack", "max_length": 100},
}
LENGTHS = [[10, 50, 62, 20], [100, 101, 63, 5], [30, 500]]
ALL = np.concatenate(LENGTHS)


def limit_of(kind: str) -> int:
    return QUADRATIC_LIMIT if kind == "quadratic" else LIMIT


def one_pass(folder: Path, kind: str, overlong: str) -> Plan:
    source = {**write_text(folder, "a", LENGTHS), "shuffle": "none"}
    return plan_in(folder, source, batching={**BATCHINGS[kind], "overlong": overlong}, epochs=1)


@pytest.mark.parametrize("kind", BATCHINGS)
def test_error_names_the_longest_row_its_file_and_the_limit(tmp_path: Path, kind: str) -> None:
    with pytest.raises(DataError) as caught:
        one_pass(tmp_path, kind, "error")
    error = caught.value
    assert error.problem == 'sources[0] "a": row 9 is longer than batching can hold'
    assert str(error.found).startswith(f"length 500 in {tmp_path}/a-002.jsonl, byte ")
    assert error.expected == f"at most {limit_of(kind)}"
    assert "overlong: drop" in str(error.fix)


def test_error_is_in_seconds_where_lengths_are(tmp_path: Path) -> None:
    source = write_speech(tmp_path, "s", [[0.5, 2.5], [1.0]])
    with pytest.raises(DataError) as caught:
        plan_in(tmp_path, source, batching={"type": "pack", "max_length": 2})
    assert f"length 2.50 s in {tmp_path}/s-000.tar, byte " in str(caught.value.found)
    assert caught.value.expected == "at most 2.00 s"


def test_error_accepts_a_sample_exactly_at_the_limit(tmp_path: Path) -> None:
    source = write_text(tmp_path, "a", [[100, 5, 3]])
    for kind in ("fixed", "budget", "bucket", "pack"):
        assert take(plan_in(tmp_path, source, batching=BATCHINGS[kind], epochs=1))
    for length, refused in ((62, False), (63, True)):
        source = write_text(tmp_path, "b", [[length, 5]])
        if refused:
            with pytest.raises(DataError, match="row 0 is longer"):
                plan_in(tmp_path, source, batching=BATCHINGS["quadratic"])
        else:
            plan_in(tmp_path, source, batching=BATCHINGS["quadratic"])


@pytest.mark.parametrize("kind", BATCHINGS)
def test_drop_leaves_them_out_of_the_selection(tmp_path: Path, kind: str) -> None:
    plan = one_pass(tmp_path, kind, "drop")
    kept = ALL[limit_of(kind) >= ALL]
    (stream,) = plan.streams
    assert stream.orders[0].num_rows == len(kept)
    assert stream.lengths_of[0](np.arange(len(kept))).tolist() == kept.tolist()
    steps = take(plan)
    assert sorted(named_rows(plan, steps)) == sorted(once_each(a=len(kept)))
    assert sum(int(batch.lengths.sum()) for batch in real_batches(steps)) == kept.sum()


@pytest.mark.parametrize("kind", ["budget", "quadratic", "bucket", "pack"])
def test_alone_gives_each_of_them_a_micro_batch(tmp_path: Path, kind: str) -> None:
    steps = take(one_pass(tmp_path, kind, "alone"))
    batches = real_batches(steps)
    assert sorted(int(n) for batch in batches for n in batch.lengths) == sorted(ALL.tolist())
    long = [batch for batch in batches if batch.lengths.max() > limit_of(kind)]
    assert len(long) == (limit_of(kind) < ALL).sum()
    assert all(len(batch.picks) == 1 for batch in long)


@pytest.mark.parametrize("kind", BATCHINGS)
def test_truncate_plans_them_at_the_limit(tmp_path: Path, kind: str) -> None:
    plan = one_pass(tmp_path, kind, "truncate")
    steps = take(plan)
    planned = [int(n) for batch in real_batches(steps) for n in batch.lengths]
    assert sorted(planned) == sorted(np.minimum(ALL, limit_of(kind)).tolist())
    assert sorted(named_rows(plan, steps)) == sorted(once_each(a=len(ALL)))


PAIRS = {"type": "bucket", "edges": [[50, 10], [50, 40], [100, 40]], "size": 2}
TWO_LENGTHS = [(20, 5), (20, 30), (100, 40), (40, 41), (101, 3), (60, 20)]


def pairs_plan(folder: Path, overlong: str, batching: dict = PAIRS) -> Plan:
    write_jsonl(folder / "p.jsonl", [{"n": n, "m": m} for n, m in TWO_LENGTHS])
    source = {"name": "p", "path": "p.jsonl", "length": "n", "output_length": "m", "shuffle": "none"}
    return plan_in(folder, source, batching={**batching, "overlong": overlong}, epochs=1)


def test_error_looks_at_inputs_and_outputs(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        pairs_plan(tmp_path, "error")
    assert caught.value.problem == 'sources[0] "p": row 4 is longer than batching can hold'
    outputs_only = {**PAIRS, "edges": [[50, 10], [50, 40], [101, 40]]}
    with pytest.raises(DataError) as caught:
        pairs_plan(tmp_path, "error", outputs_only)
    assert caught.value.problem == 'sources[0] "p": row 3 is longer than batching can hold'
    assert str(caught.value.found).startswith("output length 41 in ")
    assert caught.value.expected == "at most 40"


def test_drop_looks_at_inputs_and_outputs(tmp_path: Path) -> None:
    plan = pairs_plan(tmp_path, "drop")
    assert plan.streams[0].orders[0].num_rows == 4
    lengths = [int(n) for batch in real_batches(take(plan)) for n in batch.lengths]
    assert sorted(lengths) == [20, 20, 60, 100]


def test_alone_gives_what_no_bucket_holds_a_micro_batch(tmp_path: Path) -> None:
    plan = pairs_plan(tmp_path, "alone")
    batches = [batch.picks.row.tolist() for batch in real_batches(take(plan))]
    assert [3] in batches
    assert [4] in batches
    assert sorted(row for rows in batches for row in rows) == list(range(6))


def test_truncate_puts_what_no_bucket_holds_into_the_last(tmp_path: Path) -> None:
    plan = pairs_plan(tmp_path, "truncate")
    batches = [(batch.picks.row.tolist(), batch.lengths.tolist()) for batch in real_batches(take(plan))]
    assert ([2, 3], [100, 40]) in batches
    assert ([4, 5], [100, 60]) in batches


NARROWING = {"type": "bucket", "edges": [[50, 10], [50, 41], [101, 20]], "size": 2}


def test_error_names_a_sample_within_both_limits_that_no_bucket_holds(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        pairs_plan(tmp_path, "error", NARROWING)
    assert caught.value.problem == 'sources[0] "p": row 2 is in none of the buckets of batching'
    assert str(caught.value.found).startswith(f"length 100, output length 40 in {tmp_path}/p.jsonl, byte ")


def test_drop_leaves_out_a_sample_within_both_limits_that_no_bucket_holds(tmp_path: Path) -> None:
    lengths = [int(n) for batch in real_batches(take(pairs_plan(tmp_path, "drop", NARROWING))) for n in batch.lengths]
    assert sorted(lengths) == sorted(n for n, _ in TWO_LENGTHS if n != 100)


@pytest.mark.parametrize("overlong", ["alone", "truncate"])
def test_alone_and_truncate_keep_a_sample_that_no_bucket_holds(tmp_path: Path, overlong: str) -> None:
    plan = pairs_plan(tmp_path, overlong, NARROWING)
    assert sorted(named_rows(plan, take(plan))) == sorted(once_each(p=6))


def test_fixed_batches_have_no_place_for_a_sample_alone(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"batching\.overlong: a sample cannot be batched alone"):
        one_pass(tmp_path, "fixed", "alone")


def test_the_selection_is_prepared_anew_for_another_limit(tmp_path: Path) -> None:
    source = write_text(tmp_path, "a", LENGTHS)
    counts = []
    for limit in (100, 60, 1000):
        recipe = recipe_in(tmp_path, source, batching={"type": "pack", "max_length": limit, "overlong": "drop"})
        report = prepare(recipe, workers=1).sources[0]
        assert report.scanned_shards == (3 if limit == 100 else 0)
        assert [loss.rule for loss in report.losses] == [f"overlong: above {limit:,}"]
        counts.append(report.selected_rows)
    assert counts == [8, 5, 10]
