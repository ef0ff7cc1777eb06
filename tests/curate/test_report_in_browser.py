"""The report as a browser shows it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_curate_report import conversation, curated

from browsers import shown

pytestmark = pytest.mark.full

# The report itself has no script; this one measures what the browser made of it.
MEASURE = """
  const boxes = [...document.querySelectorAll('figure svg')].map(svg => svg.getBoundingClientRect());
  document.body.dataset.plots = JSON.stringify(boxes.map(b => [b.left, b.top, b.width, b.height].map(Math.round)));
  document.body.dataset.wide = document.documentElement.scrollWidth;
"""


def test_a_browser_lays_the_plots_out_side_by_side(tmp_path: Path) -> None:
    _, page = curated(tmp_path, "calls.jsonl", [json.dumps(conversation())])
    found = shown(page, MEASURE, tmp_path)
    plots = json.loads(found.split('data-plots="')[1].split('"')[0])
    assert len(plots) == 3
    assert len({top for _, top, _, _ in plots}) == 1
    assert all(width > 250 and height > 100 for _, _, width, height in plots)
    assert int(found.split('data-wide="')[1].split('"')[0]) <= 1200
