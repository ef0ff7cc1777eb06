"""The YAML of NeMo configurations, by the rules of OmegaConf, and values given beside it.

The rules are those of YAML 1.1 (`no` is false), except that `1e6` is a number and dates are text. A key given twice is
an error.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import yaml

from playhead.errors import PlayheadError, RecipeError
from playhead.recipe.nemo.interpolation import parsed
from playhead.store import all_files, open_file

_TIMESTAMP = "tag:yaml.org,2002:timestamp"
_FLOAT = r"""[-+]?(?:[0-9][0-9_]*)\.[0-9_]*(?:[eE][-+]?[0-9]+)?
    | [-+]?(?:[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)
    | [-+]?\.[0-9][0-9_]*(?:[eE][-+]?[0-9]+)?
    | [-+]?\.(?:inf|Inf|INF) | \.(?:nan|NaN|NAN)"""


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value != "<<":
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key `{key.value}` is given twice", key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(f"^(?:{_FLOAT})$", re.VERBOSE), list("-+0123456789.")
)


def read_yaml(path: str) -> Any:
    """The plain values of a YAML file, local or in a store."""
    try:
        text = b"".join(open_file(all_files(), path).pieces()).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RecipeError(f"{path}: is not UTF-8 text", found=f"a bad byte at {error.start}") from None
    except PlayheadError as error:
        raise RecipeError(f"{path}: cannot be read", found=error.problem, fix=error.fix or "check the path") from None
    return parse_yaml_text(text, path)


def parse_yaml_text(text: str, file: str) -> Any:
    try:
        return yaml.load(text, _Loader)  # noqa: S506 - a safe loader with other scalars
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{file}, line {mark.line + 1}, column {mark.column + 1}" if mark else file
        found = ", ".join(part for part in (error.problem, error.context) if part)
        raise RecipeError(f"{where}: not valid YAML", found=found) from None
    except yaml.YAMLError as error:
        raise RecipeError(f"{file}: not valid YAML", found=str(error)) from None
    except RecursionError:
        raise RecipeError(f"{file}: the YAML is nested too deeply") from None


def with_overrides(root: Any, overrides: Sequence[str]) -> Any:
    """The values with each override put in its place; mappings on the way are made."""
    for text in overrides:
        key, found, value = text.lstrip("+").partition("=")
        if not found or not key.strip():
            raise RecipeError("--set: is not a value for a key", found=text, expected="key.key=value")
        keys = parsed(key.strip())
        node = root
        for part, following in zip(keys, [*keys[1:], None], strict=True):
            if not _holds(node, part):
                raise RecipeError("--set: there is no such place", found=text)
            if following is None:
                node[part] = parse_yaml_text(value, f"--set {key}")
            elif isinstance(node, dict) and node.get(part) is None:
                node[part] = {}
            node = node[part]
    return root


def _holds(node: Any, key: str | int) -> bool:
    return isinstance(node, dict) or (isinstance(node, list) and isinstance(key, int) and key < len(node))
