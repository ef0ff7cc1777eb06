"""The report in HTML: one file without script, in which nothing from outside is taken for markup."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from playhead.verify.page import page_of
from playhead.verify.plain import plain
from playhead.verify.verdict import Difference, Verdict
from playhead.verify.verify import VerifyReport
from verified import two_sources, verified, write_recipe


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> VerifyReport:
    folder = tmp_path_factory.mktemp("page")
    recipe = write_recipe(folder, two_sources(folder))
    return verified(recipe, folder / "records", loader="broken_loaders:has_a_payload_by_worker")


def test_the_page_shows_verdicts_differences_and_causes(report: VerifyReport) -> None:
    page = page_of(report)
    assert page.count('class="verdict failed"') == 3
    assert page.count('class="verdict passed"') == 7
    assert "<h2>Q12: failed</h2>" in page
    assert "worker-dependent payload" in page
    assert "<dt>field</dt><dd>tokens[0, 0]</dd>" in page
    assert "<li>a global random generator in the map" in page
    assert page.count("<svg") == 3


def test_the_page_needs_nothing_else_and_runs_nothing(report: VerifyReport) -> None:
    page = page_of(report)
    assert not re.search(r"<script|<link|<img|src=|href=|url\(|https?://", page)


def test_what_comes_from_outside_is_escaped(report: VerifyReport) -> None:
    nasty = "<b onclick='x'>&amp;"
    difference = Difference(0, 0, 0, nasty, nasty, (nasty, nasty), nasty, nasty, nasty, nasty, nasty, (nasty,))
    verdict = Verdict("Q5", "failed", (nasty,), "unseeded map", difference)
    page = page_of(replace(report, recipe=nasty, fingerprint=nasty, verdicts=(verdict,)))
    assert "<b onclick" not in page
    assert page.count("&lt;b onclick=&#x27;x&#x27;&gt;&amp;amp;") >= 10


def test_a_report_without_figures_is_a_page_too(report: VerifyReport) -> None:
    page = page_of(
        replace(report, verdicts=report.verdicts[:1], figures=replace(report.figures, step_seconds=(), shares=()))
    )
    assert "<svg" not in page
    assert plain(replace(report, figures=replace(report.figures, step_seconds=())))["step_seconds"]["p50"] is None
