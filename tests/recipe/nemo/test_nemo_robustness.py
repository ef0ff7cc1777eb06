"""A configuration with anything wrong in it is imported, or refused with a message: never a traceback."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from nemo_imports import CONFIGS, IMPORTED

from playhead.errors import PlayheadError
from playhead.recipe.nemo import ImportOptions, import_nemo
from playhead.recipe.nemo.files import write_imported

JUNK = st.sampled_from(
    [
        None,
        True,
        0,
        -1,
        2,
        0.5,
        float("inf"),
        "",
        "x",
        "???",
        "${",
        "${a}",
        "a.yaml",
        [],
        {},
        [1],
        ["a"],
        [[1, 2]],
        {"a": 1},
    ]
)


def paths_in(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [path, *(inner for key, value in items for inner in paths_in(value, (*path, key)))]


@pytest.mark.parametrize("name", IMPORTED)
@given(data=st.data())
def test_any_value_anywhere_is_imported_or_refused(tmp_path_factory, name, data):
    config = deepcopy(yaml.safe_load((CONFIGS / f"{name}.yaml").read_text()))
    path = data.draw(st.sampled_from(paths_in(config)[1:]))
    node = config
    for key in path[:-1]:
        node = node[key]
    if data.draw(st.booleans()):
        node[path[-1]] = data.draw(JUNK)
    elif isinstance(node, dict):
        del node[path[-1]]
    folder = tmp_path_factory.mktemp("junk")
    (folder / "config.yaml").write_text(json.dumps(config))
    try:
        found = import_nemo(folder / "config.yaml", ImportOptions(base_dir=CONFIGS, recipe_dir=folder))
    except PlayheadError:
        return
    write_imported(found, folder / "recipe.yaml")
