"""NeMo Curator's own `pipeline.yaml` -> parameters by name, from its `stages` by their class names.

Reader and writer are what the command does with its inputs and `--out`; what configures Hydra and the backend has no
part in the windows.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from playhead.errors import RecipeError
from playhead.recipe.words import describe

_BUILDER, _OVERLAP = "ALMDataBuilderStage", "ALMDataOverlapStage"
_AROUND = ("ManifestReader", "ManifestReaderStage", "ManifestWriterStage")  # before 1.4: ALMManifestReader, ...
_OF_EVERY_STAGE = ("name", "resources", "batch_size")
_OF_THE_OVERLAP_STAGE = {"overlap_percentage": 0}  # its own default, where ours is the tutorial's 50
_FLAT = "lines by name, such as `target_window_duration: 120`, `min_speakers: 2` and `overlap_percentage: 50`"


def is_pipeline(found: Mapping[str, Any]) -> bool:
    return "stages" in found


def parameters_of(found: Mapping[str, Any], file: Path) -> dict[str, Any]:
    """The parameters of the two stages that make windows. Both must be there, once, and no stage that is not known."""
    stages = found["stages"]
    if not isinstance(stages, list):
        raise _refused(f"{file}: stages: not a list", describe(stages))
    by_class: dict[str, Mapping[str, Any]] = {}
    for number, stage in enumerate(stages):
        name = _class_of(stage, f"{file}: stages[{number}]")
        if name in by_class:
            raise _refused(f"{file}: stages[{number}]: a second {name}", None)
        by_class[name] = stage
    lacking = [name for name in (_BUILDER, _OVERLAP) if name not in by_class]
    if lacking:
        raise _refused(f"{file}: stages: no {lacking[0]}", ", ".join(by_class) or "no stage")
    given = {**_own(by_class[_BUILDER]), **_OF_THE_OVERLAP_STAGE, **_own(by_class[_OVERLAP])}
    for name, value in given.items():
        if isinstance(value, str) and "${" in value:
            raise _refused(f"{file}: {name}: refers to another value", value)
    return given


def _class_of(stage: Any, place: str) -> str:
    target = stage.get("_target_") if isinstance(stage, dict) else None
    if not isinstance(target, str):
        raise _refused(f"{place}: names no class", describe(stage))
    name = target.rpartition(".")[2]
    if name not in (_BUILDER, _OVERLAP) and name.removeprefix("ALM") not in _AROUND:
        raise _refused(f"{place}: a stage that is not known here", target)
    return name


def _own(stage: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in stage.items() if name[:1] != "_" and name not in _OF_EVERY_STAGE}


def _refused(problem: str, found: str | None) -> RecipeError:
    return RecipeError(
        problem,
        found=found,
        expected=f"`stages` with one {_BUILDER} and one {_OVERLAP}, and else a reader and a writer of manifests",
        fix=f"write the parameters flat: {_FLAT}",
    )
