"""Parameters by name, from a YAML file, `key=value` words and flags -> a checked value.

NeMo Curator's own `pipeline.yaml` is read too, its `stages` by their class names. Its reader and writer are what the
command does with its inputs and `--out`; settings of Hydra and the backend do not affect the windows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import fields

from playhead.curate.config import CutConfig, WindowConfig
from playhead.errors import DataError, RecipeError
from playhead.recipe.text import parse_yaml
from playhead.recipe.words import describe, nearest

_BUILDER, _OVERLAP = "ALMDataBuilderStage", "ALMDataOverlapStage"
_AROUND = ("ManifestReader", "ManifestReaderStage", "ManifestWriterStage")  # before 1.4: ALMManifestReader, ...
_OF_EVERY_STAGE = ("name", "resources", "batch_size")
_OF_THE_OVERLAP_STAGE = {"overlap_percentage": 0}  # the default of that stage; here it is the tutorial's 50
_FLAT = "lines by name, such as `target_window_duration: 120`, `min_speakers: 2` and `overlap_percentage: 50`"


def is_pipeline(found: Mapping[str, Any]) -> bool:
    return "stages" in found


def parameters_of(found: Mapping[str, Any], file: Path) -> dict[str, Any]:
    """The parameters of the two stages that make windows. Each must occur once; unknown stages are refused."""
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
        raise _refused(f"{place}: unknown stage", target)
    return name


def _own(stage: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in stage.items() if name[:1] != "_" and name not in _OF_EVERY_STAGE}


def _refused(problem: str, found: str | None) -> RecipeError:
    return RecipeError(
        problem,
        found=found,
        expected=f"`stages` with one {_BUILDER} and one {_OVERLAP}, besides a reader and a writer of manifests",
        fix=f"write the parameters flat: {_FLAT}",
    )


Config = TypeVar("Config", WindowConfig, CutConfig)

_OVERRIDE = re.compile(r"\+{0,2}([A-Za-z_][\w.-]*)=(.*)", re.DOTALL)


def read_config(
    kind: type[Config], file: Path | None, overrides: Mapping[str, Any], flags: Mapping[str, Any]
) -> Config:
    """The file's parameters, replaced by the words and the flags; a parameter given both ways is refused."""
    named = {} if file is None else _named(kind, file)
    both = sorted(set(overrides) & set(flags))
    if both:
        raise RecipeError(f"{both[0]}: given twice", found=f"as `{both[0]}=` and as a flag", fix="remove one of them")
    given = {**named, **overrides, **flags}
    known = [field.name for field in fields(kind)]
    for name in given:
        if name not in known:
            raise _unknown(name, known)
    return kind(**given)


def split_words(words: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """Inputs, and `key=value` overrides among them. A file that has such a name is a file."""
    inputs: list[str] = []
    overrides: dict[str, Any] = {}
    for word in words:
        match = _OVERRIDE.fullmatch(word)
        if match is None or Path(word).exists():
            inputs.append(word)
            continue
        name = match[1].replace("-", "_")
        if name in overrides:
            raise RecipeError(f"{name}: given twice", found=f"again in `{word}`", fix="remove one of them")
        overrides[name] = parse_yaml(match[2], word) if match[2].strip() else ""
    return inputs, overrides


def _named(kind: type[Config], file: Path) -> dict[str, Any]:
    try:
        found = parse_yaml(file.read_text(encoding="utf-8"), file)
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{file}: cannot be read", found=str(error), fix="correct the path") from error
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise RecipeError(
            f"{file}: no parameters by name", found=describe(found), expected="lines such as `tolerance: 0.1`"
        )
    if kind is WindowConfig and is_pipeline(found):
        return parameters_of(found, file)
    return {str(name).replace("-", "_"): value for name, value in found.items()}


def _unknown(name: str, known: list[str]) -> RecipeError:
    near = nearest(name, known)
    fix = f"did you mean `{near[0]}`?" if near else None
    return RecipeError(f"{name}: unknown parameter", expected=f"one of: {', '.join(known)}", fix=fix)
