"""Streams of every kind over real files, what a loader delivers of them, and all that must be equal about it."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from corpora import lengths_of, recipe_in
from playhead import Batch, Loader
from playhead.prepare import prepare
from playhead.recipe.values import Recipe
from small_data import write_jsonl, write_tar

BATCHINGS: dict[str, dict[str, Any]] = {
    "fixed": {"type": "fixed", "size": 3},
    "budget": {"type": "budget", "budget": 120},
    "bucket": {"type": "bucket", "num": 3, "budget": 120},
    "pack": {"type": "pack", "max_length": 64},
}
LANES = 4
SPEECH_RATE = 100
KINDS = (*BATCHINGS, "tar", "zip", "by weight", "passes", "stop_all", "drop", "parts")


class Seen(NamedTuple):
    """A delivered batch: everything that must not depend on who delivers it."""

    step: int
    lane: int
    idle: bool
    is_last: bool
    num_samples: int
    picks: tuple[tuple[str, int, int], ...]
    payload: tuple[tuple[str, Any], ...]


def write_tokens(folder: Path, name: str, shards: list[list[int]]) -> dict[str, Any]:
    """JSONL shards of token sequences with labels along them; returns the source's recipe."""
    for i, lengths in enumerate(shards):
        rows = [
            {"n": n, "id": f"{name}-{i}-{j}", "tokens": [j + k + 1 for k in range(n)], "labels": [-k for k in range(n)]}
            for j, n in enumerate(lengths)
        ]
        write_jsonl(folder / f"{name}-{i:03}.jsonl", rows)
    return {"name": name, "path": f"{name}-*.jsonl", "length": "n"}


def npy(array: Any) -> bytes:
    out = io.BytesIO()
    np.save(out, np.asarray(array), allow_pickle=False)
    return out.getvalue()


def write_audio(folder: Path, name: str, shards: list[list[int]]) -> dict[str, Any]:
    """Tars of signals of these sizes at SPEECH_RATE, with text and durations; returns the source's recipe."""
    for i, sizes in enumerate(shards):
        members = []
        for j, size in enumerate(sizes):
            about = json.dumps({"duration": size / SPEECH_RATE}).encode()
            signal = npy(np.arange(size, dtype=np.float32) + j)
            members += [(f"{j:04}.npy", signal), (f"{j:04}.json", about), (f"{j:04}.txt", f"{name} {j} é".encode())]
        write_tar(folder / f"{name}-{i:03}.tar", members)
    length = {"field": "json.duration", "unit": "seconds"}
    return {"name": name, "path": f"{name}-*.tar", "length": length, "map": "loader_maps:audio"}


def stream(folder: Path, kind: str, **fields: Any) -> Recipe:
    """A prepared recipe of a kind, four lanes, windows of a few steps, augmented at random."""
    text = write_tokens(folder, "text", lengths_of(1, 3, 14, 60))
    more = write_tokens(folder, "more", lengths_of(2, 1, 11, 60))
    calls = write_audio(folder, "calls", [[30 + 7 * j % 90 for j in range(12)], [50, 60, 45]])
    defaults = {
        "lanes": LANES,
        "window_size": 48,
        "map": "loader_maps:augmented",
        "sequence_rate": SPEECH_RATE,
        "seed": 7,
    }
    both = [text, more]
    weighed = {"batching": BATCHINGS.get(kind, BATCHINGS["bucket"]), "weights_in": "length"}
    if kind in BATCHINGS:
        recipe = recipe_in(folder, *both, **{**defaults, **weighed, **fields})
    elif kind == "tar":
        recipe = recipe_in(folder, calls, **{**defaults, "batching": {"type": "bucket", "num": 3, "size": 3}, **fields})
    elif kind in ("zip", "by weight"):
        own = {"lanes": 2} if kind == "zip" else {}
        groups = [
            {"name": "speech", "batching": {"type": "budget", "budget": 5}, "sources": [calls], **own},
            {"name": "words", "batching": BATCHINGS["pack"], "sources": both, "weights_in": "length", **own},
        ]
        fuse = "zip" if kind == "zip" else {"speech": 1, "words": 2}
        recipe = recipe_in(folder, *groups, **{**defaults, "fuse": fuse, **fields})
    elif kind == "passes":
        recipe = recipe_in(folder, *both, **{**defaults, "batching": BATCHINGS["fixed"], "epochs": 2, **fields})
    elif kind in ("stop_all", "drop"):
        recipe = recipe_in(folder, *both, **{**defaults, **weighed, "exhaustion": kind, **fields})
    else:
        assert kind == "parts"
        recipe = recipe_in(folder, text, **{**defaults, "batching": BATCHINGS["pack"], "parts": 2, **fields})
    prepare(recipe, workers=1)
    return recipe


def seen(batch: Batch) -> Seen:
    picks = tuple(zip(batch.sources, batch.epochs.tolist(), batch.rows.tolist(), strict=True))
    payload = tuple((name, _frozen(batch[name])) for name in sorted(batch))
    place = (batch.step, batch.lane, batch.idle, batch.is_last_in_step, batch.num_samples)
    return Seen(*place, picks, payload)


def saved(loader: Any, after: Batch | None = None) -> str:
    return json.dumps(loader.state_dict(after))


def deliver(loader: Any, num_batches: int | None = None) -> Iterator[tuple[Seen, str, dict[str, Any]]]:
    """Each batch, with the state and the totals after it."""
    for count, batch in enumerate(loader, 1):
        yield seen(batch), saved(loader), loader.totals()
        if count == num_batches:
            return


def rounds(
    make: Callable[[int, int], Any], world_size: int, state: str | None = None, num_batches: int | None = None
) -> list[list[tuple[Seen, str, dict[str, Any]]]]:
    """What each rank delivers."""
    dealt = []
    for rank in range(world_size):
        loader = make(rank, world_size)
        if state is not None:
            loader.load_state_dict(json.loads(state))
        dealt.append([*deliver(loader, num_batches)])
    return dealt


def woven(dealt: list[list[tuple[Seen, str, dict[str, Any]]]]) -> list[Seen]:
    """The batches of all ranks in the order of steps and lanes, as one rank would have them."""
    assert len({len(batches) for batches in dealt}) == 1
    found = [batches[i][0] for i in range(len(dealt[0])) for batches in dealt]
    # Every rank ends a step with its own last lane.
    assert all(batch.is_last == (batch.lane >= LANES - len(dealt)) for batch in found)
    return [batch._replace(is_last=batch.lane == LANES - 1) for batch in found]


def numpy_loader(recipe: Recipe, **how: Any) -> Callable[[int, int], Loader]:
    return lambda rank, world_size: Loader(recipe, rank=rank, world_size=world_size, **how)


def _frozen(value: Any) -> Any:
    """A value that compares bit for bit."""
    if hasattr(value, "numpy"):
        value = value.numpy()
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.shape, value.tobytes()
    return tuple(map(_frozen, value)) if isinstance(value, list) else repr(value)
