"""Environment variables in a recipe: `${NAME}` and `${NAME:-default}` in any text; `$${` is a plain `${`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from playhead.errors import RecipeError

_REFERENCE = re.compile(r"\$\$\{|\$\{([^}]*)\}|\$\{")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def expand_environment(value: Any, environment: Mapping[str, str], path: str = "") -> Any:
    """The same values with every reference in a text replaced; keys are not changed."""
    if isinstance(value, str):
        return _expand_text(value, environment, path) if "${" in value else value
    if isinstance(value, Mapping):
        inside = f"{path}." if path else ""
        return {key: expand_environment(item, environment, f"{inside}{key}") for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [expand_environment(item, environment, f"{path}[{i}]") for i, item in enumerate(value)]
    return value


def unset_names(value: Any, environment: Mapping[str, str]) -> list[str]:
    """The variables that references without a default need, and that are not set."""
    if isinstance(value, str):
        named = [match[1] for match in _REFERENCE.finditer(value) if match[1] and _NAME.fullmatch(match[1])]
        return [name for name in named if name not in environment]
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, (list, tuple)) else ()
    return list(dict.fromkeys(name for item in items for name in unset_names(item, environment)))


def escape(text: str) -> str:
    """The text that expands to `text`."""
    return text.replace("${", "$${")


def _expand_text(text: str, environment: Mapping[str, str], path: str) -> str:
    def replace(match: re.Match[str]) -> str:
        if match[0] == "$${":
            return "${"
        name, has_default, default = (match[1] or "").partition(":-")
        if not _NAME.fullmatch(name):
            raise RecipeError(
                f"{path}: a reference to an environment variable is malformed",
                found=text,
                expected="`${NAME}` or `${NAME:-default}`",
                fix="write `$${` for a plain `${`",
            )
        if environment.get(name):
            return environment[name]
        if has_default:
            return default
        if name in environment:
            return ""
        raise RecipeError(
            f"{path}: the environment variable {name} is not set",
            found=text,
            fix=f"set it (export {name}=...), or give a default: `${{{name}:-...}}`",
        )

    return _REFERENCE.sub(replace, text)
