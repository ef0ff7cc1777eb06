"""All that some steps need, fetched: the same batches with the store switched off."""

from __future__ import annotations

import gzip
import json
import shutil
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from corpora import lengths_of, recipe_in
from deliveries import deliver, write_tokens
from fetch_data import LANES, bucket, delivered, near, num_files, prepared, text_values, values_over, write_data
from nemo_data import encoded, signal
from playhead import Loader, StoreError
from playhead.errors import EndOfStreamError, PlayheadError, PrepareError, WorldSizeError
from playhead.feed.rank_stream import RankStream
from playhead.prepare import prepare
from playhead.prepare.fetch import fetch
from playhead.prepare.fetch_steps import StepsWanted, ranks_of_node
from playhead.read.needs import needed_steps
from playhead.store.copies import copy_path, load_copies
from small_data import bytes_of, write_jsonl


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    write_tokens(folder, "text", lengths_of(1, 12, 20, 30))
    return folder


@pytest.mark.parametrize("with_augments", [False, True])
def test_batches_of_every_format_are_the_same_with_the_store_switched_off(tmp_path: Path, with_augments: bool) -> None:
    write_data(tmp_path / "data")
    fields: dict[str, Any] = {"lanes": LANES, "epochs": None}
    if with_augments:
        for i in range(3):
            (tmp_path / "data" / "calls" / f"noise-{i}.wav").write_bytes(encoded(signal(2_000 + i, 7 + i)))
        rows = [{"audio_filepath": f"noise-{i}.wav", "duration": (2_000 + i) / 8_000, "text": ""} for i in range(3)]
        write_jsonl(tmp_path / "data" / "calls" / "noise.json", rows)
        fields["noises"] = [{"name": "hum", "path": "s3://data/calls/noise.json", "format": "nemo"}]
        fields["augment"] = [{"type": "noise", "source": "hum", "snr": [5, 10]}]
    with bucket(tmp_path / "data"):
        values = values_over("s3://data", tmp_path / "cache", **fields)
        if with_augments:
            values["sources"] = values["sources"][:2]
        recipe = prepared(values)
        expected = {world: delivered(recipe, 6, world) for world in (1, 2, 4)}
        report = fetch(recipe, tmp_path / "near", steps=StepsWanted(6))
        assert report.steps == "steps 0 to 5"
        assert (report.problems, {file.outcome for file in report.files}) == ((), {"copied"})
        again = fetch(recipe, tmp_path / "near", steps=StepsWanted(6))
        assert {file.outcome for file in again.files} == {"present"}
    shutil.rmtree(tmp_path / "cache")
    (tmp_path / "near").rename(tmp_path / "moved")
    moved = near(tmp_path / "moved")
    assert moved.cache_dir == str(tmp_path / "moved" / "cache")
    for world, batches in expected.items():
        assert delivered(moved, 6, world) == batches
    assert delivered(moved, 6, workers=2) == expected[1]


def test_only_the_shards_of_the_steps_are_copied_and_a_later_step_says_to_fetch_more(
    tmp_path: Path, shards: Path
) -> None:
    with bucket(shards):
        recipe = prepared(text_values("s3://data", tmp_path / "cache"))
        report = fetch(recipe, tmp_path / "near", steps=StepsWanted(4))
        expected = delivered(recipe, 4)
        later = delivered(recipe, 20)
    opened = RankStream(recipe, None, 0, 1)
    needed = {file.path for step in islice(needed_steps(opened.plan, opened.sources), 4) for file in step.files}
    assert {file.path for file in report.files if file.kind == "shard"} == needed
    assert 2 <= len(needed) <= 6
    assert delivered(near(tmp_path / "near"), 4) == expected
    with pytest.raises(StoreError, match=r"s3://data/text-\d+.jsonl: has no copy in .*near") as caught:
        delivered(near(tmp_path / "near"), 20)
    assert "copies for steps 0 to 3" in str(caught.value)
    assert "--steps" in str(caught.value)
    with bucket(shards):
        more = fetch(recipe, tmp_path / "near", steps=StepsWanted(16, first=4))
        assert {file.outcome for file in more.files if "text-" in Path(file.path).name} == {"present", "copied"}
        assert {file.outcome for file in more.files if "selection-" in file.path} == {"present"}
    assert delivered(near(tmp_path / "near"), 20) == later


