"""Media that rows of a recipe name by a path or URL, as the first batches of the stream read them."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from operator import sub

from msgspec.structs import replace

from playhead.feed.loader import Loader
from playhead.recipe.values import Recipe
from playhead.store import Buffer, Files, Ranges, Stamp

_MOST_MEDIA = 64
_MOST_BATCHES = 16
_MOST_SECONDS = 2.0


class NotingFiles:
    """Notes of every file that is read its stamp, and the bytes that were asked for."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self.stamps: dict[str, Stamp] = {}
        self.sizes: dict[str, int] = {}

    def list(self, pattern: str) -> Sequence[str]:
        return self.files.list(pattern)

    def stamp(self, path: str) -> Stamp:
        found = self.stamps[path] = self.files.stamp(path)
        return found

    def read(
        self, path: str, stamp: Stamp | None, ranges: Ranges, into: Sequence[memoryview] | None = None
    ) -> Sequence[Buffer]:
        if stamp is not None:
            self.stamps[path] = stamp
        self.sizes[path] = self.sizes.get(path, 0) + sum(map(sub, ranges.ends, ranges.firsts))
        return self.files.read(path, stamp, ranges, into)


def named_media(recipe: Recipe, split: str | None, files: Files, shards: Collection[str]) -> dict[str, Stamp]:
    """Some of the media, if most of what the first batches read are media and not shards; else none."""
    if recipe.media is False:
        return {}
    noting = NotingFiles(files)
    deadline = time.monotonic() + _MOST_SECONDS
    with Loader(replace(recipe, shard_cache=None), split=split, rank=0, world_size=1, files=noting) as loader:
        for number, _ in enumerate(loader, 1):
            num_media = len(noting.sizes.keys() - shards)
            if number == _MOST_BATCHES or num_media >= _MOST_MEDIA or time.monotonic() > deadline:
                break
    media = [path for path in noting.sizes if path not in shards and path in noting.stamps]
    if 2 * sum(noting.sizes[path] for path in media) <= sum(noting.sizes.values()):
        return {}
    return {path: noting.stamps[path] for path in media[:_MOST_MEDIA]}
