"""Command lines of the tokenizer's flags, and what Megatron's own parser of a release makes of them."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from playhead.megatron.releases import flags_of

TYPES = [
    "GPT2BPETokenizer",
    "BertWordPieceLowerCase",
    "BertWordPieceCase",
    "SentencePieceTokenizer",
    "GPTSentencePieceTokenizer",
    "Llama2Tokenizer",
    "TikTokenizer",
    "HuggingFaceTokenizer",
    "SFTTokenizer",
    "NullTokenizer",
]
_OPTIONS = [
    ["--vocab-file", "vocab.json"],
    ["--merge-file", "merges.txt"],
    ["--tokenizer-special-tokens", "<a>", "<b>"],
    ["--tiktoken-special-tokens", "<c>"],
    ["--tiktoken-pattern", "v2"],
    ["--tiktoken-num-special-tokens", "5"],
    ["--tokenizer-hf-use-fast"],
    ["--tokenizer-hf-include-special-tokens"],
    ["--tokenizer-hf-no-use-fast"],
    ["--tokenizer-hf-no-include-special-tokens"],
    ["--tokenizer-sentencepiece-legacy"],
    ["--no-tokenizer-sentencepiece-ignore-extra-whitespaces"],
    ["--disable-tokenizer-sentencepiece-ignore-extra-whitespaces"],
    ["--trust-remote-code"],
    ["--chat-template", "{{ messages }}"],
    ["--null-tokenizer-eod-id", "0"],
    ["--null-tokenizer-pad-id", "7"],
    ["--sft-tokenizer-prompt-format", "identity"],
]
_INTEGERS = ("vocab-size", "tiktoken-num-special-tokens", "null-tokenizer-eod-id", "null-tokenizer-pad-id")
_OTHERS = ["--vocab-size", "--tokenizer-type", "--tokenizer-model", "--tokenizer-metadata"]
_NEGATIONS = ("no-tokenizer-", "disable-tokenizer-")


def types_of(release: str) -> list[str]:
    """Those that the release can build without its legacy tokenizers."""
    return [kind for kind in TYPES if kind != "SFTTokenizer" or release not in ("0.15", "0.16")]


def options_of(release: str) -> list[list[str]]:
    return [option for option in _OPTIONS if option[0][2:] in flags_of(release).takes]


def command_line(kind: str, options: list[list[str]]) -> list[str]:
    size = ["--vocab-size", "77"] if kind in ("NullTokenizer", "TikTokenizer") else []
    words = ["--tokenizer-type", kind, "--tokenizer-model", "a/model", *size]
    return [*words, *(word for option in options for word in option)]


def arguments_of(words: list[str], release: str) -> Namespace:
    """What Megatron hands to its `build_tokenizer`: the values that its parser gives, defaults included.

    Numbers of values and defaults are those of the table; the attributes that some flags fill are Megatron's.
    """
    table = flags_of(release)
    parser = ArgumentParser(allow_abbrev=False)
    for flag in [*_OTHERS, *(option[0] for option in options_of(release))]:
        name = flag[2:]
        takes, default = table.takes[name], table.defaults.get(name)
        if takes != "0":
            number = None if takes == "1" else takes
            parser.add_argument(flag, nargs=number, default=default, type=int if name in _INTEGERS else str)
        elif name.startswith(_NEGATIONS):
            attribute = name.partition("-")[2].replace("-", "_")
            parser.add_argument(flag, action="store_false", default=default, dest=attribute)
        else:
            parser.add_argument(flag, action="store_true", default=bool(default))
    found = parser.parse_args(words)
    if release != "0.15":
        found.tokenizer_special_tokens = found.tokenizer_special_tokens or getattr(
            found, "tiktoken_special_tokens", None
        )
        found.special_tokens = found.tokenizer_special_tokens
    found.metadata_path = found.tokenizer_metadata
    found.padded_vocab_size, found.pad_vocab_size = 128, False  # of the model: it needs a tokenizer that was opened
    return found
