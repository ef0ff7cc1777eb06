"""NeMo's multimodal conversations: rows that name files, and rows that name members of tars."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from conversation_data import (
    assistant,
    audio_turn,
    check_delivered,
    conversations,
    delivered,
    named,
    num_audio_tokens,
    recipe_of,
    system,
    text_turn,
    user,
    write_chat,
    write_wav,
)
from nemo_data import RATE, encoded, signal
from playhead.errors import DataError, PlayheadError, PrepareError
from playhead.formats.conversation import MediaPart
from playhead.formats.media import Media
from playhead.prepare import prepare
from playhead.store import Extent
from small_data import all_lengths, table_of, write_jsonl, write_tar

SOURCE = {"path": "mm.jsonl", "format": "multimodal_conversation"}
TARRED = {**SOURCE, "options": {"tar": "audio.tar"}}


def row(name: str, *turns: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"id": name, "conversations": list(turns), **more}


ASKED = [text_turn("User", "What is said?"), audio_turn("a.wav", duration=0.5), text_turn("Assistant", "Hello.")]


def test_turns_of_one_role_are_one_and_media_begin_beside_the_manifest(tmp_path: Path) -> None:
    write_jsonl(
        tmp_path / "mm.jsonl", [row("c0", *ASKED), row("c1", text_turn("User", "a"), text_turn("Assistant", "b"))]
    )
    first, second = conversations(tmp_path, SOURCE)
    assert first.id == "c0"
    assert first.turns == (user("What is said?", named("a.wav", tmp_path, 0.0, 0.5)), assistant("Hello."))
    assert second.turns == (user("a"), assistant("b"))


def test_tokens_lengths_and_audio_are_delivered(tmp_path: Path) -> None:
    first, second = write_wav(tmp_path, "a.wav", 4_001), write_wav(tmp_path, "b.wav", 9_000)
    segment = audio_turn("b.wav", offset=0.25, duration=0.5)
    rows = [
        row("c0", text_turn("User", "What is said?"), audio_turn("a.wav"), text_turn("Assistant", "Grüße")),
        row("c1", segment, audio_turn("a.wav"), text_turn("Assistant", "one"), text_turn("User", "ok"), segment),
        row("c2", text_turn("User", "hi"), text_turn("Assistant", "")),
        row("c3", text_turn("User", "say it"), audio_turn("a.wav", "Assistant")),
    ]
    write_jsonl(tmp_path / "mm.jsonl", rows)
    recipe = recipe_of(tmp_path, SOURCE, template=write_chat(tmp_path))
    samples = delivered(recipe)
    assert [sample["id"] for sample in samples] == ["c0", "c1", "c2", "c3"]
    part, tokens = second[RATE // 4 :][: RATE // 2], num_audio_tokens(4_001)
    assert tokens == 6  # 0.500125 s
    check_delivered(samples[0], [("user", ["What is said?", tokens]), ("assistant", ["Grüße"])], [first])
    turns = [("user", [5, tokens]), ("assistant", ["one"]), ("user", ["ok", 5])]
    check_delivered(samples[1], turns, [part, first, part])
    check_delivered(samples[2], [("user", ["hi"]), ("assistant", [""])])
    check_delivered(samples[3], [("user", ["say it"]), ("assistant", [tokens])], [first])
    assert all_lengths(table_of(recipe)) == [len(sample["tokens"]) for sample in samples]


def test_roles_are_read_in_every_spelling(tmp_path: Path) -> None:
    spoken = ["System", "user", "ASSISTANT", "human", "gpt", "User", "Assistant"]
    write_jsonl(tmp_path / "mm.jsonl", [row("c", *(text_turn(speaker, speaker) for speaker in spoken))])
    (found,) = conversations(tmp_path, SOURCE)
    roles = ["system", "user", "assistant", "user", "assistant", "user", "assistant"]
    assert [turn.role for turn in found.turns] == roles


@pytest.mark.parametrize("name", ["mm.json", "mm.jsonl", "mm.jsonl.gz", "deep/er/mm.jsonl"])
def test_a_manifest_may_be_compressed_and_anywhere(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    data = b"\xef\xbb\xbf" + b"".join(json.dumps(row(f"c{i}", *ASKED)).encode() + b"\r\n\n" for i in range(3))
    path.write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    found = conversations(tmp_path, {**SOURCE, "path": name})
    assert [each.id for each in found] == ["c0", "c1", "c2"]
    assert found[2].turns[0].parts[1] == named("a.wav", path.parent, 0.0, 0.5)


def test_a_data_folder_is_relative_to_the_recipe(tmp_path: Path) -> None:
    (tmp_path / "manifests").mkdir()
    (tmp_path / "sounds").mkdir()
    samples = write_wav(tmp_path / "sounds", "a.wav", 800)
    write_jsonl(tmp_path / "manifests" / "mm.jsonl", [row("c", audio_turn("a.wav"), text_turn("Assistant", "x"))])
    source = {**SOURCE, "path": "manifests/mm.jsonl", "options": {"data_folder": "sounds"}}
    (sample,) = delivered(recipe_of(tmp_path, source, template=write_chat(tmp_path)))
    check_delivered(sample, [("user", [1]), ("assistant", ["x"])], [samples])


def test_an_absolute_path_may_be_anywhere(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    path = str(tmp_path / "b.wav")
    samples = write_wav(tmp_path, "b.wav", 800)
    write_jsonl(tmp_path / "a" / "mm.jsonl", [row("c", audio_turn(path), text_turn("Assistant", "x"))])
    (sample,) = delivered(recipe_of(tmp_path, {**SOURCE, "path": "a/mm.jsonl"}, template=write_chat(tmp_path)))
    check_delivered(sample, [("user", [1]), ("assistant", ["x"])], [samples])


TAGGED = [
    ({}, [audio_turn("a.wav")], [user("A")]),
    ({"context": "Listen."}, [audio_turn("a.wav")], [user("Listen.", "A")]),
    ({"context": "Listen."}, [text_turn("User", "x"), audio_turn("a.wav")], [user("x", "A")]),
    ({"context": "Listen."}, [text_turn("System", "s"), audio_turn("a.wav")], [system("s"), user("A")]),
    ({"context": "Listen."}, [audio_turn("a.wav", "Assistant")], [assistant("A")]),
    ({"system_prompt": "Be kind."}, [text_turn("User", "x")], [system("Be kind."), user("x")]),
    ({"system_prompt": "Be kind."}, [text_turn("System", "s"), text_turn("User", "x")], [system("s"), user("x")]),
    (
        {"context": "Listen.", "system_prompt": "Be kind.", "lang": "en"},
        [audio_turn("a.wav")],
        [system("Be kind."), user("Listen.", "A")],
    ),
]


@pytest.mark.parametrize(("tags", "turns", "expected"), TAGGED)
def test_context_and_system_prompt_are_tags(tmp_path: Path, tags: Any, turns: Any, expected: Any) -> None:
    write_jsonl(tmp_path / "mm.jsonl", [row("c", *turns, custom={"lang": "pl", "n": 3})])
    (found,) = conversations(tmp_path, {**SOURCE, "tags": tags})
    audio = named("a.wav", tmp_path)
    assert [(turn.role, *turn.parts) for turn in found.turns] == [
        (turn.role, *(audio if part == "A" else part for part in turn.parts)) for turn in expected
    ]
    assert found.tags == {"lang": "pl", "n": 3, **tags}


def test_custom_fields_are_tags_of_the_row_and_make_no_turns(tmp_path: Path) -> None:
    custom = {"system_prompt": "from the row", "context": "row's", "lang": "pl", "_skipme": False}
    write_jsonl(tmp_path / "mm.jsonl", [row("c", audio_turn("a.wav"), custom=custom)])
    (found,) = conversations(tmp_path, {**SOURCE, "tags": {"context": "the source's"}})
    assert found.turns == (user("the source's", named("a.wav", tmp_path)),)
    assert found.tags == {"system_prompt": "from the row", "context": "the source's", "lang": "pl"}


def test_rows_to_skip_are_left_out_when_indexed(tmp_path: Path) -> None:
    kept = row("kept", *ASKED, _skipme=False, custom={"_skipme": ""})
    rows = [
        row("a", *ASKED, _skipme=True),
        kept,
        row("b", *ASKED, _skipme="too noisy"),
        {"id": "c", "conversations": None, "custom": {"_skipme": 1}},
        row("d", *ASKED, custom={"_skipme": "a reason"}),
        row("kept too", *ASKED, custom=None),
    ]
    write_jsonl(tmp_path / "mm.jsonl", rows)
    recipe = recipe_of(tmp_path, SOURCE, template=write_chat(tmp_path))
    (report,) = prepare(recipe).sources
    assert (report.num_rows, report.num_skipped) == (2, 4)
    assert [each.id for each in conversations(tmp_path, SOURCE)] == ["kept", "kept too"]


def test_rows_without_ids_have_file_and_number_and_duplicate_ids_are_both_found(tmp_path: Path) -> None:
    turns = [text_turn("User", "x")]
    rows = [{"conversations": turns}, row("d", *turns), row("d", *turns), {"id": 7, "conversations": turns}]
    write_jsonl(tmp_path / "mm.jsonl", [row("s", _skipme=True), *rows])
    assert [each.id for each in conversations(tmp_path, SOURCE)] == ["mm.jsonl:0", "d", "d", "7"]
    (tmp_path / "drop.ids").write_text("mm.jsonl:0\n")
    recipe = recipe_of(tmp_path, {**SOURCE, "drop_ids": "drop.ids"}, template=write_chat(tmp_path))
    assert [sample["id"] for sample in delivered(recipe)] == ["d", "d", "7"]
    assert table_of(recipe).find("d").tolist() == [0, 1]


def turns_of(value: Any) -> dict[str, Any]:
    return {"id": "bad", "conversations": value}


DEEP = json.loads("[" * 90 + "]" * 90)
WRONG = [
    (turns_of(None), '"conversations" is not a list'),
    ({"id": "bad"}, '"conversations" is not a list'),
    (turns_of({"value": "x"}), '"conversations" is not a list'),
    (turns_of(["x"]), '"conversations" is not a list'),
    (turns_of("x"), '"conversations" is not a list'),
    (turns_of(DEEP), '"conversations" is not a list'),
    (turns_of([]), "has no turns"),
    (turns_of([{"value": "x", "from": "Narrator"}]), "unknown role"),
    (turns_of([{"value": "x"}]), "unknown role"),
    (turns_of([{"value": "x", "from": ["User"]}]), "unknown role"),
    (turns_of([{"value": None, "from": "User"}]), '"value" of a turn of type text is not a text'),
    (turns_of([{"value": 3, "from": "User", "type": "text"}]), '"value" of a turn of type text is not a text'),
    (turns_of([{"value": "x", "from": "User", "type": "smell"}]), r"unknown type of a turn[\s\S]*'smell'"),
    (turns_of([{"value": "x", "from": "User", "type": {}}]), "unknown type of a turn"),
    (turns_of([audio_turn("")]), "a turn of type audio names no file"),
    (turns_of([audio_turn("a.wav", duration=float("nan"))]), '"duration" is not a valid time'),
    (turns_of([audio_turn("a.wav", duration=float("inf"))]), '"duration" is not a valid time'),
    (turns_of([audio_turn("a.wav", duration=-1)]), '"duration" is not a valid time'),
    (turns_of([audio_turn("a.wav", duration=10**400)]), '"duration" is not a valid time'),
    (turns_of([audio_turn("a.wav", offset="1")]), '"offset" is not a valid time'),  # type: ignore[arg-type]
    (turns_of([audio_turn("a.wav", offset=True)]), '"offset" is not a valid time'),
]


@pytest.mark.parametrize(("wrong", "problem"), WRONG)
def test_a_wrong_row_is_refused_with_its_id_file_and_row(tmp_path: Path, wrong: Any, problem: str) -> None:
    write_jsonl(tmp_path / "mm.jsonl", [row("good", *ASKED), wrong])
    recipe = recipe_of(tmp_path, SOURCE, template=write_chat(tmp_path))
    with pytest.raises(PrepareError, match=rf'mm\.jsonl, line 2, byte \d+: conversation "bad": {problem}'):
        prepare(recipe, workers=1)
    with pytest.raises(DataError, match=rf'mm\.jsonl, byte \d+: conversation "bad": {problem}'):
        conversations(tmp_path, SOURCE)


def test_a_row_that_is_nested_too_deeply_is_refused_by_its_line(tmp_path: Path) -> None:
    good = json.dumps(row("good", *ASKED)).encode()
    (tmp_path / "mm.jsonl").write_bytes(good + b'\n{"a": ' + b"[" * 5_000 + b"]" * 5_000 + b"}\n")
    with pytest.raises(PrepareError, match=r"mm\.jsonl, line 2, byte \d+: the row is nested too deeply"):
        prepare(recipe_of(tmp_path, SOURCE, template=write_chat(tmp_path)), workers=1)


@pytest.mark.parametrize("name", ["bad", None])
def test_a_row_that_the_template_refuses_has_a_place_too(tmp_path: Path, name: str | None) -> None:
    wrong = {"id": name, "conversations": [text_turn("User", "one <|audio|> two")]}
    write_jsonl(tmp_path / "mm.jsonl", [row("good", *ASKED), wrong, row("good", *ASKED)])
    named_id = 'conversation "bad": ' if name else ""
    with pytest.raises(PrepareError, match=rf"mm\.jsonl, line 2, byte \d+: {named_id}a text of the user holds the"):
        prepare(recipe_of(tmp_path, SOURCE, template=write_chat(tmp_path)), workers=1)


def test_a_wrong_row_without_an_id_is_refused_by_its_place(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "mm.jsonl", [{"conversations": [{"value": "x", "from": "User", "type": "smell"}]}])
    with pytest.raises(PrepareError, match=r"mm\.jsonl, line 1, byte 0: unknown type of a turn"):
        prepare(recipe_of(tmp_path, SOURCE, template=write_chat(tmp_path)), workers=1)


def test_audio_that_does_not_exist_is_refused_by_its_row_and_path(tmp_path: Path) -> None:
    write_wav(tmp_path, "a.wav", 800)
    template = write_chat(tmp_path)
    for times in ({"duration": 1.0}, {}):
        rows = [row("c", audio_turn("a.wav")), row("d", audio_turn("missing.wav", **times))]
        write_jsonl(tmp_path / "mm.jsonl", rows)
        with pytest.raises(PlayheadError, match=r'source "s", (raw )?row 1 \(.*mm\.jsonl, byte \d+\): .*missing\.wav'):
            delivered(recipe_of(tmp_path, SOURCE, template=template))


def test_an_empty_manifest_has_no_rows_and_one_beside_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"")
    write_jsonl(tmp_path / "b.jsonl", [row("c", *ASKED)])
    assert [each.id for each in conversations(tmp_path, {**SOURCE, "path": "*.jsonl"})] == ["c"]


# Tars: members in the order of the rows, in another, several in a row, one in several rows, and segments.
SIZES = {"a.wav": 800, "b.flac": 4_000, "c.wav": 2_400, "d.wav": 1_600, "unused.wav": 8_000, "e/f.wav": 900}


def members(names: list[str]) -> list[tuple[str, bytes]]:
    return [
        (name, encoded(signal(SIZES[name], SIZES[name]), "FLAC" if name.endswith("flac") else "WAV")) for name in names
    ]


TAR_ROWS = [
    row("one", audio_turn("a.wav", duration=0.1), text_turn("Assistant", "1")),
    row("two", audio_turn("c.wav"), text_turn("User", "and"), audio_turn("b.flac"), text_turn("Assistant", "2")),
    row("text", text_turn("User", "hi"), text_turn("Assistant", "3")),
    row("again", audio_turn("b.flac", offset=0.25, duration=0.2), audio_turn("b.flac", offset=0.0, duration=0.1)),
    row("deep", audio_turn("e/f.wav"), text_turn("Assistant", "4")),
    row("same", audio_turn("a.wav"), audio_turn("d.wav"), audio_turn("a.wav"), text_turn("Assistant", "5")),
]


@pytest.mark.parametrize(
    "names", [["a.wav", "c.wav", "b.flac", "e/f.wav", "d.wav"], [*reversed(SIZES)], sorted(SIZES)], ids=str
)
def test_rows_name_members_of_a_tar_in_any_order(tmp_path: Path, names: list[str]) -> None:
    write_tar(tmp_path / "audio.tar", members(names))
    write_jsonl(tmp_path / "mm.jsonl", TAR_ROWS)
    recipe = recipe_of(tmp_path, TARRED, template=write_chat(tmp_path))
    samples = delivered(recipe)
    sounds = {name: signal(size, size) for name, size in SIZES.items()}
    tokens = {name: num_audio_tokens(size) for name, size in SIZES.items()}
    check_delivered(samples[0], [("user", [1]), ("assistant", ["1"])], [sounds["a.wav"]])
    two = [("user", [tokens["c.wav"], "and", tokens["b.flac"]]), ("assistant", ["2"])]
    check_delivered(samples[1], two, [sounds["c.wav"], sounds["b.flac"]])
    check_delivered(samples[2], [("user", ["hi"]), ("assistant", ["3"])])
    check_delivered(samples[3], [("user", [2, 1])], [sounds["b.flac"][2_000:3_600], sounds["b.flac"][:800]])
    check_delivered(samples[4], [("user", [tokens["e/f.wav"]]), ("assistant", ["4"])], [sounds["e/f.wav"]])
    same = [sounds["a.wav"], sounds["d.wav"], sounds["a.wav"]]
    check_delivered(samples[5], [("user", [1, 2, 1]), ("assistant", ["5"])], same)
    assert all_lengths(table_of(recipe)) == [len(sample["tokens"]) for sample in samples]


def test_a_member_that_is_not_in_the_tar_is_refused_or_its_row_is_left_out(tmp_path: Path) -> None:
    write_tar(tmp_path / "audio.tar", members(["a.wav"]))
    missing = row("bad", audio_turn("a.wav"), audio_turn("z.wav"), text_turn("Assistant", "x"))
    rows = [
        row("one", audio_turn("a.wav")),
        missing,
        row("skipped", _skipme="why"),
        row("text", text_turn("User", "y")),
    ]
    write_jsonl(tmp_path / "mm.jsonl", rows)
    with pytest.raises(
        PrepareError, match=r'mm\.jsonl, line 2, byte \d+: conversation "bad": .* not in the tar: "z\.wav"'
    ):
        prepare(recipe_of(tmp_path, TARRED), workers=1)
    source = {**SOURCE, "options": {"tar": "audio.tar", "skip_missing": True}}
    assert [each.id for each in conversations(tmp_path, source)] == ["one", "text"]
    (report,) = prepare(recipe_of(tmp_path, source), force=True).sources
    assert (report.num_rows, report.num_skipped) == (2, 2)


def test_manifests_pair_with_tars_by_number(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"manifest_{number}.jsonl").write_text(json.dumps(row(f"c{number}", audio_turn("a.wav"))) + "\n")
        write_tar(tmp_path / f"audio_{number}.tar", [("a.wav", encoded(signal(800, number)))])
    options = {"tar": "audio_{0..2}.tar"}
    source = {**SOURCE, "path": [f"manifest_{number}.jsonl" for number in (2, 0, 1)], "options": options}
    for number, sample in zip(
        (2, 0, 1), delivered(recipe_of(tmp_path, source, template=write_chat(tmp_path))), strict=True
    ):
        check_delivered(sample, [("user", [1])], [signal(800, number)])
    with pytest.raises(PrepareError, match="manifests and tars do not pair"):
        prepare(recipe_of(tmp_path, {**source, "path": "manifest_{0..1}.jsonl"}))


def test_rows_of_a_tar_hold_bytes_that_are_not_read_yet(tmp_path: Path) -> None:
    write_tar(tmp_path / "audio.tar", members(["b.flac", "a.wav"]))
    write_jsonl(tmp_path / "mm.jsonl", [row("c", audio_turn("a.wav", offset=0.05, duration=0.025))])
    (found,) = conversations(tmp_path, TARRED)
    (part,) = found.media()
    assert isinstance(part, MediaPart)
    assert isinstance(part.media, Media)
    assert isinstance(part.media.data, Extent)
    assert bytes(part.media.data.part(0, part.media.data.size)) == members(["a.wav"])[0][1]
    assert part.media.path == f'{tmp_path}/audio.tar, member "a.wav"'
    assert (part.media.offset, part.media.duration, part.seconds) == (0.05, 0.025, 0.025)


def test_rows_with_images_deliver_them(tmp_path: Path) -> None:
    from PIL import Image

    pixels = signal(10 * 6 * 3).astype("uint8").reshape(6, 10, 3)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    image = {"value": "a.png", "from": "User", "type": "image", "duration": None}
    write_jsonl(tmp_path / "mm.jsonl", [row("c", text_turn("User", "What?"), image, text_turn("Assistant", "x"))])
    (sample,) = delivered(recipe_of(tmp_path, SOURCE, template=write_chat(tmp_path)))
    assert sample["image"].num_tokens == [3 * 2]  # patches of 4 by 4
    assert sample["image"].media[0].tolist() == pixels.tolist()