def test_without_a_number_of_steps_everything_is_fetched_evaluation_sets_too(tmp_path: Path) -> None:
    write_data(tmp_path / "data")
    with bucket(tmp_path / "data"):
        dev = {"sources": [{"name": "dev", "path": "s3://data/text/1.jsonl"}], "batching": {"type": "fixed", "size": 2}}
        fields: dict[str, Any] = {"lanes": LANES, "epochs": None, "evaluation": {"dev": dev}}
        recipe = prepared(values_over("s3://data", tmp_path / "cache", **fields))
        expected = delivered(recipe, 60)
        with Loader(recipe, split="dev", rank=0, world_size=1) as loader:
            dev_batches = [*deliver(loader)]
        report = fetch(recipe, tmp_path / "near")
        indexed = {path for _, table in RankStream(recipe, None, 0, 1).sources[0] for path in table.index.stamps}
    assert report.steps == "all steps and evaluation set dev"
    assert report.problems == ()
    assert {file.path for file in report.files if file.kind == "shard"} >= indexed
    shutil.rmtree(tmp_path / "cache")
    assert delivered(near(tmp_path / "near"), 60) == expected
    with Loader(near(tmp_path / "near"), split="dev", rank=0, world_size=1) as loader:
        assert [*deliver(loader)] == dev_batches


def test_a_disk_without_room_is_refused_before_anything_is_copied(
    tmp_path: Path, shards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = prepared(text_values(str(shards), tmp_path / "cache"))
    usage = shutil.disk_usage(tmp_path)
    size = sum(path.stat().st_size for path in shards.iterdir())
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=size - 1))
    with pytest.raises(PrepareError, match=f"{size:,} for 12 files") as caught:
        fetch(recipe, tmp_path / "near")
    assert "--steps" in str(caught.value)
    assert not (tmp_path / "near" / "files").exists()
    fetch(recipe, tmp_path / "near", steps=StepsWanted(4))
    fetch(recipe, tmp_path / "near")  # what is there needs no room


def test_copies_that_are_replaced_take_room_twice_only_while_they_are_copied(
    tmp_path: Path, shards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = prepared(text_values(str(shards), tmp_path / "cache"))
    fetch(recipe, tmp_path / "near")
    sizes = sorted(path.stat().st_size for path in shards.iterdir())
    usage = shutil.disk_usage(tmp_path)

    def with_free(num_bytes: int) -> None:
        monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=num_bytes))

    with_free(sum(sizes[-2:]) - 1)
    with pytest.raises(PrepareError, match=f"{sum(sizes[-2:]):,} for 12 files"):
        fetch(recipe, tmp_path / "near", force=True, workers=2)
    with_free(sum(sizes[-2:]))
    report = fetch(recipe, tmp_path / "near", force=True, workers=2)
    assert {file.outcome for file in report.files if file.kind == "shard"} == {"copied"}
    grown = next(path for path in shards.iterdir() if path.stat().st_size == sizes[0])
    grown.write_bytes(grown.read_bytes() + b"\n" * 100)
    prepare(recipe, workers=1)
    with_free(sizes[0] + 99)
    with pytest.raises(PrepareError, match=f"{sizes[0] + 100:,} for 1 file\n"):
        fetch(recipe, tmp_path / "near")


@pytest.mark.parametrize("changed", [False, True])
def test_an_old_copy_stays_until_the_new_one_is_whole(tmp_path: Path, shards: Path, changed: bool) -> None:
    recipe = prepared(text_values(str(shards), tmp_path / "cache"))
    fetch(recipe, tmp_path / "near", steps=StepsWanted(2))
    expected = delivered(recipe, 2)
    if changed:
        for path in shards.iterdir():
            path.write_bytes(path.read_bytes() + b"\n")
        prepare(recipe, workers=1)

    class Full(BaseException):
        pass

    def fail(done: Any) -> None:
        if done.done_bytes:
            raise Full

    with pytest.raises(Full):
        fetch(recipe, tmp_path / "near", steps=StepsWanted(2), force=True, progress=fail)
    assert [*(tmp_path / "near").rglob(".*.partial")]
    assert delivered(near(tmp_path / "near"), 2) == expected
    fetch(recipe, tmp_path / "near", steps=StepsWanted(2))
    assert [*(tmp_path / "near").rglob(".*.partial")] == []
    assert delivered(near(tmp_path / "near"), 2) == delivered(recipe, 2)


