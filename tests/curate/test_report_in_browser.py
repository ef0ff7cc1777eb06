"""The report as a browser shows it. Needs Debian's chromium; `make test-full` installs it where it may."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from test_curate_report import conversation, curated

pytestmark = pytest.mark.full

# A browser talks to its makers unless it is told not to.
QUIET = [
    *("--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
]
# The report itself has no script; this one, added to a copy, measures what the browser made of it.
MEASURE = """<script>addEventListener('load', () => {
  const boxes = [...document.querySelectorAll('figure svg')].map(svg => svg.getBoundingClientRect());
  document.body.dataset.plots = JSON.stringify(boxes.map(b => [b.left, b.top, b.width, b.height].map(Math.round)));
  document.body.dataset.wide = document.documentElement.scrollWidth;
})</script>"""


def browser() -> str:
    found = shutil.which("chromium")
    if found is None:
        if os.environ.get("CI"):
            pytest.fail("chromium is not installed; `make test-full` installs it")
        pytest.skip("chromium is not installed: apt-get install chromium")
    return found


def test_a_browser_lays_the_plots_out_side_by_side(tmp_path: Path) -> None:
    _, page = curated(tmp_path, "calls.jsonl", [json.dumps(conversation())])
    probe = tmp_path / "probe.html"
    probe.write_text(page.replace("</body>", f"{MEASURE}</body>"))
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}", *QUIET]
    size = ["--window-size=1200,900", "--virtual-time-budget=2000", "--dump-dom"]
    command = [browser(), *options, *size, probe.as_uri()]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    plots = json.loads(shown.split('data-plots="')[1].split('"')[0])
    assert len(plots) == 3
    assert len({top for _, top, _, _ in plots}) == 1
    assert all(width > 250 and height > 100 for _, _, width, height in plots)
    assert int(shown.split('data-wide="')[1].split('"')[0]) <= 1200
