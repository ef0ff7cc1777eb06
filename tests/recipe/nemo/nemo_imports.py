"""The configurations in `configs/`, imported as a user would, and what is frozen of them.

`python tests/recipe/nemo/nemo_imports.py` freezes them again: read the difference before it is committed.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from unittest import mock

from playhead.recipe.nemo import Imported, ImportOptions, import_nemo
from playhead.recipe.nemo.report import report_markdown
from playhead.recipe.nemo.write import recipe_text

HERE = Path(__file__).parent
CONFIGS, FROZEN = HERE / "configs", HERE / "frozen"

# The configurations of which a recipe is frozen, and what they are imported with.
IMPORTED: dict[str, dict[str, Any]] = {
    "tarred_blend": {},
    "nested_groups": {"lanes": 16},
    "temperatures": {},
    "two_lengths": {"tokenizer": "/models/tokenizer.json"},
    "multi_config": {"lanes": 8, "tokenizer": "/models/tokenizer.json"},
    "round_robin": {},
    "shar_forms": {},
    "manifests": {},
    "weighted_manifests": {},
    "salm": {"tokenizer": "/models/tokenizer.json", "template": "/models/chat_template.jinja"},
    "text_and_audio": {},
    "bare_list": {"overrides": ["[0].weight=3"]},
}


def imported(name: str, **options: Any) -> Imported:
    """A configuration imported in its own folder, for a recipe beside it."""
    given = {**IMPORTED.get(name, {}), **options}
    with mock.patch.dict(os.environ, {"AST_ROOT": "/data"}):
        return import_nemo(CONFIGS / f"{name}.yaml", ImportOptions(base_dir=CONFIGS, **given))


def texts(found: Imported) -> tuple[str, str]:
    """The recipe and the report, without the folder that the tests are in. A recipe whose lines depend on the length
    of its name could not be frozen.
    """
    recipe = recipe_text(found.values, found.notes.found, [])
    assert str(CONFIGS) not in recipe
    report = report_markdown(found, "recipe.yaml").replace(f"{CONFIGS}/", "")
    return recipe, report


def freeze() -> None:
    for name in IMPORTED:
        recipe, report = texts(imported(name))
        (FROZEN / f"{name}.yaml").write_text(recipe)
        (FROZEN / f"{name}.md").write_text(report)


if __name__ == "__main__":
    freeze()
