"""Messages in the style of OpenAI, from JSON Lines, JSON arrays, Parquet and Arrow."""

from __future__ import annotations

import base64
import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from columnar_data import ipc_file, parquet, stream
from conversation_data import (
    IMAGE,
    assistant,
    conversations,
    delivered,
    named,
    recipe_of,
    special,
    system,
    user,
    write_chat,
    write_wav,
)
from nemo_data import as_floats, encoded, signal
from playhead.errors import DataError, PrepareError
from playhead.formats.conversation import MediaPart, Turn
from playhead.formats.media import Media
from playhead.prepare import prepare
from small_data import all_lengths, table_of, write_jsonl

SOURCE = {"path": "m.jsonl", "format": "messages"}


def message(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def url(kind: str, value: str, **more: Any) -> dict[str, Any]:
    return {"type": f"{kind}_url", f"{kind}_url": {"url": value, **more}}


def row(name: str, *messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"id": name, "messages": list(messages), **more}


def of(folder: Path, *rows: dict[str, Any], **source: Any) -> Any:
    write_jsonl(folder / "m.jsonl", rows)
    return conversations(folder, {**SOURCE, **source})


def png(width: int, height: int, seed: int = 0) -> tuple[bytes, np.ndarray]:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue(), pixels


def test_messages_are_turns_as_they_are(tmp_path: Path) -> None:
    (found,) = of(
        tmp_path,
        row(
            "m",
            message("system", "Be kind."),
            message("user", [text("See"), url("image", "a.png", detail="low"), url("video", "v.mp4"), text("")]),
            message("user", [url("audio", "b.wav", offset=1, duration=2.5)]),
            message("assistant", None, tool_calls=[{"id": 1}], name=None),
            message("tool", "42", tool_call_id="1"),
            message("assistant", []),
            tools=[{"type": "function"}],
            custom={"lang": "en"},
        ),
    )
    image, video = (
        MediaPart(Media(kind, path=path, base=str(tmp_path))) for kind, path in (("image", "a.png"), ("video", "v.mp4"))
    )
    assert found.turns == (
        system("Be kind."),
        user("See", image, video, ""),
        user(named("b.wav", tmp_path, 1.0, 2.5)),
        Turn("assistant", ("",), {"tool_calls": [{"id": 1}]}),
        Turn("tool", ("42",), {"tool_call_id": "1"}),
        assistant(""),
    )
    assert found.tools == [{"type": "function"}]
    assert found.tags == {"lang": "en"}


def test_a_url_may_be_a_text_and_the_field_may_have_another_name(tmp_path: Path) -> None:
    part = {"type": "image_url", "image_url": "a.png"}
    (found,) = of(tmp_path, {"id": "m", "chat": [message("human", [part])]}, options={"field": "chat"})
    assert [each.media.path for each in found.media()] == ["a.png"]
    assert found.turns[0].role == "user"


def test_media_may_be_in_the_row_as_base64(tmp_path: Path) -> None:
    wav, image = encoded(signal(800)), png(5, 3)[0]
    data = {kind: base64.b64encode(found).decode() for kind, found in (("audio", wav), ("image", image))}
    parts = [
        url("image", f"data:image/png;base64,{data['image']}"),
        url("audio", f"data:audio/wav;base64,{data['audio']}", offset=0.025, duration=0.05),
        {"type": "input_audio", "input_audio": {"data": data["audio"], "format": "wav"}},
    ]
    (found,) = of(tmp_path, row("m", message("user", parts)))
    assert found.turns[0].parts == (
        MediaPart(Media("image", image)),
        MediaPart(Media("audio", wav, offset=0.025, duration=0.05), 0.05),
        MediaPart(Media("audio", wav)),
    )
    (sample,) = delivered(recipe_of(tmp_path, SOURCE, template=write_chat(tmp_path)))
    assert sample["audio"].num_tokens == [1, 1]
    assert [each.tolist() for each in sample["audio"].media] == [
        as_floats(signal(800))[200:600].tolist(),
        as_floats(signal(800)).tolist(),
    ]
    assert sample["image"].media[0].tolist() == png(5, 3)[1].tolist()


def test_images_and_audio_of_a_data_folder_are_delivered_in_their_places(tmp_path: Path) -> None:
    (tmp_path / "media").mkdir()
    image, pixels = png(9, 5)
    (tmp_path / "media" / "a.png").write_bytes(image)
    sound = write_wav(tmp_path / "media", "a.wav", 2_000)
    content = [text("x"), url("image", "a.png"), text("y"), url("audio", "a.wav")]
    write_jsonl(tmp_path / "m.jsonl", [row("m", message("user", content), message("assistant", "z"))])
    source = {**SOURCE, "options": {"data_folder": "media"}}
    recipe = recipe_of(tmp_path, source, template=write_chat(tmp_path))
    (sample,) = delivered(recipe)
    tokens = sample["tokens"].tolist()
    assert sample["image"].num_tokens == [3 * 2]
    first = sample["image"].positions[0]
    assert tokens[first - 2 : first + 8] == [*b"x ", *[special(IMAGE)] * 6, *b" y"]
    assert sample["image"].media[0].tolist() == pixels.tolist()
    assert sample["audio"].num_tokens == [3]
    assert sample["audio"].media[0].tolist() == as_floats(sound).tolist()
    assert all_lengths(table_of(recipe)) == [len(tokens)]


ROWS = [
    row("a", message("user", 'ä [{"x": 1}, ]'), message("assistant", "1")),
    row("skipped", _skipme=True),
    {"messages": [message("user", "no id"), message("assistant", "2")]},
    row("reason", message("user", "x"), custom={"_skipme": "a reason"}),
    row("c", message("user", ""), message("assistant", "3"), custom={"n": 1}),
]
ARRAYS: dict[str, Callable[[], bytes]] = {
    "compact": lambda: json.dumps(ROWS, separators=(",", ":")).encode(),
    "spaced": lambda: json.dumps(ROWS).encode() + b"\n",
    "pretty": lambda: json.dumps(ROWS, indent=4, ensure_ascii=False).encode(),
    "with a byte order mark": lambda: b"\xef\xbb\xbf\r\n  " + json.dumps(ROWS, indent="\t").encode(),
    "lines": lambda: b"".join(json.dumps(each).encode() + b"\n" for each in ROWS),
}


@pytest.mark.parametrize("name", ["m.json", "m.json.gz"])
@pytest.mark.parametrize("written", ARRAYS)
def test_a_json_file_holds_an_array_or_lines(tmp_path: Path, written: str, name: str) -> None:
    data = ARRAYS[written]()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    source = {**SOURCE, "path": name}
    recipe = recipe_of(tmp_path, source, template=write_chat(tmp_path))
    samples = delivered(recipe)
    assert [sample["id"] for sample in samples] == ["a", f"{name}:1", "c"]
    assert all_lengths(table_of(recipe)) == [len(sample["tokens"]) for sample in samples]
    found = conversations(tmp_path, source)
    assert [each.turns[1] for each in found] == [assistant("1"), assistant("2"), assistant("3")]
    assert found[0].turns[0] == user('ä [{"x": 1}, ]')
    (report,) = prepare(recipe, force=True).sources
    assert (report.num_rows, report.num_skipped) == (3, 2)
    (tmp_path / "drop.ids").write_text(f"{name}:1\n")
    recipe = recipe_of(tmp_path, {**source, "drop_ids": "drop.ids"}, template=recipe.template)
    assert [sample["id"] for sample in delivered(recipe)] == ["a", "c"]


@pytest.mark.parametrize("data", [b"[]", b"", b" [ ] \n", b"\n"])
def test_an_empty_array_or_file_has_no_rows(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.json").write_bytes(data)
    (tmp_path / "b.json").write_bytes(json.dumps(ROWS[:1]).encode())
    assert [each.id for each in conversations(tmp_path, {**SOURCE, "path": "*.json"})] == ["a"]


def test_an_array_of_many_rows_is_found_whole(tmp_path: Path) -> None:
    rows = [row(f"r{i}", message("user", "x" * (i % 7))) for i in range(5_000)]
    (tmp_path / "m.json").write_text(json.dumps(rows, indent=1))
    found = conversations(tmp_path, {**SOURCE, "path": "m.json"})
    assert [each.id for each in found] == [each["id"] for each in rows]


DEEP = b'[{"a": ' + b"[" * 5_000 + b"]" * 5_000 + b"}]"


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (json.dumps(ROWS).encode()[:-40], r"m\.json: is not a JSON array\n.*truncated; \d+ bytes"),
        (b'[{"messages": []},', r"m\.json: is not a JSON array"),
        (b"[{}] {}", r"m\.json: is not a JSON array"),
        (b'[{"score": NaN}]', r"m\.json: is not a JSON array\n.*byte 11"),
        (DEEP, r"m\.json: is not a JSON array\n.*recursion"),
        (b'[{"messages": []}, 3]', r"m\.json, element 0, byte 1: has no turns"),
        (
            b'[{"id": "a", "messages": [{"role": "user", "content": "x"}]}, 3]',
            "m.json, element 1, byte 62: not an object",
        ),
        (b'[{"id": "\xff", "messages": 3}]', r'element 0, byte 1: conversation ".": "messages" is not a list'),
    ],
)
def test_a_broken_array_is_refused_with_its_place(tmp_path: Path, data: bytes, problem: str) -> None:
    (tmp_path / "m.json").write_bytes(data)
    with pytest.raises(PrepareError, match=problem):
        prepare(recipe_of(tmp_path, {**SOURCE, "path": "m.json"}, template=write_chat(tmp_path)), workers=1)


