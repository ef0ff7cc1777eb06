"""A sample's generator: the same whoever asks, another for every sample, epoch, source and seed."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from deliveries import stream, write_tokens
from playhead import Loader, Recipe
from playhead.prepare import prepare
from playhead.read.generator import SampleGenerator
from playhead.seeds import key


def draw(source: str, epoch: int, row: int, seed: int = 0) -> tuple[int, ...]:
    return tuple(SampleGenerator(key(seed, "sample", source), epoch, row).integers(1 << 62, size=4).tolist())


def test_draws_differ_between_seeds_sources_epochs_and_rows_and_repeat_for_the_same() -> None:
    paths = [(s, e, r, seed) for s in ("a", "b", "ab") for e in range(5) for r in range(40) for seed in (0, 1)]
    draws = Counter(draw(*path) for path in paths)
    assert set(draws.values()) == {1}
    assert [draw(*path) for path in paths] == [draw(*path) for path in paths]


def test_the_stream_of_a_sample_is_that_of_its_named_key() -> None:
    twin = np.random.Generator(np.random.Philox(key=key(3, "sample", "calls", 5, 17)))
    ours = SampleGenerator(key(3, "sample", "calls"), 5, 17)
    assert ours.normal(size=3).tolist() == twin.normal(size=3).tolist()
    assert ours.generator.random() == twin.random()  # one stream, by either name
    assert isinstance(ours.generator, np.random.Generator)


def test_nothing_is_made_before_it_is_asked_for() -> None:
    ours = SampleGenerator(1, 0, 0)
    assert ours._generator is None
    assert not hasattr(ours, "__array__")
    assert ours._generator is None


def test_a_row_drawn_again_in_a_later_epoch_is_augmented_anew(tmp_path: Path) -> None:
    source = write_tokens(tmp_path, "a", [[3] * 8])
    fields: dict[str, Any] = {"batching": {"type": "fixed", "size": 8}, "map": "loader_maps:augmented"}
    recipe = Recipe.parse({"sources": [source], **fields}, tmp_path)
    prepare(recipe, workers=1)
    coins = [
        (epoch, row, coin)
        for batch in islice(Loader(recipe), 20)
        for epoch, row, coin in zip(batch.epochs.tolist(), batch.rows.tolist(), batch["coin"].tolist(), strict=True)
    ]
    assert len({coin for _, _, coin in coins}) == len(coins) == 160
    other = Recipe.parse({**recipe.to_dict(), "seed": 1}, tmp_path)
    assert not {coin for _, _, coin in coins} & set(next(iter(Loader(other)))["coin"].tolist())


def test_a_map_that_draws_nothing_and_one_without_a_generator_are_served(tmp_path: Path) -> None:
    recipe = stream(tmp_path, "fixed")
    for function in (lambda sample: sample, lambda sample, _: sample, lambda sample, more=2: {**sample, "f": more}):
        batch = next(iter(Loader(recipe, map=function)))
        assert batch["f"].tolist() == [2, 2, 2] if "f" in batch else len(batch["tokens"]) == 3
