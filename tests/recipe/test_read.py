from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from playhead import Recipe, RecipeError
from playhead.recipe.values import Bucket, Fixed, Group, Length, Source
from recipe.recipes import FIXED, PACK, group, recipe, refusal, source


def read(*sources, **fields):
    return Recipe.parse(recipe(*sources, **fields), "/data")


def test_shorthands_become_full_values():
    found = read(source(length="n", ids="id", drop_ids="bad.txt", columns="snr", path="a.jsonl")).sources[0]
    assert found == Source(
        name="a",
        path=["/data/a.jsonl"],
        length=Length(field="n"),
        ids="id",
        drop_ids=["/data/bad.txt"],
        columns=["snr"],
    )


def test_groups_are_told_from_sources_by_their_sources():
    found = read(group("speech", source("en"), group("slavic", source("pl"))), source("text"))
    speech, text = found.sources
    assert isinstance(speech, Group)
    assert isinstance(speech.sources[1], Group)
    assert isinstance(text, Source)


def test_python_values_of_any_kind_will_do():
    found = Recipe.parse(
        {
            "sources": (Source(name="a", path=["a.jsonl"]), {"name": "b", "path": Path("b.jsonl")}),
            "batching": Fixed(size=3),
            "lanes": np.int64(8),
        },
        Path("/data"),
    )
    assert [entry.path for entry in found.sources] == [["/data/a.jsonl"], ["/data/b.jsonl"]]
    assert (found.batching, found.lanes) == (Fixed(size=3), 8)


def test_without_a_base_directory_paths_start_at_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert Recipe.parse(recipe()).cache_dir == str(tmp_path / ".playhead")


def test_paths_are_relative_to_the_recipe_file(tmp_path, monkeypatch):
    (tmp_path / "recipes").mkdir()
    file = tmp_path / "recipes" / "recipe.yaml"
    file.write_text(
        "sources:\n- {name: a, path: [../a.jsonl, /b.jsonl, 's3://x/{0..1}.jsonl', ~/c.jsonl], drop_rows: bad.txt}\n"
        "batching: {type: fixed, size: 2}\nindexes_root: idx\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")
    found = Recipe.load("recipes/recipe.yaml")
    beside = str(file.parent)
    assert found.sources[0].path == [
        f"{tmp_path}/a.jsonl",
        "/b.jsonl",
        "s3://x/0.jsonl",
        "s3://x/1.jsonl",
        "/home/me/c.jsonl",
    ]
    assert found.sources[0].drop_rows == [f"{beside}/bad.txt"]
    assert (found.cache_dir, found.indexes_root) == (f"{beside}/.playhead", f"{beside}/idx")


@pytest.mark.parametrize(
    ("given", "placed"), [("copies", "{base}/copies"), ("~/copies", "/home/me/copies"), ("/x/../y/", "/y")]
)
def test_the_directory_of_a_shard_cache_is_placed_as_other_paths_are(tmp_path, monkeypatch, given, placed):
    monkeypatch.setenv("HOME", "/home/me")
    found = Recipe.parse(recipe(shard_cache={"dir": given, "max_bytes": 1}, cache_dir=given), tmp_path)
    assert found.shard_cache.dir == found.cache_dir == placed.format(base=tmp_path)


def test_the_environment_may_give_texts_and_numbers(monkeypatch):
    monkeypatch.setenv("DATA", "/mnt/x")
    monkeypatch.setenv("LANES", "16")
    found = read(source(path="${DATA}/a.jsonl"), lanes="${LANES}", seed="${SEED:-7}")
    assert (found.sources[0].path, found.lanes, found.seed) == (["/mnt/x/a.jsonl"], 16, 7)


@pytest.mark.parametrize(("given", "number"), [(1e3, 1000), ("1e3", 1000), ("1_000", 1000), ("+1000.0", 1000)])
def test_whole_numbers_may_be_written_in_any_way(given, number):
    found = read(lanes=given).lanes
    assert found == number
    assert isinstance(found, int)


def test_evaluation_sources_are_not_shuffled():
    found = read(evaluation={"dev": {"sources": [source("d")], "batching": FIXED}})
    assert found.evaluation["dev"].sources[0].shuffle == "none"
    error = refusal(recipe(evaluation={"dev": {"sources": [source("d", shuffle="global")], "batching": FIXED}}))
    assert error.problem.startswith("evaluation.dev.sources[0].shuffle:")


def test_pairs_of_edges_are_tuples():
    edges = [[1, 10], [2, 5]]
    found = read(source(output_length="m"), batching={"type": "bucket", "edges": edges, "size": 2})
    assert found.batching == Bucket(edges=[(1.0, 10.0), (2.0, 5.0)], size=2)


