"""The tokenizer's entry in the key: that of megatron-core's own `build_tokenizer`, which here opens no tokenizer."""

from __future__ import annotations

import json
from pathlib import Path

import oracle  # noqa: F401 - imports the package without its warnings
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from megatron.core.tokenizers.text.text_tokenizer import MegatronTokenizerText
from megatron.core.tokenizers.text.utils.build_tokenizer import build_tokenizer
from tokenizer_cases import arguments_of, command_line, options_of, types_of

from playhead.errors import RecipeError
from playhead.megatron.flags import parse_flags
from playhead.megatron.releases import RELEASES
from playhead.megatron.tokenizer import describe_tokenizer

FROZEN = json.loads(Path(__file__).with_name("tokenizer_keys.json").read_text())


def entry(words: list[str], release: str) -> dict[str, str]:
    return describe_tokenizer(parse_flags(words, release))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(st.sampled_from(types_of("0.16")), st.lists(st.sampled_from(options_of("0.16")), unique_by=tuple))
def test_every_entry_is_that_of_the_oracle(monkeypatch, kind: str, options: list[list[str]]) -> None:
    monkeypatch.setattr(MegatronTokenizerText, "_restore_model", lambda *_, **__: None)  # what reads the model
    words = command_line(kind, options)
    theirs = build_tokenizer(arguments_of(words, "0.16")).unique_identifiers
    assert list(entry(words, "0.16").items()) == list(theirs.items())


@pytest.mark.parametrize("release", RELEASES[:-1])
def test_every_entry_is_that_of_its_release(release: str) -> None:
    """The frozen keys are those of the packages: see freeze_tokenizer_keys.py."""
    cases = [case for case in FROZEN if case["release"] == release]
    assert {case["words"][1] for case in cases} == set(types_of(release))
    for case in cases:
        assert list(entry(case["words"], release).items()) == list(case["key"].items()), case["words"]


def test_a_job_of_0_16_without_the_hub_flags_has_them_off_in_its_key() -> None:
    for kind in ("HuggingFaceTokenizer", "GPT2BPETokenizer", "BertWordPieceLowerCase", "BertWordPieceCase"):
        off = entry(command_line(kind, []), "0.16")
        assert (off["use_fast"], off["include_special_tokens"]) == ("False", "False")
        flags = [["--tokenizer-hf-use-fast"], ["--tokenizer-hf-include-special-tokens"]]
        on = entry(command_line(kind, flags), "0.16")
        assert (on["use_fast"], on["include_special_tokens"]) == ("True", "True")
        later = entry(command_line(kind, []), "0.17")
        assert (later["use_fast"], later["include_special_tokens"]) == ("True", "True")


def test_on_main_the_class_is_another_and_gigatoken_comes_last() -> None:
    for kind in ("HuggingFaceTokenizer", "GPT2BPETokenizer", "BertWordPieceLowerCase", "BertWordPieceCase"):
        before = entry(command_line(kind, []), "0.19")
        main = entry(command_line(kind, []), "main")
        assert main["class"] == "megatron.core.tokenizers.text.text_tokenizer.MegatronTokenizerText"
        assert list(main.items())[1:] == [*list(before.items())[1:], ("use_gigatoken", "False")]
        assert entry(command_line(kind, [["--use-gigatoken"]]), "main")["use_gigatoken"] == "True"
    for kind in ("Llama2Tokenizer", "TikTokenizer", "SFTTokenizer", "NullTokenizer"):
        before, main = entry(command_line(kind, []), "0.19"), entry(command_line(kind, []), "main")
        assert list(main.items())[1:] == list(before.items())[1:]


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("size", [[], ["--vocab-size", "0"]])
def test_a_null_tokenizer_needs_the_size_of_its_vocabulary(release: str, size: list[str]) -> None:
    with pytest.raises(RecipeError, match="NullTokenizer: without --vocab-size"):
        entry(["--tokenizer-type", "NullTokenizer", *size], release)


@pytest.mark.parametrize("release", ["0.15", "0.16"])
def test_the_tokenizer_of_fine_tuning_is_known_from_0_17_on(release: str) -> None:
    with pytest.raises(RecipeError, match="SFTTokenizer: its entry in the key of a cache is unknown"):
        entry(command_line("SFTTokenizer", []), release)
    assert entry(command_line("SFTTokenizer", []), "0.17")["prompt_format"] == "nemotron-h-aligned"
