"""A small tokenizer and chat templates for tests of conversations."""

from __future__ import annotations

import json
import wave
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

SPECIAL = ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|audio|>", "<|image|>", "<|video|>"]

# The same text twice: with marks around what is trained on, and without them.
MARKED = """{% for m in messages %}
<|im_start|>{{ m.role }}
{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<|im_end|>
{% endgeneration %}{% else %}{{ m.content }}<|im_end|>
{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
PLAIN = """{% for m in messages %}
<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
PARTS = """{% for m in messages %}
<|im_start|>{{ m.role }}
{% for part in m.content %}{{ part.text if part.type == 'text' else '<|' ~ part.type ~ '|>' }}{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def write_tokenizer(path: Path, *, trained: bool = True) -> Path:
    """Byte-level BPE, with tokens of several letters and of parts of one; untrained, a token for every byte."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: i for i, letter in enumerate(alphabet)}, []))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if trained:
        trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
        texts = ["hello there user assistant what is said in the audio", "żółw 漢字 😀"]
        tokenizer.train_from_iterator(texts * 4, trainer)
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.save(str(path))
    return path


def write_wav(path: Path, num_frames: int, rate: int = 16000, first: int = 0) -> Path:
    """Mono PCM whose samples count up from `first`, so that every segment can be told from every other."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(((np.arange(num_frames) + first) % 30000).astype("<i2").tobytes())
    return path


def write_image(path: Path, width: int, height: int, value: int) -> Path:
    Image.fromarray(np.full((height, width, 3), value % 256, np.uint8)).save(path)
    return path


def write_messages(folder: Path, num_rows: int) -> Path:
    """Conversations of texts, images and recordings in a JSON array, with their files and a recipe's template."""
    (folder / "media").mkdir(parents=True)
    rows = []
    for i in range(num_rows):
        content: list[dict[str, object]] = [{"type": "text", "text": f"what is said in {i}"}]
        for j in range(i % 3):
            name = f"{i}-{j}.png"
            write_image(folder / "media" / name, 20 + i % 30, 16, i + j)
            content.insert(j, {"type": "image_url", "image_url": {"url": name}})
        if i % 4 == 1:
            name = f"{i}.wav"
            write_wav(folder / "media" / name, 800 + 100 * i, first=i)
            content.append({"type": "audio_url", "audio_url": {"url": name}})
        answer = {"role": "assistant", "content": "hello there " * (1 + i % 7)}
        rows.append({"id": f"row-{i}", "messages": [{"role": "user", "content": content}, answer]})
    (folder / "rows.json").write_text(json.dumps(rows, indent=1))
    write_tokenizer(folder / "tokenizer.json")
    (folder / "chat.jinja").write_text(MARKED)
    return folder / "rows.json"


def messages_recipe(folder: Path, **more: Any) -> dict[str, Any]:
    """A recipe of the conversations that `write_messages` wrote."""
    return {
        "seed": 5,
        "lanes": 4,
        "sources": [
            {
                "name": "talks",
                "path": str(folder / "rows.json"),
                "format": "messages",
                "options": {"data_folder": "media"},
            }
        ],
        "template": {
            "tokenizer": "tokenizer.json",
            "file": "chat.jinja",
            "audio": {"tag": "<|audio|>", "token_equivalent_duration": 0.02},
            "image": {"tag": "<|image|>", "patch": 8},
        },
        "batching": {"type": "pack", "max_length": 160},
        "cache_dir": str(folder / "cache"),
        **more,
    }
