"""The entries of an `input_cfg` that name data: each type as a source of a recipe."""

from __future__ import annotations

from collections.abc import Callable

from playhead.errors import RecipeError
from playhead.recipe.nemo.audio_types import read_any_audio, read_lhotse, read_nemo, read_parquet
from playhead.recipe.nemo.block import Block
from playhead.recipe.nemo.context import Context
from playhead.recipe.nemo.conversation_types import as_conversation, conversations
from playhead.recipe.nemo.entries import Dataset, Entry, datasets_of
from playhead.recipe.nemo.entry_reader import EntryReader
from playhead.recipe.nemo.notes import shown
from playhead.recipe.nemo.text_types import read_text, read_text_jsonl, read_text_pair
from playhead.recipe.words import nearest

_UNSUPPORTED = ("multi_speaker_simulator", "nemo_tarred_to_duplex", "s2s_", "lhotse_magpietts_")

CONVERSIONS = {
    "lhotse_as_conversation": as_conversation("transcript"),
    "sqa_as_conversation": as_conversation("question"),
}

_READERS: dict[str, Callable[[EntryReader], Entry]] = {
    "nemo": read_nemo,
    "nemo_tarred": read_nemo,
    "lhotse": read_lhotse,
    "lhotse_shar": read_lhotse,
    "parquet": read_parquet,
    "txt": read_text,
    "txt_jsonl": read_text_jsonl,
    "txt_pair": read_text_pair,
    "nemo_sft_jsonl": conversations("nemo_sft", "paths"),
    "nemotron_text_converation": conversations("nemotron_text", "paths"),
    "multimodal_conversation": conversations(
        "multimodal_conversation", "manifest_filepath", tarred_audio_filepaths="tar"
    ),
    "share_gpt": conversations(
        "share_gpt",
        "manifest_filepath",
        tarred_audio_filepaths="tar",
        audio_placeholders="placeholders",
        audio_root="audio_root",
    ),
    "share_gpt_webdataset": conversations("share_gpt_webdataset", "data_dir", audio_placeholders="placeholders"),
    "lhotse_as_conversation": read_any_audio,
    "sqa_as_conversation": read_any_audio,
}


def read_dataset(block: Block, context: Context, fallback: str = "data") -> Entry:
    """The source of an entry, or a group of sources where the entry itself is a blend."""
    kind = block.text("type")
    if kind is None:
        raise RecipeError(f"{block.place}: `type` is missing", expected=f"one of: {', '.join(sorted(_READERS))}, group")
    if kind == "group":
        raise RecipeError(
            f"{block.at('input_cfg')}: is missing", found="a group without entries", expected="a list, or a YAML file"
        )
    if kind not in _READERS:
        near = nearest(kind, [*_READERS, "group"])
        known = kind.startswith(_UNSUPPORTED)
        raise RecipeError(
            f"{block.at('type')}: {'is not supported' if known else 'is an unknown type'}",
            found=kind,
            expected=f"one of: {', '.join(sorted(_READERS))}, group",
            fix="write its samples to files beforehand, and name those"
            if known
            else (f"did you mean `{near[0]}`?" if near else None),
        )
    reader = EntryReader(block, context, fallback)
    entry = _READERS[kind](reader)
    for dataset in datasets_of([entry]):
        if kind in CONVERSIONS:
            CONVERSIONS[kind](dataset, block)
        _leave_in_order(dataset, block)
        if dataset.place == block.place:
            what = shown(dataset.values.get("path", dataset.values.get("options")))
            context.notes.mapped(block.place, f"{kind} {what}", f'source "{dataset.name}"')
    return entry


def _leave_in_order(dataset: Dataset, block: Block) -> None:
    if block.inherit("shuffle", True) is False:
        # Shards of Shar are always shuffled by NeMo.
        dataset.values["shuffle"] = "shards" if dataset.values["format"] == "lhotse_shar" else "none"
