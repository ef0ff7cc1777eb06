"""Storage that fails once: the run stops, nothing is replaced, and it goes on from its state."""

from __future__ import annotations

from pathlib import Path

import pytest

from playhead import Loader, PrepareError, Recipe, StoreError
from playhead.prepare import prepare
from playhead.store import LocalFiles
from playhead.testing import Fault, FaultyFiles
from small_data import write_jsonl

FAULTS: tuple[Fault, ...] = ("error", "short", "changed")


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    for shard in range(4):
        write_jsonl(tmp_path / f"{shard}.jsonl", [{"tokens": [shard, i]} for i in range(25)])
    values = {"sources": [{"name": "s", "path": "*.jsonl"}], "batching": {"type": "fixed", "size": 2}, "epochs": 1}
    return Recipe.parse({**values, "on_error": "substitute", "max_bad": 1.0}, tmp_path)


def fails_at(number: int, fault: Fault) -> FaultyFiles:
    return FaultyFiles(LocalFiles(), fail=lambda n, method, _: fault if (n, method) == (number, "read") else None)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("number", [0, 7, 40])
def test_one_request_that_fails_stops_the_run_and_replaces_nothing(recipe: Recipe, number: int, fault: Fault) -> None:
    prepare(recipe, workers=1)
    expected = [batch["tokens"].tolist() for batch in Loader(recipe)]
    found: list[list[list[int]]] = []
    loader = Loader(recipe, files=fails_at(number, fault))
    with pytest.raises(StoreError):
        found.extend(batch["tokens"].tolist() for batch in loader)
    assert found == expected[: len(found)]
    assert len(found) < len(expected)
    again = Loader(recipe)
    again.load_state_dict(loader.state_dict())
    found.extend(batch["tokens"].tolist() for batch in again)
    assert found == expected
    assert not list(Path(recipe.cache_dir).rglob("quarantine*"))


@pytest.mark.parametrize("fault", FAULTS)
def test_prepare_names_the_shard_that_could_not_be_read_and_goes_on_when_run_again(
    recipe: Recipe, fault: Fault
) -> None:
    def fail(_number: int, method: str, path: str) -> Fault | None:
        return fault if method == "read" and path.endswith("2.jsonl") else None

    with pytest.raises(PrepareError, match=r"2\.jsonl"):
        prepare(recipe, workers=1, files=FaultyFiles(LocalFiles(), fail=fail))
    prepare(recipe, workers=1)
    assert sum(batch.num_samples for batch in Loader(recipe)) == 100