@pytest.mark.parametrize(
    ("values", "problem", "words"),
    [
        (recipe(source(wieght=1)), "sources[0].wieght: unknown key", "did you mean `weight`"),
        (recipe(source(), source("b", suffle="none")), "sources[1].suffle:", "`shuffle`"),
        (recipe(bacthing=1), "bacthing:", "`batching`"),
        (recipe(group("g", source(lenght="n"))), "sources[0].sources[0].lenght:", "`length`"),
        (recipe(source(length={"feild": "n"})), "sources[0].length.feild:", "`field`"),
        (recipe(batching={**PACK, "size": 1}), "batching.size:", "one of: max_length, overlong, type"),
        (recipe(source(kind="source")), "sources[0].kind:", "one of:"),
        (recipe(batching={"type": "packs", "max_length": 1}), "batching.type: is an unknown", "did you mean `pack`"),
        (recipe(batching={"size": 1}), "batching.type: is missing", "one of: bucket, budget, fixed, pack"),
        (recipe(batching=32), "batching:", "a mapping with `type`, one of: fixed, budget, bucket, pack"),
        (recipe(batching={"type": "fixed"}), "batching: `size` is missing", "`type`"),
        (recipe({"name": "a"}), 'sources[0] "a": `path` is missing', "`sources` for a group"),
        (recipe({"path": "a"}), "sources[0]: `name` is missing", "`path`"),
        (recipe("a.jsonl"), "sources[0]:", 'the text "a.jsonl"'),
        (recipe(source(weight="heavy")), "sources[0].weight:", "a number"),
        (recipe(source(weight=True)), "sources[0].weight:", "the boolean true"),
        (recipe(source(weight=float("inf"))), "sources[0].weight: must be a finite number", "inf"),
        (recipe(source(weight=float("nan"))), "sources[0].weight: must be a finite number", "nan"),
        (recipe(source(name=7)), "sources[0].name:", 'put it in quotes: "7"'),
        (recipe(source(path=["a", 3])), "sources[0].path[1]:", "text"),
        (recipe(source(keep={"lang": ["en", False]})), "sources[0].keep.lang[1]:", 'put it in quotes: "false"'),
        (recipe(lanes=0), "lanes:", "a whole number of at least 1"),
        (recipe(lanes=2.5), "lanes:", "a whole number of at least 1"),
        (recipe(lanes=None, temperature=0), "temperature:", "a number above 0"),
        (recipe(exhaustion="stop"), "exhaustion:", "one of: drop, repeat, stop_all, stop_first"),
        (recipe(fuse="zap"), "fuse:", "`zip`"),
        (recipe(evaluation={"dev": {"sources": [source("d")]}}), "evaluation.dev: `batching` is missing", "`sources`"),
        (recipe(evaluation={"d": {"sources": [source(x=1)], "batching": FIXED}}), "evaluation.d.sources[0].x:", "one"),
        (recipe(evaluation={3: {}}), "evaluation: a key must be text", "the number 3"),
        ({"batching": FIXED}, "the recipe: `sources` is missing", "`batching`"),
        ([1, 2], "the recipe:", "a list of 2"),
        (None, "the recipe:", "nothing"),
        (recipe(batching={"type": "bucket", "edges": [[1, 2, 3]], "size": 1}), "batching.edges[0]:", "a list of 2"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_at_its_place(values, problem, words):
    error = refusal(values)
    assert error.problem.startswith(problem)
    assert words in str(error)


def test_a_word_of_two_meanings_is_text_where_text_is_expected_and_refused_in_options(tmp_path):
    file = tmp_path / "recipe.yaml"
    text = "sources:\n- {name: a, path: a, keep: {lang: [no, en]}%s}\nbatching: {type: fixed, size: 1}\n"
    file.write_text(text % "")
    assert Recipe.load(file).sources[0].keep == {"lang": ["no", "en"]}
    assert type(Recipe.load(file).sources[0].keep["lang"][0]) is str
    file.write_text(text % ", options: {skip: {missing: no}}")
    with pytest.raises(RecipeError, match=r"sources\[0\].options.skip.missing: .*boolean"):
        Recipe.load(file)


def test_a_recipe_that_contains_itself_is_refused(tmp_path):
    file = tmp_path / "recipe.yaml"
    file.write_text("sources: &a\n- {name: a, path: a, options: {x: *a}}\nbatching: {type: fixed, size: 1}\n")
    with pytest.raises(RecipeError, match="contains itself"):
        Recipe.load(file)
