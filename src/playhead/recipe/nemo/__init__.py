"""Configurations of NeMo's Lhotse data loader as recipes.

In: the YAML of a training job, or an `input_cfg` list. Out: the values of a recipe with the same blend, and notes on
everything that was mapped, changed or ignored. What cannot be mapped is refused by name.
"""

from __future__ import annotations

from playhead.recipe.nemo.convert import ImportOptions, import_nemo
from playhead.recipe.nemo.report import Imported

__all__ = ["ImportOptions", "Imported", "import_nemo"]
