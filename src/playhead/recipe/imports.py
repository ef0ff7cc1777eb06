"""User functions named in a recipe: `package.module:function`."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playhead.errors import RecipeError
from playhead.fingerprint import digest_bytes

_SHAPE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def check_function_name(name: str, where: str) -> None:
    """Refuse text that cannot name a function, without importing anything."""
    if not _SHAPE.fullmatch(name):
        raise RecipeError(
            f"{where}: does not name a function",
            found=name,
            expected="`package.module:function`, for example `lengths:count_tokens`",
        )


def search_directory(directory: Path) -> None:
    """Let modules beside the recipe be imported, after everything installed so that they shadow nothing.

    `sys.path` is passed to worker processes, so they find the modules too.
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


def source_digest(name: str, where: str) -> str | None:
    """A digest of the source text of the module in `package.module:function`; None if it has none, as in C.

    The module itself is not imported, which may be slow; the packages around it are.
    """
    check_function_name(name, where)
    module_name = name.partition(":")[0]
    try:
        spec = importlib.util.find_spec(module_name)
    except ModuleNotFoundError as error:
        raise _not_found(error.name or module_name, name, where) from error
    except Exception as error:
        raise _broken(module_name, error, where) from error
    if spec is None:
        raise _not_found(module_name, name, where)
    get_source = getattr(spec.loader, "get_source", None)
    try:
        text = get_source(module_name) if get_source is not None else None
    except (ImportError, OSError, SyntaxError, UnicodeDecodeError) as error:
        raise _broken(module_name, error, where) from error
    return None if text is None else digest_bytes(text.encode("utf-8", "surrogatepass"))


def _import(module_name: str, name: str, where: str) -> Any:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise _not_found(error.name or module_name, name, where) from error
    except (Exception, SystemExit) as error:  # a script without a main guard may end the process
        raise _broken(module_name, error, where) from error


def _not_found(missing: str, name: str, where: str) -> RecipeError:
    module_name = name.partition(":")[0]
    if module_name == missing or module_name.startswith(f"{missing}."):
        fix = f"put {missing.partition('.')[0]}.py beside the recipe, or install the package"
    else:
        fix = f"install {missing}, which {module_name} imports"
    return RecipeError(f"{where}: the module {missing} cannot be found", found=name, fix=fix)


def _broken(module_name: str, error: BaseException, where: str) -> RecipeError:
    return RecipeError(f"{where}: importing the module {module_name} failed", found=f"{type(error).__name__}: {error}")


def _functions_of(module: Any) -> list[str]:
    return sorted(name for name, value in vars(module).items() if callable(value) and not name.startswith("_"))
