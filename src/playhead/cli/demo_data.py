"""Four small sources of four formats, a recipe that blends them, and its maps: text in JSONL and Parquet, speech-like
audio in tars and in Lhotse Shar.
"""

from __future__ import annotations

import io
import json
import math
import random
import struct
import tarfile
import wave
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from playhead.store import replacing, writing_to

SAMPLE_RATE = 8000
RECIPE = """\
# A blend of four sources: text in packs of 2,048 tokens, speech in buckets of like length.
seed: 1
lanes: 8
fuse: {speech: 1, text: 3}        # whole steps, one of speech for three of text
map: demo_maps:tokenize           # in demo_maps.py beside this file

sources:
  - name: speech
    batching: {type: bucket, num: 6, budget: 60}      # 60 seconds to a micro-batch, padding included
    weights_in: samples
    sources:
      - name: calls
        path: calls/calls-{000..003}.tar              # WebDataset: wav and json members
        length: {field: json.duration, unit: seconds}
        keep: {json.duration: [0.5, 12]}
        map: demo_maps:call
        shuffle: shards
        shuffle_group: 2
        weight: 1
      - name: talks
        path: talks                                   # Lhotse Shar: cuts, and a tar of recordings
        format: lhotse_shar
        augment:
          - {type: crop, seconds: 8}
          - {type: gain, decibels: [-6, 6]}
        map: demo_maps:talk
        weight: 1

  - name: text
    batching: {type: pack, max_length: 2048}
    weights_in: length
    sources:
      - {name: books, path: "books-*.jsonl", length: num_tokens, weight: 3}
      - name: chats
        CHATS
        length: num_tokens
        weight: 1
        keep: {lang: [en, pl]}

evaluation:
  dev:
    batching: {type: fixed, size: 4}
    sources:
      - {name: dev, path: dev.jsonl, length: num_tokens}
"""
PARQUET = """\
path: chats.parquet                           # row groups are shuffled, four at a time
        shuffle: shards
        shuffle_unit: block
        shuffle_group: 4"""
MAPS = '''\
"""The maps of the demo: from a row to a sample."""

import numpy as np


def tokenize(sample):
    """A stand-in for a tokenizer: `num_tokens` tokens, made from the words of the row."""
    words = [sum(word.encode()) for word in sample["text"].split()]
    return {"id": sample["id"], "tokens": np.resize(np.array(words, np.int32), sample["num_tokens"])}


def call(sample, random):
    """Audio with noise of its own: the same noise on any rank and worker, after any resume."""
    audio = sample["wav"]  # decoded already
    audio += 0.01 * random.standard_normal(len(audio), np.float32)
    return {"id": sample["__key__"], "audio": audio, "text": sample["json"]["text"]}


def talk(sample):
    return {name: sample[name] for name in ("id", "audio", "text")}
'''


def make_data(directory: Path) -> Path:
    """Write the sources and the recipe if they do not exist yet; returns the recipe's path."""
    noise = random.Random(1)  # noqa: S311  # sample data, no secret
    with writing_to(directory):
        for name in ("calls", "talks"):
            (directory / name).mkdir(parents=True, exist_ok=True)
    for shard in range(3):
        _write(directory / f"books-{shard}.jsonl", _lines(_text(noise, f"book{shard}", 4000, 6.0)))
    chats = _chats(_text(noise, "chat", 3000, 5.0), directory)
    _write(directory / "dev.jsonl", _lines(_text(noise, "dev", 101, 5.5)))
    for shard in range(4):
        _write(directory / "calls" / f"calls-{shard:03}.tar", _calls(noise, shard, 60))
    for shard in range(2):
        cuts, recordings = _talks(noise, shard, 50)
        _write(directory / "talks" / f"cuts.{shard:06}.jsonl", cuts)
        _write(directory / "talks" / f"recording.{shard:06}.tar", recordings)
    recipe = directory / "recipe.yaml"
    _write(recipe, RECIPE.replace("CHATS", chats).encode())
    _write(directory / "demo_maps.py", MAPS.encode())
    return recipe


