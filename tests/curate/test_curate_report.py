"""The report: every number of the summary on one page that stands alone, whatever names the data has."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from playhead.curate.report import histogram_svg, report_html
from playhead.curate.run import curate_windows
from playhead.curate.summary import CurateSummary, WindowHistogram

VOID = {"meta", "rect", "line"}


class Outline(HTMLParser):
    """The page's tags and texts; a tag that is not closed, or closed out of turn, fails."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, *_: object) -> None:
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, *_: object) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def outline(page: str) -> Outline:
    found = Outline()
    found.feed(page)
    found.close()
    assert not found.open
    return found


def conversation(rate: int = 16000) -> dict[str, object]:
    segments = [
        {"start": 5.0 * i, "end": 5.0 * i + 4.5, "speaker": "ab"[i % 2], "text": "so", "metrics": {"bandwidth": 9000}}
        for i in range(60)
    ]
    return {"audio_filepath": "a.wav", "audio_sample_rate": rate, "duration": 301.0, "segments": segments}


def curated(folder: Path, name: str, rows: list[str]) -> tuple[CurateSummary, str]:
    path = folder / name
    path.write_text("".join(row + "\n" for row in rows))
    report = curate_windows([str(path)], folder / "out", on_error="reject", workers=1)
    return report.summary, (folder / "out" / "report.html").read_text(encoding="utf-8")


def test_the_report_has_the_numbers_of_the_summary(tmp_path: Path) -> None:
    rows = [json.dumps(conversation()), json.dumps(conversation(rate=8000)), "broken"]
    summary, page = curated(tmp_path, "calls.jsonl", rows)
    found = outline(page)
    assert summary.num_kept > 0
    assert summary.seconds_recorded == 2 * 299.5
    for number in (
        f"{summary.num_windows:,}",
        f"{summary.num_kept:,}",
        f"{summary.seconds_kept / 3600:,.2f}",
        f"{summary.losses['win'].count:,}",
        f"{summary.losses['sr'].seconds:,.1f}",
    ):
        assert number in found.texts
    assert "broken JSON" in found.texts
    for name in ("target_window_duration", "overlap_percentage", "process_entry_time", "filtered_dur"):
        assert name in found.texts
    assert found.tags.count("svg") == 3
    assert f"{summary.num_rejected:,} rejected" in " ".join(found.texts)
    titles = re.findall(r"<title>(?:[\d.]+ to [\d.]+|\d+): ([\d,]+) windows, ([\d,]+) kept</title>", page)
    assert sum(int(every) for every, _ in titles) == 3 * summary.num_windows
    assert sum(int(kept) for _, kept in titles) == 3 * summary.num_kept


def test_names_of_files_cannot_break_the_page(tmp_path: Path) -> None:
    _, page = curated(tmp_path, "<script>alert('1')&.jsonl", [json.dumps(conversation())])
    found = outline(page)
    assert "script" not in found.tags
    assert any("<script>alert('1')&.jsonl" in text for text in found.texts)


def test_the_page_stands_alone(tmp_path: Path) -> None:
    _, page = curated(tmp_path, "calls.jsonl", [json.dumps(conversation())])
    assert not re.search(r"https?:|src=|@import|url\(", page)


def test_a_run_without_windows_says_so(tmp_path: Path) -> None:
    summary, page = curated(tmp_path, "calls.jsonl", [json.dumps(conversation(rate=8000))])
    assert summary.num_windows == 0
    assert outline(page).texts.count("no windows") == 3
    assert report_html(summary) == page


@pytest.mark.parametrize("whole", [True, False])
def test_bars_are_as_high_as_their_counts(whole: bool) -> None:
    edges = (0.0, 1.0, 2.0, 3.0, 4.0)
    picture = histogram_svg(
        WindowHistogram(edges, (0, 8, 2, 0)), WindowHistogram(edges, (0, 4, 0, 0)), "x & y", whole=whole
    )
    outline(picture)
    tall, low = (float(height) for height in re.findall(r'height="([\d.]+)" class="every"', picture))
    assert low == pytest.approx(tall / 4, abs=0.1)
    kept = [float(height) for height in re.findall(r'height="([\d.]+)" class="kept"', picture)]
    assert kept == [pytest.approx(tall / 2, abs=0.1), 0.0]
