"""`multi_config`: several streams with batching of their own, fused."""

from __future__ import annotations

from collections.abc import Mapping

from playhead.errors import RecipeError
from playhead.recipe.nemo.block import Block
from playhead.recipe.nemo.context import Context
from playhead.recipe.nemo.stream import Stream, read_stream

# What the outer configuration decides for all its sub-configs, whatever they say.
_SHARED = ("seed", "shard_seed", "num_workers", "force_finite", "indexes_root")
_MAPPINGS = ("sampler_weights", "noise_path", "random_padding")


def read_streams(block: Block, context: Context) -> list[Stream]:
    """A stream for every sub-config, by its key."""
    names = [key for key, value in block.values.items() if isinstance(value, Mapping) and key not in _MAPPINGS]
    if not names:
        raise RecipeError(
            f"{block.at('multi_config')}: there are no sub-configs", expected="mappings, such as `audio: {...}`"
        )
    shuffled = {"shuffle": block.take("shuffle")} if block.has("shuffle") else {}
    streams = []
    for name in names:
        own = block.take(name)
        inner = Block({**own, **shuffled}, block.at(name), context.notes)
        context.name_for(name, [], name)
        streams.append(read_stream(inner, context, name))
        for key in _SHARED:
            if inner.has(key):
                context.notes.ignored(
                    inner.at(key), inner.take(key), "the outer configuration decides it for all sub-configs"
                )
        inner.finish()
    context.notes.mapped(block.at("multi_config"), True, ", ".join(f'group "{name}"' for name in names))
    return streams
