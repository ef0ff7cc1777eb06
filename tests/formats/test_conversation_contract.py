"""The contract suite on every format of conversations, with lengths in tokens and without."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest

from columnar_data import parquet, stream
from conversation_data import audio_turn, expected_tokens, text_turn, write_chat
from format_worlds import check_processes, check_worlds, recipe_of
from nemo_data import RATE, encoded, signal
from playhead.formats.conversation import Conversation, MediaPart
from playhead.formats.media import Media
from playhead.store import Extent
from playhead.testing import check_format
from small_data import write_tar

Parts = list[str | tuple[Any, float, float | None]]


@dataclass(frozen=True)
class Talk:
    """Equal to a conversation of these turns, wherever its media are: by path, or by their bytes in a tar."""

    turns: list[tuple[str, Parts]]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Conversation) and self.turns == [
            (turn.role, [_plain(part) for part in turn.parts]) for turn in other.turns
        ]

    __hash__ = None  # type: ignore[assignment]


def _plain(part: str | MediaPart) -> Any:
    if isinstance(part, str):
        return part
    assert isinstance(part.media, Media)
    data = part.media.data
    held = bytes(data.part(0, data.size)) if isinstance(data, Extent) else data
    return part.media.path if held is None else held, part.media.offset, part.media.duration


def lines(rows: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows)


def tar_of(members: list[tuple[str, bytes]]) -> bytes:
    with TemporaryDirectory() as folder:
        return write_tar(Path(folder) / "a.tar", members).read_bytes()


# A case: the source, its files, and the turns of its rows; recordings are of 0.25 s, and every row has an id.
Case = tuple[dict[str, Any], dict[str, bytes], list[list[tuple[str, Parts]]]]

WAVS = [(f"{i}.wav", encoded(signal(RATE // 4, i))) for i in range(4)]


def multimodal_rows() -> list[dict[str, Any]]:
    rows = [
        {"id": f"r{i}", "conversations": [audio_turn(f"{i}.wav", duration=0.25), text_turn("Assistant", f"ä{i}")]}
        for i in range(4)
    ]
    return [*rows, {"id": "r4", "conversations": [text_turn("User", "hi"), text_turn("Assistant", "ok")]}]


def multimodal() -> Case:
    rows = multimodal_rows()
    turns = [[("user", [(f"{i}.wav", 0.0, 0.25)]), ("assistant", [f"ä{i}"])] for i in range(4)]
    files = {"a.jsonl": lines(rows[:2]), "b.jsonl": lines(rows[2:])}
    source = {"path": "*.jsonl", "format": "multimodal_conversation"}
    return source, files, [*turns, [("user", ["hi"]), ("assistant", ["ok"])]]  # type: ignore[list-item]


def multimodal_tarred() -> Case:
    rows = multimodal_rows()
    rows[1]["conversations"].insert(1, audio_turn("0.wav", duration=0.25))
    files = {"manifest_0.jsonl": lines(rows), "audio_0.tar": tar_of(WAVS[::-1])}
    heard: list[list[tuple[str, Parts]]] = [
        [("user", [(data, 0.0, 0.25)]), ("assistant", [f"ä{i}"])] for i, (_, data) in enumerate(WAVS)
    ]
    heard[1][0][1].append((WAVS[0][1], 0.0, 0.25))
    source = {
        "path": "manifest_*.jsonl",
        "format": "multimodal_conversation",
        "options": {"tar": "audio_*.tar"},
    }
    return source, files, [*heard, [("user", ["hi"]), ("assistant", ["ok"])]]


def share_gpt_row(i: int, **more: Any) -> dict[str, Any]:
    asked = {"from": "human", "value": f"what <sound> {i}", "duration": 0.25}
    return {"id": f"r{i}", **more, "conversations": [asked, {"from": "gpt", "value": f"ä{i}"}]}


def share_gpt() -> Case:
    files = {"a.jsonl": lines([share_gpt_row(i, sound=f"{i}.wav") for i in range(4)])}
    turns: Any = [[("user", ["what", (f"{i}.wav", 0.0, 0.25), f"{i}"]), ("assistant", [f"ä{i}"])] for i in range(4)]
    return {"path": "a.jsonl", "format": "share_gpt"}, files, turns


def share_gpt_tarred() -> Case:
    rows = lines([share_gpt_row(i, sound=f"{i}.wav") for i in range(4)])
    turns: Any = [
        [("user", ["what", (data, 0.0, 0.25), f"{i}"]), ("assistant", [f"ä{i}"])] for i, (_, data) in enumerate(WAVS)
    ]
    source = {"path": "a.jsonl", "format": "share_gpt", "options": {"tar": "a.tar"}}
    return source, {"a.jsonl": rows, "a.tar": tar_of(WAVS)}, turns


def share_gpt_webdataset() -> Case:
    members = []
    for i, (name, data) in enumerate(WAVS):
        members += [(f"{i}.json", json.dumps(share_gpt_row(i)).encode()), (name, data)]
    turns: Any = [
        [("user", ["what", (data, 0.0, 0.25), f"{i}"]), ("assistant", [f"ä{i}"])] for i, (_, data) in enumerate(WAVS)
    ]
    files = {"d/a.tar": tar_of(members[:4]), "d/b.tar": tar_of(members[4:])}
    return {"path": "d", "format": "share_gpt_webdataset"}, files, turns


TEXTS: Any = [[("system", ["s"]), ("user", [f"what {i}"]), ("assistant", [f"ä{i}" * i])] for i in range(5)]


def nemo_sft() -> Case:
    rows = [
        {
            "id": f"r{i}",
            "system": "s",
            "mask": "User",
            "conversations": [{"from": role.title(), "value": parts[0]} for role, parts in turns[1:]],
        }
        for i, turns in enumerate(TEXTS)
    ]
    return {"path": "a.jsonl", "format": "nemo_sft"}, {"a.jsonl": lines(rows)}, TEXTS


def nemotron_row(i: int) -> dict[str, Any]:
    return {"id": f"r{i}", "conversation": [{"sender": role, "fragments": parts} for role, parts in TEXTS[i]]}


def nemotron_lines() -> Case:
    files = {"a.jsonl": lines([nemotron_row(i) for i in range(5)])}
    return {"path": "a.jsonl", "format": "nemotron_text"}, files, TEXTS


def nemotron_tars() -> Case:
    members = [(f"{i}.json", json.dumps(nemotron_row(i)).encode()) for i in range(5)]
    return {"path": "d", "format": "nemotron_text"}, {"d/a.tar": tar_of(members)}, TEXTS


def message_rows() -> list[dict[str, Any]]:
    return [
        {"id": f"r{i}", "messages": [{"role": role, "content": parts[0]} for role, parts in turns]}
        for i, turns in enumerate(TEXTS)
    ]


def messages_in_lines() -> Case:
    return {"path": "*.jsonl", "format": "messages"}, {"a.jsonl": lines(message_rows())}, TEXTS


def messages_in_an_array() -> Case:
    rows = message_rows()
    files = {"a.json": json.dumps(rows[:2], indent=2).encode(), "b.json": json.dumps(rows[2:]).encode()}
    return {"path": "*.json", "format": "messages"}, files, TEXTS


def messages_in_parquet() -> Case:
    data = parquet(pa.Table.from_pylist(message_rows()), 2, compression="none")
    return {"path": "*.parquet", "format": "messages"}, {"a.parquet": data}, TEXTS


def messages_in_arrow() -> Case:
    data = stream(pa.Table.from_pylist(message_rows()), 2)
    return {"path": "*.arrow", "format": "messages"}, {"a.arrow": data}, TEXTS


EVERY_DAY = [multimodal_tarred, share_gpt_webdataset, messages_in_an_array]
OTHERS = [
    multimodal,
    share_gpt,
    share_gpt_tarred,
    nemo_sft,
    nemotron_lines,
    nemotron_tars,
    messages_in_lines,
    messages_in_parquet,
    messages_in_arrow,
]
CASES = [
    *(pytest.param(case, True, id=case.__name__) for case in EVERY_DAY),
    *(pytest.param(case, True, id=case.__name__, marks=pytest.mark.full) for case in OTHERS),
    *(
        pytest.param(case, False, id=f"{case.__name__} without lengths", marks=pytest.mark.full)
        for case in EVERY_DAY + OTHERS
    ),
]


@pytest.mark.parametrize(("case", "counted"), CASES)
def test_rows_keep_the_contract(tmp_path: Path, case: Any, counted: bool) -> None:
    source, files, turns = case()
    samples = [{"id": f"r{i}", "conversation": Talk(said)} for i, said in enumerate(turns)]
    lengths = None
    if counted:
        template = write_chat(tmp_path)
        source |= {"template": {**template, **{key: str(tmp_path / template[key]) for key in ("tokenizer", "file")}}}
        said = [
            [(role, [part if isinstance(part, str) else 3 for part in parts]) for role, parts in each] for each in turns
        ]
        lengths = [len(expected_tokens(each)[0]) for each in said]
    check_format({**source, "ids": "id"}, files, samples, lengths)


def write_many(folder: Path, name: str, num_rows: int) -> dict[str, Any]:
    """Rows of a recording or two each, whose members are in another order in their tar; or samples of a tar."""
    wavs = [encoded(signal(RATE // 4 + 10 * i, i)) for i in range(num_rows)]
    if name == "share_gpt_webdataset":
        members = [
            (f"{i}.{end}", data)
            for i, wav in enumerate(wavs)
            for end, data in (("wav", wav), ("json", lines([share_gpt_row(i)])))
        ]
        write_tar(folder / "a.tar", members)
        return {"path": "a.tar", "format": name}
    rows = [
        {"id": f"r{i}", "conversations": [audio_turn(f"{j}.wav") for j in {i, i * 7 % num_rows}]}
        for i in range(num_rows)
    ]
    (folder / "a.jsonl").write_bytes(lines(rows))
    write_tar(folder / "a.tar", [(f"{i}.wav", wav) for i, wav in enumerate(wavs)][::-1])
    return {"path": "a.jsonl", "format": name, "options": {"tar": "a.tar"}}


@pytest.mark.parametrize(
    "name", ["multimodal_conversation", pytest.param("share_gpt_webdataset", marks=pytest.mark.full)]
)
def test_any_number_of_ranks_and_processes_delivers_the_same(tmp_path: Path, name: str) -> None:
    source = write_many(tmp_path, name, 90)
    source["template"] = write_chat(tmp_path)
    recipe = recipe_of(tmp_path, source)
    check_worlds(recipe, 90)
    check_processes(recipe)
