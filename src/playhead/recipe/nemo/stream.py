"""One stream of batches: the data of a dataset configuration, its batching and its augmentations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from playhead.recipe.nemo.augment import read_augments
from playhead.recipe.nemo.block import Block
from playhead.recipe.nemo.context import Context
from playhead.recipe.nemo.entries import Dataset, Entry, as_values, datasets_of
from playhead.recipe.nemo.lengths import measure
from playhead.recipe.nemo.sampling import Sampling, read_sampling
from playhead.recipe.nemo.tree import read_entries

SAMPLE_RATE = 16_000  # NeMo's default


@dataclass
class Stream:
    """`name` is that of a sub-config; `audio` how its audio is delivered."""

    name: str | None
    place: str
    entries: list[Entry]
    sampling: Sampling
    audio: dict[str, Any]
    prompt_format: str | None = None
    augments: list[dict[str, Any]] = field(default_factory=list)
    noises: list[dict[str, Any]] = field(default_factory=list)

    @property
    def datasets(self) -> list[Dataset]:
        return list(datasets_of(self.entries))

    def entries_as_values(self) -> list[dict[str, Any]]:
        return [as_values(entry) for entry in self.entries]

    def as_group(self, block: Block, lanes: int | None) -> dict[str, Any]:
        """A group with its own batching; in a zip it has the lanes of a whole step."""
        own = {"lanes": lanes or 1} if block.values.get("sampler_fusion") == "zip" else {}
        return {"name": self.name, **own, "batching": self.sampling.batching, "sources": self.entries_as_values()}


def read_stream(block: Block, context: Context, name: str | None = None, *, in_order: bool = False) -> Stream:
    """`in_order`: for evaluation, which is never shuffled."""
    if not in_order:
        _note_shuffle(block, context)
    _note_text_field(block)
    _refuse_older_loader(block)
    entries = read_entries(block, context, name or "train")
    sampling = read_sampling(block)
    augments, noises = read_augments(block, context)
    for dataset in datasets_of(entries):
        measure(dataset, sampling, context)
    _note_filters(block, sampling)
    prompt = block.take("prompt_format")
    return Stream(name, block.place, entries, sampling, _audio(block), prompt, augments, noises)


def _note_shuffle(block: Block, context: Context) -> None:
    if block.take("shuffle") is None:
        # What is passed down to the entries is NeMo's default.
        block.values = {**block.values, "shuffle": False}
    if block.values["shuffle"]:
        context.notes.mapped(block.at("shuffle"), True, "shuffle: global", "every row anywhere, in place of a buffer")
    else:
        context.notes.mapped(
            block.at("shuffle"), False, "shuffle: none", "NeMo's default: rows in the order of their files"
        )
        context.notes.check(
            "The data is not shuffled, as the configuration says: `shuffle: true` is usual for training"
        )


def _refuse_older_loader(block: Block) -> None:
    """Lhotse's loader does not read these keys; the older one, for manifests alone, changes audio by them."""
    if block.values.get("use_lhotse") or any(block.has(key) for key in ("input_cfg", "cuts_path", "shar_path")):
        return
    for key in ("augmentor", "trim_silence"):
        if block.take(key):
            why = "without `use_lhotse` NeMo changes audio by it: use `augment` in the recipe, or write the audio so"
            block.notes.refused(block.at(key), block.values[key], why)


def _note_text_field(block: Block) -> None:
    if block.take("text_field", "text") != "text":
        why = "samples have the fields of their rows under their own names"
        block.notes.changed(block.at("text_field"), block.values["text_field"], "the field of that name", why)


def _audio(block: Block) -> dict[str, Any]:
    rate = block.number("sample_rate", SAMPLE_RATE)
    audio: dict[str, Any] = {"sample_rate": rate}
    channel = block.take("channel_selector")
    if channel == "average":
        audio["channels"] = "mono"
    elif isinstance(channel, int) and not isinstance(channel, bool):
        audio["channels"] = [channel]
    elif channel is not None:
        block.notes.refused(block.at("channel_selector"), channel, "a channel that a field of the row names")
    if block.has("sample_rate"):
        block.notes.mapped(block.at("sample_rate"), rate, f"audio.sample_rate: {rate}")
    return audio


def _note_filters(block: Block, sampling: Sampling) -> None:
    filters = sampling.filters
    for names, limits, now in (
        ("min_duration, max_duration", filters.duration, "keep of audio by its duration"),
        ("min_tokens, max_tokens", filters.tokens, "keep of text and conversations by @length"),
        ("min_tps, max_tps", filters.tokens_per_second, "keep of audio by @output_length and its duration"),
        ("min_tpt, max_tpt", filters.tokens_per_token, "keep of conversations and pairs by @output_length/@length"),
    ):
        if limits is not None:
            why = "rows are left out before shares are computed; NeMo draws by weight first, and filters afterwards"
            block.notes.changed(block.at(names), limits, now, why)