def _write(path: Path, data: bytes) -> None:
    if not path.exists() or path.read_bytes() != data:
        with replacing(path) as file:
            file.write(data)


def _text(noise: random.Random, name: str, count: int, log_mean: float) -> list[dict[str, Any]]:
    rows = []
    for i in range(count):
        num_tokens = min(2048, max(1, round(math.exp(noise.gauss(log_mean, 0.9)))))
        row = {"id": f"{name}-{i}", "num_tokens": num_tokens, "lang": noise.choice(["en", "pl", "xx"])}
        rows.append({**row, "text": " ".join(_words(noise, min(num_tokens, 12)))})
    return rows


def _lines(rows: Iterable[Any]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def _chats(rows: list[dict[str, Any]], directory: Path) -> str:
    """Rows as a Parquet file, or as JSON lines where pyarrow is not installed; returns its lines in the recipe."""
    if find_spec("pyarrow") is None:
        _write(directory / "chats.jsonl", _lines(rows))
        return "path: chats.jsonl                             # Parquet, where pyarrow is installed"
    import pyarrow as pa
    import pyarrow.parquet as pq

    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), out, row_group_size=500)
    _write(directory / "chats.parquet", out.getvalue())
    return PARQUET


def _words(noise: random.Random, count: int) -> Iterator[str]:
    for _ in range(count):
        yield noise.choice(["the", "play", "head", "goes", "on", "and", "on", "where", "it", "was"])


def _calls(noise: random.Random, shard: int, count: int) -> bytes:
    members = []
    for i in range(count):
        seconds = _seconds(noise)
        about = {"duration": seconds, "text": " ".join(_words(noise, 6))}
        name = f"call-{shard}-{i:03}"
        members += [(f"{name}.wav", _hum(noise, seconds)), (f"{name}.json", json.dumps(about).encode())]
    return _tar(members)


def _talks(noise: random.Random, shard: int, count: int) -> tuple[bytes, bytes]:
    """A shard of cuts and the tar of their recordings, as lhotse's SharWriter lays them out."""
    cuts, members = [], []
    for i in range(count):
        seconds, name = _seconds(noise), f"talk-{shard}-{i:03}"
        cut: dict[str, Any] = {"id": name, "start": 0, "duration": seconds, "channel": 0, "type": "MonoCut"}
        supervision = {"id": name, "recording_id": name, "start": 0, "duration": seconds, "channel": 0}
        cuts.append({**cut, "supervisions": [{**supervision, "text": " ".join(_words(noise, 6))}]})
        sources = [{"type": "shar", "channels": [0], "source": ""}]
        about = {"id": name, "sources": sources, "sampling_rate": SAMPLE_RATE, "duration": seconds}
        about["num_samples"] = round(seconds * SAMPLE_RATE)
        members += [(f"{name}.wav", _hum(noise, seconds)), (f"{name}.json", json.dumps(about).encode())]
    return _lines(cuts), _tar(members)


def _seconds(noise: random.Random) -> float:
    return round(min(15.0, max(0.3, math.exp(noise.gauss(1.0, 0.7)))), 2)


def _tar(members: list[tuple[str, bytes]]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, data in members:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return out.getvalue()


def _hum(noise: random.Random, seconds: float) -> bytes:
    """A voice-like hum: a falling tone under a slow swell."""
    pitch = noise.uniform(90, 220)
    count = round(seconds * SAMPLE_RATE)
    cycle = [math.sin(2 * math.pi * i / 64) for i in range(64)]
    speed = 64 * pitch / SAMPLE_RATE
    values = [round(9000 * cycle[int(i * speed) % 64] * cycle[(i * 3 // SAMPLE_RATE) % 32]) for i in range(count)]
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(SAMPLE_RATE)
        file.writeframes(struct.pack(f"<{count}h", *values))
    return out.getvalue()
