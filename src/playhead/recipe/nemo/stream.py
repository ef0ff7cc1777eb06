"""One stream of batches: its data with lengths and filters, its batching, and its augmentations in NeMo's order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from playhead.errors import RecipeError
from playhead.recipe.nemo.context import Context
from playhead.recipe.nemo.entries import Dataset, Entry, as_values, datasets_of
from playhead.recipe.nemo.known_keys import DATA_KEYS
from playhead.recipe.nemo.report import shown
from playhead.recipe.nemo.sampling import Sampling, read_sampling
from playhead.recipe.nemo.sections import Block
from playhead.recipe.nemo.tree import read_entries

_SAMPLE_RATE = 16_000  # NeMo's default
_RATIO = "@output_length/@length"
_SPEEDS = [0.9, 1.0, 1.1]
_SNR = [10.0, 20.0]
_PROBABILITY = 0.5


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
    augments, noises = _read_augments(block, context)
    for dataset in datasets_of(entries):
        _measure(dataset, sampling, context)
    _note_filters(block, sampling)
    prompt = block.take("prompt_format")
    return Stream(name, block.place, entries, sampling, _delivered_audio(block), prompt, augments, noises)


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
            "The data is not shuffled, as NeMo does not shuffle it either: `shuffle: true` is usual for training"
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


def _delivered_audio(block: Block) -> dict[str, Any]:
    rate = block.number("sample_rate", _SAMPLE_RATE)
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


def _measure(dataset: Dataset, sampling: Sampling, context: Context) -> None:
    """Give a dataset its `length`, `output_length` and `keep`."""
    if dataset.modality != "audio" and sampling.by_length and not sampling.in_tokens:
        raise RecipeError(
            f"{dataset.place}: text has no seconds to batch by",
            found=f"{dataset.modality} data without `use_multimodal_sampling: true`",
            fix="add it, and batch by tokens; or use `batch_size` alone",
        )
    keep: dict[str, Any] = {}
    _MEASURES[dataset.modality](dataset, sampling, context, keep)
    if keep:
        dataset.values["keep"] = keep


def _tokens(context: Context, field: str) -> dict[str, Any]:
    return {"field": field, "tokenizer": context.tokenizer}


def _measure_audio(dataset: Dataset, sampling: Sampling, context: Context, keep: dict[str, Any]) -> None:
    text = _tokens(context, dataset.text_field)
    if sampling.filters.duration is not None:
        keep[dataset.duration_field] = sampling.filters.duration
    if sampling.in_tokens and sampling.by_length:
        if not sampling.token_seconds:
            raise RecipeError(
                f"{dataset.place}: audio is counted in tokens, and `token_equivalent_duration` is missing",
                fix="add it to the dataset: the seconds of audio that count as one token",
            )
        seconds = {"field": dataset.duration_field, "per_second": _per_second(sampling.token_seconds)}
        both = sampling.total and not sampling.pairs
        dataset.values["length"] = {"sum": [seconds, text]} if both else seconds
    if sampling.pairs or sampling.filters.tokens_per_second is not None:
        dataset.values["output_length"] = text
    if sampling.filters.tokens_per_second is not None:
        keep[f"@output_length/{dataset.duration_field}"] = sampling.filters.tokens_per_second


def _per_second(token_seconds: float) -> float:
    return float(f"{1 / token_seconds:.12g}")


def _measure_text(dataset: Dataset, sampling: Sampling, context: Context, keep: dict[str, Any]) -> None:
    if sampling.pairs:
        raise RecipeError(
            f"{dataset.place}: plain text has no output length",
            found="buckets of two lengths",
            fix="use buckets of one length for it, in a sub-config of its own (`multi_config: true`)",
        )
    dataset.values["length"] = _tokens(context, "text")
    dataset.values["tokenize"] = _tokens(context, "text")
    if sampling.filters.tokens is not None:
        keep["@length"] = sampling.filters.tokens


def _measure_pair(dataset: Dataset, sampling: Sampling, context: Context, keep: dict[str, Any]) -> None:
    source, target = _tokens(context, "source"), _tokens(context, "target")
    both = sampling.total and not sampling.pairs
    dataset.values["length"] = {"sum": [source, target]} if both else source
    dataset.values["output_length"] = target
    _keep_tokens(dataset, sampling, context, keep, both)


def _measure_conversation(dataset: Dataset, sampling: Sampling, context: Context, keep: dict[str, Any]) -> None:
    both = sampling.total and not sampling.pairs
    dataset.values["length"] = {"turns": "all" if both else "input"}
    if sampling.pairs or sampling.filters.tokens_per_token is not None:
        dataset.values["output_length"] = {"turns": "output"}
    _keep_tokens(dataset, sampling, context, keep, both)


def _keep_tokens(dataset: Dataset, sampling: Sampling, context: Context, keep: dict[str, Any], both: bool) -> None:
    if sampling.filters.tokens is not None:
        keep["@length"] = sampling.filters.tokens
        if sampling.total and not both:
            why = "with buckets of two lengths it limits the input; NeMo limits input and output together"
            context.notes.changed(
                f"{dataset.place} min_tokens, max_tokens", sampling.filters.tokens, "keep @length", why
            )
    ratio = sampling.filters.tokens_per_token
    if ratio is not None:
        keep[_RATIO] = [_of_total(limit) for limit in ratio] if both else ratio


def _of_total(limit: float | None) -> float | None:
    """The share of the output in the whole, for a number of output tokens to an input token."""
    return None if limit is None else float(f"{limit / (1 + limit):.7g}")


_MEASURES = {
    "audio": _measure_audio,
    "text": _measure_text,
    "pair": _measure_pair,
    "conversation": _measure_conversation,
}


def _read_augments(block: Block, context: Context) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The augmentations of a dataset, and the sources of noise that they draw on."""
    augments: list[dict[str, Any]] = []
    noises: list[dict[str, Any]] = []
    if block.has("noise_path"):
        noise = _noise(block, context)
        snr = block.take("noise_snr", _SNR)
        if not isinstance(snr, list) or len(snr) != 2:
            raise RecipeError(f"{block.at('noise_snr')}: is not a range", found=shown(snr), expected="[low, high]")
        probability = block.number("noise_mix_prob", _PROBABILITY)
        augments.append({"type": "noise", "source": noise["name"], "snr": snr, "probability": probability})
        noises.append(noise)
        block.notes.mapped(block.at("noise_path"), block.values["noise_path"], f'noises "{noise["name"]}"')
    if block.flag("perturb_speed"):
        augments.append({"type": "speed", "factors": _SPEEDS})
        why = "each factor as often as the others; limits on the duration apply to the recording as it is"
        block.notes.changed(block.at("perturb_speed"), True, f"speed {shown(_SPEEDS)}", why, at="augment")
    if block.has("truncate_duration"):
        _only_value(block, "truncate_offset_type", "random")
        seconds = block.number("truncate_duration")
        augments.append({"type": "crop", "seconds": seconds})
        block.notes.mapped(block.at("truncate_duration"), seconds, "augment of type crop")
    if block.has("pad_min_duration"):
        _only_value(block, "pad_direction", "right")
        seconds = block.number("pad_min_duration")
        augments.append({"type": "pad", "seconds": seconds})
        block.notes.mapped(block.at("pad_min_duration"), seconds, "augment of type pad")
    return augments, noises


def _only_value(block: Block, name: str, supported: str) -> None:
    given = block.take(name, supported)
    if given != supported:
        block.notes.refused(block.at(name), given, f"only `{supported}` is supported")


def _noise(block: Block, context: Context) -> dict[str, Any]:
    given = block.take("noise_path")
    place = block.at("noise_path")
    if isinstance(given, str):
        key = "manifest_filepath"
        if given.endswith((".yaml", ".yml")):
            key = "input_cfg"
        elif given.endswith((".jsonl", ".jsonl.gz")):
            key = "cuts_path"
        given = {key: given}
    if not isinstance(given, Mapping):
        raise RecipeError(f"{place}: is neither a path nor a dataset", found=shown(given))
    inner = Block(given, place, context.notes)
    found = list(datasets_of(read_entries(inner, context)))
    inner.finish(told=DATA_KEYS)
    if len(found) > 1:
        raise RecipeError(
            f"{place}: names several sources of noise",
            found=", ".join(f'"{each.name}"' for each in found),
            expected="one: an augmentation draws on one source",
            fix="join their manifests",
        )
    values = as_values(found[0])
    return {key: value for key, value in values.items() if key not in ("weight", "shuffle")}
