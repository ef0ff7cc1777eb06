"""Conversations in the style of ShareGPT: placeholders in texts of the user, recordings by path or in tars."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from conversation_data import (
    assistant,
    check_delivered,
    conversations,
    delivered,
    named,
    num_audio_tokens,
    recipe_of,
    system,
    user,
    write_chat,
    write_wav,
)
from nemo_data import encoded, signal
from playhead.errors import DataError, PlayheadError, PrepareError
from playhead.formats.conversation import MediaPart
from playhead.prepare import prepare
from small_data import all_lengths, table_of, write_jsonl, write_tar

SOURCE = {"path": "sg.jsonl", "format": "share_gpt"}


def turn(speaker: str, value: Any, **times: Any) -> dict[str, Any]:
    return {"from": speaker, "value": value, **times}


def row(name: str, sound: Any, *turns: dict[str, Any], **more: Any) -> dict[str, Any]:
    found = {} if sound is None else {"sound": sound}
    return {"id": name, **found, "conversations": list(turns), **more}


def of(folder: Path, *rows: dict[str, Any], **options: Any) -> Any:
    write_jsonl(folder / "sg.jsonl", rows)
    found = conversations(folder, {**SOURCE, "options": options})
    return found[0].turns if len(found) == 1 else found


def parts(turns: Any) -> list[str]:
    """The texts, and the paths of the recordings in brackets."""
    return [part if isinstance(part, str) else f"[{part.media.path}]" for turn in turns for part in turn.parts]


def test_a_placeholder_splits_the_text_of_the_user(tmp_path: Path) -> None:
    found = of(
        tmp_path,
        row("c", "a.wav", turn("human", "What is\n<sound>\nabout? "), turn("gpt", " A <sound> of music. ")),
    )
    audio = named("a.wav", tmp_path)
    assert found == (user("What is", audio, "about?"), assistant("A <sound> of music."))


def test_roles_are_read_in_both_spellings_and_a_system_turn_stays(tmp_path: Path) -> None:
    turns = [turn("system", "Be kind."), turn("human", "a"), turn("gpt", "b"), turn("user", "c"), turn("assistant", "")]
    found = of(tmp_path, row("c", None, *turns))
    assert found == (system("Be kind."), user("a"), assistant("b"), user("c"), assistant(""))


SOUNDS: list[tuple[Any, list[str], list[str]]] = [
    ("a.wav", ["<sound>"], ["[a.wav]"]),
    ("a.wav", ["<speech> x"], ["[a.wav]", "x"]),
    ("a.wav", ["x<sound>y<speech>"], ["x", "[a.wav]", "y", "[a.wav]"]),
    ("a.wav", ["<sound>", "again <sound>"], ["[a.wav]", "again", "[a.wav]"]),
    (["a.wav"], ["<sound>x", "<sound>"], ["[a.wav]", "x", "[a.wav]"]),
    (["a.wav", "b.wav"], ["<sound> and <speech>"], ["[a.wav]", "and", "[b.wav]"]),
    (["a.wav", "b.wav"], ["<sound>", "x", "<sound>"], ["[a.wav]", "x", "[b.wav]"]),
    (["a.wav", "b.wav", "c.wav"], ["all: <sound>!"], ["all:", "[a.wav]", "[b.wav]", "[c.wav]", "!"]),
    (None, ["no audio"], ["no audio"]),
    ("", ["no audio"], ["no audio"]),
    ([], ["no audio", ""], ["no audio", ""]),
]


@pytest.mark.parametrize(("sound", "texts", "expected"), SOUNDS)
def test_recordings_are_one_for_all_placeholders_one_for_each_or_all_for_one(
    tmp_path: Path, sound: Any, texts: list[str], expected: list[str]
) -> None:
    assert parts(of(tmp_path, row("c", sound, *(turn("human", text) for text in texts)))) == expected


@pytest.mark.parametrize("sound", [None, "", []])
def test_the_original_sound_is_used_where_there_is_no_other(tmp_path: Path, sound: Any) -> None:
    found = of(tmp_path, {**row("c", sound, turn("human", "<sound>")), "ori_sound": "o.wav"})
    assert parts(found) == ["[o.wav]"]


TIMES: list[tuple[Any, dict[str, Any], list[tuple[float, float | None]]]] = [
    ("a.wav", {}, [(0, None)]),
    ("a.wav", {"duration": 1, "offset": 0.5}, [(0.5, 1)]),
    ("a.wav", {"duration": None, "offset": None}, [(0, None)]),
    ("a.wav", {"duration": [1.5], "offset": [2]}, [(2, 1.5)]),
    (["a.wav", "b.wav"], {"duration": 1}, [(0, 1), (0, 1)]),
    (["a.wav", "b.wav"], {"duration": [1, 2], "offset": [0.5, None]}, [(0.5, 1), (0, 2)]),
    (["a.wav", "b.wav"], {"duration": [3]}, [(0, 3), (0, 3)]),
]


@pytest.mark.parametrize(("sound", "times", "expected"), TIMES)
def test_segments_are_those_of_the_turn_for_each_recording(
    tmp_path: Path, sound: Any, times: dict[str, Any], expected: Any
) -> None:
    (found,) = of(tmp_path, row("c", sound, turn("human", "<sound>", **times)))
    media = [part for part in found.parts if isinstance(part, MediaPart)]
    assert [(part.media.offset, part.media.duration) for part in media] == expected  # type: ignore[union-attr]
    assert [part.seconds for part in media] == [duration for _, duration in expected]


WRONG = [
    (row("bad", None, turn("human", "<sound>")), "a placeholder without audio"),
    (row("bad", ["a", "b"], turn("human", "<sound><sound><sound>")), "recordings and placeholders do not match"),
    (row("bad", ["a", "b", "c"], turn("human", "<sound>"), turn("human", "<sound>")), "recordings and placeholders do"),
    (row("bad", "a", turn("human", "no placeholder")), "audio without a placeholder"),
    (row("bad", "a", turn("human", "x"), turn("gpt", "<sound>")), "audio without a placeholder"),
    (row("bad", 3, turn("human", "<sound>")), '"sound" does not name audio'),
    (row("bad", ["a", None], turn("human", "<sound>")), '"sound" does not name audio'),
    (row("bad", {"path": "a"}, turn("human", "<sound>")), '"sound" does not name audio'),
    (row("bad", ["a", "b", "c"], turn("human", "<sound>", duration=[1, 2])), '"duration" has too few values'),
    (row("bad", "a", turn("human", "<sound>", offset=[])), '"offset" has too few values'),
    (row("bad", "a", turn("human", "<sound>", duration=float("nan"))), '"duration" is not a valid time'),
    (row("bad", "a", turn("human", "<sound>", duration=[[1]])), '"duration" is not a valid time'),
    (row("bad", "a", turn("narrator", "<sound>")), "unknown role"),
    (row("bad", "a", turn("human", None)), '"value" of a turn is not a text'),
    (row("bad", None), "has no turns"),
    ({"id": "bad", "conversations": None}, '"conversations" is not a list'),
]


@pytest.mark.parametrize(("wrong", "problem"), WRONG)
def test_a_wrong_row_is_refused_with_its_id_file_and_row(tmp_path: Path, wrong: Any, problem: str) -> None:
    write_jsonl(tmp_path / "sg.jsonl", [row("good", None, turn("human", "x")), wrong])
    with pytest.raises(PrepareError, match=rf'sg\.jsonl, line 2, byte \d+: conversation "bad": {problem}'):
        prepare(recipe_of(tmp_path, SOURCE, template=write_chat(tmp_path)), workers=1)
    with pytest.raises(DataError, match=rf'sg\.jsonl, byte \d+: conversation "bad": {problem}'):
        conversations(tmp_path, SOURCE)


def test_placeholders_are_those_of_the_recipe(tmp_path: Path) -> None:
    wanted = row("c", ["a.wav", "b.wav"], turn("human", "<sound> <clip> x [.*] y"))
    found = parts(of(tmp_path, wanted, placeholders=["<clip>", "[.*]"]))
    assert found == ["<sound>", "[a.wav]", "x", "[b.wav]", "y"]
    assert parts(of(tmp_path, row("c", "a.wav", turn("human", "<clip>")), placeholders="<clip>")) == ["[a.wav]"]


@pytest.mark.parametrize("placeholders", [["<sound>", ""], []])
@pytest.mark.parametrize("name", ["share_gpt", "share_gpt_webdataset"])
def test_an_empty_placeholder_is_refused(tmp_path: Path, name: str, placeholders: list[str]) -> None:
    source = {"path": "x.tar", "format": name, "options": {"placeholders": placeholders}}
    with pytest.raises(PlayheadError, match=r"sources\[0\]\.options\.placeholders.*: is not valid"):
        prepare(recipe_of(tmp_path, source))


def test_tokens_lengths_and_audio_are_delivered_from_an_audio_root(tmp_path: Path) -> None:
    (tmp_path / "sounds" / "deep").mkdir(parents=True)
    first = write_wav(tmp_path / "sounds", "a.wav", 4_000)
    second = write_wav(tmp_path / "sounds", "deep/b.wav", 3_000)
    rows = [
        row("c0", ["a.wav", "deep/b.wav"], turn("human", "Both: <sound>"), turn("gpt", "yes")),
        row("c1", "a.wav", turn("human", "<sound> Part?", offset=0.125, duration=0.25), turn("gpt", "no")),
        {"conversations": [turn("human", "hi"), turn("gpt", "ok")], "custom": {"lang": "en"}},
        row("skipped", "gone.wav", turn("human", "<sound>"), _skipme="broken"),
    ]
    write_jsonl(tmp_path / "sg.jsonl", rows)
    source = {**SOURCE, "options": {"audio_root": "sounds"}, "tags": {"context": "Listen."}}
    recipe = recipe_of(tmp_path, source, template=write_chat(tmp_path))
    samples = delivered(recipe)
    assert [sample["id"] for sample in samples] == ["c0", "c1", "sg.jsonl:2"]
    tokens = [num_audio_tokens(4_000), num_audio_tokens(3_000)]
    check_delivered(samples[0], [("user", ["Both:", *tokens]), ("assistant", ["yes"])], [first, second])
    check_delivered(samples[1], [("user", ["Listen.", 3, "Part?"]), ("assistant", ["no"])], [first[1_000:3_000]])
    check_delivered(samples[2], [("user", ["hi"]), ("assistant", ["ok"])])
    assert samples[2]["tags"] == {"lang": "en", "context": "Listen."}
    assert all_lengths(table_of(recipe)) == [len(sample["tokens"]) for sample in samples]


def test_recordings_may_be_members_of_tars(tmp_path: Path) -> None:
    sizes = {"b.wav": 1_600, "a.wav": 800, "c.flac": 2_400}
    contents = [
        (name, encoded(signal(size, size), "FLAC" if name.endswith("flac") else "WAV")) for name, size in sizes.items()
    ]
    write_tar(tmp_path / "sg.tar", contents)
    rows = [
        row("c0", ["a.wav", "c.flac"], turn("human", "<sound>"), turn("gpt", "x")),
        row("text", None, turn("human", "hi"), turn("gpt", "y")),
        row("missing", ["a.wav", "z.wav"], turn("human", "<sound>")),
        row("c1", "b.wav", turn("human", "<sound> <sound>", offset=0.1, duration=0.05), turn("gpt", "z")),
    ]
    write_jsonl(tmp_path / "sg.jsonl", rows)
    source = {**SOURCE, "options": {"tar": "sg.tar", "skip_missing": True}}
    recipe = recipe_of(tmp_path, source, template=write_chat(tmp_path))
    samples = delivered(recipe)
    sounds = {name: signal(size, size) for name, size in sizes.items()}
    check_delivered(samples[0], [("user", [1, 3]), ("assistant", ["x"])], [sounds["a.wav"], sounds["c.flac"]])
    check_delivered(samples[1], [("user", ["hi"]), ("assistant", ["y"])])
    check_delivered(samples[2], [("user", [1, 1]), ("assistant", ["z"])], [sounds["b.wav"][800:1_200]] * 2)
    assert table_of(recipe).num_rows == 3
    with pytest.raises(PrepareError, match=r'line 3, byte \d+: conversation "missing": .*not in the tar: "z\.wav"'):
        prepare(recipe_of(tmp_path, {**SOURCE, "options": {"tar": "sg.tar"}}))
