"""`prepare`: bring the index and the selection of every source of a recipe up to date."""

from __future__ import annotations

from collections.abc import Callable

from playhead.errors import Failure, PlayheadError, PrepareError, RecipeError
from playhead.feed.main_guard import refuse_in_bootstrap
from playhead.index.layout import layout_of
from playhead.index.table import open_table
from playhead.jobs import Engine, default_workers
from playhead.prepare.estimate import estimate_source
from playhead.prepare.kernels import compile_kernels
from playhead.prepare.one import Outcome, prepare_source
from playhead.prepare.options import PrepareOptions
from playhead.prepare.report import Compiling, Event, PrepareReport
from playhead.recipe.storage import files_of
from playhead.recipe.tree import Leaf, branches, leaves
from playhead.recipe.values import Recipe
from playhead.resolve.shard_ranges import shard_ranges
from playhead.store import Files

_LEAST_MEMORY_MB = 8


def prepare(
    recipe: Recipe,
    *,
    workers: int | None = None,
    force: bool = False,
    dry_run: bool = False,
    memory_mb: int = 256,
    sidecars: bool = False,
    progress: Callable[[Event], None] | None = None,
    processes: bool | None = None,
    measure: bool = False,
    verify: bool = False,
    engine: Engine | None = None,
    files: Files | None = None,
) -> PrepareReport:
    """Index and select every source; sources that are up to date are not changed.

    The kernels that a plan of the recipe needs are compiled and kept, so that no rank has to. `measure` also runs the
    map over all rows of sources whose lengths are to be measured. `verify` reads every row once, so that those which do
    not parse are named now, and compares every array with its digest.

    A failure does not stop other shards and sources: all are listed in the PrepareError at the end, and what was
    finished is kept. `processes` forces or forbids worker processes; by default small jobs do without. An `engine` does
    all jobs in their place, on workers of its own; it is closed at the end. `files` is
    storage to use in place of the usual.
    """
    refuse_in_bootstrap()
    if engine is not None and (workers is not None or processes is not None):
        raise RecipeError(
            "`workers` and `processes` apply to the default engine, but another is given",
            fix=f"pass it to the engine: {type(engine).__name__}(workers=...)",
        )
    if memory_mb < _LEAST_MEMORY_MB:
        raise RecipeError(f"memory per worker: {memory_mb} MB", expected=f"at least {_LEAST_MEMORY_MB} MB")
    options = PrepareOptions(
        workers=default_workers() if workers is None else max(1, workers),
        memory_bytes=memory_mb << 20,
        files=files_of(recipe, "build" if dry_run else "write", files),
        indexes_root=recipe.indexes_root,
        force=force,
        sidecars=sidecars,
        processes=processes,
        progress=progress,
        measure=measure,
        verify=verify,
        engine=engine,
    )
    try:
        outcomes = [_attempt(leaf, recipe, options, dry_run) for leaf in leaves(recipe)]
    finally:
        if engine is not None:
            engine.close()
    # A source used in training and evaluation fails in both, but is reported once.
    failures = tuple(dict.fromkeys(failure for outcome in outcomes for failure in outcome.failures))
    if failures:
        raise _failed(failures)
    if not dry_run:
        _check_units(recipe, options.files)
        if progress is not None:
            progress(Compiling())
        compile_kernels(recipe, options.files)
    reports = tuple(outcome.report for outcome in outcomes if outcome.report is not None)
    return PrepareReport(reports, dry_run=dry_run)


def _attempt(leaf: Leaf, recipe: Recipe, options: PrepareOptions, dry_run: bool) -> Outcome:
    layout = layout_of(leaf, recipe, options.files)
    try:
        return estimate_source(layout, options) if dry_run else prepare_source(layout, recipe, options)
    except PlayheadError as error:
        return Outcome(None, (Failure(leaf.source.name, leaf.path, str(error)),))


def _check_units(recipe: Recipe, files: Files) -> None:
    """Refuse a source without the blocks that are to be shuffled, or with fewer units than the recipe has parts."""
    for branch in branches(recipe):
        for leaf in branch.leaves():
            if recipe.parts > 1 or leaf.source.shuffle_unit == "block":
                shard_ranges(leaf, open_table(leaf, recipe, files).unit_rows, recipe.parts)


def _failed(failures: tuple[Failure, ...]) -> PrepareError:
    return PrepareError(
        f"preparing could not finish: {len(failures):,} {'problem' if len(failures) == 1 else 'problems'}",
        fix="fix these and run it again; what was finished is kept",
        failures=failures,
    )