def wrong_part(part: Any) -> dict[str, Any]:
    return row("bad", message("user", [part]))


WRONG = [
    (wrong_part({"type": "smell", "smell": "x"}), r"unknown part of a message[\s\S]*'smell'"),
    (wrong_part({"type": ["text"]}), "unknown part of a message"),
    (wrong_part({"text": "x"}), "unknown part of a message"),
    (wrong_part({"type": "text"}), '"text" of a part is not a text'),
    (wrong_part({"type": "image_url"}), '"url" of image_url is not a text'),
    (wrong_part({"type": "image_url", "image_url": {"url": 3}}), '"url" of image_url is not a text'),
    (wrong_part({"type": "input_audio", "input_audio": {"format": "wav"}}), "the audio of a part is not a text"),
    (wrong_part({"type": "input_audio", "input_audio": "###"}), "the audio of a part is not base64"),
    (wrong_part(url("image", "data:image/png;base64,é")), "the image of a part is not base64"),
    (wrong_part(url("image", "data:image/svg+xml,%3Csvg%3E")), "a data URL without base64"),
    (wrong_part(url("audio", "a.wav", duration=float("nan"))), '"duration" is not a valid time'),
    (wrong_part(url("audio", "a.wav", offset=10**400)), '"offset" is not a valid time'),
    (wrong_part("x"), '"content" is not a list'),
    (row("bad", message("user", 3)), '"content" is not a list'),
    (row("bad", message("narrator", "x")), r"unknown role[\s\S]*'narrator'"),
    (row("bad"), "has no turns"),
    ({"id": "bad", "messages": None}, '"messages" is not a list'),
    ({"id": "bad", "messages": "[]"}, '"messages" is not a list'),
    ({"id": "bad", "conversations": []}, '"messages" is not a list'),
]


