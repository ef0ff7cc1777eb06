"""The report as a browser shows it, and the command as a user gives it. `make test-full` installs Debian's chromium."""

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
  const rows = [...document.querySelectorAll('tbody')][0].rows;
  const badges = [...document.querySelectorAll('.verdict')].map(badge => getComputedStyle(badge).backgroundColor);
  const plots = [...document.querySelectorAll('figure svg')].map(svg => Math.round(svg.getBoundingClientRect().width));
  document.body.dataset.found = JSON.stringify([rows.length, badges, plots, document.documentElement.scrollWidth]);
"""
GREEN = "rgb(46, 125, 79)"


def test_the_demo_recipe_is_proved_with_the_defaults_and_a_browser_shows_it(tmp_path: Path) -> None:
    recipe = make_data(tmp_path)
    prepare(Recipe.load(recipe), workers=1)
    done = started(tmp_path, "verify", "recipe.yaml", "--html", "report.html")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "12 of 12 passed" in done.stdout
    page = (tmp_path / "report.html").read_text()
    found = shown(page, MEASURE, tmp_path)
    rows, badges, plots, width = json.loads(found.split('data-found="')[1].split('"')[0].replace("&quot;", '"'))
    assert rows == 12
    assert badges == [GREEN] * 12
    assert len(plots) == 3
    assert all(plot > 250 for plot in plots)
    assert width <= 1200
