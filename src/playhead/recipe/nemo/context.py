"""What all steps of an import share: options, notes, names that are taken, and files that are being read."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playhead.errors import RecipeError
from playhead.recipe.environment import expand_environment
from playhead.recipe.nemo.interpolation import Document
from playhead.recipe.nemo.report import Notes
from playhead.recipe.nemo.yaml_text import read_yaml
from playhead.recipe.values import SUM_NAME
from playhead.store import is_url

_PATTERN = re.compile(r"_OP_.*?_CL_|[{(\[<]\d+\.\.\d+[})\]>]|[*?{}]|\$\{[^}]*\}")
_UNTELLING = re.compile(
    r"(data|train|dev|test|cuts|shar|audio|wav|text|texts|tarred|tarred_audio|tarred_train|manifests?|sharded_manifests?"
    r"|tarred_audio_manifest|audio_tar|\d+)?[_-]*",
    re.IGNORECASE,
)


@dataclass
class Context:
    """`base_dir` is where relative paths begin, `recipe_dir` where the recipe will be."""

    base_dir: Path
    recipe_dir: Path
    tokenizer: str
    template: str
    notes: Notes = field(default_factory=Notes)
    indexes_roots: list[str] = field(default_factory=list)
    _names: set[str] = field(default_factory=set)
    _open: list[str] = field(default_factory=list)

    def placed(self, path: str) -> str:
        """A path that means the same in the recipe as it does for a job started in the base directory."""
        return path if self.base_dir == self.recipe_dir else self.absolute(path)

    def absolute(self, path: str) -> str:
        """The same for a path that a recipe would take from elsewhere."""
        is_relative = not is_url(path) and not path.startswith(("/", "~", "${", "pipe:"))
        return f"{self.base_dir}/{path.removeprefix('./')}" if is_relative else path

    def name_for(self, given: Any, paths: Sequence[str], fallback: str) -> str:
        """A name that no other source has: the given one, or one made of the path."""
        wanted = str(given) if given is not None else _name_of(paths) or fallback
        name, number = wanted, 1
        while name in self._names or name == SUM_NAME:
            number += 1
            name = f"{wanted}-{number}"
        self._names.add(name)
        return name

    @contextmanager
    def included(self, path: str, place: str) -> Iterator[tuple[Document, str]]:
        """A YAML file named in the configuration, and its own name for places inside."""
        expanded = str(expand_environment(path, os.environ, place))
        file = expanded if is_url(expanded) else os.path.normpath(self.base_dir / Path(expanded).expanduser())
        if file in self._open:
            raise RecipeError(
                f"{place}: a file includes itself",
                found=" -> ".join([*self._open[self._open.index(file) :], file]),
                fix="remove the circle",
            )
        self._open.append(file)
        try:
            yield Document(read_yaml(file), file), path
        finally:
            self._open.pop()


def _name_of(paths: Sequence[str]) -> str | None:
    """The part of the first path that tells its dataset from others: the file's name, or that of a folder around it."""
    if not paths:
        return None
    parts = [part for part in paths[0].rpartition("://")[2].split("/") if part]
    if not parts:
        return None
    plain = [_PATTERN.sub("\0", part) for part in parts]
    stem = plain[-1].partition(".")[0]
    for part in (stem, *reversed(plain[:-1])):
        if "\0" not in part and not _UNTELLING.fullmatch(part):
            return part
    return stem.replace("\0", "").strip("_-. ") or None
