"""Rows of conversations that hold anything are conversations or refused, and large files are scanned in parts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conversation_data import audio_turn, text_turn
from playhead.errors import DataError
from playhead.formats.contract import ScanLimits, Section
from playhead.formats.conversation import Conversation, MediaPart
from playhead.formats.conversation_lines import TRACK as LINES
from playhead.formats.conversation_lines import LineOptions, unlocated
from playhead.formats.message_parts import MessagesOptions, parse_messages
from playhead.formats.messages import Messages
from playhead.formats.multimodal_conversation import parse_multimodal
from playhead.formats.nemo_sft import TextLineOptions, parse_sft
from playhead.formats.nemotron_text import NemotronText, parse_nemotron
from playhead.formats.registry import format_named
from playhead.formats.rows import Shard
from playhead.formats.schema import IDS
from playhead.formats.share_gpt import ShareGptOptions, parse_share_gpt
from playhead.formats.spec import Spec
from playhead.store import LocalFiles
from small_data import write_jsonl

ANYTHING: list[Any] = [
    *(None, True, 0, -1, 1.5, 10**400, float("nan"), float("inf")),
    *("", "x", "User", "<sound>", "\ud800", "data:,x", "data:audio/wav;base64,é", "data:audio/wav;base64,A"),
    *([], [None], ["x"], [1, 2], {}, {"x": 1}, {"url": "x"}, {"data": 3}, [[[]]], [{}], [{"type": "text"}]),
]
MEDIA = [
    {"type": "text", "text": "x"},
    {"type": "image_url", "image_url": {"url": "a.png"}},
    {"type": "image_url", "image_url": "a.png"},
    {"type": "audio_url", "audio_url": {"url": "data:audio/wav;base64,AAAA", "offset": 0, "duration": 1}},
    {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
]
SPOKEN = [
    {"from": "human", "value": "a <sound> b", "duration": [1, 2], "offset": 0.5},
    {"from": "gpt", "value": "c"},
]
TALK = [text_turn("User", "what"), audio_turn("a.wav", offset=0, duration=1), text_turn("Assistant", "it")]
CUSTOM = {"custom": {"context": "c", "_skipme": False}, "id": "x"}
PARSERS: list[tuple[Any, Any, dict[str, Any]]] = [
    (parse_multimodal, LineOptions(), {"conversations": TALK, **CUSTOM}),
    (parse_share_gpt, ShareGptOptions(), {"sound": ["a", "b"], "ori_sound": "c", "conversations": SPOKEN, **CUSTOM}),
    (parse_sft, TextLineOptions(), {"conversations": SPOKEN, "system": "s", "mask": "User", **CUSTOM}),
    (
        parse_nemotron,
        TextLineOptions(),
        {"conversation": [{"sender": "user", "fragments": ["a", {"t": "text", "value": "b"}]}], **CUSTOM},
    ),
    (
        parse_messages,
        MessagesOptions(),
        {"messages": [{"role": "user", "content": MEDIA, "name": "n"}], "tools": [{"type": "function"}], **CUSTOM},
    ),
]


def changed(value: Any, other: Any) -> Iterator[Any]:
    """The value with each of its parts in turn replaced, or left out."""
    yield other
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from ({**value, key: each} for each in changed(inner, other))
            yield {name: each for name, each in value.items() if name != key}
    if isinstance(value, list):
        for i, inner in enumerate(value):
            yield from ([*value[:i], each, *value[i + 1 :]] for each in changed(inner, other))
            yield [*value[:i], *value[i + 1 :]]


@pytest.mark.parametrize(("parse", "options", "row"), PARSERS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_row_with_anything_in_any_place_is_a_conversation_or_refused(parse: Any, options: Any, row: Any) -> None:
    num_refused = 0
    for other in ANYTHING:
        for wrong in changed(row, other):
            if not isinstance(wrong, dict):
                continue
            try:
                found = parse(wrong, "x", {}, unlocated, options)
            except DataError:
                num_refused += 1
                continue
            assert isinstance(found, Conversation)
            assert all(isinstance(part, str | MediaPart) for turn in found.turns for part in turn.parts)
            assert all(turn.parts for turn in found.turns)
    assert num_refused > len(ANYTHING)


WRITTEN: dict[str, Any] = {
    "multimodal_conversation": {"conversations": TALK},
    "share_gpt": {"conversations": TALK[::2]},
    "nemo_sft": {"conversations": TALK[::2]},
    "nemotron_text": {"conversation": [{"sender": "user", "fragments": ["x"]}]},
    "messages": {"messages": [{"role": "user", "content": "x"}]},
}


@pytest.mark.parametrize("name", WRITTEN)
def test_the_parts_of_a_file_have_the_rows_of_the_whole(tmp_path: Path, name: str) -> None:
    rows = [{"id": f"r{i}" * (1 + i % 5), **WRITTEN[name], "_skipme": i % 4 == 1} for i in range(20)]
    path = write_jsonl(tmp_path / "a.jsonl", rows)
    found, files, spec, limits = format_named(name), LocalFiles(), Spec(ids="id"), ScanLimits(chunk_bytes=64)
    shard = Shard(((LINES, str(path)),))
    whole = [each for chunk in found.scan(shard, spec, files, limits) for each in chunk.arrays[IDS].tolist()]
    assert len(whole) == 15
    size = path.stat().st_size
    for step in (1 << 20, 100, 17):
        parts = [Section(at, min(at + step, size)) for at in range(0, size, step)]
        chunks = [chunk for part in parts for chunk in found.scan_section(shard, part, spec, files, limits)]  # type: ignore[attr-defined]
        assert [each for chunk in chunks for each in chunk.arrays[IDS].tolist()] == whole
        assert sum(chunk.num_skipped for chunk in chunks) == 5
    assert found.sections(shard, spec, files, limits) == [Section(0, size)]  # type: ignore[attr-defined]


@pytest.mark.parametrize(("found", "name"), [(Messages(), "a.json"), (NemotronText(), "a.tar")])
def test_arrays_and_tars_are_scanned_whole(tmp_path: Path, found: Any, name: str) -> None:
    (tmp_path / name).write_text(json.dumps([WRITTEN["messages"]]))
    shard = Shard(((LINES if name == "a.json" else "tar", str(tmp_path / name)),))
    assert found.sections(shard, Spec(), LocalFiles(), ScanLimits()) == []
