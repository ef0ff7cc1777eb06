"""The demo: prepare, plan, kill, resume, compare."""

from __future__ import annotations

from pathlib import Path

from playhead.cli.demo_crash import show_crash
from playhead.cli.demo_worlds import FAR, STEPS, show_distance, show_worlds
from playhead.cli.plan_view import print_plan
from playhead.cli.prepare_view import print_report, scanning
from playhead.cli.screen import console, heading
from playhead.prepare import prepare
from playhead.recipe.values import Recipe
from playhead.resolve import map_tables, plan_tables


def run_demo(recipe_path: Path) -> bool:
    """Run the whole demo; returns whether everything that was compared was equal."""
    screen = console()
    heading(screen, "prepare: index the sources, select their rows")
    recipe = Recipe.load(recipe_path)
    with scanning() as progress:
        print_report(recipe, prepare(recipe, progress=progress), None, as_json=False)
    tables = map_tables(recipe)
    heading(screen, "plan: what every step will contain")
    print_plan(recipe, plan_tables(recipe, tables), tables, None, 2, as_json=False, lengths=False)
    heading(screen, "two ranks killed in mid-run, resumed on four, compared with an uninterrupted run")
    runs = recipe_path.parent / "runs"
    equal = show_crash(screen, recipe_path, runs)
    heading(screen, f"the same stream on any number of ranks ({STEPS} steps)")
    equal = show_worlds(screen, recipe, tables) and equal
    heading(screen, f"step {FAR:,} costs what step 10 costs")
    show_distance(screen, recipe, tables)
    screen.print(f"\nThe recipe is {recipe_path}; the batches of each rank are in {runs}")
    screen.print(f"Change it, then try: playhead plan {recipe_path}; playhead run {recipe_path}")
    return equal