def test_steps_are_fetched_from_a_state_on(tmp_path: Path, shards: Path) -> None:
    recipe = prepared(text_values(str(shards), tmp_path / "cache"))
    with Loader(recipe) as loader:
        for _ in islice(loader, 9 * LANES):
            pass
        state = loader.state_dict()
    report = fetch(recipe, tmp_path / "near", steps=StepsWanted(3, state=state))
    assert report.steps == "steps 9 to 11"
    expected = delivered(recipe, 3, 2, state)
    shutil.rmtree(shards)
    assert delivered(near(tmp_path / "near"), 3, 2, state) == expected
    assert num_files(report, "shard") < 12


def test_a_node_fetches_what_its_ranks_need(tmp_path: Path, shards: Path) -> None:
    recipe = prepared(text_values(str(shards), tmp_path / "cache", parts=2))
    assert [ranks_of_node(node, 2, 4) for node in range(2)] == [(0, 1), (2, 3)]
    # With two parts, ranks 0 and 2 read one part, ranks 1 and 3 the other.
    counts = {}
    for ranks in ((0, 2), (1, 3), (0,), None):
        to = tmp_path / f"near-{ranks}"
        report = fetch(recipe, to, steps=StepsWanted(20, ranks=ranks, world_size=4))
        counts[ranks] = {file.path for file in report.files if file.kind == "shard"}
    assert counts[(0, 2)] >= counts[(0,)]
    assert counts[(0, 2)].isdisjoint(counts[(1, 3)])
    assert counts[(0, 2)] | counts[(1, 3)] == counts[None]
    with pytest.raises(WorldSizeError):
        fetch(recipe, tmp_path / "none", steps=StepsWanted(1, ranks=(0,), world_size=3))
    expected = delivered(recipe, 20, 4)
    shutil.rmtree(shards)
    with Loader(near(tmp_path / "near-(0, 2)"), rank=2, world_size=4) as loader:
        assert [*deliver(loader, 20)] == expected[2]
    with (
        Loader(near(tmp_path / "near-(0, 2)"), rank=1, world_size=4) as loader,
        pytest.raises(StoreError, match="copies for steps 0 to 19 of ranks 0, 2 of 4"),
    ):
        next(iter(loader))
    with pytest.raises(PlayheadError, match="node 2 of 2 nodes does not exist"):
        ranks_of_node(2, 2, 4)


