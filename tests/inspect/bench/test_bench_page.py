from __future__ import annotations

import html
import re
from xml.etree import ElementTree as ET

import pytest
from msgspec.structs import replace

from bench_worlds import world
from playhead.inspect.bench.page import page_of
from playhead.inspect.bench.recording import BenchLimits
from playhead.inspect.bench.report import BenchJob, bench
from playhead.inspect.bench.storage_speed import StorageLimits, measure_storage
from playhead.inspect.bench.sweep import Sweep, SweepPoint
from playhead.inspect.bench.text import BenchResults
from playhead.inspect.bench.timeline import MOST_BATCHES, stretches, ticks
from playhead.inspect.bench.values import LoaderSettings

SETTINGS = LoaderSettings(worker_kind="thread")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> BenchResults:
    recipe = replace(world(tmp_path_factory.mktemp("page")), map="bench_maps:slow")
    report = bench(BenchJob(recipe, BenchLimits(steps=40, seconds=None)), SETTINGS)
    speed = measure_storage(recipe, limits=StorageLimits(seconds=0.05, readers=(1, 2)))
    points = tuple(SweepPoint("workers", value, 10.0 * value, 0.5, "user map") for value in (1, 2, 4))
    return BenchResults(report, speed, Sweep(points, LoaderSettings(workers=4)))


def test_the_page_has_no_script_asks_no_server_and_says_what_the_terminal_says(results: BenchResults) -> None:
    page = page_of(results, "my <recipe>.yaml")
    assert "<script" not in page
    assert not re.search(r"(src|href)=", page)
    assert "my &lt;recipe&gt;.yaml" in page
    assert "my <recipe>" not in page
    assert results.report is not None
    bottleneck = results.report.bottleneck
    for said in (f"limited by {bottleneck.limit}", bottleneck.evidence, bottleneck.change):
        assert f">{html.escape(said)}</p>" in page
    for title in ("Timeline of loading", "Seconds by stage", "Sweep", "The storage by itself", "What was run"):
        assert f"<h2>{title}</h2>" in page
    assert "Use 4 worker processes, look-ahead 2." in page


def test_pictures_are_well_formed_and_every_batch_is_on_the_timeline_of_its_worker(results: BenchResults) -> None:
    assert results.report is not None
    pictures = [ET.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", page_of(results, "r"), re.DOTALL)]  # noqa: S314 - our own
    drawn, *_ = [picture for picture in pictures if picture.get("class") == "timeline"]
    labels = [text.text for text in drawn.iter("text")]
    assert labels[:3] == ["consumer", "worker 0", "worker 1"]
    titles = [title.text or "" for title in drawn.iter("title")]
    counted = results.report.records[results.report.num_warm :]
    maps = [title for title in titles if ": map " in title]
    assert len(maps) == len({record.timing.step for record in counted if record.timing.ended > counted[0].asked})
    assert sum(": waited " in title for title in titles) == len(counted)
    for rect in drawn.iter("rect"):
        assert float(rect.get("x", "-1")) >= 0
        assert float(rect.get("width", "-1")) > 0


def test_a_long_run_is_shown_where_it_waited_longest_and_in_its_middle(results: BenchResults) -> None:
    assert results.report is not None
    (record, *_) = results.report.records
    many = [record._replace(given=record.asked + 0.001)] * 1000
    many[700] = record._replace(given=record.asked + 9.0)
    (_, around), (_, middle) = stretches(many)
    assert len(around) == len(middle) == MOST_BATCHES
    assert many[700] in around
    assert many[700] not in middle


@pytest.mark.parametrize(
    ("begin", "end", "marks"),
    [
        (6.33, 8.27, ["6.4", "6.6", "6.8", "7.0", "7.2", "7.4", "7.6", "7.8", "8.0", "8.2"]),
        (0.0, 400.0, ["0", "50", "100", "150", "200", "250", "300", "350", "400"]),
        (0.0, 10.0, ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10"]),
        (2.0003, 2.0041, ["2.0005", "2.0010", "2.0015", "2.0020", "2.0025", "2.0030", "2.0035", "2.0040"]),
    ],
)
def test_times_are_marked_at_round_numbers(begin: float, end: float, marks: list[str]) -> None:
    assert [f"{mark:f}" for mark in ticks(begin, end)] == marks


def test_a_sweep_that_was_interrupted_has_a_page_of_its_own(results: BenchResults) -> None:
    assert results.sweep is not None
    page = page_of(BenchResults(None, None, results.sweep, "SIGINT"), "r.yaml")
    assert "Sweep" in page
    assert "Timeline" not in page
