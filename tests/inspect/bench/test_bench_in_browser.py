"""The report as a browser shows it. `make test-full` installs Debian's chromium."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from browsers import shown
from commands import started
from playhead.cli.demo_data import make_data
from playhead.prepare import prepare
from playhead.recipe.values import Recipe

pytestmark = pytest.mark.full

# The report itself has no script; this one measures what the browser made of it.
MEASURE = """
  const bars = [...document.querySelectorAll('svg.timeline rect')];
  const colours = new Set(bars.map(bar => getComputedStyle(bar).fill));
  const svg = document.querySelector('svg.timeline').getBoundingClientRect();
  const inside = bars.every(bar => {
    const at = bar.getBoundingClientRect();
    return at.left >= svg.left - 1 && at.right <= svg.right + 1 && at.bottom <= svg.bottom + 1;
  });
  document.body.dataset.found = JSON.stringify(
    [bars.length, colours.size, inside, Math.round(svg.width), document.documentElement.scrollWidth]);
"""


def test_the_demo_recipe_is_benched_and_a_browser_shows_its_timeline(tmp_path: Path) -> None:
    prepare(Recipe.load(make_data(tmp_path)), workers=1)
    done = started(tmp_path, "bench", "recipe.yaml", "--steps", "20", "--html", "report.html")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert done.stdout.startswith("limited by ")
    found = shown((tmp_path / "report.html").read_text(), MEASURE, tmp_path)
    bars, colours, inside, drawn, width = json.loads(
        found.split('data-found="')[1].split('"')[0].replace("&quot;", '"')
    )
    assert bars > 100
    assert colours >= 5
    assert inside
    assert drawn > 900
    assert width <= 1200
