"""Parameters by name, from a YAML file, `key=value` words and flags -> a checked value."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import fields

from playhead.curate.config import WindowConfig
from playhead.curate.cut_config import CutConfig
from playhead.curate.pipeline_file import is_pipeline, parameters_of
from playhead.errors import DataError, RecipeError
from playhead.recipe.text import parse_yaml
from playhead.recipe.words import describe, nearest

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
    return RecipeError(f"{name}: no parameter has this name", expected=f"one of: {', '.join(known)}", fix=fix)
