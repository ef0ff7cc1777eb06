"""Recipes to verify, and verifications whose ranks run in this process: quick, where processes are not the point."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from corpora import lengths_of, recipe_in
from deliveries import write_tokens
from playhead.prepare import prepare
from playhead.recipe.values import Recipe
from playhead.verify.job import LoaderOptions, RankJob
from playhead.verify.loaders import VARIED, accepted, users_function
from playhead.verify.rank import play
from playhead.verify.settings import VerifySettings
from playhead.verify.verdict import Verdict
from playhead.verify.verify import VerifyReport, verify

LANES = 4
STEPS = 24
HERE = tuple(f"Q{number}" for number in range(1, 13) if number not in (7, 8))  # Q7 and Q8 kill processes


def write_recipe(folder: Path, recipe: Recipe, name: str = "recipe") -> Path:
    """A recipe as a file, prepared."""
    path = folder / f"{name}.json"
    path.write_text(json.dumps(recipe.to_dict()))
    prepare(recipe, workers=1)
    return path


def two_sources(folder: Path, **fields: Any) -> Recipe:
    """Tokens of two sources in fixed batches, augmented at random by the samples' own generators."""
    text = write_tokens(folder, "text", lengths_of(1, 3, 60, 40)) | {"weight": 3}
    more = write_tokens(folder, "more", lengths_of(2, 1, 70, 40)) | {"weight": 1}
    defaults = {
        "lanes": LANES,
        "seed": 7,
        "batching": {"type": "fixed", "size": 3},
        "window_size": 48,
        "map": "loader_maps:augmented",
    }
    return recipe_in(folder, text, more, **{**defaults, **fields})


def run_here(job: RankJob, only: tuple[int, ...] | None, look: Callable[[int], None]) -> None:
    """Be the ranks of a job, one after another."""
    Path(job.folder).mkdir(parents=True)
    job.write()
    for process in range(job.num_processes) if only is None else only:
        place = {"RANK": str(process), "WORLD_SIZE": str(job.num_processes)}
        with mock.patch.dict(os.environ, place):
            play(job, process)
    look(1)


def verified(recipe: Path, records: Path, *questions: str, **fields: Any) -> VerifyReport:
    """Verify a recipe in this process, with threads as workers."""
    records.mkdir()
    options = fields.pop("options", LoaderOptions(2, "thread"))
    loader = fields.get("loader")
    varied = VARIED if loader is None else accepted(users_function(loader, recipe), VARIED)
    defaults = {"world_size": 2, "steps": STEPS, "questions": questions or HERE, "varied": varied}
    return verify(VerifySettings(recipe, records, options=options, **{**defaults, **fields}), launch=run_here)


def by_question(report: VerifyReport) -> dict[str, Verdict]:
    return {verdict.question: verdict for verdict in report.verdicts}


def outcomes(report: VerifyReport) -> dict[str, str]:
    return {verdict.question: verdict.tag or verdict.outcome for verdict in report.verdicts}
