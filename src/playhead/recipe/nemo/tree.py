"""An `input_cfg` walked into datasets and groups: types, weights, temperatures, tags and what is passed down."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from playhead.errors import RecipeError
from playhead.recipe.nemo.context import Context
from playhead.recipe.nemo.entries import (
    Dataset,
    Entry,
    EntryReader,
    Group,
    checked_weights,
    datasets_of,
    level_temperatures,
    reweighted,
)
from playhead.recipe.nemo.entry_types import (
    as_conversation,
    conversations,
    read_any_audio,
    read_lhotse,
    read_nemo,
    read_parquet,
    read_text,
    read_text_jsonl,
    read_text_pair,
)
from playhead.recipe.nemo.known_keys import IGNORED
from playhead.recipe.nemo.report import shown
from playhead.recipe.nemo.sections import CODE, TARGET, Block
from playhead.recipe.words import nearest

# The keys that NeMo passes down from a dataset to the entries of its `input_cfg`, and from groups to theirs.
_PASSED_DOWN = (
    "shuffle",
    "text_field",
    "audio_locator_tag",
    "token_equivalent_duration",
    "skip_missing_manifest_entries",
    "max_open_streams",
)
_PATHS = ("input_cfg", "manifest_filepath", "tarred_audio_filepaths", "shar_path")  # noted with their source
_TURNS = ("context", "system_prompt")  # tags that become turns where a conversation is made
_UNSUPPORTED = ("multi_speaker_simulator", "nemo_tarred_to_duplex", "s2s_", "lhotse_magpietts_")

_CONVERSIONS = {
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


def read_entries(block: Block, context: Context, fallback: str = "train") -> list[Entry]:
    """The entries of a dataset: those of its `input_cfg`, or those that its own paths name."""
    outer = _passed_down(block, {})
    if not block.has("input_cfg"):
        found = _read_dataset(Block(_own_paths(block), block.place, context.notes, outer), context, fallback)
        return found.members if isinstance(found, Group) else [found]
    given = block.take("input_cfg")
    temperature = block.take("reweight_temperature")
    if temperature is None:
        return _read_list(given, block.at("input_cfg"), context, outer, [])
    context.notes.mapped(block.at("reweight_temperature"), temperature, "weight", "weights are written reweighted")
    depth = _depth(given, context, block.at("input_cfg"))
    levels = level_temperatures(temperature, depth, block.at("reweight_temperature"))
    return _read_list(given, block.at("input_cfg"), context, outer, levels)


def _own_paths(block: Block) -> dict[str, Any]:
    keys = ("manifest_filepath", "tarred_audio_filepaths", "tarred_audio_filepath", "cuts_path", "shar_path")
    values = {key: block.take(key) for key in keys if block.has(key)}
    if not values:
        raise RecipeError(
            f"{block.place or 'the configuration'}: names no data",
            found=shown(block.values),
            expected="`input_cfg`, `manifest_filepath`, `cuts_path` or `shar_path`",
        )
    return {"type": "lhotse" if {"cuts_path", "shar_path"} & set(values) else "nemo", **values}


def _read_list(
    given: Any, place: str, context: Context, outer: Mapping[str, Any], temperatures: list[float]
) -> list[Entry]:
    if isinstance(given, str):
        with context.included(given, place) as (document, file):
            return _read_list(document.get(), file, context, outer, temperatures)
    if isinstance(given, Mapping) and list(given) == ["input_cfg"]:
        return _read_list(given["input_cfg"], f"{place}.input_cfg", context, outer, temperatures)
    if not isinstance(given, list) or not given:
        raise RecipeError(
            f"{place}: is not a list of datasets", found=shown(given), expected="a list, or the path of a YAML file"
        )
    temperature, below = (temperatures[0], temperatures[1:]) if temperatures else (1.0, [])
    blocks = [Block(item, f"{place}[{i}]", context.notes, outer) for i, item in enumerate(given)]
    weights = checked_weights([block.take("weight") for block in blocks], [block.place for block in blocks])
    entries = [_read_entry(block, context, below) for block in blocks]
    if len(entries) == 1:
        return entries
    if weights is None:
        context.notes.changed(
            place,
            "no weights",
            "weight: 1 on each",
            "NeMo draws from unweighted entries equally; recipes by their sizes",
            at=entries[0].name,
        )
        weights = [1] * len(entries)
    elif temperature == 1:
        context.notes.mapped(
            place, f"weights {shown(weights)}", "weight", "shares of this list, on every level as in NeMo"
        )
    for block, entry, was, now in zip(blocks, entries, weights, reweighted(weights, temperature), strict=True):
        entry.weight = now
        if now != was:
            context.notes.mapped(
                block.at("weight"), was, f"weight: {now:g}", f"temperature {temperature:g} applied", at=entry.name
            )
    return entries


def _read_entry(block: Block, context: Context, temperatures: list[float]) -> Entry:
    kind = block.text("type")
    outer = _passed_down(block, block.outer)
    if block.has("indexes_root"):
        context.indexes_roots.append(str(block.text("indexes_root")))
    nested = block.has("input_cfg") and (kind == "group" or kind in _CONVERSIONS)
    entry = _read_group(block, context, outer, temperatures) if nested else _read_dataset(block, context)
    if nested and kind in _CONVERSIONS:
        for dataset in datasets_of([entry]):
            _CONVERSIONS[kind](dataset, block)
    _attach_tags(entry, block, made_here=kind != "group")
    block.finish(told=_PATHS)
    return entry


def _read_group(block: Block, context: Context, outer: Mapping[str, Any], temperatures: list[float]) -> Entry:
    given = block.take("input_cfg")
    own = block.take("reweight_temperature")
    if own is not None:
        depth = _depth(given, context, block.at("input_cfg"))
        temperatures = level_temperatures(own, depth, block.at("reweight_temperature"))
    members = _read_list(given, block.at("input_cfg"), context, outer, temperatures)
    named = next((block.take(key) for key in ("name", "corpus") if block.has(key)), None)
    if len(members) == 1 and block.values.get("type") != "group":
        return members[0]
    file = given.rpartition("/")[2].partition(".")[0] if isinstance(given, str) else None
    return Group(context.name_for(named, [], file or "group"), members, block.place)


def _passed_down(block: Block, outer: Mapping[str, Any]) -> dict[str, Any]:
    own = {key: block.take(key) for key in _PASSED_DOWN if block.has(key)}
    if "max_open_streams" in own:
        block.notes.ignored(block.at("max_open_streams"), own["max_open_streams"], IGNORED["max_open_streams"])
    return {**outer, **own}


def _attach_tags(entry: Entry, block: Block, made_here: bool) -> None:
    """Outer tags replace inner ones. Those of a group come after conversations are made, so they make no turns."""
    tags = block.take("tags", {})
    if not isinstance(tags, Mapping):
        raise RecipeError(f"{block.at('tags')}: is not a mapping", found=shown(tags))
    if tags:
        block.notes.mapped(block.at("tags"), tags, f'tags of "{entry.name}"')
    for key, value in tags.items():
        place = f"{block.at('tags')}.{key}"
        if key == TARGET:
            block.notes.refused(place, value, CODE)
        elif value is None:
            block.notes.ignored(place, value, "a tag without a value")
        elif not isinstance(value, (str, int, float)):
            block.notes.refused(place, value, "a tag is a text, a number, true or false")
        else:
            for dataset in datasets_of([entry]):
                _attach(dataset, key, value, place, block, made_here)


def _attach(dataset: Dataset, key: str, value: Any, place: str, block: Block, made_here: bool) -> None:
    if dataset.modality == "conversation" and key in _TURNS and not made_here:
        block.notes.ignored(
            place, value, f'NeMo makes no turn of it in "{dataset.name}": only the entry\'s own tags count'
        )
        return
    if key in dataset.tags and dataset.tags[key] != value:
        why = f"outer tags replace inner ones, which said {shown(dataset.tags[key])}"
        block.notes.mapped(place, value, f'tags.{key} of "{dataset.name}"', why)
    dataset.tags[key] = value


def _depth(given: Any, context: Context, place: str) -> int:
    """How many levels of `input_cfg` there are, through included files."""
    if isinstance(given, str):
        with context.included(given, place) as (document, file):
            return _depth(document.get(), context, file)
    if isinstance(given, Mapping) and list(given) == ["input_cfg"]:
        return _depth(given["input_cfg"], context, place)
    if not isinstance(given, list):
        return 1  # refused with the other lists
    inner = [item["input_cfg"] for item in given if isinstance(item, Mapping) and "input_cfg" in item]
    return 1 + max((_depth(each, context, place) for each in inner), default=0)


def _read_dataset(block: Block, context: Context, fallback: str = "data") -> Entry:
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
        if kind in _CONVERSIONS:
            _CONVERSIONS[kind](dataset, block)
        _leave_in_order(dataset, block)
        if dataset.place == block.place:
            what = shown(dataset.values.get("path", dataset.values.get("options")))
            context.notes.mapped(block.place, f"{kind} {what}", f'source "{dataset.name}"')
    return entry


def _leave_in_order(dataset: Dataset, block: Block) -> None:
    if block.inherit("shuffle", True) is False:
        # Shards of Shar are always shuffled by NeMo.
        dataset.values["shuffle"] = "shards" if dataset.values["format"] == "lhotse_shar" else "none"
