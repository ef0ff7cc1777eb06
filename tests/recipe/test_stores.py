"""Endpoints and credentials source by source: two stores in one recipe, and no secret where it does not belong."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ais_server import ais_cluster
from columnar_data import wav
from loopback import Loopback, serving
from playhead import Loader, PlayheadError, Recipe, RecipeError, StoreError
from playhead.prepare import prepare
from playhead.prepare.fetch import fetch
from playhead.recipe.storage import files_of

SECRET = "not-to-be-shown"  # noqa: S105 - of this test


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("AWS_", "AIS_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("KEY_OF_TEST", SECRET)


@pytest.fixture
def servers() -> Iterator[list[Loopback]]:
    """Two servers that have one bucket each, with rows of their own."""
    with (
        serving({"/one/a.jsonl": rows(0), "/one/drop.txt": b"1\n"}) as first,
        serving({"/two/b.jsonl": rows(100)}) as second,
    ):
        yield [first, second]


def rows(first: int) -> bytes:
    return b"".join(json.dumps({"tokens": [first + i], "n": 1}).encode() + b"\n" for i in range(3))


def options(server: Loopback, **others: object) -> dict[str, object]:
    found = {"endpoint_url": server.address, "region": "loopback", "allow_http": True, "access_key_id": "loopback"}
    return {**found, "secret_access_key": "env:KEY_OF_TEST", **others}


def source(name: str, path: str, **others: object) -> dict[str, object]:
    return {"name": name, "path": path, "length": "n", "shuffle": "none", **others}


def recipe_of(tmp_path: Path, *sources: dict[str, object], **others: Any) -> Recipe:
    values = {"sources": list(sources), "batching": {"type": "fixed", "size": 1}, "epochs": 1, "lanes": 1}
    return Recipe.parse({**values, "cache_dir": "cache", **others}, base_dir=tmp_path)


def delivered(recipe: Recipe) -> list[int]:
    prepare(recipe)
    with Loader(recipe) as loader:
        return sorted(int(number) for batch in loader for number in batch["tokens"].ravel())


def test_two_sources_are_read_from_two_endpoints(tmp_path: Path, servers: list[Loopback]) -> None:
    first, second = servers
    recipe = recipe_of(
        tmp_path,
        source("a", "s3://one/a.jsonl", store=options(first), drop_rows="s3://one/drop.txt"),
        source("b", "s3://two/b.jsonl", store=options(second)),
    )
    assert delivered(recipe) == [0, 2, 100, 101, 102]
    assert all(request.split()[1].startswith("/one/") for request in first.requests)
    assert all(request.split()[1].startswith("/two/") for request in second.requests)
    written = "".join(path.read_bytes().decode("latin-1") for path in tmp_path.rglob("*") if path.is_file())
    assert SECRET not in written
    assert recipe.to_dict()["sources"][0]["store"] == options(first)
    assert Recipe.parse(recipe.to_dict()) == recipe


def test_noises_and_evaluation_sets_have_stores_of_their_own(tmp_path: Path, servers: list[Loopback]) -> None:
    first, second = servers
    chosen = {
        "sources": [source("b", "s3://two/b.jsonl", store=options(second))],
        "batching": {"type": "fixed", "size": 1},
    }
    recipe = recipe_of(tmp_path, source("a", "s3://one/a.jsonl", store=options(first)), evaluation={"dev": chosen})
    prepare(recipe)
    with Loader(recipe, split="dev") as loader:
        assert sorted(int(batch["tokens"][0, 0]) for batch in loader) == [100, 101, 102]


def test_stores_are_in_no_fingerprint(tmp_path: Path, servers: list[Loopback]) -> None:
    """The data may move to another endpoint: states and indexes stay."""
    first, second = servers
    second.objects |= first.objects
    recipes = [recipe_of(tmp_path, source("a", "s3://one/a.jsonl", store=options(server))) for server in servers]
    assert prepare(recipes[0]).changed
    assert not prepare(recipes[1]).changed
    with Loader(recipes[0]) as loader:
        next(iter(loader))
        state = loader.state_dict()
    with Loader(recipes[1]) as loader:
        loader.load_state_dict(state)
        assert [int(batch["tokens"][0, 0]) for batch in loader] == [1, 2]


def test_fetch_reads_with_the_options_of_the_sources(tmp_path: Path, servers: list[Loopback]) -> None:
    given = options(servers[0])
    recipe = recipe_of(tmp_path, source("a", "s3://one/a.jsonl", store=given), stores={"s3://two": given})
    prepare(recipe)
    report = fetch(recipe, tmp_path / "copies")
    assert [file.path for file in report.files if file.kind == "shard"] == ["s3://one/a.jsonl"]
    written = (tmp_path / "copies" / "recipe.yaml").read_text()
    assert SECRET not in written
    assert given["endpoint_url"] not in written  # nothing is read from there
    fetch(recipe, tmp_path / "manifests", manifests=True)
    written = (tmp_path / "manifests" / "recipe.yaml").read_text()
    assert SECRET not in written
    assert written.count("env:KEY_OF_TEST") == 2


def test_stores_that_only_rows_name_have_options_too(tmp_path: Path, servers: list[Loopback]) -> None:
    first, second = servers
    second.objects["/two/a b.wav"] = wav(160)
    line = {"audio_filepath": "s3://two/a b.wav", "duration": 0.01}
    (tmp_path / "manifest.jsonl").write_text(json.dumps(line) + "\n")
    recipe = recipe_of(
        tmp_path,
        {"name": "a", "path": "manifest.jsonl", "format": "nemo", "length": {"field": "duration", "unit": "seconds"}},
        media={"allow": ["s3://two/"]},
        stores={"s3://two": options(second)},
        sequence=None,
    )
    prepare(recipe)
    with Loader(recipe) as loader:
        (batch,) = loader
    assert batch["audio"].shape == (1, 160)
    assert "env:KEY_OF_TEST" in json.dumps(recipe.to_dict()["stores"])
    assert Recipe.parse(recipe.to_dict()) == recipe
    with pytest.raises(RecipeError, match=r"sources\[0\]\.store and stores\.s3://one are for one store"):
        recipe_of(
            tmp_path,
            source("a", "s3://one/a.jsonl", store=options(first)),
            stores={"s3://one": options(second)},
        )


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("s3://two/audio", "s3://two/audio is no store"),
        ("/local", "is no store"),
        ("https://host?key=not-to-be-shown", "https://host/ is no store|a web address with a query"),
        ("s3://two", r"stores\.s3://two\.endpiont: s3://two has no such option"),
    ],
)
def test_options_of_what_is_no_store_are_refused(tmp_path: Path, url: str, words: str) -> None:
    with pytest.raises(PlayheadError, match=words) as caught:
        recipe_of(tmp_path, source("a", "a.jsonl"), stores={url: {"endpiont": "x"}})
    assert SECRET not in str(caught.value)


def test_a_bucket_of_aistore_has_options_too(tmp_path: Path) -> None:
    with ais_cluster({"bucket/a.jsonl": rows(0)}) as ais:
        ais.token = SECRET
        store = {"endpoint_url": ais.endpoint, "authn_token": "env:KEY_OF_TEST"}
        assert delivered(recipe_of(tmp_path, source("a", "ais://bucket/a.jsonl", store=store))) == [0, 1, 2]


def test_a_store_named_by_two_sources_has_one_set_of_options(tmp_path: Path, servers: list[Loopback]) -> None:
    first, second = servers
    plain = {**options(second), "secret_access_key": SECRET}
    with pytest.raises(
        RecipeError, match=r"sources\[1\]\.store and sources\[0\]\.store are for one store, s3://one"
    ) as caught:
        recipe_of(
            tmp_path, source("a", "s3://one/a.jsonl", store=options(first)), source("b", "s3://one/b", store=plain)
        )
    assert "endpoint_url, secret_access_key" in str(caught.value.found)
    assert SECRET not in str(caught.value)
    recipe = recipe_of(tmp_path, source("a", "s3://one/a.jsonl", store=options(first)), source("b", "s3://one/a.jsonl"))
    assert delivered(recipe) == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize(
    ("path", "store", "words"),
    [
        ("s3://one/a.jsonl", {"endpiont": "x"}, r"sources\[0\]\.store\.endpiont: s3://one has no such option"),
        ("http://127.0.0.1/a.jsonl", {"region": "x"}, "has no such option"),
        ("ais://one/a.jsonl", {"region": "x"}, "has no such option"),
        ("a.jsonl", {"region": "x"}, "names no store"),
        ("memory://a.jsonl", {"region": "x"}, "names no store"),
    ],
)
def test_options_that_a_store_does_not_have_are_refused(tmp_path: Path, path: str, store: object, words: str) -> None:
    with pytest.raises(RecipeError, match=words):
        recipe_of(tmp_path, source("a", path, store=store))


def test_a_value_that_cannot_be_used_is_an_error_without_it(tmp_path: Path, servers: list[Loopback]) -> None:
    recipe = recipe_of(tmp_path, source("a", "s3://one/a.jsonl", store=options(servers[0], timeout="env:KEY_OF_TEST")))
    with pytest.raises(StoreError, match="its options cannot be used") as caught:
        files_of(recipe, "build").stamp("s3://one/a.jsonl")
    assert caught.value.found == "a value of timeout that is not allowed"
    assert SECRET not in str(caught.value)


def test_a_variable_that_is_not_set_is_said(
    tmp_path: Path, servers: list[Loopback], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KEY_OF_TEST")
    recipe = recipe_of(tmp_path, source("a", "s3://one/a.jsonl", store=options(servers[0])))
    with pytest.raises(PlayheadError, match="option secret_access_key cannot be looked up"):
        prepare(recipe)
