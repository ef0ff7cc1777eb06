"""Lhotse datasets called with the cuts of micro-batches: by a loader of ours, or in torch's DataLoader."""

from __future__ import annotations

import os
import random
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
import torch
from lhotse import CutSet
from msgspec.structs import replace

from playhead.errors import RecipeError, StateError
from playhead.feed.batch import Batch
from playhead.feed.delivery import Delivery
from playhead.feed.pool import Results
from playhead.feed.produce import Blueprint, Produced, Producer
from playhead.feed.rank_stream import RankStream
from playhead.feed.tasks import Task, Work
from playhead.formats.rows import Sample
from playhead.lhotse.cuts import CUT, KEY, NewCutMaker
from playhead.recipe.by_format import format_holds_conversations
from playhead.recipe.tree import Leaf, augments_of, map_of, tokenize_of
from playhead.recipe.values import Recipe
from playhead.resolve.resolve import leaves_by_stream
from playhead.store import Files
from playhead.torch import TorchWorkers

_MADE = "made"
_GENERATORS = ("random", "rng")  # the attributes in which transforms of lhotse keep a generator, or None before its use
_REMEMBERED = 1 << 12  # batches that a sampler can give the state after


class CutDataset(Protocol):
    """A dataset of lhotse: a batch for a CutSet."""

    def __getitem__(self, cuts: CutSet) -> Any: ...


class DataLoader(Delivery):
    """The batches of one rank: what `dataset[cuts]` makes of the cuts of each micro-batch, called in the workers.

    `recipe`, `split`, `rank`, `world_size` and `files` are those of `playhead.Loader`; further options are those of
    `playhead.torch.DataLoader` (`num_workers`, `pin_memory`, ...). Local audio files are opened by lhotse, when the
    dataset loads audio; with `in_memory` the loader reads them, as it does with what is in tars or behind URLs.

    Law: state, order and resumption are those of `playhead.Loader`. The global random numbers of Python, numpy and
    torch, and the generators of lhotse's transforms, are seeded for each batch by its first sample, so that random
    transforms depend neither on workers nor on resumption.
    """

    def __init__(
        self,
        recipe: Recipe,
        dataset: CutDataset,
        *,
        split: str | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        in_memory: bool = False,
        files: Files | None = None,
        **options: Any,
    ) -> None:
        workers = TorchWorkers(**options)
        blueprint = _blueprint(recipe, split, _Call(dataset), files, in_memory)
        stream = RankStream(recipe, split, rank, world_size, files)
        self.num_workers, self.prefetch_factor = workers.num, workers.prefetch_factor
        super().__init__(stream, blueprint, workers.pool(blueprint, stream))


class CutSampler:
    """The micro-batches of one rank for torch's own DataLoader: `sampler.dataset(dataset)` makes their batches.

    `DataLoader(sampler.dataset(dataset), sampler=sampler, batch_size=None, num_workers=...)` delivers the batches that
    `playhead.lhotse.DataLoader` does. Since torch takes from a sampler ahead of the training loop, `state_dict` needs
    the number of batches that the loop was given.
    """

    def __init__(
        self,
        recipe: Recipe,
        *,
        split: str | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        in_memory: bool = False,
        files: Files | None = None,
    ) -> None:
        if "substitute" in (recipe.on_error, recipe.on_length_mismatch):
            raise RecipeError(
                "bad samples are not replaced in torch's DataLoader, where they could not be recorded",
                found="`on_error` or `on_length_mismatch: substitute`",
                fix="use playhead.lhotse.DataLoader, or let them raise",
            )
        stream = RankStream(recipe, split, rank, world_size, files)
        self._about = (recipe, split, files, in_memory)
        self._planned = Delivery(stream, _blueprint(recipe, split, None, files, in_memory), _Planned)
        self._taken: deque[Batch] = deque(maxlen=_REMEMBERED)
        self._num_taken = 0

    def dataset(self, dataset: CutDataset) -> _BatchDataset:
        """The dataset for torch's DataLoader."""
        recipe, split, files, in_memory = self._about
        return _BatchDataset(_blueprint(recipe, split, _Call(dataset, _MADE), files, in_memory))

    def __iter__(self) -> Iterator[bytes]:
        self._taken.clear()
        self._num_taken = 0
        for batch in self._planned:
            self._taken.append(batch)
            self._num_taken += 1
            yield batch.task.work.to_bytes()

    def __len__(self) -> int:
        return len(self._planned)

    def state_dict(self, num_batches: int) -> dict[str, Any]:
        """The state after the training loop was given so many batches of the last iteration."""
        back = self._num_taken - num_batches
        if num_batches == 0 and back == 0:
            return self._planned.state_dict()
        if num_batches < 1 or not 0 <= back < len(self._taken):
            known = f"{self._num_taken - len(self._taken) + 1:,} to {self._num_taken:,}" if self._taken else "none yet"
            raise StateError(
                "the sampler does not know the state after this batch",
                found=f"num_batches={num_batches}",
                expected=f"batches delivered since the iteration began: {known}",
            )
        return self._planned.state_dict(after=self._taken[-1 - back])

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Begin the next iteration after a state."""
        self._planned.load_state_dict(state)


class _Planned:
    """A pool that makes nothing: tasks as they are planned."""

    def results(self, tasks: Iterator[Task]) -> Results:
        for task in tasks:
            yield task, Produced({}, [])

    def close(self) -> None:
        pass


class _BatchDataset:
    """What torch's workers ask for batches, by the bytes of their work."""

    def __init__(self, blueprint: Blueprint) -> None:
        self._blueprint = blueprint
        self._producer: tuple[int, Producer] | None = None

    def __getitem__(self, work: bytes) -> Any:
        if self._producer is None or self._producer[0] != os.getpid():
            self._producer = os.getpid(), self._blueprint.build()
        return self._producer[1](Work.from_bytes(work)).payload[_MADE]

    def __getitems__(self, works: list[bytes]) -> Any:
        """What torch calls to collate items into batches, which these are already."""
        raise RecipeError(
            "torch's DataLoader would put these batches into batches once more",
            found="a DataLoader with a `batch_size`, which is 1 by default",
            fix="give it `batch_size=None`",
        )

    def __getstate__(self) -> dict[str, Any]:
        return {"_blueprint": self._blueprint, "_producer": None}


