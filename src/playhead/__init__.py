"""Playhead: training data as a pure function of (recipe, step).

Names are imported when first used, so that `import playhead` is quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playhead.errors import (
        DataError,
        EndOfStreamError,
        NotPreparedError,
        PlayheadError,
        PrepareError,
        RecipeError,
        SampleError,
        StateError,
        StoreError,
        WorkerError,
        WorldSizeError,
    )
    from playhead.feed.batch import Batch
    from playhead.feed.loader import Loader
    from playhead.feed.openmetrics import openmetrics
    from playhead.feed.stats import BatchTiming, LoaderStats
    from playhead.formats.conversation import Conversation, Turn
    from playhead.prepare import prepare as prepare_recipe
    from playhead.recipe.values import Recipe
    from playhead.resolve import open_plan

__version__: str

__all__ = [
    "Batch",
    "BatchTiming",
    "Conversation",
    "DataError",
    "EndOfStreamError",
    "Loader",
    "LoaderStats",
    "NotPreparedError",
    "PlayheadError",
    "PrepareError",
    "Recipe",
    "RecipeError",
    "SampleError",
    "StateError",
    "StoreError",
    "Turn",
    "WorkerError",
    "WorldSizeError",
    "__version__",
    "open_plan",
    "openmetrics",
    "prepare_recipe",
]

# A function called `prepare` would be shadowed by the folder of that name as soon as anything imports the folder.
_HOMES = {
    "Batch": ("playhead.feed.batch", "Batch"),
    "BatchTiming": ("playhead.feed.stats", "BatchTiming"),
    "Conversation": ("playhead.formats.conversation", "Conversation"),
    "Loader": ("playhead.feed.loader", "Loader"),
    "LoaderStats": ("playhead.feed.stats", "LoaderStats"),
    "Recipe": ("playhead.recipe.values", "Recipe"),
    "Turn": ("playhead.formats.conversation", "Turn"),
    "open_plan": ("playhead.resolve", "open_plan"),
    "openmetrics": ("playhead.feed.openmetrics", "openmetrics"),
    "prepare_recipe": ("playhead.prepare", "prepare"),
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("playhead")
    elif name in __all__:
        home, its_name = _HOMES.get(name, ("playhead.errors", name))
        value = getattr(import_module(home), its_name)
    else:
        raise AttributeError(f"module 'playhead' has no attribute '{name}'")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
