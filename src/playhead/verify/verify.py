"""`verify`: make the runs, ask the questions."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

import msgspec

from playhead.deal import check_world
from playhead.errors import PlayheadError
from playhead.read import Incident
from playhead.recipe.tree import branches
from playhead.recipe.values import Recipe
from playhead.resolve import map_tables, plan_tables
from playhead.verify.balance import q9_blend, q10_even_ranks, q11_memory, shares_of
from playhead.verify.captures import explained
from playhead.verify.case import Case
from playhead.verify.cover import q1_one_place, q2_every_row, q3_disjoint_ranks, stale_index
from playhead.verify.enumeration import EnumeratedSource, enumerate_source
from playhead.verify.figures import Figures
from playhead.verify.kills import q7_crashes, q8_killed_worker
from playhead.verify.recipes import one_pass
from playhead.verify.runs import BASELINE, NEEDS, Launch, Progress, Runs
from playhead.verify.sameness import q4_resumed, q5_repeated, q6_elastic, q12_kinds
from playhead.verify.settings import VerifySettings, num_steps, part_of_pass
from playhead.verify.verdict import Verdict

ASKED: dict[str, Callable[[Case], Verdict]] = {
    "Q1": q1_one_place,
    "Q2": q2_every_row,
    "Q3": q3_disjoint_ranks,
    "Q4": q4_resumed,
    "Q5": q5_repeated,
    "Q6": q6_elastic,
    "Q7": q7_crashes,
    "Q8": q8_killed_worker,
    "Q9": q9_blend,
    "Q10": q10_even_ranks,
    "Q11": q11_memory,
    "Q12": q12_kinds,
}


@dataclass(frozen=True)
class VerifyReport:
    """The verdicts on a recipe, what was measured on the way, and where the records are."""

    recipe: str
    version: str
    fingerprint: str
    settings: VerifySettings
    steps: int
    lanes: int
    verdicts: tuple[Verdict, ...]
    figures: Figures
    seconds: float

    @property
    def is_proved(self) -> bool:
        return all(verdict.is_good for verdict in self.verdicts)


def verify(
    settings: VerifySettings, progress: Progress = lambda *_: None, launch: Launch | None = None
) -> VerifyReport:
    """Make every run that the questions need, and ask them. What is wrong with the recipe itself is raised.

    `launch` runs the ranks of a job in place of processes of their own.
    """
    begin = time.perf_counter()
    recipe = Recipe.load(settings.recipe_path)
    tables = map_tables(recipe)
    plan = plan_tables(recipe, tables, world_size=settings.world_size)
    check_world(0, settings.world_size, plan.lanes)
    single = one_pass(recipe)
    pass_plan = plan_tables(single, tables, world_size=settings.world_size)
    part = part_of_pass(pass_plan, settings.sample)
    steps = num_steps(plan, settings.steps)
    rows: dict[str, EnumeratedSource] = {}
    if "Q2" in settings.questions:
        most = None if part.is_whole else max(1, sum(part.draws) // len(tables))
        for branch in branches(recipe):
            for leaf in branch.leaves():
                progress(f"scanning {leaf.source.name}", 0, 1)
                table = tables[leaf.path]
                rows[leaf.source.name] = enumerate_source(leaf, recipe, table, settings.id_field, most)
    runs = Runs(settings, recipe, plan.lanes, steps, part, progress, launch)
    case = Case(settings, recipe, tables, plan, pass_plan, part, steps, runs, rows)
    try:
        runs.make()
    except PlayheadError as error:
        if not any(source.stale for source in rows.values()):
            raise
        verdicts = tuple(_without_runs(question, case, error) for question in settings.questions)
    else:
        case = replace(case, replaced=_replaced(settings.records))
        case = replace(case, shares=shares_of(case)) if BASELINE in runs.done else case
        verdicts = tuple(explained(_asked(question, case), runs) for question in settings.questions)
    return VerifyReport(
        str(settings.recipe_path),
        version("playhead"),
        plan.fingerprint,
        settings,
        steps,
        plan.lanes,
        verdicts,
        _figures(case) if BASELINE in runs.done else Figures(),
        time.perf_counter() - begin,
    )


def _asked(question: str, case: Case) -> Verdict:
    begin = time.perf_counter()
    verdict = ASKED[question](case)
    return replace(verdict, seconds=_run_seconds(question, case) + time.perf_counter() - begin)


def _without_runs(question: str, case: Case, error: PlayheadError) -> Verdict:
    """The index is not that of the files, and a run ended with an error because of it, in all likelihood."""
    stale = stale_index(case)
    if question == "Q2" and stale is not None:
        return stale
    return Verdict(question, "unproven", (f"the index is stale, and a run failed: {error.message()}",))


def _run_seconds(question: str, case: Case) -> float:
    """The time of the runs that a question needs; they are shared with others."""
    prefixes = NEEDS[question]
    seconds = sum(run.seconds for name, run in case.runs.done.items() if name.startswith(prefixes))
    crashed = case.runs.crashed
    return seconds + (crashed.seconds if crashed is not None and "crash" in prefixes else 0.0)


def _figures(case: Case) -> Figures:
    baseline = case.runs.done[BASELINE]
    first = [end.seconds_to_first for record in baseline.ranks if (end := record.end) and end.seconds_to_first]
    waited = [line.waited_seconds for record in baseline.ranks for line in record.steps[1:]]
    memory = {record.rank: tuple(line.memory_bytes for line in record.steps) for record in baseline.ranks}
    return Figures(max(first, default=None), tuple(waited), memory, case.shares)


def _replaced(records: Path) -> tuple[Incident, ...]:
    """The bad samples of all runs, and what stood in for them."""
    files = sorted((records / "cache" / "quarantine").glob("*/rank-*.jsonl"))
    lines = [line for file in files for line in file.read_bytes().split(b"\n")[:-1]]
    return tuple(msgspec.json.decode(line, type=Incident) for line in lines)
