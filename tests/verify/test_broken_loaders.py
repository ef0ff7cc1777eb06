"""Loaders broken in many ways: each is caught by the question that is there for it, and sound ones pass."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import broken_loaders
from verified import by_question, outcomes, two_sources, verified, write_recipe


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound")
    return write_recipe(folder, two_sources(folder))


# What is wrong with a loader, and the verdicts on it: a tag, or that it passed.
BROKEN = {
    "loses_a_sample_after_resume": {"Q4": "resume divergence", "Q5": "passed"},
    "shares_a_step": {"Q1": "rank leak", "Q3": "rank leak"},
    "counts_prefetch_as_delivered": {"Q2": "passed", "Q4": "resume ahead", "Q5": "passed"},
    "is_short_of_a_step": {"Q2": "skipped", "Q3": "passed", "Q10": "uneven ranks"},
    "orders_by_workers": {"Q4": "passed", "Q5": "passed", "Q6": "elastic divergence"},
    "weighs_otherwise": {"Q2": "passed", "Q4": "passed", "Q9": "wrong proportions"},
    "has_a_payload_by_worker": {"Q2": "passed", "Q5": "passed", "Q12": "worker-dependent payload"},
    "writes_the_state_first": {"Q3": "passed", "Q4": "resume ahead"},
}
MORE = {
    "skips_a_batch_after_resume": {"Q4": "resume ahead", "Q5": "passed", "Q10": "passed"},
    "ends_early_after_resume": {"Q4": "resume length", "Q5": "passed"},
    "writes_the_state_late": {"Q4": "resume behind", "Q5": "passed"},
    "broadcasts": {"Q1": "rank leak", "Q2": "repeated", "Q3": "rank leak"},
    "leaks_between_workers": {"Q1": "worker leak", "Q3": "passed"},
    "drops_a_sample": {"Q1": "passed", "Q2": "skipped", "Q3": "passed"},
    "repeats_a_sample": {"Q1": "passed", "Q2": "repeated", "Q3": "passed"},
    "delivers_another_sample": {"Q1": "passed", "Q2": "id collision", "Q5": "passed"},
    "shuffles_by_chance": {"Q1": "passed", "Q2": "passed", "Q5": "non-determinism"},
    "tells_other_receipts": {"Q5": "passed", "Q10": "receipt mismatch"},
    "has_a_state_for_each_rank": {"Q4": "passed", "Q10": "receipt mismatch"},
    "leaks_memory": {"Q5": "passed", "Q11": "memory growth"},
    "refuses_states": {"Q4": "failed run", "Q5": "passed"},
}


@pytest.mark.parametrize("name", [*BROKEN, *(pytest.param(name, marks=pytest.mark.full) for name in MORE)])
def test_a_broken_loader_is_caught_by_the_right_question(name: str, recipe: Path, tmp_path: Path) -> None:
    expected = (BROKEN | MORE)[name]
    report = verified(recipe, tmp_path / "records", *expected, loader=f"broken_loaders:{name}")
    broken_loaders.KEPT.clear()
    assert outcomes(report) == expected
    assert not report.is_proved


@pytest.mark.full
def test_a_sound_loader_passes_every_question(recipe: Path, tmp_path: Path) -> None:
    report = verified(recipe, tmp_path / "records", loader="broken_loaders:sound")
    assert {verdict.outcome for verdict in report.verdicts} == {"passed"}, outcomes(report)
    assert report.is_proved


def test_the_smallest_difference_names_step_rank_lane_and_samples(recipe: Path, tmp_path: Path) -> None:
    report = verified(recipe, tmp_path / "records", "Q4", loader="broken_loaders:skips_a_batch_after_resume")
    verdict = by_question(report)["Q4"]
    assert verdict.evidence == (
        "saved after 6 steps, resumed on 2 ranks, 2 worker threads: it goes on 1 micro-batch too far",
    )
    found = verdict.difference
    assert (found.step, found.rank, found.lane) == (6, 0, 0)
    assert found.note == "delivered as step 6, lane 2"
    assert found.expected != found.delivered
    assert "row" in found.expected
    assert "id" in found.expected
    assert any("state_dict(after=batch)" in cause for cause in found.causes)


def test_a_difference_in_contents_names_the_field_and_the_element(recipe: Path, tmp_path: Path) -> None:
    report = verified(recipe, tmp_path / "records", "Q12", loader="broken_loaders:has_a_payload_by_worker")
    found = by_question(report)["Q12"].difference
    assert (found.step, found.rank, found.lane) == (0, 0, 2)
    assert (found.field, found.element) == ("tokens", "[0, 0]")
    assert int(found.expected_value) == int(found.delivered_value) + 1
    assert any("generator" in cause for cause in found.causes)


UNSEEDED = """
import numpy as np
def noisy(sample):
    return {**sample, "noise": np.random.normal(size=3)}
"""


def test_an_unseeded_map_is_found_by_its_field_and_named_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "unseeded_maps.py").write_text(UNSEEDED)
    recipe = write_recipe(tmp_path, two_sources(tmp_path, map="unseeded_maps:noisy"))
    report = verified(recipe, tmp_path / "records", "Q2", "Q4", "Q5", "Q10", "Q12")
    tags = {"Q2": "passed", "Q4": "unseeded map", "Q5": "unseeded map", "Q10": "passed", "Q12": "unseeded map"}
    assert outcomes(report) == tags
    found = by_question(report)["Q5"].difference
    assert (found.step, found.lane, found.field, found.element) == (0, 0, "noise", "[0, 0]")
    assert found.expected_value != found.delivered_value
    assert found.note == "made twice by the same run, it differs from itself"


def test_shards_that_are_not_in_the_index_are_a_stale_index(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, two_sources(tmp_path))
    (tmp_path / "text-009.jsonl").write_bytes((tmp_path / "text-000.jsonl").read_bytes())
    verdict = by_question(verified(recipe, tmp_path / "records", "Q2"))["Q2"]
    assert verdict.tag == "stale index"
    assert "1 shards are not in the index, the first" in verdict.evidence[0]


def test_rows_that_were_exchanged_unnoticed_are_a_stale_index(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, two_sources(tmp_path))
    path = tmp_path / "more-000.jsonl"
    before = path.stat()
    path.write_text("".join(reversed(path.read_text().splitlines(keepends=True))))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    report = verified(recipe, tmp_path / "records", "Q2", "Q3")
    assert outcomes(report) == {"Q2": "stale index", "Q3": "unproven"}
    assert "more-000.jsonl, row 1 of 70: tracks/" in by_question(report)["Q2"].evidence[0]
    assert "a run failed: rank 0 of 2, run pass" in by_question(report)["Q3"].evidence[0]
