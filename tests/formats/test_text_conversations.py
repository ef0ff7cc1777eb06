"""Conversations of text: NeMo's rows for supervised fine-tuning, and Nemotron's turns of fragments."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import webdataset

from conversation_data import (
    assistant,
    conversations,
    delivered,
    expected_tokens,
    recipe_of,
    system,
    user,
    write_chat,
)
from playhead.errors import DataError, PrepareError
from playhead.prepare import prepare
from small_data import all_lengths, table_of, write_jsonl

SFT = {"path": "t.jsonl", "format": "nemo_sft"}
NEMOTRON = {"path": "t.jsonl", "format": "nemotron_text"}


def said(speaker: str, value: Any) -> dict[str, Any]:
    return {"value": value, "from": speaker, "canonical_form": "", "label": None}


def sft(*turns: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"conversations": list(turns), "mask": "User", "system": "", "type": "VALUE_TO_TEXT", **more}


def fragments(sender: str, *found: Any) -> dict[str, Any]:
    return {"sender": sender, "fragments": list(found)}


def nemotron(*turns: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"conversation": list(turns), **more}


def test_rows_for_fine_tuning_have_a_system_prompt_if_it_is_not_empty(tmp_path: Path) -> None:
    turns = [said("User", "a"), said("Assistant", "b"), said("User", " c "), said("Assistant", "")]
    rows = [sft(*turns), sft(*turns, id="s", system="Be kind."), sft(*turns, mask=None, system=None, dataset="d")]
    write_jsonl(tmp_path / "t.jsonl", rows)
    spoken = (user("a"), assistant("b"), user(" c "), assistant(""))
    found = conversations(tmp_path, SFT)
    assert [(each.id, each.turns) for each in found] == [
        ("t.jsonl:0", spoken),
        ("s", (system("Be kind."), *spoken)),
        ("t.jsonl:2", spoken),
    ]
    tagged = conversations(tmp_path, {**SFT, "tags": {"system_prompt": "Tag."}})
    assert [each.turns[0] for each in tagged] == [system("Tag."), system("Be kind."), system("Tag.")]


def test_fragments_are_joined(tmp_path: Path) -> None:
    rows = [
        nemotron(fragments("system", "S"), fragments("user", "a", {"t": "text", "value": "b"}, "c"), id="n"),
        nemotron(fragments("User"), fragments("assistant", {"value": "x"}), {"sender": "user"}),
        nemotron(fragments("user", "skipped"), _skipme=True),
    ]
    (tmp_path / "t.jsonl.gz").write_bytes(gzip.compress(b"".join(json.dumps(row).encode() + b"\n" for row in rows)))
    found = conversations(tmp_path, {**NEMOTRON, "path": "t.jsonl.gz"})
    assert [(each.id, each.turns) for each in found] == [
        ("n", (system("S"), user("abc"))),
        ("t.jsonl.gz:1", (user(""), assistant("x"), user(""))),
    ]


def test_nemotron_conversations_may_be_in_directories_of_tars(tmp_path: Path) -> None:
    for number in range(2):
        (tmp_path / "data" / str(number)).mkdir(parents=True)
        with webdataset.TarWriter(str(tmp_path / "data" / str(number) / "s.tar")) as writer:
            for i in range(3):
                row = nemotron(fragments("user", f"{number}-{i}"), fragments("assistant", "ok"), _skipme=i == 1)
                writer.write({"__key__": f"{i}", "json": row})
    recipe = recipe_of(tmp_path, {**NEMOTRON, "path": "data"}, template=write_chat(tmp_path))
    samples = delivered(recipe)
    assert [sample["id"] for sample in samples] == ["0", "2", "0", "2"]
    for sample, text in zip(samples, ["0-0", "0-2", "1-0", "1-2"], strict=True):
        tokens, trained = expected_tokens([("user", [text]), ("assistant", ["ok"])])
        assert sample["tokens"].tolist() == tokens
        assert sample["loss_mask"].tolist() == trained
    assert all_lengths(table_of(recipe)) == [len(sample["tokens"]) for sample in samples]
    with pytest.raises(PrepareError, match="has both files of lines and tars"):
        prepare(recipe_of(tmp_path, {**NEMOTRON, "path": ["data", "t.jsonl"]}))


@pytest.mark.parametrize(
    ("source", "row"),
    [
        (SFT, sft(said("User", "Grüße 😀"), said("Assistant", "żółw"), system="s", id="x")),
        (NEMOTRON, nemotron(fragments("system", "s"), fragments("user", "Grüße 😀"), fragments("assistant", "żółw"))),
    ],
)
def test_tokens_and_lengths_are_delivered(tmp_path: Path, source: dict[str, Any], row: dict[str, Any]) -> None:
    write_jsonl(tmp_path / "t.jsonl", [row])
    recipe = recipe_of(tmp_path, source, template=write_chat(tmp_path))
    (sample,) = delivered(recipe)
    tokens, trained = expected_tokens([("system", ["s"]), ("user", ["Grüße 😀"]), ("assistant", ["żółw"])])
    assert sample["tokens"].tolist() == tokens
    assert sample["loss_mask"].tolist() == trained
    assert all_lengths(table_of(recipe)) == [len(tokens)]


WRONG = [
    (SFT, sft(said("User", "x"), mask="Assistant", id="bad"), "only turns of the assistant are trained on"),
    (SFT, sft(said("User", None), id="bad"), '"value" of a turn is not a text'),
    (SFT, sft(said("Someone", "x"), id="bad"), r"unknown role[\s\S]*'Someone'"),
    (SFT, sft(said("User", "x"), system=["x"], id="bad"), '"system" is not a text'),
    (SFT, sft(id="bad"), "has no turns"),
    (SFT, {"id": "bad", "conversations": "x"}, '"conversations" is not a list'),
    (NEMOTRON, nemotron(fragments("user", {"t": "image", "value": "x"}), id="bad"), "unknown kind of a fragment"),
    (NEMOTRON, nemotron(fragments("user", 3), id="bad"), "a fragment is not a text"),
    (NEMOTRON, nemotron(fragments("user", {"t": "text"}), id="bad"), '"value" of a fragment is not a text'),
    (NEMOTRON, nemotron({"sender": "user", "fragments": None}, id="bad"), '"fragments" is not a list'),
    (NEMOTRON, nemotron({"fragments": ["x"]}, id="bad"), "unknown role"),
    (NEMOTRON, {"id": "bad", "conversations": []}, '"conversation" is not a list'),
]


@pytest.mark.parametrize(("source", "wrong", "problem"), WRONG)
def test_a_wrong_row_is_refused_with_its_id_file_and_row(
    tmp_path: Path, source: dict[str, Any], wrong: dict[str, Any], problem: str
) -> None:
    write_jsonl(tmp_path / "t.jsonl", [wrong])
    with pytest.raises(PrepareError, match=rf't\.jsonl, line 1, byte 0: conversation "bad": {problem}'):
        prepare(recipe_of(tmp_path, source, template=write_chat(tmp_path)), workers=1)
    with pytest.raises(DataError, match=rf't\.jsonl, byte 0: conversation "bad": {problem}'):
        conversations(tmp_path, source)
