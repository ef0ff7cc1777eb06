"""What the recipe says about samples: audio, templates of conversations, augmentations, and how they are batched."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from playhead.recipe.nemo.context import Context
from playhead.recipe.nemo.entries import Dataset
from playhead.recipe.nemo.stream import Stream


def delivery_values(streams: list[Stream], evaluation: Mapping[str, Stream], context: Context) -> dict[str, Any]:
    """The values at the top of the recipe; sources that differ from them get their own."""
    sets = list(evaluation.values())
    values: dict[str, Any] = {}
    values |= _template(streams, sets, context)
    values |= _sequence([dataset for stream in (*streams, *sets) for dataset in stream.datasets], streams, context)
    values |= _audio(streams, sets)
    values |= _augments(streams, sets)
    _note_tokenizer(values, streams, sets, context)
    for stream in (*streams, *sets):
        _note_prompt(stream, context)
    return values


def _template(streams: list[Stream], sets: list[Stream], context: Context) -> dict[str, Any]:
    found: dict[str, Any] | None = None
    for dataset in (dataset for stream in (*streams, *sets) for dataset in stream.datasets):
        if dataset.modality != "conversation":
            continue
        own = _template_of(dataset, context)
        if found is None or ("audio" in own and "audio" not in found):
            found = own
        elif "audio" in own and own != found:
            dataset.values["template"] = own
    if found is None:
        return {}
    if "audio" in found:
        context.notes.check(
            f"`{found['audio']['tag']}` must be one token of the tokenizer: otherwise `playhead prepare` refuses it"
        )
    return {"template": found}


def _template_of(dataset: Dataset, context: Context) -> dict[str, Any]:
    found: dict[str, Any] = {"tokenizer": context.tokenizer, "file": context.template}
    if dataset.audio_tag is not None and dataset.token_seconds is not None:
        found["audio"] = {"tag": dataset.audio_tag, "token_equivalent_duration": dataset.token_seconds}
    return found


def _sequence(datasets: list[Dataset], streams: list[Stream], context: Context) -> dict[str, Any]:
    """The field that lengths count: that of the formats, tokens, or none where sources differ."""
    kinds = {dataset.modality for dataset in datasets}
    if kinds == {"audio"} and not any(stream.sampling.in_tokens for stream in streams):
        return _audio_fields(datasets, context)
    if kinds <= {"conversation", "text"}:
        return {"sequence": "tokens"}
    for dataset in datasets:
        dataset.values.pop("tokenize", None)
    context.notes.check(
        "Samples of different kinds are delivered as lists (`collate: list`): put your collate function in its place, "
        "or keep your Dataset class and let it make the batch"
    )
    return {"sequence": None, "collate": "list"}


def _audio_fields(datasets: list[Dataset], context: Context) -> dict[str, Any]:
    """The fields that all samples have: rows of manifests may differ in others, which cannot be put into arrays."""
    fields = {(each.audio_field, each.duration_field, each.text_field, *sorted(each.tags)) for each in datasets}
    if len(fields) > 1:
        why = "sources have different tags or fields, so samples are delivered as lists"
        context.notes.changed("tags and fields", "attributes of cuts", "collate: list", why, at="collate")
        context.notes.check("Samples are delivered as lists (`collate: list`): put your collate function in its place")
        return {"collate": "list"}
    names = list(fields.pop())
    why = "rows may differ in other fields: add those that your model needs, if all rows have them"
    context.notes.changed("fields of rows", "attributes of cuts", f"fields: {', '.join(names)}", why, at="fields")
    context.notes.check("Look at `fields` in the recipe: only these are delivered")
    return {"fields": names}


def _audio(streams: list[Stream], sets: list[Stream]) -> dict[str, Any]:
    heard = [
        stream
        for stream in (*streams, *sets)
        if any(dataset.modality in ("audio", "conversation") for dataset in stream.datasets)
    ]
    if not heard:
        return {}
    audio = heard[0].audio
    for stream in heard:
        if stream.audio != audio:
            for dataset in stream.datasets:
                dataset.values["audio"] = stream.audio
    return {"audio": audio}


def _augments(streams: list[Stream], sets: list[Stream]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    noises = [noise for stream in (*streams, *sets) for noise in stream.noises]
    if noises:
        found["noises"] = noises
    alone = len(streams) == 1
    if alone and streams[0].augments:
        found["augment"] = streams[0].augments
    for stream in sets if alone else (*streams, *sets):
        for dataset in stream.datasets if stream.augments else ():
            dataset.values["augment"] = stream.augments
    return found


def _note_tokenizer(values: dict[str, Any], streams: list[Stream], sets: list[Stream], context: Context) -> None:
    used = str([values, [dataset.values for stream in (*streams, *sets) for dataset in stream.datasets]])
    if "${TOKENIZER" in context.tokenizer and context.tokenizer in used:
        context.notes.check(
            "Tokens are counted by a Hugging Face tokenizer.json, which NeMo configurations do not name: "
            "put it beside the recipe, set TOKENIZER to its path, or import again with --tokenizer"
        )
    if "template" in values and "${CHAT_TEMPLATE" in context.template:
        context.notes.check(
            "Conversations become tokens by a Hugging Face chat template in place of NeMo's prompt format: put it "
            "beside the recipe as chat_template.jinja, set CHAT_TEMPLATE to its path, or import again with --template"
        )


def _note_prompt(stream: Stream, context: Context) -> None:
    if stream.prompt_format is None:
        return
    place = f"{stream.place}.prompt_format"
    if any(dataset.modality == "conversation" for dataset in stream.datasets):
        context.notes.changed(
            place, stream.prompt_format, "template", "a Hugging Face chat template is used in its place", at="template"
        )
        context.notes.check(
            f"Compare the chat template with NeMo's prompt format `{stream.prompt_format}` on a few samples"
        )
    else:
        why = "prompts are put together in your map or Dataset, and their tokens are not counted"
        context.notes.ignored(place, stream.prompt_format, why)
