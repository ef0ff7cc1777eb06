"""Sources of five formats to be fetched, and recipes over them wherever they are."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from lhotse import MonoCut
from lhotse.shar import SharWriter

from lhotse_data import recording
from nemo_data import encoded, signal, write_shards
from small_data import write_jsonl, write_tar

NAMES = ("calls", "tarred", "shar", "web", "text")


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
