"""The entries of an `input_cfg` that name data: each type as a source of a recipe."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from typing import Any

from playhead.errors import RecipeError
from playhead.recipe.nemo.block import Block
from playhead.recipe.nemo.context import Context
from playhead.recipe.nemo.entries import Dataset, Entry, Group, Modality, datasets_of
from playhead.recipe.nemo.notes import shown
from playhead.recipe.nemo.weights import checked_weights
from playhead.recipe.words import nearest
from playhead.store import is_url

_UNSUPPORTED = ("multi_speaker_simulator", "nemo_tarred_to_duplex", "s2s_", "lhotse_magpietts_")
_EXTRA_FIELDS = ("text_iter", "text_sample")


def read_dataset(block: Block, context: Context, fallback: str = "data") -> Entry:
    """The source of an entry, or a group of sources where the entry itself is a blend."""
    kind = block.text("type")
    if kind is None:
        raise RecipeError(f"{block.place}: `type` is missing", expected=f"one of: {', '.join(sorted(_READERS))}, group")
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
    reader = _Reader(block, context, fallback)
    entry = _READERS[kind](reader)
    for dataset in datasets_of([entry]):
        if kind in CONVERSIONS:
            CONVERSIONS[kind](dataset, block)
        _note_shuffle(dataset, block)
        if dataset.place == block.place:
            what = shown(dataset.values.get("path", dataset.values.get("options")))
            context.notes.mapped(block.place, f"{kind} {what}", f'source "{dataset.name}"')
    return entry


class _Reader:
    """An entry that is being read. Its name is that of its source or, if it `is_blend`, of the group of its sources."""

    def __init__(self, block: Block, context: Context, fallback: str) -> None:
        self.block = block
        self.context = context
        self._given = next((block.take(key) for key in ("name", "corpus") if block.has(key)), None)
        self._fallback = fallback
        self.is_blend = False

    def path(self, *names: str) -> list[str]:
        """The paths in the first of these keys that is given."""
        for name in names:
            if self.block.has(name):
                return self.placed(self.block.take(name), name)
        raise RecipeError(f"{self.block.place}: `{names[0]}` is missing", found=shown(self.block.values))

    def placed(self, value: Any, name: str) -> list[str]:
        paths = [value] if isinstance(value, str) else value
        if not isinstance(paths, list) or not paths or not all(isinstance(path, str) for path in paths):
            raise RecipeError(f"{self.block.at(name)}: is not a path or a list of paths", found=shown(value))
        return [self.context.placed(path) for path in paths]

    def dataset(self, modality: Modality, format_name: str, paths: Sequence[str], **values: Any) -> Dataset:
        options = {key: value for key, value in values.pop("options", {}).items() if value}
        named = paths or [text for field in options.get("fields", {}).values() for text in _list(field)]
        name = self.context.name_for(None if self.is_blend else self._given, named, self._fallback)
        path = {"path": _one_or_list(paths)} if paths else {}
        found = {"format": format_name, **path, **values, **({"options": options} if options else {})}
        return Dataset(name, found, modality, self.block.place)

    def group(self, members: list[Entry], weights: list[float] | None) -> Entry:
        """A blend: by weights, or by the sizes of its members."""
        if len(members) == 1:
            return members[0]
        for member, weight in zip(members, weights or repeat(None, len(members)), strict=True):
            member.weight = weight
        name = self.context.name_for(self._given, [], f"{self._fallback}-blend")
        return Group(name, members, self.block.place)


def _note_shuffle(dataset: Dataset, block: Block) -> None:
    if block.inherit("shuffle", True) is False:
        # Shards of Shar are always shuffled by NeMo.
        dataset.values["shuffle"] = "shards" if dataset.values["format"] == "lhotse_shar" else "none"


def _nemo(reader: _Reader) -> Entry:
    block = reader.block
    manifests = block.take("manifest_filepath")
    tars = block.take("tarred_audio_filepaths")
    if tars is None and block.has("tarred_audio_filepath"):
        tars = block.take("tarred_audio_filepath")
        block.notes.changed(block.at("tarred_audio_filepath"), tars, "options.tar", "NeMo's key has an s at its end")
    text_field = block.inherit("text_field", "text")
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


def _nemo_part(reader: _Reader, manifest: Any, tars: Any) -> Dataset:
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
    tar = _one_or_list(reader.placed(tars, "tarred_audio_filepaths"))
    return reader.dataset("audio", "nemo_tarred", paths, options={"tar": tar, "skip_missing": skip_missing})


def _nemo_blend(reader: _Reader, manifests: list[Any], tars: Any) -> Entry:
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


def _note_blend(reader: _Reader, members: list[Entry], weights: list[float] | None, where: str) -> None:
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


def _extra_fields(given: Any, reader: _Reader) -> list[dict[str, str]]:
    where = reader.block.at("extra_fields")
    found = []
    for i, each in enumerate(given if isinstance(given, list) else [given]):
        if (
            not isinstance(each, Mapping)
            or each.get("type") not in _EXTRA_FIELDS
            or set(each) != {"name", "type", "path"}
        ):
            raise RecipeError(
                f"{where}[{i}]: is not an extra field",
                found=shown(each),
                expected=f"`name`, `path` and `type`, one of: {', '.join(_EXTRA_FIELDS)}",
            )
        found.append({"name": each["name"], "type": each["type"], "path": reader.context.absolute(each["path"])})
    return found


def _lhotse(reader: _Reader) -> Entry:
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
        fields = {field: _one_or_list(reader.placed(paths, f"shar_path.{field}")) for field, paths in given.items()}
        return reader.dataset("audio", "lhotse_shar", [], options={"fields": fields})
    if isinstance(given, str):
        return reader.dataset("audio", "lhotse_shar", reader.placed(given, "shar_path"))
    parts = [_path_and_weight(item, f"{where}[{i}]") for i, item in enumerate(_list(given))]
    reader.is_blend = len(parts) > 1
    weights = checked_weights([weight for _, weight in parts], [f"{where}[{i}]" for i in range(len(parts))])
    members: list[Entry] = [
        reader.dataset("audio", "lhotse_shar", reader.placed(path, "shar_path")) for path, _ in parts
    ]
    _note_blend(reader, members, weights, where)
    return reader.group(members, weights)


def _any_audio(reader: _Reader) -> Entry:
    """The data of an entry that is converted: what its keys name."""
    block = reader.block
    return _lhotse(reader) if block.has("cuts_path") or block.has("shar_path") else _nemo(reader)


def _parquet(reader: _Reader) -> Entry:
    block = reader.block
    audio = block.take("audio_field", "audio")
    found = reader.dataset("audio", "parquet", reader.path("manifest_filepath"), options={"audio": [audio]})
    found.audio_field = audio
    found.duration_field = block.take("duration_field", "duration")
    found.text_field = block.inherit("text_field", "text")
    found.values["length"] = {"field": found.duration_field, "audio": audio, "unit": "seconds"}
    if block.has("sampling_rate"):
        why = "the rate of audio is read from its header"
        block.notes.ignored(block.at("sampling_rate"), block.take("sampling_rate"), why)
    return found


def _text(reader: _Reader) -> Entry:
    return _with_languages(reader, reader.dataset("text", "text", reader.path("paths")), "language")


def _text_jsonl(reader: _Reader) -> Entry:
    field = reader.block.inherit("text_field", "text")
    options = {} if field == "text" else {"field": field}
    return _with_languages(
        reader, reader.dataset("text", "text_jsonl", reader.path("paths"), options=options), "language"
    )


def _text_pair(reader: _Reader) -> Entry:
    second = _one_or_list(reader.path("target_paths", "target_path"))
    found = reader.dataset("pair", "text_pair", reader.path("source_paths", "source_path"), options={"second": second})
    return _with_languages(reader, found, "source_language", "target_language")


def _with_languages(reader: _Reader, dataset: Dataset, *names: str) -> Dataset:
    dataset.tags |= {name: reader.block.take(name) for name in names if reader.block.has(name)}
    return dataset


def _conversation(format_name: str, *names: str, **options: str) -> Callable[[_Reader], Entry]:
    """A format of conversations; `options` are its own by the names of NeMo's keys."""

    def read(reader: _Reader) -> Entry:
        found = {option: reader.block.take(key) for key, option in options.items() if reader.block.has(key)}
        for option in ("tar", "audio_root"):
            if option in found:
                found[option] = _one_or_list(reader.placed(found[option], option))
        if "tar" in found and "audio_placeholders" in options:  # NeMo reads it for ShareGPT alone
            found["skip_missing"] = reader.block.inherit("skip_missing_manifest_entries", False)
        dataset = reader.dataset("conversation", format_name, reader.path(*names), options=found)
        return _with_languages(reader, _with_audio(dataset, reader.block, format_name not in _TEXT_ONLY), "language")

    return read


