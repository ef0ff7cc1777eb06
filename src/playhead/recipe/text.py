"""The text of a recipe file as plain values: YAML, or JSON by its suffix.

Scalars are read by the rules of YAML 1.2, as editors do, not by PyYAML's older ones: `1e6` is a number,
`2024-01-01` and `12:30` are text, and only `true` and `false` are truth values. The words that YAML 1.1 took for
truth values (`yes`, `no`, `on`, `off`) arrive as `Ambiguous` text: fine where text is expected, refused elsewhere.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

from playhead.errors import RecipeError


class Ambiguous(str):
    """An unquoted word that some readers of YAML take for a truth value."""

    __slots__ = ()


def read_plain(file: Path) -> Any:
    """The plain values in a recipe file."""
    text = _read_text(file)
    value = _from_json(text, file) if file.suffix == ".json" else parse_yaml(text, file)
    if value is None:
        raise RecipeError(f"{file}: the recipe is empty", expected="at least `sources` and `batching`")
    return value


def _read_text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise RecipeError(f"{file}: no such recipe file", fix="check the path") from None
    except UnicodeDecodeError as error:
        raise RecipeError(f"{file}: the recipe is not UTF-8 text", found=f"a bad byte at {error.start}") from None
    except OSError as error:
        raise RecipeError(f"{file}: the recipe cannot be read", found=error.strerror or str(error)) from None


def parse_yaml(text: str, file: Path | str) -> Any:
    """The plain values in a text; errors name it by its file."""
    try:
        loader = _Loader(text)
        try:
            return loader.get_single_data()
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{file}, line {mark.line + 1}, column {mark.column + 1}" if mark else str(file)
        found = ", ".join(part for part in (error.problem, error.context) if part)
        raise RecipeError(f"{where}: not valid YAML", found=found) from None
    except yaml.YAMLError as error:
        raise RecipeError(f"{file}: not valid YAML", found=str(error)) from None
    except RecursionError:
        raise RecipeError(f"{file}: the YAML is nested too deeply") from None


def _from_json(text: str, file: Path) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            keys = [key for key, _ in pairs]
            twice = next(key for key in keys if keys.count(key) > 1)
            raise RecipeError(f"{file}: the key `{twice}` is given twice", fix="keep one of the two")
        return found

    if not text.strip():
        return None
    try:
        return json.loads(text, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        where = f"{file}, line {error.lineno}, column {error.colno}"
        raise RecipeError(f"{where}: not valid JSON", found=error.msg) from None


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader with the scalars of YAML 1.2, refusing a key given twice."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - PyYAML's own contract

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        # Checked before merge keys (`<<`) are resolved: overriding a merged key is what they are for.
        seen: set[str] = set()
        for key, _ in node.value:
            if key.value == "<<" or not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key `{key.value}` is given twice", key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def _integer(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
    text = loader.construct_scalar(node)
    return int(text, 0) if text[:2] in {"0o", "0x"} else int(text)  # 010 is ten


def _ambiguous(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> Ambiguous:
    return Ambiguous(loader.construct_scalar(node))


for _tag, _pattern, _first in (
    ("tag:yaml.org,2002:bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("tag:yaml.org,2002:int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    ("tag:yaml.org,2002:float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", "-+.0123456789"),
    ("tag:yaml.org,2002:float", r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", "-+."),
    ("tag:yaml.org,2002:null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("tag:yaml.org,2002:merge", r"<<", "<"),
    ("!ambiguous", r"(?i:yes|no|on|off)", "yYnNoO"),
):
    _Loader.add_implicit_resolver(_tag, re.compile(rf"^(?:{_pattern})$"), list(_first))
_Loader.add_constructor("tag:yaml.org,2002:int", _integer)
_Loader.add_constructor("!ambiguous", _ambiguous)
