"""Conversations for tests: a tokenizer of bytes, chat templates, rows and recordings; and what is expected of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil
from pathlib import Path
from typing import Any

from chat_data import MARKED, SPECIAL
from columnar_data import read_rows
from nemo_data import RATE, encoded, signal
from playhead import Loader
from playhead.formats.conversation import CONVERSATION, Conversation, MediaPart, Turn
from playhead.formats.media import Media
from playhead.prepare import prepare
from playhead.recipe.values import Recipe

SECONDS_PER_TOKEN = 0.1
AUDIO, IMAGE, VIDEO = "<|audio|>", "<|image|>", "<|video|>"

TEMPLATE: dict[str, Any] = {
    "tokenizer": "tokenizer.json",
    "file": "chat.jinja",
    "audio": {"tag": AUDIO, "token_equivalent_duration": SECONDS_PER_TOKEN},
    "image": {"tag": IMAGE, "patch": 4},
    "video": {"tag": VIDEO, "tokens": 3},
}


def characters_of_bytes() -> list[str]:
    """The character that a byte-level tokenizer writes for each byte, as GPT-2 has it."""
    shown = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    others = iter(range(256, 512))
    return [chr(byte) if byte in shown else chr(next(others)) for byte in range(256)]


def write_chat(folder: Path) -> dict[str, Any]:
    """A tokenizer whose tokens are bytes and special tokens, and a chat template; returns the key of a recipe."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    model = Tokenizer(models.BPE(vocab={char: byte for byte, char in enumerate(characters_of_bytes())}, merges=[]))
    model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = decoders.ByteLevel()
    model.add_special_tokens(SPECIAL)
    model.save(str(folder / "tokenizer.json"))
    (folder / "chat.jinja").write_text(MARKED)
    return dict(TEMPLATE)


Said = tuple[str, Sequence[str | int]]  # a role, and texts or numbers of audio tokens


def expected_tokens(turns: Iterable[Said]) -> tuple[list[int], list[bool]]:
    """The tokens of a conversation and its loss mask, byte by byte; the parts of a turn have a space between them."""
    tokens: list[int] = []
    trained: list[bool] = []

    def write(ids: Iterable[int], *, train: bool = False) -> None:
        before = len(tokens)
        tokens.extend(ids)
        trained.extend([train] * (len(tokens) - before))

    for role, parts in turns:
        by_assistant = role == "assistant"
        write([special("<|im_start|>"), *f"{role}\n".encode()])
        for i, part in enumerate(parts):
            write(b" " if i else b"", train=by_assistant)
            if isinstance(part, int):
                write([special(AUDIO)] * part)
            else:
                write(part.encode(), train=by_assistant)
        write([special("<|im_end|>"), *b"\n"], train=by_assistant)
    return tokens, trained


def special(name: str) -> int:
    return 256 + SPECIAL.index(name)


def num_audio_tokens(num_frames: int) -> int:
    return max(1, ceil(num_frames / RATE / SECONDS_PER_TOKEN))


def write_wav(folder: Path, name: str, num_frames: int) -> Any:
    """A recording of noise; returns its samples."""
    found = signal(num_frames, num_frames)
    (folder / name).write_bytes(encoded(found))
    return found


def recipe_of(folder: Path, source: dict[str, Any], **fields: Any) -> Recipe:
    """A recipe of one source, whose samples come as they are, in order."""
    values: dict[str, Any] = {"sources": [{"name": "s", "shuffle": "none", **source}], "collate": "list"}
    values |= {"batching": {"type": "fixed", "size": 2}, "epochs": 1, "cache_dir": "cache"}
    values |= {} if "template" in fields else {"sequence": None}
    return Recipe.parse({**values, **fields}, base_dir=folder)


def conversations(folder: Path, source: dict[str, Any]) -> list[Conversation]:
    """The conversations of a source, as its format finds them."""
    return [sample[CONVERSATION] for sample in read_rows(recipe_of(folder, source))]


def delivered(recipe: Recipe) -> list[dict[str, Any]]:
    prepare(recipe, workers=1)
    with Loader(recipe) as loader:
        return [sample for batch in loader if not batch.idle for sample in batch["samples"]]


def user(*parts: str | MediaPart) -> Turn:
    return Turn("user", parts)


def assistant(*parts: str | MediaPart) -> Turn:
    return Turn("assistant", parts)


def system(*parts: str) -> Turn:
    return Turn("system", parts)


def named(path: str, folder: Path, offset: float = 0.0, duration: float | None = None) -> MediaPart:
    """A recording that a row names beside its file."""
    return MediaPart(Media("audio", path=path, offset=offset, duration=duration, base=str(folder)), duration)


def text_turn(speaker: str, value: str) -> dict[str, Any]:
    return {"value": value, "from": speaker, "type": "text"}


def audio_turn(value: str, speaker: str = "User", **times: float | None) -> dict[str, Any]:
    return {"value": value, "from": speaker, "type": "audio", **times}


def check_delivered(sample: dict[str, Any], turns: Sequence[Said], audio: Sequence[Any] = ()) -> None:
    """Law: the tokens, the loss mask, and each recording in its place, sample by sample."""
    tokens, trained = expected_tokens(turns)
    assert sample["tokens"].tolist() == tokens
    assert sample["loss_mask"].tolist() == trained
    found = sample["audio"]
    numbers = [part for _, parts in turns for part in parts if isinstance(part, int)]
    assert found.num_tokens == numbers
    for position, number in zip(found.positions, numbers, strict=True):
        assert tokens[position : position + number] == [special(AUDIO)] * number
        assert position == 0 or tokens[position - 1] != special(AUDIO)
    assert len(found) == len(audio)
    for one, expected in zip(found.media, audio, strict=True):
        assert one.dtype == "float32"
        assert one.tolist() == (expected.astype("float32") / 2**15).tolist()
