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
_SIZES = {"GPT2BPETokenizer": 50257, "BertWordPieceLowerCase": 30522, "BertWordPieceCase": 29096}
_TIKTOKEN_SIZE = 2**17
_KEEP_WHITESPACE = (
    "no-tokenizer-sentencepiece-ignore-extra-whitespaces",
    "disable-tokenizer-sentencepiece-ignore-extra-whitespaces",
)


def describe_tokenizer(flags: Flags) -> dict[str, Any]:
    """Law: equal to what megatron-core of the flags' release writes into its descriptions; values are strings.

    The order of the options is part of the key.
    """
    release = flags.release
    kind = flags.text("tokenizer-type") or _DEFAULT_TYPE
    for name in ("tokenizer-metadata", "legacy-tokenizer"):
        if flags.has(name):
            raise _unknown(f"--{name}")
    path: str | None = flags.text("tokenizer-model")
    if kind in _OF_MEGATRON:
        path, options = kind, _of_megatron(flags, kind)
    elif kind == "HuggingFaceTokenizer":
        options = _hugging_face(flags)
    elif kind in _SENTENCEPIECE:
        options = _sentencepiece(flags)
    elif kind == "TikTokenizer":
        options = _tiktoken(flags)
    elif kind == "SFTTokenizer" and since(release, "0.17"):
        options = {"prompt_format": flags.text("sft-tokenizer-prompt-format")}
    elif kind == "NullTokenizer":
        path, options = None, _null(flags)
    else:
        raise _unknown(f"--tokenizer-type {kind}")
    if path is None and kind != "NullTokenizer":
        raise RecipeError(f"--tokenizer-type {kind}: without its model", expected="--tokenizer-model")
    name = _CLASS_MAIN if release == "main" else _CLASS
    return {"class": name, "tokenizer_path": path, **{key: str(value) for key, value in options.items()}}


def vocab_size_of(flags: Flags) -> int | None:
    """The vocabulary size of the tokenizer, if it is known without opening it.

    For a tokenizer from a file it is `--vocab-size`, if given.
    """
    kind, size = flags.text("tokenizer-type") or _DEFAULT_TYPE, flags.integer("vocab-size")
    if kind in _SIZES:
        return _SIZES[kind] + len(_special(flags) or [])
    if kind == "TikTokenizer":
        return size or _TIKTOKEN_SIZE
    if kind == "NullTokenizer" and size is not None and not since(flags.release, "0.18"):
        return size + 1
    return size


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
    """Options of the tokenizers from a hub. In 0.16 two of them are off by default; later they are on."""
    opt_in = flags.release == "0.16"
    special = "tokenizer-hf-include-special-tokens" if opt_in else "tokenizer-hf-no-include-special-tokens"
    options: dict[str, Any] = {
        "use_fast": flags.has("tokenizer-hf-use-fast" if opt_in else "tokenizer-hf-no-use-fast") == opt_in,
        "trust_remote_code": flags.has("trust-remote-code"),
        "include_special_tokens": flags.has(special) == opt_in,
    }
    return {**options, "use_gigatoken": flags.has("use-gigatoken")} if flags.release == "main" else options


def _files(flags: Flags) -> dict[str, Any]:
    return {"vocab_file": flags.text("vocab-file"), "merges_file": flags.text("merge-file")}


def _of_megatron(flags: Flags, kind: str) -> dict[str, Any]:
    special = {"additional_special_tokens": _special(flags) or []}
    if kind == "BertWordPieceCase":
        special = {"additional_special_tokens": [f"<extra_id_{i}>" for i in range(100)]}
    elif flags.release == "0.15":
        special = {}
    return {**special, **_files(flags), **({} if flags.release == "0.15" else _hub(flags))}


def _hugging_face(flags: Flags) -> dict[str, Any]:
    if flags.release == "0.15":
        return _files(flags)
    special = {"additional_special_tokens": _special(flags) or []}
    return {**_chat(flags), **_files(flags), **special, **_hub(flags)}


def _sentencepiece(flags: Flags) -> dict[str, Any]:
    if flags.release == "0.15":
        return {}
    options = _chat(flags)
    if since(flags.release, "0.18"):
        options["ignore_extra_whitespaces"] = not any(flags.has(name) for name in _KEEP_WHITESPACE)
    return {**options, "legacy": flags.has("tokenizer-sentencepiece-legacy"), "special_tokens": _special(flags)}


def _null(flags: Flags) -> dict[str, Any]:
    size = flags.integer("vocab-size")
    if not size:
        raise RecipeError(
            "--tokenizer-type NullTokenizer: without --vocab-size",
            found=None if size is None else "--vocab-size 0, which Megatron treats as missing",
            expected="the size of its vocabulary, without which Megatron cannot make it",
        )
    options = {"vocab_size": size}
    if since(flags.release, "0.18"):
        end = flags.integer("null-tokenizer-eod-id")
        options |= {} if end is None else {"eod_id": end}
        pad = flags.integer("null-tokenizer-pad-id")
        options |= {} if pad is None else {"pad_id": pad}
    return options


def _tiktoken(flags: Flags) -> dict[str, Any]:
    options = _chat(flags)
    pattern, size = flags.text("tiktoken-pattern"), flags.integer("vocab-size")
    if pattern:
        options["pattern"] = pattern
    if size:
        options["vocab_size"] = size
    return {
        **options,
        "num_special_tokens": flags.integer("tiktoken-num-special-tokens"),
        "special_tokens": _special(flags),
    }


def _chat(flags: Flags) -> dict[str, Any]:
    return {"chat_template": flags.text("chat-template")} if since(flags.release, "0.18") else {}


def _unknown(what: str) -> RecipeError:
    return RecipeError(
        f"{what}: its entry in the key of a cache is unknown",
        fix="take it from a description that such a job wrote: --like <hash>-GPTDataset-train-description.txt",
    )