def test_compressed_lines_lists_of_ids_and_evaluation_sets_are_there_too(tmp_path: Path, shards: Path) -> None:
    for path in sorted(shards.glob("text-*.jsonl"))[:4]:
        (shards / f"zipped-{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    write_tokens(shards, "dev", lengths_of(3, 2, 9, 30))
    (shards / "dropped.txt").write_text("text-0-0\ntext-1-3\n")
    with bucket(shards):
        source = {"name": "zip", "path": "s3://data/zipped-*.gz", "format": "jsonl", "length": "n", "ids": "id"}
        source |= {"drop_ids": "s3://data/dropped.txt"}
        dev = {
            "sources": [{"name": "dev", "path": "s3://data/dev-*.jsonl", "length": "n"}],
            "batching": {"type": "fixed", "size": 2},
        }
        recipe = prepared(text_values("", tmp_path / "cache", sources=[source], evaluation={"dev": dev}))
        expected = delivered(recipe, 5)
        evaluated = [batch["id"] for batch in Loader(recipe, split="dev")]
        fetch(recipe, tmp_path / "near", steps=StepsWanted(5, splits=("dev",)))
        fetch(recipe, tmp_path / "without", steps=StepsWanted(5))
    shutil.rmtree(tmp_path / "cache")
    assert delivered(near(tmp_path / "near"), 5) == expected
    assert [batch["id"] for batch in Loader(near(tmp_path / "near"), split="dev")] == evaluated
    assert delivered(near(tmp_path / "without"), 5) == expected
    with pytest.raises(PlayheadError, match="is not prepared"):
        Loader(near(tmp_path / "without"), split="dev")


def test_media_that_do_not_exist_are_named_and_stay_bad_samples(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    (folder / "wavs").mkdir(parents=True)
    for i in range(5):
        (folder / "wavs" / f"{i}.wav").write_bytes(encoded(signal(2_000 + i, i)))
    rows = [{"audio_filepath": f"wavs/{i}.wav", "duration": (2_000 + i) / 8_000, "text": "t"} for i in range(6)]
    rows.append({"audio_filepath": "http://169.254.169.254/a.wav", "duration": 0.25, "text": "t"})
    write_jsonl(folder / "calls.json", rows)
    source = {"name": "calls", "path": f"{folder}/calls.json", "format": "nemo", "shuffle": "none"}
    values = text_values("", tmp_path / "cache", sources=[source], lanes=1, collate="list", sequence=None, epochs=1)
    recipe = prepared({**values, "on_error": "substitute", "max_bad": 0.9, "batching": {"type": "fixed", "size": 7}})
    with Loader(recipe) as loader:
        expected = [*deliver(loader)]
    shutil.rmtree(tmp_path / "cache" / "quarantine")
    report = fetch(recipe, tmp_path / "near", steps=StepsWanted(3))
    assert [file.path for file in report.files if file.outcome == "missing"] == [f"{folder}/wavs/5.wav"]
    (problem,) = report.problems
    assert problem.startswith(f'source "calls", row 6 ({folder}/calls.json, byte ')
    assert "169.254.169.254" in problem
    assert any("the stream ends after step 0: 1 steps were fetched" in note for note in report.notes)
    assert any("replaces bad samples" in note for note in report.notes)
    shutil.rmtree(folder)
    with Loader(near(tmp_path / "near")) as loader:
        assert [*deliver(loader)] == expected


def test_a_shard_that_changed_since_it_was_indexed_is_refused(tmp_path: Path, shards: Path) -> None:
    recipe = prepared(text_values(str(shards), tmp_path / "cache"))
    for path in shards.glob("text-*.jsonl"):
        path.write_bytes(path.read_bytes() + b"\n")
    with pytest.raises(PrepareError, match="changed since it was indexed"):
        fetch(recipe, tmp_path / "near", steps=StepsWanted(2))
    assert not (tmp_path / "near" / "recipe.yaml").exists()


def test_a_fetch_that_fails_leaves_what_was_fetched_usable(tmp_path: Path, shards: Path) -> None:
    """Whether the store has other files now, or none at all."""
    with bucket(shards) as server:
        recipe = prepared(text_values("s3://data", tmp_path / "cache"))
        fetch(recipe, tmp_path / "near", steps=StepsWanted(4))
        expected = delivered(recipe, 4)
        copied = list(load_copies(str(tmp_path / "near")).files)
        server.objects[copied[0].replace("s3:/", "", 1)] += b'{"n": 1}\n'
        del server.objects[copied[1].replace("s3:/", "", 1)]
        with pytest.raises(PrepareError, match="2 files"):
            fetch(recipe, tmp_path / "near", steps=StepsWanted(4))
    assert delivered(near(tmp_path / "near"), 4) == expected


def test_copies_whose_bytes_changed_are_found_by_their_digests(tmp_path: Path, shards: Path) -> None:
    recipe = prepared(text_values(str(shards), tmp_path / "cache"))
    report = fetch(recipe, tmp_path / "near", steps=StepsWanted(2))
    before = bytes_of(tmp_path / "near")
    broken = [Path(file.copy) for file in report.files if file.kind == "shard"][:1]
    broken += [next((tmp_path / "near" / "cache").rglob("lengths.npy"))]
    for path in broken:
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
    assert {file.outcome for file in fetch(recipe, tmp_path / "near", steps=StepsWanted(2)).files} == {"present"}
    found = fetch(recipe, tmp_path / "near", steps=StepsWanted(2), verify=True)
    copied = [file for file in found.files if file.outcome == "copied"]
    assert [file.copy for file in copied if file.kind == "shard"] == [str(broken[0])]
    assert {str(broken[1].parent)} < {file.copy for file in copied}
    assert bytes_of(tmp_path / "near") == before


def test_a_dry_run_says_what_would_be_copied(tmp_path: Path, shards: Path) -> None:
    recipe = prepared(text_values(str(shards), tmp_path / "cache"))
    planned = fetch(recipe, tmp_path / "near", steps=StepsWanted(2), dry_run=True)
    assert not (tmp_path / "near").exists()
    done = fetch(recipe, tmp_path / "near", steps=StepsWanted(2))
    kept = [(file.path, file.kind, file.num_bytes, file.copy) for file in done.files]
    assert [(file.path, file.kind, file.num_bytes, file.copy) for file in planned.files] == kept
    assert {file.outcome for file in planned.files} == {"to copy"}


def test_the_recipe_that_is_written_has_no_secrets_and_no_shard_cache(tmp_path: Path, shards: Path) -> None:
    """It reads nothing but copies on a local disk: it asks no store, and needs no copies of copies."""
    with bucket(shards) as server:
        values = text_values(
            "s3://data", tmp_path / "cache", shard_cache={"dir": str(tmp_path / "sc"), "max_bytes": 1 << 20}
        )
        values["sources"][0]["store"] = {"endpoint_url": server.address, "secret_access_key": "do-not-tell"}
        dev = {**values["sources"][0], "name": "dev", "shuffle": "none", "shuffle_group": 8}
        values["evaluation"] = {"dev": {"sources": [dev], "batching": {"type": "fixed", "size": 2}, "lanes": LANES}}
        recipe = prepared(values)
        report = fetch(recipe, tmp_path / "near", steps=StepsWanted(4))
        expected = delivered(recipe, 4)
    assert any("shard_cache" in note for note in report.notes)
    assert [path for path in tmp_path.rglob("near/**/*") if path.is_file() and b"tell" in path.read_bytes()] == []
    shutil.rmtree(tmp_path / "sc")
    assert delivered(near(tmp_path / "near"), 4) == expected
    assert not (tmp_path / "sc").exists()


def test_what_is_finished_is_on_the_list_while_the_rest_is_copied(tmp_path: Path, shards: Path) -> None:
    """A kill makes little be copied again, however soon after the last one it comes."""
    listed: list[int] = []
    root = tmp_path / "near"
    fetch(
        prepared(text_values(str(shards), tmp_path / "cache")),
        root,
        steps=StepsWanted(40),
        workers=1,
        progress=lambda _: listed.append(len(found.files) if (found := load_copies(str(root))) else 0),
    )
    assert any(0 < count < len(load_copies(str(root)).files) for count in listed)


def test_names_that_no_file_can_have_are_copied_or_named(tmp_path: Path) -> None:
    """Keys of objects may be longer than names of files; a row may name what is no text."""
    folder = tmp_path / "data"
    folder.mkdir()
    long = "ü" * 150 + ".wav"
    rows = [{"a": long, "n": 1}, {"a": "a.wav", "n": 1}, {"a": "\ud800.wav", "n": 1}]
    rows += [{"a": "b\0.wav", "n": 1}, {"a": "b\0.wav", "n": 1}]
    write_jsonl(folder / "rows.jsonl", rows)
    (folder / "a.wav").write_bytes(encoded(signal(900, 1)))
    with bucket(folder) as server:
        server.objects[f"/data/{long}"] = encoded(signal(1_000, 0))
        source = {"name": "text", "path": "s3://data/rows.jsonl", "shuffle": "none"}
        source["options"] = {"media": {"audio": {"path": "a"}}}
        fields = {
            "lanes": 1,
            "on_error": "substitute",
            "max_bad": 0.9,
            "epochs": 1,
            "sequence": None,
            "collate": "list",
        }
        recipe = prepared(text_values("", tmp_path / "cache", **fields, sources=[source]))
        report = fetch(recipe, tmp_path / "near", steps=StepsWanted(2))
        expected = delivered(recipe, 1)
    assert [file.outcome for file in report.files if file.kind == "media"] == ["copied"] * 2
    assert [problem.partition(", byte")[0] for problem in report.problems] == [
        f'source "text", row {row} (s3://data/rows.jsonl' for row in (2, 3)
    ]
    assert "'\\ud800.wav': is the name of a medium, but no file can have it" in report.problems[0]
    assert report.problems[1].endswith("'b\\x00.wav': is the name of a medium, but no file can have it (in 2 rows)")
    assert delivered(near(tmp_path / "near"), 1) == expected


def test_steps_past_the_end_are_refused(tmp_path: Path, shards: Path) -> None:
    recipe = prepared(text_values(str(shards), tmp_path / "cache", epochs=1))
    with pytest.raises(EndOfStreamError):
        fetch(recipe, tmp_path / "near", steps=StepsWanted(2, first=10_000))


def test_a_large_file_continues_where_it_stopped_unless_it_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    piece = 8 << 20
    rows = [json.dumps({"id": str(i), "n": 2, "text": "x" * (1 << 20)}).encode() + b"\n" for i in range(20)]
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "text-0.jsonl").write_bytes(b"".join(rows))
    for changes in (False, True):
        with bucket(tmp_path / "data") as server:
            recipe = prepared(text_values("s3://data", tmp_path / f"cache-{changes}", lanes=1))
            path = copy_path(str(tmp_path / f"near-{changes}"), "s3://data/text-0.jsonl")

            class Stop(BaseException):
                pass

            def stop(done: Any) -> None:
                if done.done_bytes >= 2 * piece:
                    raise Stop

            with pytest.raises(Stop):
                fetch(recipe, tmp_path / f"near-{changes}", steps=StepsWanted(1), progress=stop)
            (partial,) = path.parent.glob(".*.partial")
            assert partial.stat().st_size == 2 * piece
            assert not path.exists()
            if changes:
                server.objects["/data/text-0.jsonl"] += rows[0]
                prepare(recipe, workers=1)
            planned = fetch(recipe, tmp_path / f"near-{changes}", steps=StepsWanted(1), dry_run=True)
            content = server.objects["/data/text-0.jsonl"]
            (to_copy,) = [file.num_bytes for file in planned.files if file.kind == "shard"]
            assert to_copy == len(content) - (0 if changes else 2 * piece)
            server.requests.clear()
            just_enough = shutil.disk_usage(tmp_path)._replace(free=to_copy)
            with monkeypatch.context() as patched:
                patched.setattr(shutil, "disk_usage", lambda _, usage=just_enough: usage)
                fetch(recipe, tmp_path / f"near-{changes}", steps=StepsWanted(1))
            firsts = [int(r.rpartition("bytes=")[2].split("-")[0]) for r in server.requests if "bytes=" in r]
            assert min(firsts) == (0 if changes else 2 * piece)
            assert path.read_bytes() == content
            assert [*path.parent.glob(".*.partial")] == []


def test_two_recipes_may_share_an_index_in_one_directory(tmp_path: Path, shards: Path) -> None:
    one = prepared(text_values(str(shards), tmp_path / "cache"))
    source = {**one.to_dict()["sources"][0], "keep": {"n": [0, 20]}}
    two = prepared(text_values(str(shards), tmp_path / "cache", sources=[source]))
    expected = [delivered(recipe, 3) for recipe in (one, two)]
    kept = []
    for recipe in (one, two):
        fetch(recipe, tmp_path / "near", steps=StepsWanted(3))
        kept.append(near(tmp_path / "near"))
    fetch(two, tmp_path / "near", steps=StepsWanted(3), force=True)  # replaces no more than its own selection
    shutil.rmtree(shards)
    assert [delivered(recipe, 3) for recipe in kept] == expected
    assert load_copies(str(tmp_path / "near")).steps == ["steps 0 to 2"]


def test_manifests_fetched_later_leave_a_directory_for_steps_as_it_is(tmp_path: Path, shards: Path) -> None:
    recipe = prepared(text_values(str(shards), tmp_path / "cache"))
    expected = delivered(recipe, 2)
    fetch(recipe, tmp_path / "near", steps=StepsWanted(2))
    before = near(tmp_path / "near")
    fetch(recipe, tmp_path / "near", manifests=True)
    assert near(tmp_path / "near") == before
    assert len(load_copies(str(tmp_path / "near")).files) == 12
    shutil.rmtree(shards)
    assert delivered(near(tmp_path / "near"), 2) == expected


def test_a_recipe_that_is_not_prepared_is_refused(tmp_path: Path, shards: Path) -> None:
    recipe = recipe_in(shards, {"name": "text", "path": "text-*.jsonl", "length": "n"})
    with pytest.raises(PlayheadError, match="is not prepared"):
        fetch(recipe, tmp_path / "near", steps=StepsWanted(2))
    assert not (tmp_path / "near").exists()
