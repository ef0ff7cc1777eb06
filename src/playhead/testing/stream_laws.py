"""The laws of the stream, tried on a recipe in this process. `playhead verify` tries more, with processes and kills."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from msgspec.structs import replace

from playhead.deal import worlds_that_fit
from playhead.feed.loader import Loader
from playhead.recipe.tree import branches
from playhead.recipe.values import Recipe
from playhead.resolve import map_tables, open_plan
from playhead.verify.captures import with_element
from playhead.verify.difference import Placed, compare, in_words, with_causes
from playhead.verify.page import facts_of
from playhead.verify.payload import Part, parts_of
from playhead.verify.recipes import one_pass, private_cache
from playhead.verify.record import line_of

NewLoader = Callable[..., Any]


@dataclass(frozen=True)
class _Taken:
    """A micro-batch as it was delivered, and the state after it."""

    placed: Placed
    parts: list[Part]
    is_last_in_step: bool
    state: str


def check_restore(recipe: Recipe, *, steps: int = 6, world_size: int = 1, loader: NewLoader = Loader) -> None:
    """Check that a run can be resumed after each of its micro-batches.

    Law: a new loader that is given a state goes on with the very next micro-batch, and every one up to `steps` is the
    same to the last bit. The recipe must be prepared. `loader(recipe, rank=, world_size=)` makes a loader; for one of
    Playhead with options, `partial(Loader, workers=2)`. The time grows with the square of the steps.
    """
    with _private(recipe) as ours:
        for rank in range(world_size):
            start, whole = _taken(loader, ours, steps, rank, world_size)
            states = [start, *(batch.state for batch in whole)]
            num_states = len(whole) + (_num_steps(whole) < steps)  # the end of a stream is a place, too
            for count, state in enumerate(states[:num_states]):
                _, rest = _taken(loader, ours, steps, rank, world_size, state)
                title = f"resumed after {count:,} of {len(whole):,} micro-batches on rank {rank} of {world_size}"
                _expect_equal(title, whole[count:], rest, whole[:count])


def check_worlds(recipe: Recipe, *, steps: int = 6, loader: NewLoader = Loader) -> None:
    """Check that the stream does not depend on the number of ranks.

    Laws: on every number of ranks that divides the lanes, the ranks together are delivered the same micro-batches, to
    the last bit; after each step the states of all are equal; and any number goes on from a state of any other. The
    rest is as for `check_restore`.
    """
    with _private(recipe) as ours:
        start, alone = _taken(loader, ours, steps, 0, 1)
        ends = [start, *(batch.state for batch in alone if batch.is_last_in_step)]
        half = (len(ends) - 1) // 2
        for world_size in worlds_that_fit(open_plan(ours).lanes):
            dealt = [_taken(loader, ours, steps, rank, world_size)[1] for rank in range(world_size)]
            _expect_equal(f"with world_size {world_size}", alone, _by_place(dealt))
            for rank, batches in enumerate(dealt):
                states = [batch.state for batch in batches if batch.is_last_in_step]
                wrong = [step for step, state in enumerate(states) if state != ends[step + 1]]
                if wrong:
                    text = f"the state after step {wrong[0]:,} is another on rank {rank} of {world_size} than on one"
                    raise AssertionError(text)
            rest = [_taken(loader, ours, steps, rank, world_size, ends[half])[1] for rank in range(world_size)]
            before = [batch for batch in alone if batch.placed.batch.step < half]
            title = f"resumed with world_size {world_size} after {half:,} steps"
            _expect_equal(title, alone[len(before) :], _by_place(rest), before)


def check_cover(recipe: Recipe, *, world_size: int = 1, loader: NewLoader = Loader) -> None:
    """Check that in one pass every row that the recipe selects comes once, on one rank.

    A recipe with weights is tried as its one-pass variant: the same sources without weights. The rest is as for
    `check_restore`.
    """
    with _private(one_pass(recipe)) as ours:
        tables = map_tables(ours)
        leaves = [leaf for branch in branches(ours) for leaf in branch.leaves()]
        rows = {(leaf.source.name, row) for leaf in leaves for row in range(tables[leaf.path].num_rows)}
        came: Counter[tuple[str, int]] = Counter()
        for rank in range(world_size):
            for batch in _taken(loader, ours, None, rank, world_size)[1]:
                line = batch.placed.batch
                came.update(() if line.idle else zip(line.sources, line.rows, strict=True))
    _expect_rows(came, rows)


def _expect_rows(came: Counter[tuple[str, int]], rows: set[tuple[str, int]]) -> None:
    wrong = {
        "did not come": rows - came.keys(),
        "came more than once": {row for row, count in came.items() if count > 1},
        "came, and are not in it": came.keys() - rows,
    }
    for words, found in wrong.items():
        if found:
            source, row = min(found)
            raise AssertionError(f"{len(found):,} of {len(rows):,} rows {words}, the first row {row:,} of {source}")


@contextmanager
def _private(recipe: Recipe) -> Iterator[Recipe]:
    """The recipe with a cache of its own, which keeps what loaders write away from the user's."""
    with TemporaryDirectory() as folder:
        yield replace(recipe, cache_dir=private_cache(recipe, Path(folder) / "cache"))


def _taken(
    new_loader: NewLoader, recipe: Recipe, steps: int | None, rank: int, world_size: int, state: str | None = None
) -> tuple[str, list[_Taken]]:
    """The state that a new loader is in, and what it delivers up to a step, or to the end."""
    loader = new_loader(recipe, rank=rank, world_size=world_size)
    try:
        if state is not None:
            loader.load_state_dict(json.loads(state))
        start, found = json.dumps(loader.state_dict()), list[_Taken]()
        for batch in loader:
            placed = Placed(rank, line_of(batch))
            found.append(_Taken(placed, parts_of(batch), batch.is_last_in_step, json.dumps(loader.state_dict())))
            if batch.is_last_in_step and batch.step + 1 == steps:
                break
    finally:
        if hasattr(loader, "close"):
            loader.close()
    return start, found


def _num_steps(batches: Sequence[_Taken]) -> int:
    return batches[-1].placed.batch.step + 1 if batches else 0


def _by_place(dealt: Sequence[Sequence[_Taken]]) -> list[_Taken]:
    """The micro-batches of all ranks in the order of steps and lanes."""
    batches = [batch for batches in dealt for batch in batches]
    return sorted(batches, key=lambda taken: (taken.placed.batch.step, taken.placed.batch.lane))


def _expect_equal(
    title: str, expected: Sequence[_Taken], delivered: Sequence[_Taken], before: Sequence[_Taken] = ()
) -> None:
    sides = [[taken.placed for taken in side] for side in (expected, delivered, before)]
    found = compare(sides[0], sides[1], ("", ""), sides[2])
    if found is None:
        return
    difference = with_causes(found)
    if difference.field is not None:
        at = next(i for i, (a, b) in enumerate(zip(*sides[:2], strict=False)) if a.batch.payload != b.batch.payload)
        difference = with_element(difference, expected[at].parts, delivered[at].parts, None)
    facts = [f"{label}: {text}" for label, text in facts_of(difference)]
    causes = [f"usual cause: {cause}" for cause in difference.causes]
    raise AssertionError("\n  ".join([f"{title}: {in_words(found)}", *facts, *causes]))
