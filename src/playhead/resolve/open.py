"""A prepared recipe opened: its indexes mapped, its plan resolved."""

from __future__ import annotations

from playhead.index.table import Table, open_tables
from playhead.plan.plan import Plan
from playhead.recipe.tree import branches, evaluation_branch
from playhead.recipe.values import Recipe
from playhead.resolve.resolve import resolve, resolve_evaluation
from playhead.store import Files


def open_plan(recipe: Recipe, split: str | None = None, world_size: int = 1) -> Plan:
    """The plan of the training stream, or of a named evaluation set. The recipe must be prepared."""
    return plan_tables(recipe, map_tables(recipe, split), split, world_size)


def map_tables(recipe: Recipe, split: str | None = None, files: Files | None = None) -> dict[str, Table]:
    """The tables of the sources that a stream draws on, by their path in the recipe, with lengths on their way in."""
    chosen = branches(recipe) if split is None else (evaluation_branch(recipe, split),)
    tables = open_tables((leaf for branch in chosen for leaf in branch.leaves()), recipe, files)
    for table in tables.values():
        table.preload()
    return tables


def plan_tables(recipe: Recipe, tables: dict[str, Table], split: str | None = None, world_size: int = 1) -> Plan:
    if split is None:
        return resolve(recipe, tables, world_size)
    return resolve_evaluation(recipe, split, tables, world_size)
