"""Each type of entry as a source: audio, text, conversations, and audio that is made into conversations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from playhead.errors import RecipeError
from playhead.recipe.nemo.entries import Dataset, Entry, EntryReader, as_list, checked_weights, datasets_of, one_or_list
from playhead.recipe.nemo.report import shown
from playhead.recipe.nemo.sections import Block
from playhead.store import is_url

_EXTRA_FIELDS = ("text_iter", "text_sample")
_TEXT_ONLY = ("nemo_sft", "nemotron_text")


def read_nemo(reader: EntryReader) -> Entry:
    block = reader.block
    manifests = block.take("manifest_filepath")
    tars = block.take("tarred_audio_filepaths")
    if tars is None and block.has("tarred_audio_filepath"):
        tars = block.take("tarred_audio_filepath")
        block.notes.changed(block.at("tarred_audio_filepath"), tars, "options.tar", "NeMo's key has an s at its end")
    if tars is None and block.text("type") == "nemo_tarred":
        raise RecipeError(
            f"{block.place}: `tarred_audio_filepaths` is missing",
            found=shown(block.values),
            fix="add it, or write `type: nemo`, which NeMo would take it for",
        )
    text_field = block.inherit_text("text_field", "text")
    if block.has("text_field") and text_field != "text":
        why = "samples have the fields of their rows under their own names"
        block.notes.changed(block.at("text_field"), text_field, "the field of that name", why)
    if isinstance(manifests, str) or (tars is None and _is_flat(manifests)):
        found: Entry = _nemo_part(reader, manifests, tars)
    elif isinstance(manifests, list):
        found = _nemo_blend(reader, manifests, tars)
    else:
        raise RecipeError(f"{block.place}: `manifest_filepath` is missing", found=shown(block.values))
    for dataset in datasets_of([found]):
        dataset.text_field = text_field
    return found


def _nemo_part(reader: EntryReader, manifest: Any, tars: Any) -> Dataset:
    block = reader.block
    paths = reader.placed(manifest, "manifest_filepath")
    skip_missing = block.inherit("skip_missing_manifest_entries", block.take("tarred_random_access", False))
    extra = block.take("extra_fields")
    if tars is None:
        if skip_missing:
            why = "a file that is missing is a bad sample: `on_error: substitute` replaces those"
            block.notes.ignored(block.at("skip_missing_manifest_entries"), skip_missing, why)
        options = {"extra_fields": _extra_fields(extra, reader)} if extra else {}
        return reader.dataset("audio", "nemo", paths, options=options)
    if extra:
        block.notes.refused(block.at("extra_fields"), extra, "only manifests without tars have extra fields")
    tar = one_or_list(reader.placed(tars, "tarred_audio_filepaths"))
    return reader.dataset("audio", "nemo_tarred", paths, options={"tar": tar, "skip_missing": skip_missing})


def _nemo_blend(reader: EntryReader, manifests: list[Any], tars: Any) -> Entry:
    """`[[a], [b]]` and `[a, b]` are blends by the number of rows, `[[a, 0.3], [b, 0.7]]` by weights."""
    block = reader.block
    where = block.at("manifest_filepath")
    if tars is not None and (not isinstance(tars, list) or len(tars) != len(manifests)):
        raise RecipeError(
            f"{block.at('tarred_audio_filepaths')}: has another number of entries than `manifest_filepath`",
            found=f"{len(tars) if isinstance(tars, list) else 1} for {len(manifests)} manifests",
            expected="the tars of every manifest, in the same order",
        )
    reader.is_blend = len(manifests) > 1
    parts = [_path_and_weight(item, f"{where}[{i}]") for i, item in enumerate(manifests)]
    weights = checked_weights([weight for _, weight in parts], [f"{where}[{i}]" for i in range(len(parts))])
    members: list[Entry] = [
        _nemo_part(reader, path, None if tars is None else _only(tars[i])) for i, (path, _) in enumerate(parts)
    ]
    _note_blend(reader, members, weights, where)
    if block.inherit("max_open_streams") is not None:
        why = "a manifest has its share whatever the number of its shards; NeMo gives the weight to every shard"
        block.notes.changed(block.at("max_open_streams"), block.inherit("max_open_streams"), "not needed", why)
    return reader.group(members, weights)


def _note_blend(reader: EntryReader, members: list[Entry], weights: list[float] | None, where: str) -> None:
    by = "weights" if weights else "the number of rows"
    now = ", ".join(f'"{member.name}"' for member in members)
    reader.context.notes.mapped(where, f"a blend of {len(members)} by {by}", f"sources {now}")
    for i, member in enumerate(members):
        member.place = f"{where}[{i}]"


def _path_and_weight(item: Any, place: str) -> tuple[str, Any]:
    if isinstance(item, str):
        return item, None
    if isinstance(item, list) and 0 < len(item) <= 2 and isinstance(item[0], str):
        return item[0], item[1] if len(item) == 2 else None
    raise RecipeError(f"{place}: is not a path", found=shown(item), expected="a path, [path] or [path, weight]")


def _extra_fields(given: Any, reader: EntryReader) -> list[dict[str, str]]:
    where = reader.block.at("extra_fields")
    found = []
    for i, each in enumerate(given if isinstance(given, list) else [given]):
        if (
            not isinstance(each, Mapping)
            or set(each) != {"name", "type", "path"}
            or not all(isinstance(value, str) for value in each.values())
            or each["type"] not in _EXTRA_FIELDS
        ):
            raise RecipeError(
                f"{where}[{i}]: is not an extra field",
                found=shown(each),
                expected=f"`name`, `path` and `type`, one of: {', '.join(_EXTRA_FIELDS)}",
            )
        found.append({"name": each["name"], "type": each["type"], "path": reader.context.absolute(each["path"])})
    return found


def read_lhotse(reader: EntryReader) -> Entry:
    block = reader.block
    if not block.has("shar_path"):
        paths = reader.path("cuts_path")
        folder = paths[0].rpartition("/")[0]
        # NeMo looks for recordings beside the manifest; lhotse in the working directory.
        options = {} if is_url(paths[0]) else {"root": folder or "."}
        return reader.dataset("audio", "lhotse", paths, options=options)
    if block.has("cuts_path"):
        block.notes.ignored(
            block.at("cuts_path"), block.take("cuts_path"), "NeMo ignores it where there is `shar_path`"
        )
    given, where = block.take("shar_path"), block.at("shar_path")
    if isinstance(given, Mapping):
        if "cuts" not in given:
            raise RecipeError(
                f"{where}: has no `cuts`", found=shown(given), expected="the files of every field, and `cuts`"
            )
        fields = {field: one_or_list(reader.placed(paths, f"shar_path.{field}")) for field, paths in given.items()}
        return reader.dataset("audio", "lhotse_shar", [], options={"fields": fields})
    if isinstance(given, str):
        return reader.dataset("audio", "lhotse_shar", reader.placed(given, "shar_path"))
    parts = [_path_and_weight(item, f"{where}[{i}]") for i, item in enumerate(as_list(given))]
    reader.is_blend = len(parts) > 1
    weights = checked_weights([weight for _, weight in parts], [f"{where}[{i}]" for i in range(len(parts))])
    members: list[Entry] = [
        reader.dataset("audio", "lhotse_shar", reader.placed(path, "shar_path")) for path, _ in parts
    ]
    _note_blend(reader, members, weights, where)
    return reader.group(members, weights)


def read_any_audio(reader: EntryReader) -> Entry:
    """The data of an entry that is converted: what its keys name."""
    block = reader.block
    return read_lhotse(reader) if block.has("cuts_path") or block.has("shar_path") else read_nemo(reader)


def read_parquet(reader: EntryReader) -> Entry:
    block = reader.block
    audio = block.text("audio_field") or "audio"
    found = reader.dataset("audio", "parquet", reader.path("manifest_filepath"), options={"audio": [audio]})
    found.audio_field = audio
    found.duration_field = block.text("duration_field") or "duration"
    found.text_field = block.inherit_text("text_field", "text")
    found.values["length"] = {"field": found.duration_field, "audio": audio, "unit": "seconds"}
    if block.has("sampling_rate"):
        why = "the rate of audio is read from its header"
        block.notes.ignored(block.at("sampling_rate"), block.take("sampling_rate"), why)
    return found


def _is_flat(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, str) for item in value)


def _only(value: Any) -> Any:
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def read_text(reader: EntryReader) -> Entry:
    return _with_languages(reader, reader.dataset("text", "text", reader.path("paths")), "language")


def read_text_jsonl(reader: EntryReader) -> Entry:
    field = reader.block.inherit_text("text_field", "text")
    options = {} if field == "text" else {"field": field}
    return _with_languages(
        reader, reader.dataset("text", "text_jsonl", reader.path("paths"), options=options), "language"
    )


def read_text_pair(reader: EntryReader) -> Entry:
    second = one_or_list(reader.path("target_paths", "target_path"))
    found = reader.dataset("pair", "text_pair", reader.path("source_paths", "source_path"), options={"second": second})
    return _with_languages(reader, found, "source_language", "target_language")


def _with_languages(reader: EntryReader, dataset: Dataset, *names: str) -> Dataset:
    dataset.tags |= {name: reader.block.take(name) for name in names if reader.block.has(name)}
    return dataset


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
        return _with_languages(reader, _with_audio(dataset, reader.block, format_name not in _TEXT_ONLY), "language")

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
