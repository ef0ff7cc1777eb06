"""Conversations in the style of ShareGPT in tars that `webdataset` writes, with and without a list of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import webdataset
from webdataset.tariterators import group_by_keys, tar_file_iterator

from conversation_data import (
    assistant,
    check_delivered,
    conversations,
    delivered,
    num_audio_tokens,
    recipe_of,
    user,
    write_chat,
)
from nemo_data import encoded, signal
from playhead.errors import DataError, PrepareError
from playhead.prepare import prepare
from small_data import all_lengths, table_of, write_tar

FORMAT = "share_gpt_webdataset"
SOURCE = {"path": "data", "format": FORMAT}


def asked(text: str = "<sound> What?", answer: str = "It.", **more: Any) -> dict[str, Any]:
    return {"conversations": [{"from": "human", "value": text}, {"from": "gpt", "value": answer}], **more}


def write_shards(folder: Path, shards: dict[str, list[dict[str, Any]]]) -> None:
    for name, samples in shards.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        with webdataset.TarWriter(str(folder / name)) as writer:
            for sample in samples:
                writer.write(sample)


def sample_of(key: str, num_frames: int, **more: Any) -> dict[str, Any]:
    return {"__key__": key, "json": asked(answer=key, **more), "wav": encoded(signal(num_frames, num_frames))}


SHARDS = {
    "data/1/shard-0.tar": [sample_of("0", 800), sample_of("1", 1_600)],
    "data/0/shard-0.tar": [sample_of("0", 2_400, id="named"), {"__key__": "text", "json": asked("hi", "text")}],
}


def test_every_tar_of_a_directory_is_read_in_the_order_of_names(tmp_path: Path) -> None:
    write_shards(tmp_path, SHARDS)
    recipe = recipe_of(tmp_path, SOURCE, template=write_chat(tmp_path))
    samples = delivered(recipe)
    assert [sample["id"] for sample in samples] == ["named", "text", "0", "1"]
    for sample, answer, size in zip(samples[::2], ["0", "0"], [2_400, 800], strict=True):
        tokens = num_audio_tokens(size)
        check_delivered(sample, [("user", [tokens, "What?"]), ("assistant", [answer])], [signal(size, size)])
    check_delivered(samples[1], [("user", ["hi"]), ("assistant", ["text"])])
    assert all_lengths(table_of(recipe)) == [len(sample["tokens"]) for sample in samples]


def test_a_list_says_which_tars_and_how_many_samples(tmp_path: Path) -> None:
    write_shards(tmp_path, {**SHARDS, "data/unlisted.tar": [sample_of("9", 800)]})
    shards = [{"url": "1/shard-0.tar", "nsamples": 2}, {"url": "0/shard-0.tar", "nsamples": 2}]
    listed = {"name": "talks", "wids_version": 1, "shardlist": shards}
    (tmp_path / "data" / "wids-meta.json").write_text(json.dumps(listed))
    for path in ("data", "data/", "data/wids-meta.json"):
        found = conversations(tmp_path, {**SOURCE, "path": path})
        assert [each.turns[1] for each in found] == [assistant(name) for name in ("0", "1", "0", "text")]
    shards[0]["nsamples"] = 3
    (tmp_path / "data" / "wids-meta.json").write_text(json.dumps(listed))
    with pytest.raises(PrepareError, match=r"1/shard-0\.tar"):
        prepare(recipe_of(tmp_path, SOURCE), force=True)


@pytest.mark.parametrize("path", ["data/1/shard-0.tar", "data/1/*.tar", "data/1"])
def test_tars_may_be_named_themselves(tmp_path: Path, path: str) -> None:
    write_shards(tmp_path, SHARDS)
    assert [each.id for each in conversations(tmp_path, {**SOURCE, "path": path})] == ["0", "1"]


def test_samples_are_what_webdataset_reads(tmp_path: Path) -> None:
    write_shards(tmp_path, SHARDS)
    path = tmp_path / "data/1/shard-0.tar"
    found = conversations(tmp_path, {**SOURCE, "path": str(path)})
    with path.open("rb") as file:
        read = list(group_by_keys({**member, "__url__": str(path)} for member in tar_file_iterator(file)))
    for ours, theirs in zip(found, read, strict=True):
        (part,) = ours.media()
        assert ours.id == theirs["__key__"]
        assert bytes(part.media.data.part(0, part.media.data.size)) == theirs["wav"]  # type: ignore[union-attr]
        assert ours.turns[1] == assistant(json.loads(theirs["json"])["conversations"][1]["value"])


def test_the_media_may_come_first_and_samples_to_skip_are_left_out(tmp_path: Path) -> None:
    wav = encoded(signal(800))
    members = [
        ("a/0.flac", encoded(signal(900), "FLAC")),
        ("a/0.json", json.dumps(asked()).encode()),
        ("a/1.json", json.dumps(asked(_skipme=True)).encode()),
        ("a/1.wav", wav),
        ("a/2.wav", wav),
        ("a/2.json", json.dumps(asked(custom={"_skipme": "noisy"})).encode()),
        ("README", b"of no sample"),
        ("b/0.json", b"\n" + json.dumps(asked(custom={"n": 1})).encode() + b"\n"),
        ("b/0.wav", wav),
    ]
    write_tar(tmp_path / "x.tar", members)
    source = {**SOURCE, "path": "x.tar", "tags": {"lang": "en"}}
    found = conversations(tmp_path, source)
    assert [each.id for each in found] == ["a/0", "b/0"]
    assert found[1].tags == {"n": 1, "lang": "en"}
    (report,) = prepare(recipe_of(tmp_path, source), force=True).sources
    assert (report.num_rows, report.num_skipped) == (2, 3)


def test_several_recordings_of_a_sample_are_taken_in_their_order(tmp_path: Path) -> None:
    wavs = [encoded(signal(size)) for size in (800, 900)]
    members = [("0.b.wav", wavs[0]), ("0.a.wav", wavs[1]), ("0.json", json.dumps(asked("<sound>x<sound>")).encode())]
    write_tar(tmp_path / "x.tar", members)
    (found,) = conversations(tmp_path, {**SOURCE, "path": "x.tar"})
    assert [bytes(part.media.data.part(0, part.media.data.size)) for part in found.media()] == wavs  # type: ignore[union-attr]


def test_placeholders_are_those_of_the_recipe(tmp_path: Path) -> None:
    write_tar(tmp_path / "x.tar", [("0.json", json.dumps(asked("<sound> <a>")).encode()), ("0.wav", b"")])
    (found,) = conversations(tmp_path, {**SOURCE, "path": "x.tar", "options": {"placeholders": ["<a>"]}})
    (audio,) = found.media()
    assert found.turns == (user("<sound>", audio), assistant("It."))


def test_segments_of_the_recording_are_those_of_the_turn(tmp_path: Path) -> None:
    row = asked("<sound>")
    row["conversations"][0] |= {"offset": 0.05, "duration": [0.1]}
    write_tar(tmp_path / "x.tar", [("0.json", json.dumps(row).encode()), ("0.wav", encoded(signal(1_600, 1)))])
    (sample,) = delivered(recipe_of(tmp_path, {**SOURCE, "path": "x.tar"}, template=write_chat(tmp_path)))
    check_delivered(sample, [("user", [1]), ("assistant", ["It."])], [signal(1_600, 1)[400:1_200]])


WRONG: list[tuple[dict[str, bytes], str]] = [
    ({"wav": b"RIFF"}, "has no member of JSON"),
    ({"json": json.dumps(asked()).encode()}, 'conversation "bad": a placeholder without audio'),
    ({"json": json.dumps(asked("x")).encode(), "wav": b""}, 'conversation "bad": audio without a placeholder'),
    ({"json": b"[]", "wav": b""}, "not an object"),
    ({"json": b'{"conversations": [', "wav": b""}, "broken JSON"),
    ({"json": b'{"a":' + b"[" * 5_000 + b"]" * 5_000 + b"}"}, "the row is nested too deeply"),
    ({"json": b'{"id": [1], "conversations": []}'}, 'no id in field "id"'),
]


@pytest.mark.parametrize(("members", "problem"), WRONG)
def test_a_wrong_sample_is_refused_with_its_key_file_and_place(
    tmp_path: Path, members: dict[str, bytes], problem: str
) -> None:
    good = [("good.json", json.dumps(asked("x")).encode())]
    write_tar(tmp_path / "x.tar", good + [(f"bad.{name}", data) for name, data in members.items()])
    recipe = recipe_of(tmp_path, {**SOURCE, "path": "x.tar"}, template=write_chat(tmp_path))
    with pytest.raises(PrepareError, match=rf'x\.tar, byte 1,024, sample "bad": {problem}'):
        prepare(recipe, workers=1)


def test_a_wrong_sample_is_refused_when_it_is_read_without_lengths(tmp_path: Path) -> None:
    write_tar(tmp_path / "x.tar", [("bad.json", json.dumps(asked()).encode())])
    with pytest.raises(DataError, match=r'x\.tar, byte 0: conversation "bad": a placeholder without audio'):
        conversations(tmp_path, {**SOURCE, "path": "x.tar"})


def test_a_directory_without_tars_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with pytest.raises(PrepareError, match="data"):
        prepare(recipe_of(tmp_path, SOURCE))