@pytest.mark.parametrize(("wrong", "problem"), WRONG)
@pytest.mark.parametrize("name", ["m.jsonl", "m.json"])
def test_a_wrong_row_is_refused_with_its_id_file_and_row(tmp_path: Path, wrong: Any, problem: str, name: str) -> None:
    if name == "m.jsonl":
        write_jsonl(tmp_path / name, [wrong])
    else:
        (tmp_path / name).write_text(json.dumps([wrong]).replace("NaN", "-1"))
    source, where = {**SOURCE, "path": name}, r"line 1, byte 0" if name == "m.jsonl" else "element 0, byte 1"
    with pytest.raises(PrepareError, match=rf'{name}, {where}: conversation "bad": {problem}'):
        prepare(recipe_of(tmp_path, source, template=write_chat(tmp_path)), workers=1)
    with pytest.raises(DataError, match=rf'{name}, byte \d: conversation "bad": {problem}'):
        conversations(tmp_path, source)


# Columns: parts are structs that have every key, most of them null.
PART = pa.struct(
    {
        "type": pa.string(),
        "text": pa.string(),
        "image_url": pa.struct({"url": pa.string()}),
        "audio_url": pa.struct({"url": pa.string(), "offset": pa.float64(), "duration": pa.float64()}),
    }
)
COLUMN_ROWS = [
    row("a", message("user", [text("x"), url("image", "a.png"), text("y")]), message("assistant", [text("1")])),
    {**row("", message("user", [url("audio", "a.wav", offset=0.05, duration=0.1)])), "id": None},
    row("c", message("user", [text("z")], name="Ann"), message("assistant", None)),
    row("d", message("system", [text("s")]), message("user", [])),
]


