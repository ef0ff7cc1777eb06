"""Manifests and sidecars fetched to a local directory: the same stream, without asking the store for them again."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chat_data import messages_recipe, write_messages
from deliveries import deliver
from fetch_data import values_over, write_data
from loopback import Loopback, serving
from nemo_data import encoded, signal
from playhead import Loader, Recipe, RecipeError, SampleError, StoreError
from playhead.errors import PrepareError
from playhead.formats.sidecar import sidecar_path
from playhead.prepare import prepare
from playhead.prepare.fetch import fetch
from playhead.store import MEMORY
from playhead.store.copies import copy_path, load_copies
from small_data import bytes_of


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data with sidecars beside it."""
    folder = tmp_path_factory.mktemp("data")
    write_data(folder)
    cache = tmp_path_factory.mktemp("cache")
    prepare(Recipe.parse(values_over(str(folder), cache)), workers=1, sidecars=True)
    return folder


@pytest.fixture
def server(data: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Loopback]:
    """The data in a bucket."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    with serving({f"/data/{name}": content for name, content in bytes_of(data).items()}) as found:
        for name, value in found.environment().items():
            monkeypatch.setenv(name, value)
        yield found


def outcomes(report: Any) -> dict[tuple[str, str], int]:
    found: dict[tuple[str, str], int] = {}
    for file in report.files:
        found[file.kind, file.outcome] = found.get((file.kind, file.outcome), 0) + 1
    return found


def test_from_the_copies_every_batch_and_state_is_the_same_and_the_store_is_not_asked_for_manifests(
    tmp_path: Path, server: Loopback
) -> None:
    recipe = Recipe.parse(values_over("s3://data", tmp_path / "cache"))
    prepare(recipe, workers=1)
    expected = [*deliver(Loader(recipe))]
    report = fetch(recipe, tmp_path / "near", manifests=True, indexes=True)
    # 2 + 2 manifests, 3 files of cuts, 1 list, 3 of text; sidecars of all but compressed cuts and lists, and of tars.
    assert outcomes(report) == {("manifest", "copied"): 11, ("index", "copied"): 14}
    near = Recipe.load(tmp_path / "near" / "recipe.yaml")
    assert near == Recipe.parse(
        {**recipe.to_dict(), "copies": str(tmp_path / "near"), "indexes_root": str(tmp_path / "near" / "indexes")}
    )
    server.requests.clear()
    assert not prepare(near, workers=1).changed
    assert [*deliver(Loader(near))] == expected
    assert [*deliver(Loader(near, workers=2))] == expected
    assert [request for request in server.requests if "list-type" in request or ".json" in request] == []
    assert any("wavs/0.wav" in request for request in server.requests)


def test_an_index_made_from_the_copies_is_that_of_the_originals(tmp_path: Path, server: Loopback) -> None:
    made = []
    for where in ("far", "near"):
        recipe = Recipe.parse(values_over("s3://data", tmp_path / where))
        if where == "near":
            fetch(recipe, tmp_path / "copies", manifests=True, indexes=True)
            recipe = Recipe.load(tmp_path / "copies" / "recipe.yaml")
        prepare(recipe, workers=1)
        made.append({name: content for name, content in bytes_of(tmp_path / where).items() if name.endswith(".npy")})
    assert made[0] == made[1]
    assert made[0]


def test_what_is_there_is_kept_and_what_changed_is_copied_again(tmp_path: Path, server: Loopback) -> None:
    recipe = Recipe.parse(values_over("s3://data", tmp_path / "cache"))
    assert outcomes(fetch(recipe, tmp_path / "near", manifests=True, indexes=True, dry_run=True)) == {
        ("manifest", "to copy"): 11,
        ("index", "to copy"): 14,
    }
    assert not (tmp_path / "near").exists()
    fetch(recipe, tmp_path / "near", manifests=True, indexes=True)
    before = bytes_of(tmp_path / "near")
    assert outcomes(fetch(recipe, tmp_path / "near", manifests=True, indexes=True)) == {
        ("manifest", "present"): 11,
        ("index", "present"): 14,
    }
    assert bytes_of(tmp_path / "near") == before
    changed = server.objects["/data/text/1.jsonl"] + b'{"id": "new", "n": 3}\n'
    server.objects["/data/text/1.jsonl"] = changed
    found = outcomes(fetch(recipe, tmp_path / "near", manifests=True, indexes=True))
    assert found[("manifest", "copied")] == 1
    copy = copy_path(str(tmp_path / "near"), "s3://data/text/1.jsonl")
    assert copy.read_bytes() == changed
    copy.write_bytes(changed[:-5])
    assert outcomes(fetch(recipe, tmp_path / "near", manifests=True, indexes=True))[("manifest", "copied")] == 1
    assert copy.read_bytes() == changed
    assert (
        outcomes(fetch(recipe, tmp_path / "near", manifests=True, indexes=True, force=True))[("manifest", "copied")]
        == 11
    )


def test_a_file_that_fails_is_named_and_the_others_are_kept_for_the_next_run(tmp_path: Path, server: Loopback) -> None:
    recipe = Recipe.parse(values_over("s3://data", tmp_path / "cache"))
    needed = dict(server.objects)
    fetch(recipe, tmp_path / "near", manifests=True)
    shutil.rmtree(tmp_path / "near")
    # A file that becomes a directory cannot be written.
    copy_path(str(tmp_path / "near"), "s3://data/text/2.jsonl").mkdir(parents=True)
    with pytest.raises(PrepareError, match="fetching could not finish: 1 file") as caught:
        fetch(recipe, tmp_path / "near", manifests=True)
    assert [failure.place for failure in caught.value.failures] == ["s3://data/text/2.jsonl"]
    assert not (tmp_path / "near" / "recipe.yaml").exists()
    assert len(load_copies(str(tmp_path / "near")).files) == 10
    copy_path(str(tmp_path / "near"), "s3://data/text/2.jsonl").rmdir()
    found = outcomes(fetch(recipe, tmp_path / "near", manifests=True))
    assert found == {("manifest", "present"): 10, ("manifest", "copied"): 1}
    assert server.objects == needed
    # A copy that is to be replaced is off the list before it is touched: nobody reads one version as another.
    server.objects["/data/text/2.jsonl"] += b"\n"
    copy = copy_path(str(tmp_path / "near"), "s3://data/text/2.jsonl")
    copy.unlink()
    copy.mkdir()
    with pytest.raises(PrepareError, match="fetching could not finish: 1 file"):
        fetch(recipe, tmp_path / "near", manifests=True)
    assert "s3://data/text/2.jsonl" not in load_copies(str(tmp_path / "near")).files


def test_sidecars_that_are_wrong_or_missing_are_not_copied(tmp_path: Path, data: Path) -> None:
    folder = tmp_path / "data"
    shutil.copytree(data, folder)
    (folder / "text" / "0.jsonl.idx").write_bytes(b"")
    np.array([0, 5, 9], "<u8").tofile(folder / "text" / "1.jsonl.idx")
    (folder / "calls" / "manifest_0.json.idx").unlink()
    recipe = Recipe.parse(values_over(str(folder), tmp_path / "cache"))
    report = fetch(recipe, tmp_path / "near", indexes=True)
    by_outcome = {file.path.removeprefix(f"{folder}/"): file.outcome for file in report.files}
    assert {name for name, outcome in by_outcome.items() if outcome == "invalid"} == {"text/0.jsonl", "text/1.jsonl"}
    assert {name for name, outcome in by_outcome.items() if outcome == "missing"} == {"calls/manifest_0.json"}
    copied = [file.path for file in report.files if file.outcome == "copied"]
    for path in copied:
        assert (
            Path(sidecar_path(path, str(tmp_path / "near" / "indexes"))).read_bytes()
            == Path(f"{path}.idx").read_bytes()
        )
    near = Recipe.load(tmp_path / "near" / "recipe.yaml")
    assert (near.copies, near.indexes_root) == (None, str(tmp_path / "near" / "indexes"))
    # Those under a root are found there, too.
    again = fetch(near, tmp_path / "nearer", indexes=True)
    assert sorted(file.path for file in again.files if file.outcome == "copied") == sorted(copied)


def test_a_copy_that_is_damaged_or_another_version_is_refused(tmp_path: Path, server: Loopback) -> None:
    recipe = Recipe.parse(values_over("s3://data", tmp_path / "cache"))
    prepare(recipe, workers=1)
    fetch(recipe, tmp_path / "near", manifests=True, indexes=True)
    near = Recipe.load(tmp_path / "near" / "recipe.yaml")
    copy = copy_path(str(tmp_path / "near"), "s3://data/text/0.jsonl")
    content = copy.read_bytes()
    copy.write_bytes(content[:-1])
    with pytest.raises(StoreError, match="is damaged") as caught:
        [*Loader(near)]
    assert "run `playhead fetch` again" in str(caught.value)
    copy.unlink()
    with pytest.raises(StoreError, match="is missing"):
        [*Loader(near)]
    server.objects["/data/text/0.jsonl"] = content + b"\n"
    fetch(recipe, tmp_path / "near", manifests=True, indexes=True)
    with pytest.raises(StoreError, match=r"s3://data/text/0\.jsonl: changed since it was indexed"):
        [*Loader(near)]
    prepare(near, workers=1)
    assert [*deliver(Loader(near))]
    (tmp_path / "near" / "copies.json").unlink()
    with pytest.raises(RecipeError, match="holds no copies"):
        Loader(near)


def test_rows_of_a_remote_manifest_may_name_no_more_from_a_copy_than_before(tmp_path: Path, server: Loopback) -> None:
    (tmp_path / "secret.wav").write_bytes(encoded(signal(2_000)))
    row = {"audio_filepath": str(tmp_path / "secret.wav"), "duration": 0.25, "text": "t"}
    server.objects["/data/bad/manifest_0.json"] = json.dumps(row).encode() + b"\n"
    source = {"name": "bad", "path": "s3://data/bad/manifest_0.json", "format": "nemo"}
    recipe = Recipe.parse(values_over("s3://data", tmp_path / "cache", sources=[source], lanes=1))
    fetch(recipe, tmp_path / "near", manifests=True, indexes=True)
    near = Recipe.load(tmp_path / "near" / "recipe.yaml")
    prepare(near, workers=1)
    with pytest.raises(SampleError, match="rows of a remote file may not name local paths"):
        [*Loader(near)]


@pytest.mark.parametrize("named", ["template", "image", "neither"])
def test_a_recipe_whose_template_names_a_function_says_where_it_is_looked_for(tmp_path: Path, named: str) -> None:
    write_messages(tmp_path / "talks", 3)
    values = messages_recipe(tmp_path / "talks")
    if named == "template":
        values["template"] |= {"file": None, "function": "prompts:plain"}
    if named == "image":
        values["template"]["image"] = {"tag": "<|image|>", "function": "prompts:tokens"}
    report = fetch(
        Recipe.parse(values, tmp_path / "talks"), tmp_path / "near", manifests=True, indexes=True, dry_run=True
    )
    assert ["the recipe names functions" in note for note in report.notes] == ([] if named == "neither" else [True])


def test_names_stay_inside_the_directory(tmp_path: Path) -> None:
    for path in ("s3://data/../../etc/a.jsonl", "s3://data//a.jsonl", "http://host/%00/../a.jsonl"):
        with pytest.raises(Exception, match="cannot be copied under this name"):
            copy_path(str(tmp_path), path)
    assert copy_path("/near", "s3://b/k/m.jsonl") == Path("/near/files/s3/b/k/m.jsonl")
    assert copy_path("/near", "/b/k/m.jsonl") == Path("/near/files/local/b/k/m.jsonl")


def test_sidecars_of_two_stores_that_would_be_one_file_are_refused(tmp_path: Path, server: Loopback) -> None:
    for name in ("text/0.jsonl", "text/0.jsonl.idx"):
        MEMORY.write(f"memory://data/{name}", server.objects[f"/data/{name}"])
    sources = [{"name": scheme, "path": f"{scheme}://data/text/0.jsonl"} for scheme in ("s3", "memory")]
    recipe = Recipe.parse(values_over("", tmp_path / "cache", sources=sources))
    with pytest.raises(RecipeError, match="the sidecars of two files would be one"):
        fetch(recipe, tmp_path / "near", manifests=True, indexes=True)
    assert outcomes(fetch(recipe, tmp_path / "near", manifests=True)) == {("manifest", "copied"): 2}
    assert len([*(tmp_path / "near" / "files").rglob("*.jsonl")]) == 2
