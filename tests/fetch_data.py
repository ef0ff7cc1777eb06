"""Sources of five formats to be fetched, and recipes over them wherever they are; what those recipes deliver."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lhotse import MonoCut
from lhotse.shar import SharWriter

from deliveries import deliver
from lhotse_data import recording
from loopback import Loopback, serving
from nemo_data import encoded, signal, write_shards
from playhead import Loader, Recipe
from playhead.prepare import prepare
from playhead.prepare.fetch import FetchReport
from small_data import bytes_of, write_jsonl, write_tar

NAMES = ("calls", "tarred", "shar", "web", "text")
LANES = 4


def write_data(folder: Path) -> None:
    """Sources of five formats; the audio of one is named by relative paths, of the others it is in tars."""
    for name in NAMES:
        (folder / name / "wavs").mkdir(parents=True)
    for i in range(6):
        (folder / "calls" / "wavs" / f"{i}.wav").write_bytes(encoded(signal(2_000 + i, i)))
    rows = [{"audio_filepath": f"wavs/{i}.wav", "duration": (2_000 + i) / 8_000, "text": f"t{i}"} for i in range(6)]
    write_jsonl(folder / "calls" / "manifest_0.json", rows[:4])
    write_jsonl(folder / "calls" / "manifest_1.json", rows[4:])
    write_shards(folder / "tarred", [0, 1])
    with SharWriter(folder / "shar", {"recording": "wav"}, shard_size=2) as writer:
        for i in range(5):
            of = recording(folder / "shar" / "wavs", f"r{i}.wav", 4_000 + i)
            writer.write(MonoCut(f"c{i}", 0, of.duration, 0, recording=of))
    shutil.rmtree(folder / "shar" / "wavs")
    for i in range(2):
        members = [(f"{j}.{ending}", b"text") for j in range(3) for ending in ("txt", "cls")]
        write_tar(folder / "web" / f"part-{i}.tar", members)
    shards = [{"url": f"part-{i}.tar", "nsamples": 3} for i in range(2)]
    (folder / "web" / "wids-meta.json").write_text(json.dumps({"shardlist": shards}))
    for i in range(3):
        write_jsonl(folder / "text" / f"{i}.jsonl", [{"id": f"{i}-{j}", "n": 3} for j in range(4 + i)])


def values_over(base: str, cache_dir: Path, **fields: Any) -> dict[str, Any]:
    sources: list[dict[str, Any]] = [
        {"name": "calls", "path": f"{base}/calls/manifest_*.json", "format": "nemo"},
        {
            "name": "tarred",
            "path": f"{base}/tarred/manifest_{{0..1}}.json",
            "format": "nemo_tarred",
            "options": {"tar": f"{base}/tarred/audio_*.tar"},
        },
        {"name": "shar", "path": f"{base}/shar", "format": "lhotse_shar"},
        {"name": "web", "path": f"{base}/web", "format": "webdataset"},
        {"name": "text", "path": f"{base}/text/*.jsonl"},
    ]
    values = {"sources": sources, "batching": {"type": "fixed", "size": 3}, "collate": "list", "sequence": None}
    return {**values, "lanes": 2, "seed": 3, "epochs": 2, "cache_dir": str(cache_dir), **fields}


@contextmanager
def bucket(folder: Path) -> Iterator[Loopback]:
    """A folder as the objects of `s3://data`, until the block ends: the store is switched off then."""
    kept = {name: os.environ.pop(name) for name in [*os.environ] if name.startswith("AWS_")}
    with serving({f"/data/{name}": content for name, content in bytes_of(folder).items()}) as server:
        environment = server.environment()
        os.environ.update(environment)
        try:
            yield server
        finally:
            for name in environment:
                del os.environ[name]
            os.environ.update(kept)


def text_values(base: str, cache: Path, **fields: Any) -> dict[str, Any]:
    """Shards of lines, shuffled group by group: a few steps need a few of them."""
    source = {"name": "text", "path": f"{base}/text-*.jsonl", "length": "n", "shuffle": "shards", "shuffle_group": 2}
    batching = {"type": "fixed", "size": 3}
    return {"sources": [source], "batching": batching, "lanes": LANES, "cache_dir": str(cache), "seed": 4, **fields}


def prepared(values: dict[str, Any]) -> Recipe:
    recipe = Recipe.parse(values)
    prepare(recipe, workers=1)
    return recipe


def near(folder: Path) -> Recipe:
    return Recipe.load(folder / "recipe.yaml")


def delivered(recipe: Recipe, num_steps: int, world_size: int = 1, state: Any = None, **how: Any) -> list[Any]:
    """Each rank's batches of some steps, with states and receipts."""
    found = []
    for rank in range(world_size):
        with Loader(recipe, rank=rank, world_size=world_size, **how) as loader:
            if state is not None:
                loader.load_state_dict(state)
            found.append([*deliver(loader, num_steps * LANES // world_size)])
    return found


def num_files(report: FetchReport, kind: str) -> int:
    return sum(file.kind == kind for file in report.files)
