"""Types of conversations, and audio that is made into conversations."""

from __future__ import annotations

from collections.abc import Callable

from playhead.errors import RecipeError
from playhead.recipe.nemo.block import Block
from playhead.recipe.nemo.entries import Dataset, Entry
from playhead.recipe.nemo.entry_reader import EntryReader, one_or_list
from playhead.recipe.nemo.notes import shown
from playhead.recipe.nemo.text_types import with_languages

_TEXT_ONLY = ("nemo_sft", "nemotron_text")


def conversations(format_name: str, *names: str, **options: str) -> Callable[[EntryReader], Entry]:
    """A format of conversations; `options` are its own by the names of NeMo's keys."""

    def read(reader: EntryReader) -> Entry:
        found = {option: reader.block.take(key) for key, option in options.items() if reader.block.has(key)}
        for option in ("tar", "audio_root"):
            if option in found:
                found[option] = one_or_list(reader.placed(found[option], option))
        if "tar" in found and "audio_placeholders" in options:  # NeMo reads it for ShareGPT alone
            found["skip_missing"] = reader.block.inherit("skip_missing_manifest_entries", False)
        dataset = reader.dataset("conversation", format_name, reader.path(*names), options=found)
        return with_languages(reader, _with_audio(dataset, reader.block, format_name not in _TEXT_ONLY), "language")

    return read


def _with_audio(dataset: Dataset, block: Block, needed: bool) -> Dataset:
    """The tag and the seconds of a token, which conversations with audio need."""
    dataset.audio_tag = block.inherit("audio_locator_tag")
    seconds = block.inherit("token_equivalent_duration")
    dataset.token_seconds = None if seconds is None else block.as_number("token_equivalent_duration", seconds)
    if isinstance(dataset.audio_tag, list):  # `[audio]` without quotes is a list in YAML
        dataset.audio_tag = shown(dataset.audio_tag)
    for key, value in (("audio_locator_tag", dataset.audio_tag), ("token_equivalent_duration", dataset.token_seconds)):
        if needed and value is None:
            raise RecipeError(
                f"{block.place}: `{key}` is missing",
                expected="the token that stands for audio, and the seconds that a token stands for",
                fix=f"add `{key}` to the entry or to the dataset: NeMo needs it too",
            )
    return dataset


def as_conversation(form: str) -> Callable[[Dataset, Block], None]:
    def convert(dataset: Dataset, block: Block) -> None:
        if dataset.modality == "conversation":
            return  # as NeMo, which leaves conversations as they are
        if dataset.modality != "audio":
            raise RecipeError(f"{dataset.place}: only audio can become a conversation", found=dataset.modality)
        other = {} if form == "transcript" else {"form": form}
        if dataset.text_field != "text":
            other["text"] = dataset.text_field
        if dataset.duration_field != "duration":
            other["duration"] = dataset.duration_field
        if dataset.audio_field != "audio":
            other["audio"] = dataset.audio_field
        dataset.values["as_conversation"] = other or True
        dataset.modality = "conversation"
        _with_audio(dataset, block, needed=True)

    return convert
