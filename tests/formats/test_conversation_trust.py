"""Which media the rows of conversations may name: rows are input, and those of a remote file name no local files."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from columnar_data import parquet
from conversation_data import audio_turn, check_delivered, delivered, recipe_of, text_turn, write_chat, write_wav
from loopback import serving
from nemo_data import encoded, signal
from playhead.errors import PlayheadError
from playhead.store import MEMORY
from small_data import write_tar

WAV = encoded(signal(800))
TURNS = [("user", [1]), ("assistant", ["x"])]


def multimodal(path: str) -> bytes:
    return json.dumps({"id": "c", "conversations": [audio_turn(path), text_turn("Assistant", "x")]}).encode() + b"\n"


def share_gpt(path: str) -> bytes:
    turns = [{"from": "human", "value": "<sound>"}, {"from": "gpt", "value": "x"}]
    return json.dumps({"id": "c", "sound": path, "conversations": turns}).encode() + b"\n"


def message_row(path: str) -> dict[str, Any]:
    content = [{"type": "audio_url", "audio_url": {"url": path}}]
    return {"id": "c", "messages": [{"role": "user", "content": content}, {"role": "assistant", "content": "x"}]}


def columns(path: str) -> bytes:
    row = message_row(path)
    row["messages"][1]["content"] = [{"type": "text", "text": "x"}]
    return parquet(pa.Table.from_pylist([row]), 1)


# The name of the manifest, the option for a folder of media, and a manifest that names a path.
FORMATS: dict[str, tuple[str, str, Any]] = {
    "multimodal_conversation": ("a.jsonl", "data_folder", multimodal),
    "share_gpt": ("a.jsonl", "audio_root", share_gpt),
    "messages": ("a.jsonl", "data_folder", lambda path: json.dumps(message_row(path)).encode() + b"\n"),
    "messages in an array": ("a.json", "data_folder", lambda path: json.dumps([message_row(path)]).encode()),
    "messages in columns": ("a.parquet", "data_folder", columns),
}
each_format = pytest.mark.parametrize("name", FORMATS)


def run(folder: Path, name: str, manifest: str, options: dict[str, Any] | None = None, **fields: Any) -> Any:
    source = {"path": manifest, "format": name.split(maxsplit=1)[0], "options": options or {}}
    (sample,) = delivered(recipe_of(folder, source, template=write_chat(folder), **fields))
    return sample


@each_format
@pytest.mark.parametrize("path", ["{folder}/a.wav", "../../{folder}/a.wav", "file://{folder}/a.wav"])
def test_rows_of_a_remote_manifest_name_no_local_files(tmp_path: Path, name: str, path: str) -> None:
    file, _, make = FORMATS[name]
    write_wav(tmp_path, "a.wav", 800)
    MEMORY.write(f"memory://{tmp_path.name}/deep/{file}", make(path.format(folder=tmp_path)))
    with pytest.raises(PlayheadError, match=r"may not name|is not an address|no such file|leaves its directory"):
        run(tmp_path, name, f"memory://{tmp_path.name}/deep/{file}")


@each_format
def test_rows_of_a_remote_manifest_name_media_beside_it_or_in_a_local_folder(tmp_path: Path, name: str) -> None:
    file, option, make = FORMATS[name]
    (tmp_path / "media").mkdir()
    local = write_wav(tmp_path / "media", "a.wav", 790)
    remote = f"memory://{tmp_path.name}/beside"
    MEMORY.write(f"{remote}/{file}", make("a.wav"))
    MEMORY.write(f"{remote}/a.wav", WAV)
    check_delivered(run(tmp_path, name, f"{remote}/{file}"), TURNS, [signal(800)])
    check_delivered(run(tmp_path, name, f"{remote}/{file}", {option: "media"}), TURNS, [local])
    for path in (f"{tmp_path}/media/a.wav", "../media/a.wav", "x/../../media/a.wav"):
        MEMORY.write(f"{remote}/{file}", make(path))
        with pytest.raises(PlayheadError, match="rows of a remote file may not name local paths outside the folder"):
            run(tmp_path, name, f"{remote}/{file}", {option: "media"})


@each_format
def test_urls_are_fetched_only_under_prefixes_that_the_recipe_allows(tmp_path: Path, name: str) -> None:
    file, _, make = FORMATS[name]
    with serving({"/media/a.wav": WAV, "/other/a.wav": WAV}) as server:
        allow = {"allow": [f"{server.address}/media/"]}
        (tmp_path / file).write_bytes(make(f"{server.address}/media/a.wav"))
        with pytest.raises(PlayheadError, match="is outside the locations that rows of this source may name"):
            run(tmp_path, name, file)
        assert server.requests == []
        check_delivered(run(tmp_path, name, file, media=allow), TURNS, [signal(800)])
        server.requests.clear()
        for path in ("other/a.wav", "media/../other/a.wav", "media/%2e%2e/other/a.wav"):
            (tmp_path / file).write_bytes(make(f"{server.address}/{path}"))
            with pytest.raises(PlayheadError, match=r"is outside the locations|leaves its directory"):
                run(tmp_path, name, file, media=allow)
        assert server.requests == []


@each_format
def test_a_remote_folder_of_media_holds_what_rows_name(tmp_path: Path, name: str) -> None:
    file, option, make = FORMATS[name]
    (tmp_path / file).write_bytes(make("deep/a.wav"))
    with serving({"/media/deep/a.wav": WAV, "/other/a.wav": WAV}) as server:
        options = {option: f"{server.address}/media"}
        check_delivered(run(tmp_path, name, file, options), TURNS, [signal(800)])
        server.requests.clear()
        (tmp_path / file).write_bytes(make("../other/a.wav"))
        with pytest.raises(PlayheadError, match=r"is outside the locations|leaves its directory"):
            run(tmp_path, name, file, options)
        assert server.requests == []


def test_a_manifest_of_a_server_names_media_beside_it(tmp_path: Path) -> None:
    objects = {"/set/a.jsonl": multimodal("wavs/a.wav"), "/set/wavs/a.wav": WAV, "/b.wav": WAV}
    with serving(objects) as server:
        address = f"{server.address}/set/a.jsonl"
        check_delivered(run(tmp_path, "multimodal_conversation", address), TURNS, [signal(800)])
        server.objects["/set/a.jsonl"] = multimodal("../b.wav")
        with pytest.raises(PlayheadError, match=r"is outside the locations|leaves its directory"):
            run(tmp_path, "multimodal_conversation", address)


def test_tars_of_a_server_are_read_with_their_manifest(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", [("b.wav", encoded(signal(8_000))), ("a.wav", WAV), ("c.wav", WAV)])
    objects = {"/set/a.jsonl": multimodal("a.wav"), "/set/a.tar": path.read_bytes()}
    with serving(objects) as server:
        options = {"tar": f"{server.address}/set/a.tar"}
        sample = run(tmp_path, "multimodal_conversation", f"{server.address}/set/a.jsonl", options)
        check_delivered(sample, TURNS, [signal(800)])


@pytest.mark.parametrize("path", ["/etc/passwd", "../a.wav", "http://127.0.0.1/a.wav"])
def test_names_of_members_are_names_and_never_paths(tmp_path: Path, path: str) -> None:
    write_tar(tmp_path / "a.tar", [("a.wav", WAV)])
    (tmp_path / "a.jsonl").write_bytes(multimodal(path))
    with pytest.raises(PlayheadError, match="its medium is not in the tar"):
        run(tmp_path, "multimodal_conversation", "a.jsonl", {"tar": "a.tar"})


def test_several_folders_of_media_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(multimodal("a.wav"))
    with pytest.raises(PlayheadError, match=r"options\.data_folder is one directory"):
        run(tmp_path, "multimodal_conversation", "a.jsonl", {"data_folder": ["x", "y"]})


def test_media_in_a_row_have_the_limits_of_others(tmp_path: Path) -> None:
    import base64

    file = io.BytesIO(encoded(signal(80_000)))
    data = base64.b64encode(file.getvalue()).decode()
    row = message_row(f"data:audio/wav;base64,{data}")
    (tmp_path / "a.json").write_text(json.dumps([row]))
    with pytest.raises(PlayheadError, match="is too large for one sample"):
        run(tmp_path, "messages", "a.json", media={"max_seconds": 5})
    with pytest.raises(PlayheadError, match="is too large for one sample"):
        run(tmp_path, "messages", "a.json", media={"max_bytes": 1000})
