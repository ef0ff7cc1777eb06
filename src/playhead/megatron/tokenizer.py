"""The tokenizer's entry in the key of a cache, by release, or as a job wrote it.

Only names and options enter the key; no tokenizer is opened.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from playhead.errors import DataError, RecipeError
from playhead.megatron.flags import Flags
from playhead.megatron.releases import since

_CLASS = "megatron.core.tokenizers.text.models.default_tokenizer.DefaultTokenizerText"
_CLASS_MAIN = "megatron.core.tokenizers.text.text_tokenizer.MegatronTokenizerText"
_DEFAULT_TYPE = "GPT2BPETokenizer"
_OF_MEGATRON = ("GPT2BPETokenizer", "BertWordPieceLowerCase", "BertWordPieceCase")
_SENTENCEPIECE = ("SentencePieceTokenizer", "GPTSentencePieceTokenizer", "Llama2Tokenizer")
_TIKTOKEN_SPECIAL = 1000
_NULL_PAD = -1
_LATER = ("null-tokenizer-eod-id", "null-tokenizer-pad-id", "no-tokenizer-sentencepiece-ignore-extra-whitespaces")


def describe_tokenizer(flags: Flags, release: str) -> dict[str, Any]:
    """Law: for release 0.16 this is what megatron-core 0.16.1 puts into its descriptions; values are texts.

    The order of the options is part of the key.
    """
    kind = flags.text("tokenizer-type") or _DEFAULT_TYPE
    for name in ("tokenizer-metadata", "legacy-tokenizer"):
        if flags.has(name):
            raise _unknown(f"--{name}")
    for name in (*_LATER, "chat-template"):
        if flags.has(name) and not since(release, "0.18"):
            raise RecipeError(
                f"--{name}: is a flag of later releases", found=f"release {release}", expected="0.18 or later"
            )
    path: str | None = flags.text("tokenizer-model")
    if kind in _OF_MEGATRON:
        path, options = kind, _of_megatron(flags, kind, release)
    elif kind == "HuggingFaceTokenizer":
        options = _hugging_face(flags, release)
    elif kind in _SENTENCEPIECE:
        options = _sentencepiece(flags, release)
    elif kind == "TikTokenizer":
        options = _tiktoken(flags, release)
    elif kind == "NullTokenizer":
        path, options = None, _null(flags, release)
    else:
        raise _unknown(f"--tokenizer-type {kind}")
    if path is None and kind != "NullTokenizer":
        raise RecipeError(f"--tokenizer-type {kind}: without its model", expected="--tokenizer-model")
    name = _CLASS_MAIN if release == "main" else _CLASS
    return {"class": name, "tokenizer_path": path, **{key: str(value) for key, value in options.items()}}


def read_tokenizer(description: str | Path) -> dict[str, Any]:
    """The tokenizer in a description that a job wrote, of a dataset or of a blend."""
    try:
        found = json.loads(Path(description).read_text(encoding="utf-8"))
        tokenizer = found["datasets"][0]["tokenizer"] if "datasets" in found else found["tokenizer"]
    except OSError as error:
        raise DataError(f"{description}: cannot be read", found=error.strerror) from error
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise DataError(
            f"{description}: is not a description of a dataset cache",
            expected="a file like <hash>-GPTDataset-train-description.txt, written by a training job",
        ) from error
    if not isinstance(tokenizer, dict) or "class" not in tokenizer:
        raise DataError(f"{description}: names no tokenizer", found=str(tokenizer))
    return tokenizer


def _special(flags: Flags) -> list[str] | None:
    return flags.many("tokenizer-special-tokens") or flags.many("tiktoken-special-tokens")


def _hub(flags: Flags) -> dict[str, Any]:
    return {
        "use_fast": not flags.has("tokenizer-hf-no-use-fast"),
        "trust_remote_code": flags.has("trust-remote-code"),
        "include_special_tokens": not flags.has("tokenizer-hf-no-include-special-tokens"),
    }


def _files(flags: Flags) -> dict[str, Any]:
    return {"vocab_file": flags.text("vocab-file"), "merges_file": flags.text("merge-file")}


def _of_megatron(flags: Flags, kind: str, release: str) -> dict[str, Any]:
    special = {"additional_special_tokens": _special(flags) or []}
    if kind == "BertWordPieceCase":
        special = {"additional_special_tokens": [f"<extra_id_{i}>" for i in range(100)]}
    elif release == "0.15":
        special = {}
    return {**special, **_files(flags), **({} if release == "0.15" else _hub(flags))}


def _hugging_face(flags: Flags, release: str) -> dict[str, Any]:
    if release == "0.15":
        return _files(flags)
    special = {"additional_special_tokens": _special(flags) or []}
    options = {**_chat(flags, release), **_files(flags), **special, **_hub(flags)}
    return {**options, "use_gigatoken": False} if release == "main" else options


def _sentencepiece(flags: Flags, release: str) -> dict[str, Any]:
    if release == "0.15":
        return {}
    options = _chat(flags, release)
    if since(release, "0.18"):
        options["ignore_extra_whitespaces"] = not flags.has("no-tokenizer-sentencepiece-ignore-extra-whitespaces")
    return {**options, "legacy": flags.has("tokenizer-sentencepiece-legacy"), "special_tokens": _special(flags)}


def _null(flags: Flags, release: str) -> dict[str, Any]:
    options = {"vocab_size": flags.integer("vocab-size")} if flags.has("vocab-size") else {}
    if since(release, "0.18"):
        if flags.has("null-tokenizer-eod-id"):
            options["eod_id"] = flags.integer("null-tokenizer-eod-id")
        pad = flags.integer("null-tokenizer-pad-id")
        options["pad_id"] = _NULL_PAD if pad is None else pad
    return options


def _tiktoken(flags: Flags, release: str) -> dict[str, Any]:
    options = _chat(flags, release)
    if flags.has("tiktoken-pattern"):
        options["pattern"] = flags.text("tiktoken-pattern")
    if flags.has("vocab-size"):
        options["vocab_size"] = flags.integer("vocab-size")
    number = flags.integer("tiktoken-num-special-tokens")
    options["num_special_tokens"] = _TIKTOKEN_SPECIAL if number is None else number
    return {**options, "special_tokens": _special(flags)}


def _chat(flags: Flags, release: str) -> dict[str, Any]:
    return {"chat_template": flags.text("chat-template")} if since(release, "0.18") else {}


def _unknown(what: str) -> RecipeError:
    return RecipeError(
        f"{what}: its entry in the key of a cache is not known",
        fix="take it from a description that such a job wrote: --like <hash>-GPTDataset-train-description.txt",
    )
