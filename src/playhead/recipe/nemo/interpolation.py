"""Interpolations of OmegaConf: `${a.b}`, `${.x}`, `${..x}` and `${oc.env:NAME}`, resolved without OmegaConf.

References to the environment stay references: `${oc.env:NAME,default}` becomes `${NAME:-default}`, as recipes have it.
Only what is asked for is resolved: other parts of a training configuration may use resolvers that are unknown here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from playhead.errors import RecipeError
from playhead.recipe.environment import escape
from playhead.recipe.patterns import closing

Path = tuple[str | int, ...]

_RESOLVER = re.compile(r"([A-Za-z_][\w.]*):(.*)", re.DOTALL)
_ENVIRONMENT = re.compile(r"\s*([A-Za-z_]\w*)\s*(?:,(.*))?", re.DOTALL)
_KEYS = re.compile(r"(\.*)((?:[^.\[\]]+|\[[^\[\]]+\])(?:\.[^.\[\]]+|\[[^\[\]]+\])*)?")
_KEY = re.compile(r"[^.\[\]]+")
_ABSENT = object()  # a key may be there, and null
_EXPECTED = "`${key.key}`, `${.key}`, `${oc.env:NAME}` or `${oc.env:NAME,default}`"


class Document:
    """The values of one file. Interpolations name keys of the same file."""

    def __init__(self, root: Any, file: str) -> None:
        self._root = root
        self._file = file
        self._active: list[Path] = []

    def get(self, path: Path = ()) -> Any:
        """The value at a path with everything in it resolved; None where there is nothing."""
        found = self._walk(path)
        return None if found is None else self._resolve(found[0], found[1])

    def raw(self, path: Path = ()) -> Any:
        """The value at a path as it is written; None where there is nothing."""
        node = self._root
        for key in path:
            node = _inside(node, key)
        return None if node is _ABSENT else node

    def _walk(self, path: Path) -> tuple[Any, Path] | None:
        """The value as written at a path that may lead through interpolations, and its own path."""
        node, here = self._root, Path()
        for key in path:
            if isinstance(node, str) and "${" in node:
                return _found_in(self._resolve(node, here), path[len(here) :], here)
            node, here = _inside(node, key), (*here, key)
            if node is _ABSENT:
                return None
        return node, here

    def _resolve(self, value: Any, path: Path) -> Any:
        if isinstance(value, Mapping):
            return {key: self._resolve(item, (*path, key)) for key, item in value.items()}
        if isinstance(value, list):
            return [self._resolve(item, (*path, i)) for i, item in enumerate(value)]
        if not isinstance(value, str) or "${" not in value:
            return value
        if path in self._active:
            cycle = " -> ".join(dotted(each) for each in [*self._active[self._active.index(path) :], path])
            raise self._error(path, "an interpolation refers to itself", cycle)
        self._active.append(path)
        try:
            return self._text(value, path)
        finally:
            self._active.pop()

    def _text(self, text: str, path: Path) -> Any:
        found = [
            self._reference(piece, path) if is_reference else escape(piece)
            for piece, is_reference in self._pieces(text, path)
        ]
        if len(found) == 1:
            return found[0]
        if any(isinstance(piece, (Mapping, list)) for piece in found):
            raise self._error(path, "an interpolation inside a text refers to a mapping or a list", text)
        return "".join(_as_text(piece) for piece in found)

    def _pieces(self, text: str, path: Path) -> Iterator[tuple[str, bool]]:
        """The text between references, and what is inside each of them."""
        plain, i = "", 0
        while i < len(text):
            if text.startswith("\\${", i):
                plain, i = plain + "${", i + 3
            elif text.startswith("${", i):
                if plain:
                    yield plain, False
                    plain = ""
                end = closing(text, i + 1)
                if end is None:
                    raise self._error(path, "an interpolation is not closed", text)
                yield text[i + 2 : end], True
                i = end + 1
            else:
                plain, i = plain + text[i], i + 1
        if plain:
            yield plain, False

    def _reference(self, body: str, path: Path) -> Any:
        inner = str(self._text(body, path)) if "${" in body else body
        if "${" in inner:
            raise self._error(path, "an interpolation depends on the environment", f"${{{body}}}")
        resolver = _RESOLVER.fullmatch(inner.strip())
        if resolver is not None:
            return self._environment(resolver[1], resolver[2], path)
        keys = _KEYS.fullmatch(inner.strip())
        if keys is None or not inner.strip():
            raise self._error(path, "an interpolation is malformed", f"${{{inner}}}")
        dots = len(keys[1])
        start = path[:-dots] if dots and dots <= len(path) else ()
        named = tuple(int(key) if key.isdecimal() else key.strip("'\"") for key in _KEY.findall(keys[2] or ""))
        found = self._walk((*start, *named))
        if found is None:
            raise self._error(path, "an interpolation names no key of the file", f"${{{inner}}}")
        return self._resolve(*found)

    def _environment(self, resolver: str, arguments: str, path: Path) -> str:
        given = _ENVIRONMENT.fullmatch(arguments)
        if resolver != "oc.env" or given is None:
            raise self._error(path, f"the resolver `{resolver}` is not supported", f"${{{resolver}:{arguments}}}")
        name, default = given[1], given[2]
        if default is None:
            return f"${{{name}}}"
        default = default.strip().strip("'\"")
        if default == "null" or "}" in default:
            raise self._error(path, "a default from the environment is not a text", f"${{oc.env:{arguments}}}")
        return f"${{{name}:-{default}}}"

    def _error(self, path: Path, problem: str, found: str) -> RecipeError:
        return RecipeError(
            f"{self._file}, {dotted(path)}: {problem}",
            found=found,
            expected=_EXPECTED,
            fix="write the value itself in the configuration, or give it with --set",
        )


def dotted(path: Path) -> str:
    """A path as a user writes it: `model.train_ds.input_cfg[0]`."""
    text = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)
    return text.removeprefix(".")


def parsed(text: str) -> Path:
    """The path that a user wrote."""
    keys = text.replace("[", ".").replace("]", "").removeprefix(".").split(".")
    return tuple(int(key) if key.isdecimal() else key for key in keys)


def _inside(node: Any, key: str | int) -> Any:
    if isinstance(node, Mapping):
        return node.get(key, _ABSENT)
    if isinstance(node, list) and isinstance(key, int) and -len(node) <= key < len(node):
        return node[key]
    return _ABSENT


def _found_in(value: Any, keys: Path, here: Path) -> tuple[Any, Path] | None:
    for key in keys:
        value, here = _inside(value, key), (*here, key)
    return None if value is _ABSENT else (value, here)


def _as_text(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    return str(value)
