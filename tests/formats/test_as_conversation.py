"""Rows of audio as conversations, from every format that holds audio."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lhotse import CutSet, MonoCut, Recording, SupervisionSegment

from columnar_data import parquet, stream
from conversation_data import SECONDS_PER_TOKEN, check_delivered, delivered, num_audio_tokens, recipe_of, write_chat
from nemo_data import RATE, encoded, signal
from playhead.errors import PlayheadError, PrepareError, RecipeError
from playhead.prepare import prepare
from small_data import all_lengths, table_of, write_jsonl, write_tar

# What each row holds beside its audio, of as many frames.
SPOKEN: list[dict[str, Any]] = [
    {"text": "hello", "context": "Transcribe.", "question": "Who?", "answer": "Ann"},
    {"text": "Grüße 😀", "question": "What?", "answer": ""},
    {"text": "", "context": "Write it down.", "system_prompt": "Be exact.", "question": "Why?", "answer": "So."},
]
FRAMES = [800, 4_100, 2_400]
SOUNDS = [signal(size, size) for size in FRAMES]


def nemo_rows(folder: Path, *, duration: bool = True) -> list[dict[str, Any]]:
    rows = []
    for i, (spoken, size) in enumerate(zip(SPOKEN, FRAMES, strict=True)):
        (folder / f"{i}.wav").write_bytes(encoded(SOUNDS[i]))
        rows.append({"audio_filepath": f"{i}.wav", **spoken, **({"duration": size / RATE} if duration else {})})
    return rows


def nemo(folder: Path) -> dict[str, Any]:
    write_jsonl(folder / "m.json", nemo_rows(folder))
    return {"path": "m.json", "format": "nemo"}


def nemo_without_durations(folder: Path) -> dict[str, Any]:
    write_jsonl(folder / "m.json", nemo_rows(folder, duration=False))
    return {"path": "m.json", "format": "nemo"}


def nemo_tarred(folder: Path) -> dict[str, Any]:
    write_jsonl(folder / "m.json", nemo_rows(folder))
    write_tar(folder / "a.tar", [(f"{i}.wav", encoded(SOUNDS[i])) for i in (2, 0, 1)])
    return {"path": "m.json", "format": "nemo_tarred", "options": {"tar": "a.tar"}}


def cuts(folder: Path) -> CutSet:
    found = []
    for i, spoken in enumerate(SPOKEN):
        path = folder / f"{i}.wav"
        path.write_bytes(encoded(SOUNDS[i]))
        recording = Recording.from_file(path, recording_id=f"r{i}")
        said = SupervisionSegment(f"s{i}", f"r{i}", 0, recording.duration, text=spoken["text"])
        custom = {name: value for name, value in spoken.items() if name != "text"}
        found.append(MonoCut(f"c{i}", 0, recording.duration, 0, [said], recording=recording, custom=custom))
    return CutSet.from_cuts(found)


def lhotse(folder: Path) -> dict[str, Any]:
    cuts(folder).to_file(folder / "cuts.jsonl.gz")
    return {"path": "cuts.jsonl.gz", "format": "lhotse"}


def lhotse_shar(folder: Path) -> dict[str, Any]:
    (folder / "shar").mkdir()
    cuts(folder).to_shar(folder / "shar", fields={"recording": "wav"}, shard_size=2, warn_unused_fields=False)
    return {"path": "shar", "format": "lhotse_shar"}


def webdataset(folder: Path) -> dict[str, Any]:
    members = []
    for i, spoken in enumerate(SPOKEN):
        members += [(f"{i}.wav", encoded(SOUNDS[i])), (f"{i}.json", json.dumps(spoken).encode())]
    write_tar(folder / "w.tar", members)
    names = ("text", "context", "question", "answer", "system_prompt", "duration")
    return {"path": "w.tar", "as_conversation": {name: f"json.{name}" for name in names}}


def webdataset_of_texts(folder: Path) -> dict[str, Any]:
    members = []
    for i, spoken in enumerate(SPOKEN):
        members += [
            (f"{i}.txt", spoken["text"].encode()),
            (f"{i}.flac", encoded(SOUNDS[i], "FLAC")),
            *((f"{i}.{name}.txt", spoken[name].encode()) for name in spoken if name != "text"),
        ]
    write_tar(folder / "w.tar", members)
    names = ("context", "question", "answer", "system_prompt")
    return {"path": "w.tar", "as_conversation": {"text": "txt", **{name: f"{name}.txt" for name in names}}}


def table(*, duration: bool = True) -> pa.Table:
    rows = [
        {
            "audio": {"bytes": encoded(SOUNDS[i]), "path": None},
            **{name: spoken.get(name) for name in ("text", "context", "question", "answer", "system_prompt")},
            **({"duration": FRAMES[i] / RATE} if duration else {}),
        }
        for i, spoken in enumerate(SPOKEN)
    ]
    return pa.Table.from_pylist(rows)


def in_parquet(folder: Path) -> dict[str, Any]:
    (folder / "t.parquet").write_bytes(parquet(table(), 2))
    return {"path": "t.parquet", "options": {"audio": ["audio"]}}


def in_arrow(folder: Path) -> dict[str, Any]:
    (folder / "t.arrow").write_bytes(stream(table(duration=False), 2))
    return {"path": "t.arrow", "options": {"audio": ["audio"]}}


WRITERS: list[Callable[[Path], dict[str, Any]]] = [
    nemo,
    nemo_without_durations,
    nemo_tarred,
    lhotse,
    lhotse_shar,
    webdataset,
    webdataset_of_texts,
    in_parquet,
    in_arrow,
]
each_format = pytest.mark.parametrize("write", WRITERS)


def with_form(source: dict[str, Any], form: str) -> dict[str, Any]:
    return {**source, "as_conversation": {"form": form, **source.get("as_conversation", {})}}


def expected(i: int, form: str) -> Any:
    spoken = SPOKEN[i]
    asked = [spoken[name] for name in ("context", *(["question"] if form == "question" else [])) if name in spoken]
    turns = [("system", [spoken["system_prompt"]])] if "system_prompt" in spoken else []
    answer = spoken["answer" if form == "question" else "text"]
    return [*turns, ("user", [*asked, num_audio_tokens(FRAMES[i])]), ("assistant", [answer])]


@each_format
@pytest.mark.parametrize("form", ["transcript", "question"])
def test_rows_of_audio_are_questions_and_answers(tmp_path: Path, write: Any, form: str) -> None:
    recipe = recipe_of(tmp_path, with_form(write(tmp_path), form), template=write_chat(tmp_path))
    samples = delivered(recipe)
    assert len(samples) == 3
    for i, sample in enumerate(samples):
        check_delivered(sample, expected(i, form), [SOUNDS[i]])
    assert all_lengths(table_of(recipe)) == [len(sample["tokens"]) for sample in samples]


def test_audio_of_members_is_decoded_where_members_are_left_as_bytes(tmp_path: Path) -> None:
    source = with_form(webdataset(tmp_path), "transcript")
    for i, sample in enumerate(delivered(recipe_of(tmp_path, source, template=write_chat(tmp_path), decode=False))):
        check_delivered(sample, expected(i, "transcript"), [SOUNDS[i]])


@each_format
def test_tags_of_the_source_stand_over_fields_of_the_row(tmp_path: Path, write: Any) -> None:
    source = write(tmp_path)
    names = {name: source.get("as_conversation", {}).get(name, name) for name in ("context", "system_prompt")}
    tags = {names["context"]: "From the tag.", names["system_prompt"]: "System.", "lang": "en"}
    recipe = recipe_of(tmp_path, {**with_form(source, "transcript"), "tags": tags}, template=write_chat(tmp_path))
    samples = delivered(recipe)
    for i, sample in enumerate(samples):
        turns = [
            ("system", ["System."]),
            ("user", ["From the tag.", num_audio_tokens(FRAMES[i])]),
            ("assistant", [SPOKEN[i]["text"]]),
        ]
        check_delivered(sample, turns, [SOUNDS[i]])
        assert sample["tags"]["lang"] == "en"
    assert all_lengths(table_of(recipe)) == [len(sample["tokens"]) for sample in samples]


@each_format
def test_a_row_without_its_text_is_refused_with_its_place(tmp_path: Path, write: Any) -> None:
    source = with_form(write(tmp_path), "transcript")
    source["as_conversation"]["text"] = "no.such"
    with pytest.raises(
        PrepareError, match=r'(line 1|row 0|byte 0|sample "0").*as_conversation: field "no\.such" holds'
    ):
        prepare(recipe_of(tmp_path, source, template=write_chat(tmp_path)), workers=1)
    recipe = recipe_of(tmp_path, {**source, "tags": {"no.such": "constant"}}, template=write_chat(tmp_path))
    for i, sample in enumerate(delivered(recipe)):
        turns = [*expected(i, "transcript")[:-1], ("assistant", ["constant"])]
        check_delivered(sample, turns, [SOUNDS[i]])


@each_format
def test_without_a_template_the_conversation_is_delivered(tmp_path: Path, write: Any) -> None:
    samples = delivered(recipe_of(tmp_path, with_form(write(tmp_path), "transcript")))
    for i, sample in enumerate(samples):
        found = sample["conversation"]
        assert found.turns[-1].parts == (SPOKEN[i]["text"],)
        (part,) = found.media()
        assert part.media.rate == RATE
        assert part.media.value.tolist() == (SOUNDS[i].astype("float32") / 2**15).tolist()


def test_segments_of_a_manifest_have_the_tokens_of_their_duration(tmp_path: Path) -> None:
    rows = nemo_rows(tmp_path)
    write_jsonl(tmp_path / "m.json", [{**rows[1], "offset": 0.125, "duration": 0.25}])
    source = {"path": "m.json", "format": "nemo", "as_conversation": True}
    (sample,) = delivered(recipe_of(tmp_path, source, template=write_chat(tmp_path)))
    tokens = round(0.3 / SECONDS_PER_TOKEN)
    check_delivered(sample, [("user", [tokens]), ("assistant", [SPOKEN[1]["text"]])], [SOUNDS[1][1_000:3_000]])
    assert sample["id"] == "1.wav"


def test_skipped_rows_of_a_manifest_stay_left_out(tmp_path: Path) -> None:
    rows = nemo_rows(tmp_path)
    write_jsonl(tmp_path / "m.json", [{**rows[0], "_skipme": "why", "text": None}, rows[2]])
    source = {"path": "m.json", "format": "nemo", "as_conversation": True}
    (sample,) = delivered(recipe_of(tmp_path, source, template=write_chat(tmp_path)))
    check_delivered(sample, expected(2, "transcript"), [SOUNDS[2]])


@pytest.mark.parametrize(
    "value", [float("nan"), -1.0, 10**400, 1e30, "1"], ids=["nan", "negative", "huge", "long", "text"]
)
def test_a_duration_that_is_none_is_refused_with_its_row(tmp_path: Path, value: Any) -> None:
    rows = nemo_rows(tmp_path)
    write_jsonl(tmp_path / "m.json", [rows[0], {**rows[1], "duration": value}])
    source = {"path": "m.json", "format": "nemo", "as_conversation": True}
    with pytest.raises(PrepareError, match=r'm\.json, line 2, byte \d+: "duration" is not a valid time'):
        prepare(recipe_of(tmp_path, source, template=write_chat(tmp_path)), workers=1)


def test_texts_of_other_files_are_refused_where_tokens_are_counted(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "m.json", [{**row, "context": None} for row in nemo_rows(tmp_path)])
    (tmp_path / "contexts.txt").write_text("one\ntwo\nthree\n")
    extra = [{"name": "context", "path": "contexts.txt", "type": "text_iter"}]
    source = {"path": "m.json", "format": "nemo", "as_conversation": True, "options": {"extra_fields": extra}}
    with pytest.raises(PlayheadError, match=r'options\.extra_fields: the tokens of "context" cannot be counted'):
        delivered(recipe_of(tmp_path, source, template=write_chat(tmp_path)))


def test_rows_without_audio_and_formats_of_conversations_are_refused(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", [{"text": "x"}])
    source = {"path": "a.jsonl", "as_conversation": True}
    with pytest.raises(PlayheadError, match=r'as_conversation: field "audio" holds no audio'):
        delivered(recipe_of(tmp_path, source))
    with pytest.raises(RecipeError, match="the rows of this format are conversations already"):
        recipe_of(tmp_path, {**source, "format": "messages"})