def columns() -> pa.Table:
    kind = pa.struct({"role": pa.string(), "content": pa.list_(PART), "name": pa.string()})
    schema = pa.schema({"id": pa.string(), "messages": pa.list_(kind), "note": pa.string()})
    return pa.Table.from_pylist(COLUMN_ROWS, schema=schema)


FILES: dict[str, Callable[[pa.Table], bytes]] = {
    "m.parquet": lambda table: parquet(table, 3),
    "stream.arrow": lambda table: stream(table, 3),
    "file.arrow": lambda table: ipc_file(table, 3),
}


def expected_columns(folder: Path, name: str) -> list[tuple[str, tuple[Turn, ...]]]:
    image = MediaPart(Media("image", path="a.png", base=str(folder)))
    return [
        ("a", (user("x", image, "y"), assistant("1"))),
        (f"{name}:1", (user(named("a.wav", folder, 0.05, 0.1)),)),
        ("c", (Turn("user", ("z",), {"name": "Ann"}), assistant(""))),
        ("d", (system("s"), user(""))),
    ]


@pytest.mark.parametrize("name", FILES)
def test_columns_of_structs_are_conversations(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(FILES[name](columns()))
    found = conversations(tmp_path, {**SOURCE, "path": name})
    assert [(each.id, each.turns) for each in found] == expected_columns(tmp_path, name)


@pytest.mark.parametrize("name", FILES)
def test_columns_are_delivered_with_lengths_from_rows_and_headers(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(FILES[name](columns()))
    (tmp_path / "media").mkdir()
    (tmp_path / "media" / "a.png").write_bytes(png(4, 4)[0])
    sound = write_wav(tmp_path / "media", "a.wav", 2_000)
    source = {**SOURCE, "path": name, "options": {"data_folder": "media"}, "tags": {"lang": "en"}}
    recipe = recipe_of(tmp_path, source, template=write_chat(tmp_path))
    samples = delivered(recipe)
    assert [sample["id"] for sample in samples] == ["a", f"{name}:1", "c", "d"]
    assert samples[0]["image"].media[0].tolist() == png(4, 4)[1].tolist()
    assert samples[1]["audio"].media[0].tolist() == as_floats(sound)[400:1_200].tolist()
    assert all(sample["tags"] == {"lang": "en"} for sample in samples)
    assert all_lengths(table_of(recipe)) == [len(sample["tokens"]) for sample in samples]
    (tmp_path / "drop.ids").write_text(f"{name}:1\n")
    recipe = recipe_of(tmp_path, {**source, "drop_ids": "drop.ids"}, template=recipe.template)
    assert [sample["id"] for sample in delivered(recipe)] == ["a", "c", "d"]


def test_ids_of_columns_may_be_whole_numbers(tmp_path: Path) -> None:
    rows = [{"id": name, "messages": [message("user", "x")]} for name in (7, None, 8)]
    (tmp_path / "m.parquet").write_bytes(parquet(pa.Table.from_pylist(rows), 1))
    (tmp_path / "drop.ids").write_text("8\n")
    source = {**SOURCE, "path": "m.parquet", "drop_ids": "drop.ids"}
    recipe = recipe_of(tmp_path, source, template=write_chat(tmp_path))
    assert [sample["id"] for sample in delivered(recipe)] == ["7", "m.parquet:1"]
    assert table_of(recipe).find("7").tolist() == [0]


def test_a_wrong_row_of_columns_is_refused_with_its_id_file_and_row(tmp_path: Path) -> None:
    rows = [row("good", message("user", "x")), row("bad", message("narrator", "x"))]
    (tmp_path / "m.parquet").write_bytes(parquet(pa.Table.from_pylist(rows), 5))
    source = {**SOURCE, "path": "m.parquet"}
    with pytest.raises(PrepareError, match=r'm\.parquet, row 1: conversation "bad": unknown role'):
        prepare(recipe_of(tmp_path, source, template=write_chat(tmp_path)), workers=1)
    with pytest.raises(DataError, match=r'm\.parquet, .*row 1.*: conversation "bad": unknown role'):
        conversations(tmp_path, source)
    other_field = {**source, "options": {"field": "talk"}}
    with pytest.raises(PrepareError, match=r'm\.parquet, row 0: conversation "good": "talk" is not a list'):
        prepare(recipe_of(tmp_path, other_field, template=write_chat(tmp_path)), workers=1)


@pytest.mark.parametrize("marks", [{"_skipme": "why"}, {"custom": {"_skipme": True}}])
def test_a_row_of_columns_that_is_marked_to_be_skipped_is_refused(tmp_path: Path, marks: dict[str, Any]) -> None:
    rows = [row("good", message("user", "x")), row("bad", message("user", "x"), **marks)]
    (tmp_path / "m.parquet").write_bytes(
        parquet(pa.Table.from_pylist(rows, schema=pa.Table.from_pylist(rows[1:]).schema), 5)
    )
    source = {**SOURCE, "path": "m.parquet"}
    with pytest.raises(PrepareError, match=r'm\.parquet, row 1: conversation "bad": is marked by "_skipme"'):
        prepare(recipe_of(tmp_path, source, template=write_chat(tmp_path)), workers=1)
    with pytest.raises(DataError, match=r'conversation "bad": is marked by "_skipme"'):
        conversations(tmp_path, source)


def test_datasets_of_hugging_face_are_conversations(tmp_path: Path, datasets: Any) -> None:
    rows = [row(f"r{i}", message("user", f"question {i}"), message("assistant", "x" * i)) for i in range(6)]
    made = datasets.Dataset.from_list(rows)
    made.save_to_disk(str(tmp_path / "saved"), num_shards=2)
    made.to_parquet(str(tmp_path / "m.parquet"))
    made.to_json(str(tmp_path / "m.jsonl"))
    made.to_json(str(tmp_path / "m.json"), lines=False)
    template = write_chat(tmp_path)
    for path in ("saved/*.arrow", "saved", "m.parquet", "m.jsonl", "m.json"):
        samples = delivered(recipe_of(tmp_path, {**SOURCE, "path": path}, template=template))
        assert [sample["id"] for sample in samples] == [each["id"] for each in rows]
        assert [int(sample["loss_mask"].sum()) for sample in samples] == [i + 2 for i in range(6)]


def test_lines_need_no_ending(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for number in range(2):
        write_jsonl(tmp_path / "data" / f"part-{number}", [row(f"r{number}", message("user", "x"))])
    for path in ("data/*", ["data/part-0", "data/part-1"]):
        assert [each.id for each in conversations(tmp_path, {**SOURCE, "path": path})] == ["r0", "r1"]


def test_files_of_several_formats_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PrepareError, match="its files are of several formats"):
        prepare(recipe_of(tmp_path, {**SOURCE, "path": ["a.jsonl", "b.parquet"]}))