class _Call:
    """The collate function that calls a dataset; named after it, in messages and fingerprints."""

    def __init__(self, dataset: CutDataset, field: str | None = None) -> None:
        self._dataset, self._field = dataset, field
        kind = type(dataset)
        self.__module__, self.__qualname__ = kind.__module__, f"{kind.__qualname__}.__getitem__"

    def __call__(self, samples: list[Sample]) -> Any:
        with _seeded(samples[0][KEY]):
            _reseed(self._dataset, samples[0][KEY])
            found = self._dataset[CutSet.from_cuts(sample[CUT] for sample in samples)]
        return found if self._field is None else {self._field: found}


@contextmanager
def _seeded(key: int) -> Iterator[None]:
    """Global random numbers that depend on a key alone; outside they go on as before."""
    of_python, of_numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 - lhotse uses the global ones
    with torch.random.fork_rng(devices=[]):
        try:
            random.seed(key)
            np.random.seed(key % (1 << 32))  # noqa: NPY002
            torch.manual_seed(key)
            yield
        finally:
            random.setstate(of_python)
            np.random.set_state(of_numpy)  # noqa: NPY002


def _reseed(dataset: CutDataset, key: int) -> None:
    """Give a dataset and its transforms generators of the key, where lhotse's keep one of their own."""
    transforms = [*getattr(dataset, "cut_transforms", ()), *getattr(dataset, "input_transforms", ())]
    for i, each in enumerate([dataset, *transforms]):
        for name in _GENERATORS:
            if isinstance(getattr(each, name, ...), random.Random | None):
                setattr(each, name, random.Random(f"{key} {i} {name}"))  # noqa: S311 - augmentation is no secret


def _blueprint(
    recipe: Recipe, split: str | None, call: _Call | None, files: Files | None, in_memory: bool
) -> Blueprint:
    for leaves in leaves_by_stream(recipe, split):
        for leaf in leaves:
            _check(recipe, leaf)
    # Without a sequence field the lengths of the index are trusted: nothing is decoded that could be compared.
    return Blueprint(replace(recipe, sequence=None), split, None, call, files, NewCutMaker(in_memory))


def _check(recipe: Recipe, leaf: Leaf) -> None:
    """Refuse what would change samples, since cuts are made of rows as they are."""
    source = leaf.source
    refused = {
        "map": map_of(recipe, leaf),
        "tokenize": tokenize_of(recipe, leaf),
        "augment": augments_of(recipe, leaf),
        "as_conversation": source.as_conversation,
        f"format: {source.format}": format_holds_conversations(source),
        "length: {measure: true}": source.length is not None and source.length.measure,
        "audio: {dtype: int16}": (source.audio or recipe.audio).dtype != "float32",
    }
    for name, value in refused.items():
        if value:
            raise RecipeError(
                f'source "{source.name}": `{name}` does not apply to lhotse cuts',
                expected="rows as they are: cuts are changed by the transforms of your dataset",
                fix="remove it from the recipe, or use playhead.torch.DataLoader, which delivers samples",
            )
