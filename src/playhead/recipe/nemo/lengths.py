"""The lengths of every source, and the rules of `keep`, as NeMo's sampler measures and filters."""

from __future__ import annotations

from typing import Any

from playhead.errors import RecipeError
from playhead.recipe.nemo.context import Context
from playhead.recipe.nemo.entries import Dataset
from playhead.recipe.nemo.sampling import Sampling

_RATIO = "@output_length/@length"


def measure(dataset: Dataset, sampling: Sampling, context: Context) -> None:
    """Give a dataset its `length`, `output_length` and `keep`."""
    if dataset.modality != "audio" and sampling.by_length and not sampling.in_tokens:
        raise RecipeError(
            f"{dataset.place}: text has no seconds to batch by",
            found=f"{dataset.modality} data without `use_multimodal_sampling: true`",
            fix="add it, and batch by tokens; or use `batch_size` alone",
        )
    keep: dict[str, Any] = {}
    {"audio": _audio, "text": _text, "pair": _pair, "conversation": _conversation}[dataset.modality](
        dataset, sampling, context, keep
    )
    if keep:
        dataset.values["keep"] = keep


def _tokens(context: Context, field: str) -> dict[str, Any]:
    return {"field": field, "tokenizer": context.tokenizer}


def _audio(dataset: Dataset, sampling: Sampling, context: Context, keep: dict[str, Any]) -> None:
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


def _text(dataset: Dataset, sampling: Sampling, context: Context, keep: dict[str, Any]) -> None:
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


def _pair(dataset: Dataset, sampling: Sampling, context: Context, keep: dict[str, Any]) -> None:
    source, target = _tokens(context, "source"), _tokens(context, "target")
    both = sampling.total and not sampling.pairs
    dataset.values["length"] = {"sum": [source, target]} if both else source
    dataset.values["output_length"] = target
    _keep_tokens(dataset, sampling, context, keep, both)


def _conversation(dataset: Dataset, sampling: Sampling, context: Context, keep: dict[str, Any]) -> None:
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
