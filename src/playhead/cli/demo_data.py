"""Three small sources, a recipe that blends them, and its maps: two of JSONL text, one of tarred speech-like audio."""

from __future__ import annotations

import io
import json
import math
import random
import struct
import tarfile
import wave
from collections.abc import Iterator
from pathlib import Path

from playhead.store import replacing, writing_to

SAMPLE_RATE = 8000
RECIPE = """\
# A blend of three sources: text in packs of 2,048 tokens, speech in buckets of like length.
seed: 1
lanes: 8
fuse: {speech: 1, text: 3}        # whole steps, one of speech for three of text
map: demo_maps:tokenize           # in demo_maps.py beside this file

sources:
  - name: speech
    batching: {type: bucket, num: 6, budget: 60}      # 60 seconds to a micro-batch, padding included
    sources:
      - name: calls
        path: calls/calls-{000..003}.tar
        length: {field: json.duration, unit: seconds}
        keep: {json.duration: [0.5, 12]}
        map: demo_maps:listen
        shuffle: shards
        shuffle_group: 2

  - name: text
    batching: {type: pack, max_length: 2048}
    weights_in: length
    sources:
      - {name: books, path: "books-*.jsonl", length: num_tokens, weight: 3}
      - {name: chats, path: chats.jsonl, length: num_tokens, weight: 1, keep: {lang: [en, pl]}}

evaluation:
  dev:
    batching: {type: fixed, size: 4}
    sources:
      - {name: dev, path: dev.jsonl, length: num_tokens}
"""
MAPS = '''\
"""What becomes of a row on its way into a batch."""

import numpy as np


def tokenize(sample):
    """A stand-in for a tokenizer: as many tokens as the row says, made of its words."""
    words = [sum(word.encode()) for word in sample["text"].split()]
    return {"id": sample["id"], "tokens": np.resize(np.array(words, np.int32), sample["num_tokens"])}


def listen(sample, random):
    """Audio with noise of its own: the same noise on any rank and worker, after any resume."""
    audio = sample["wav"]  # decoded already
    audio += 0.01 * random.standard_normal(len(audio), np.float32)
    return {"id": sample["__key__"], "audio": audio, "text": sample["json"]["text"]}
'''


def make_data(directory: Path) -> Path:
    """Write the sources and the recipe where they are not there yet; returns the recipe's path."""
    noise = random.Random(1)  # noqa: S311  # sample data, no secret
    with writing_to(directory):
        (directory / "calls").mkdir(parents=True, exist_ok=True)
    for shard in range(3):
        _write(directory / f"books-{shard}.jsonl", _text(noise, f"book{shard}", 4000, 6.0))
    _write(directory / "chats.jsonl", _text(noise, "chat", 3000, 5.0))
    _write(directory / "dev.jsonl", _text(noise, "dev", 101, 5.5))
    for shard in range(4):
        _write(directory / "calls" / f"calls-{shard:03}.tar", _calls(noise, shard, 60))
    recipe = directory / "recipe.yaml"
    _write(recipe, RECIPE.encode())
    _write(directory / "demo_maps.py", MAPS.encode())
    return recipe


def _write(path: Path, data: bytes) -> None:
    if not path.exists() or path.read_bytes() != data:
        with replacing(path) as file:
            file.write(data)


def _text(noise: random.Random, name: str, count: int, log_mean: float) -> bytes:
    lines = []
    for i in range(count):
        num_tokens = min(2048, max(1, round(math.exp(noise.gauss(log_mean, 0.9)))))
        row = {"id": f"{name}-{i}", "num_tokens": num_tokens, "lang": noise.choice(["en", "pl", "xx"])}
        lines.append(json.dumps({**row, "text": " ".join(_words(noise, min(num_tokens, 12)))}))
    return ("\n".join(lines) + "\n").encode()


def _words(noise: random.Random, count: int) -> Iterator[str]:
    for _ in range(count):
        yield noise.choice(["the", "play", "head", "goes", "on", "and", "on", "where", "it", "was"])


def _calls(noise: random.Random, shard: int, count: int) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for i in range(count):
            seconds = round(min(15.0, max(0.3, math.exp(noise.gauss(1.0, 0.7)))), 2)
            name = f"call-{shard}-{i:03}"
            about = {"duration": seconds, "text": " ".join(_words(noise, 6))}
            for extension, data in (("wav", _hum(noise, seconds)), ("json", json.dumps(about).encode())):
                member = tarfile.TarInfo(f"{name}.{extension}")
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