_TEXT_ONLY = ("nemo_sft", "nemotron_text")


def _with_audio(dataset: Dataset, block: Block, needed: bool) -> Dataset:
    """The tag and the seconds of a token, which conversations with audio need."""
    dataset.audio_tag = block.inherit("audio_locator_tag")
    dataset.token_seconds = block.inherit("token_equivalent_duration")
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


def _as_conversation(form: str) -> Callable[[Dataset, Block], None]:
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


CONVERSIONS = {
    "lhotse_as_conversation": _as_conversation("transcript"),
    "sqa_as_conversation": _as_conversation("question"),
}

_READERS: dict[str, Callable[[_Reader], Entry]] = {
    "nemo": _nemo,
    "nemo_tarred": _nemo,
    "lhotse": _lhotse,
    "lhotse_shar": _lhotse,
    "parquet": _parquet,
    "txt": _text,
    "txt_jsonl": _text_jsonl,
    "txt_pair": _text_pair,
    "nemo_sft_jsonl": _conversation("nemo_sft", "paths"),
    "nemotron_text_converation": _conversation("nemotron_text", "paths"),
    "multimodal_conversation": _conversation(
        "multimodal_conversation", "manifest_filepath", tarred_audio_filepaths="tar"
    ),
    "share_gpt": _conversation(
        "share_gpt",
        "manifest_filepath",
        tarred_audio_filepaths="tar",
        audio_placeholders="placeholders",
        audio_root="audio_root",
    ),
    "share_gpt_webdataset": _conversation("share_gpt_webdataset", "data_dir", audio_placeholders="placeholders"),
    "lhotse_as_conversation": _any_audio,
    "sqa_as_conversation": _any_audio,
}


def _is_flat(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, str) for item in value)


def _only(value: Any) -> Any:
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _one_or_list(paths: Sequence[str]) -> str | list[str]:
    return paths[0] if len(paths) == 1 else list(paths)
