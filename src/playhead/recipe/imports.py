"""User functions named in a recipe: `package.module:function`."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playhead.errors import RecipeError

_SHAPE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def check_function_name(name: str, where: str) -> None:
    """Refuse what cannot name a function, without importing anything."""
    if not _SHAPE.fullmatch(name):
        raise RecipeError(
            f"{where}: this does not name a function",
            found=name,
            expected="`package.module:function`, for example `lengths:count_tokens`",
        )


def search_directory(directory: Path) -> None:
    """Let modules beside the recipe be imported, after everything installed so that they shadow nothing.

    `sys.path` travels to worker processes, so they find the modules too.
    """
    if str(directory) not in sys.path:
        sys.path.append(str(directory))


def resolve_function(name: str, where: str = "length.function") -> Callable[..., Any]:
    """The function that `package.module:function` names."""
    check_function_name(name, where)
    module_name, _, attribute = name.partition(":")
    found = _import(module_name, name, where)
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise RecipeError(
                f"{where}: the module {module_name} has no function {attribute}",
                found=name,
                expected=f"one of: {', '.join(_functions_of(found)) or '(it has none)'}",
            )
        found = getattr(found, part)
    if not callable(found):
        raise RecipeError(f"{where}: {name} is not a function", found=f"a value of type {type(found).__name__}")
    resolved: Callable[..., Any] = found
    return resolved


def _import(module_name: str, name: str, where: str) -> Any:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or module_name
        if module_name == missing or module_name.startswith(f"{missing}."):
            fix = f"put {missing.split('.')[0]}.py beside the recipe, or install the package"
        else:
            fix = f"install {missing}, which {module_name} imports"
        raise RecipeError(f"{where}: the module {missing} cannot be found", found=name, fix=fix) from error
    except Exception as error:
        raise RecipeError(
            f"{where}: importing the module {module_name} failed", found=f"{type(error).__name__}: {error}"
        ) from error


def _functions_of(module: Any) -> list[str]:
    return sorted(name for name, value in vars(module).items() if callable(value) and not name.startswith("_"))
