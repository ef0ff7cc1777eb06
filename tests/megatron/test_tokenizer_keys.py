"""The tokenizer's entry in the key: that of megatron-core's own `build_tokenizer`, which here opens no tokenizer."""

from __future__ import annotations

from argparse import ArgumentParser, BooleanOptionalAction, Namespace

import oracle  # noqa: F401 - imports the package without its warnings
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from megatron.core.tokenizers.text.text_tokenizer import MegatronTokenizerText
from megatron.core.tokenizers.text.utils.build_tokenizer import build_tokenizer

from playhead.errors import RecipeError
from playhead.megatron.flags import parse_flags
from playhead.megatron.tokenizer import describe_tokenizer

TYPES = [
    "GPT2BPETokenizer",
    "BertWordPieceLowerCase",
    "BertWordPieceCase",
    "SentencePieceTokenizer",
    "GPTSentencePieceTokenizer",
    "Llama2Tokenizer",
    "TikTokenizer",
    "HuggingFaceTokenizer",
    "NullTokenizer",
]
OPTIONS = [
    ["--vocab-file", "vocab.json"],
    ["--merge-file", "merges.txt"],
    ["--vocab-size", "77"],
    ["--tokenizer-special-tokens", "<a>", "<b>"],
    ["--tiktoken-pattern", "v2"],
    ["--tiktoken-num-special-tokens", "5"],
    ["--tokenizer-hf-no-use-fast"],
    ["--tokenizer-hf-no-include-special-tokens"],
    ["--tokenizer-sentencepiece-legacy"],
    ["--trust-remote-code"],
]


def arguments(words: list[str]) -> Namespace:
    """The flags as Megatron's own parser gives them to `build_tokenizer`, with its defaults."""
    parser = ArgumentParser()
    for name in ("tokenizer-type", "tokenizer-model", "vocab-file", "merge-file", "tokenizer-metadata"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--vocab-size", type=int)
    parser.add_argument("--tokenizer-special-tokens", nargs="+")
    parser.add_argument("--tiktoken-pattern")
    parser.add_argument("--tiktoken-num-special-tokens", type=int, default=1000)
    for name in ("use-fast", "include-special-tokens"):
        dest = f"tokenizer_hf_{name.replace('-', '_')}"
        parser.add_argument(f"--tokenizer-hf-no-{name}", action="store_false", dest=dest)
    for name in ("tokenizer-sentencepiece-legacy", "trust-remote-code"):
        parser.add_argument(f"--{name}", action=BooleanOptionalAction, default=False)
    return parser.parse_args(words)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(st.sampled_from(TYPES), st.lists(st.sampled_from(OPTIONS), unique_by=tuple))
def test_every_entry_is_that_of_the_oracle(monkeypatch, kind: str, options: list[list[str]]) -> None:
    monkeypatch.setattr(MegatronTokenizerText, "_restore_model", lambda *_, **__: None)  # what reads the model
    words = ["--tokenizer-type", kind, "--tokenizer-model", "a/model", *(word for option in options for word in option)]
    theirs = build_tokenizer(arguments(words)).unique_identifiers
    assert list(describe_tokenizer(parse_flags(words), "0.16").items()) == list(theirs.items())


def keys(kind: str, release: str, *words: str) -> list[str]:
    flags = parse_flags(["--tokenizer-type", kind, "--tokenizer-model", "m", *words])
    return list(describe_tokenizer(flags, release))[2:]


def test_options_and_their_order_follow_the_release() -> None:
    hub = ["use_fast", "trust_remote_code", "include_special_tokens"]
    files = ["vocab_file", "merges_file"]
    assert keys("HuggingFaceTokenizer", "0.15") == keys("GPT2BPETokenizer", "0.15") == files
    assert keys("HuggingFaceTokenizer", "0.17") == [*files, "additional_special_tokens", *hub]
    assert keys("HuggingFaceTokenizer", "0.19") == ["chat_template", *files, "additional_special_tokens", *hub]
    assert keys("GPT2BPETokenizer", "0.19") == ["additional_special_tokens", *files, *hub]
    assert keys("BertWordPieceCase", "0.15") == ["additional_special_tokens", *files]
    assert keys("Llama2Tokenizer", "0.15") == []
    assert keys("Llama2Tokenizer", "0.17") == ["legacy", "special_tokens"]
    assert keys("Llama2Tokenizer", "0.18") == ["chat_template", "ignore_extra_whitespaces", "legacy", "special_tokens"]
    assert keys("TikTokenizer", "0.15") == keys("TikTokenizer", "0.17") == ["num_special_tokens", "special_tokens"]
    assert keys("TikTokenizer", "0.18") == ["chat_template", "num_special_tokens", "special_tokens"]
    assert keys("NullTokenizer", "0.17", "--vocab-size", "9") == ["vocab_size"]
    assert keys("NullTokenizer", "0.18", "--vocab-size", "9") == ["vocab_size", "pad_id"]
    assert keys("NullTokenizer", "main", "--null-tokenizer-eod-id", "0") == ["eod_id", "pad_id"]


def test_defaults_of_later_releases_are_in_the_key() -> None:
    def entry(kind: str, *words: str) -> dict[str, str]:
        return describe_tokenizer(parse_flags(["--tokenizer-type", kind, "--tokenizer-model", "m", *words]), "0.18")

    assert entry("NullTokenizer")["pad_id"] == "-1"
    assert entry("NullTokenizer", "--null-tokenizer-pad-id", "7")["pad_id"] == "7"
    assert entry("Llama2Tokenizer")["ignore_extra_whitespaces"] == "True"
    switched = entry("Llama2Tokenizer", "--no-tokenizer-sentencepiece-ignore-extra-whitespaces")
    assert switched["ignore_extra_whitespaces"] == "False"


@pytest.mark.parametrize("flag", ["--null-tokenizer-eod-id", "--null-tokenizer-pad-id", "--chat-template"])
def test_a_flag_that_a_release_does_not_know_is_refused(flag: str) -> None:
    with pytest.raises(RecipeError, match="is a flag of later releases"):
        keys("NullTokenizer", "0.17", flag, "1")
