"""A loader of planned shapes: the same workers and transport, but no row is read. It is the ceiling of a recipe."""

from __future__ import annotations

from msgspec.structs import replace

from playhead.feed.delivery import Delivery
from playhead.feed.loader import pool_maker
from playhead.feed.processes import WorkerOptions
from playhead.feed.produce import Blueprint
from playhead.feed.rank_stream import RankStream
from playhead.inspect.bench.values import LoaderSettings
from playhead.read.planned import PlannedReader
from playhead.recipe.values import Recipe
from playhead.store import Files


def mock_loader(
    recipe: Recipe,
    settings: LoaderSettings,
    split: str | None = None,
    rank: tuple[int | None, int | None] = (None, None),
    files: Files | None = None,
) -> Delivery:
    """Delivers zeros of the planned lengths, padded or packed as the recipe says. `rank` is rank and world size."""
    recipe = replace(recipe, shard_cache=None)
    stream = RankStream(recipe, split, *rank, files)
    name = recipe.sequence or "tokens"
    shapes_only = replace(
        recipe,
        collate="pad",
        fields=None,
        sequence=name,
        pad_values={key: value for key, value in recipe.pad_values.items() if key == name},
        dtypes={key: value for key, value in recipe.dtypes.items() if key == name},
    )
    blueprint = Blueprint(shapes_only, split, files=files, new_reader=PlannedReader)
    options = WorkerOptions(settings.workers, settings.lookahead)
    return Delivery(stream, blueprint, pool_maker(blueprint, stream, settings.worker_kind, options))
