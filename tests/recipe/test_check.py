from __future__ import annotations

import pytest

from playhead import Recipe
from recipe.recipes import FIXED, PACK, group, recipe, refusal, source

A, B = source("a"), source("b")
BUCKET = {"type": "bucket", "edges": [10, 20], "size": 4}


def streams(**fields):
    """Two sub-streams."""
    return {"sources": [group("speech", batching=FIXED), group("text", batching=FIXED)], "fuse": {"speech": 3, "text": 1}, **fields}  # fmt: skip


def zipped(speech=6, text=2, **fields):
    found = streams(fuse="zip", **fields)
    for entry, lanes in zip(found["sources"], (speech, text), strict=True):
        if lanes is not None:
            entry["lanes"] = lanes
    return found


def evaluated(*sources, **fields):
    return recipe(A, evaluation={"dev": {"sources": list(sources), "batching": FIXED, **fields}})


def bucketed(**fields):
    return recipe(A, batching={"type": "bucket", **fields})


GOOD = {
    "one source": recipe(A),
    "seconds": recipe(source(length={"field": "d", "unit": "seconds"}), batching={"type": "budget", "budget": 90.5}),
    "size in bytes": recipe(source(length={"unit": "bytes"}), batching=PACK),
    "no length for fixed": recipe({"name": "a", "path": "a"}),
    "weights": recipe(source(weight=1), group("g", source("b", weight=2), source("c", weight=3), weight=2)),
    "temperature": recipe(A, B, temperature=0.5),
    "passes of packs": recipe(A, B, batching=PACK, epochs=2),
    "pack by length": recipe(A, B, batching=PACK, weights_in="length"),
    "buckets": bucketed(edges=[1, 2, 3], size=[4, 3, 2]),
    "counted buckets": bucketed(num=30, budget=1000, quadratic=100),
    "pairs": recipe(source(output_length="m"), batching={"type": "bucket", "num": [4, 2], "size": [1] * 8}),
    "fused by weight": streams(lanes=8),
    "zipped": zipped(lanes=8),
    "parts": recipe(A, lanes=8, parts=4, window_size=8, balance=2),
    "window": recipe(A, lanes=8, window_size=64),
    "a source shared with evaluation": evaluated(source("a")),
    "a weighted source shared with evaluation": {**evaluated(A), "sources": [source("a", weight=2, shuffle="shards")]},
    "rules": recipe(source(keep={"d": [1, None], "lang": ["en"], "path": "re:^x", "tokens/d": [None, 9]})),
}  # fmt: skip

BAD = {
    "no sources": (recipe() | {"sources": []}, "sources: is empty"),
    "an empty group": (recipe(A, {"name": "g", "sources": []}), "sources[1].sources: is empty"),
    "an empty evaluation set": (evaluated(), "evaluation.dev.sources: is empty"),
    "no batching": ({"sources": [A]}, "batching: is missing"),
    "seed below 0": (recipe(A, seed=-1), "seed: must be a whole number of 64 bits that is not negative"),
    "one name twice": (recipe(A, A), 'sources[1] "a": the name is already taken by sources[0]'),
    "one name twice in depth": (recipe(group("g", A), A), 'sources[1] "a": the name is already taken by sources[0].so'),
    "a sub-stream named as a source": (streams() | {"sources": [group("speech", batching=FIXED), group("text", source("speech"), batching=FIXED)]}, 'sources[1].sources[0] "speech": the name'),
    "one name twice in an evaluation set": (evaluated(B, B), 'evaluation.dev.sources[1] "b": the name'),
    "another source of a trained name": (evaluated(source("a", path="other")), 'evaluation.dev.sources[0] "a": differs in `path`'),
    "an empty name": (recipe(source("  ")), "sources[0]: a name must be printable"),
    "a name with a newline": (recipe(source("a\nb")), "sources[0]: a name must be printable"),
    "a group's bad name": (recipe(group("\t", A)), "sources[0]: a name must be printable"),
    "weight 0": (recipe(source(weight=0)), 'sources[0].weight "a": a weight must be above 0'),
    "weight below 0": (recipe(group("g", source(weight=-1))), 'sources[0].sources[0].weight "a": a weight must'),
    "weight of a group": (recipe(group("g", weight=0)), 'sources[0].weight "g": a weight must be above 0'),
    "a weight on one": (recipe(source(weight=1), B), 'sources[1] "b": has no weight, but sources[0] has one'),
    "weights and temperature": (recipe(source(weight=1), temperature=0.5), "sources[0].weight"),
    "weights and temperature of a group": (recipe(group("g", source(weight=1), temperature=1)), "sources[0].sources[0].weight"),
    "weights and epochs": (recipe(source(weight=1), epochs=1), 'sources[0].weight "a": cannot be combined with'),
    "a temperature too high": (recipe(group("g", temperature=11)), "sources[0].temperature: too high"),
    "temperature and epochs": (recipe(group("g", temperature=1), epochs=1), "sources[0].temperature: cannot be combined"),
    "weights in evaluation": (evaluated(source("b", weight=1)), 'evaluation.dev.sources[0].weight "b": evaluation'),
    "exhaustion and epochs": (recipe(A, epochs=1, exhaustion="drop"), "exhaustion: cannot be combined"),
    "weights_in missing": (recipe(A, B, batching=PACK), "weights_in: is missing, and with `pack`"),
    "weights_in missing in a group": (streams() | {"sources": [group("speech", A, B, batching=PACK), group("text", batching=FIXED)]}, "sources[0].weights_in: is missing"),
    "weights_in missing for budget": (recipe(A, B, batching={"type": "budget", "budget": 9}), "weights_in: is missing, and with `budget`"),
    "no length for pack": (recipe({"name": "a", "path": "a"}, batching=PACK), 'sources[0] "a": `length` is missing'),
    "no length for max_length": (recipe({"name": "a", "path": "a"}, batching={**FIXED, "max_length": 9}), 'sources[0] "a": `length`'),
    "no length for weights in length": (recipe({"name": "a", "path": "a"}, weights_in="length"), 'sources[0] "a": `length`'),
    "no length in evaluation": (evaluated({"name": "b", "path": "b"}, batching=PACK), 'evaluation.dev.sources[0] "b": `length`'),
    "length from nowhere": (recipe(source(length={})), "sources[0].length: needs exactly one"),
    "length from two places": (recipe(source(length={"field": "a", "function": "b:c"})), "sources[0].length: needs exactly"),
    "output length from nowhere": (recipe(source(output_length={})), "sources[0].output_length: needs exactly one"),
    "bytes from a function": (recipe(source(length={"unit": "bytes", "function": "b:c"})), "sources[0].length: a length in bytes"),
    "a function without a module": (recipe(source(length={"function": "count"})), "sources[0].length.function: does not"),
    "two units": (recipe(A, source("b", length={"field": "d", "unit": "seconds"})), 'sources[1].length "b": its unit differs'),
    "half a token": (recipe(A, batching={"type": "pack", "max_length": 0.5}), "batching.max_length: a length in tokens"),
    "edges of half a token": (bucketed(edges=[0.5, 1], size=1), "batching.edges[0]: a length in tokens"),
    "a bucket budget of half a token": (bucketed(num=2, budget=1.5), "batching.budget: a length in tokens"),
    "edges and num": (bucketed(edges=[1], num=1, size=1), "batching: needs exactly one of `edges` and `num`"),
    "neither edges nor num": (bucketed(size=1), "batching: needs exactly one of `edges` and `num`"),
    "size and budget": (bucketed(num=1, size=1, budget=2), "batching: needs exactly one of `size` and `budget`"),
    "quadratic without budget": (bucketed(num=1, size=1, quadratic=2), "batching.quadratic: needs `budget`"),
    "no buckets": (bucketed(num=0, size=1), "batching.num: must be at least 1"),
    "no edges": (bucketed(edges=[], size=1), "batching.edges: is empty"),
    "an edge of 0": (bucketed(edges=[0, 1], size=1), "batching.edges[0]: an edge must be above 0"),
    "edges that do not rise": (bucketed(edges=[1, 2, 2], size=1), "batching.edges[2]: the edges do not increase"),
    "pairs out of order": (bucketed(edges=[[2, 1], [1, 2]], size=1), "batching.edges[1]: the edges do not increase"),
    "one pair twice": (bucketed(edges=[[2, 1], [2, 1]], size=1), "batching.edges[1]: the edges do not increase"),
    "numbers and pairs": (bucketed(edges=[1, [2, 3]], size=1), "batching.edges: mixes numbers and pairs"),
    "too few sizes": (bucketed(num=3, size=[1, 2]), "batching.size: a list must have one entry for each bucket"),
    "too few sizes for pairs": (bucketed(num=[3, 2], size=[1, 2, 3]), "batching.size: a list must have"),
    "pairs without output length": (bucketed(edges=[[2, 1]], size=1), 'sources[0] "a": `output_length` is missing'),
    "num pairs without output length": (bucketed(num=[2, 2], size=1), 'sources[0] "a": `output_length` is missing'),
    "a source beside sub-streams": (streams() | {"sources": [group("speech", batching=FIXED), A]}, 'sources[1] "a": has no batching'),
    "a sub-stream in a group": (recipe(group("g", group("h", batching=FIXED))), 'sources[0].sources[0] "h": a group inside'),
    "no fuse": (streams(fuse=None), "fuse: is missing"),
    "fuse with one": (recipe(A, fuse="zip"), "fuse: needs several sub-streams"),
    "fuse without all": (streams(fuse={"speech": 1}), "fuse: does not name the groups"),
    "fuse with more": (streams(fuse={"speech": 1, "text": 1, "x": 1}), "fuse: does not name the groups"),
    "zip without lanes": (zipped(text=None, lanes=8), 'sources[1] "text": `lanes` is missing'),
    "zip with other lanes": (zipped(lanes=9), "lanes: must be the sum of the groups' lanes"),
    "zip without the recipe's lanes": (zipped(), "lanes: must be the sum of the groups' lanes"),
    "lanes of a group without zip": (zipped() | {"fuse": {"speech": 1, "text": 1}}, 'sources[0].lanes "speech": a group can have'),
    "lanes of a plain group": (recipe(group("g", lanes=2)), 'sources[0].lanes "g": only a group with its own'),
    "weights_in of a plain group": (recipe(group("g", weights_in="length")), 'sources[0].weights_in "g": only a group'),
    "lanes of a group in a sub-stream": (streams() | {"sources": [group("speech", group("x", lanes=1), batching=FIXED), group("text", batching=FIXED)]}, 'sources[0].sources[0].lanes "x"'),
    "weight of a sub-stream": (streams() | {"sources": [group("speech", batching=FIXED, weight=1), group("text", batching=FIXED, weight=1)]}, 'sources[0].weight "speech": groups with'),
    "unused batching": (streams(batching=FIXED), "batching: is never used"),
    "unused temperature": (streams(temperature=1), "temperature: is never used"),
    "parts that do not divide": (recipe(A, lanes=8, parts=3), "parts: must divide the lanes (8)"),
    "parts without lanes": (recipe(A, parts=2), "parts: must divide the lanes (1)"),
    "parts of sub-streams": (streams(lanes=8, parts=2), "parts: cannot be combined"),
    "balance": (recipe(A, lanes=8, balance=3), "balance: must divide the lanes (8)"),
    "balance of a zipped group": (zipped(lanes=8, balance=4), "balance: must divide the lanes (6)"),
    "window not whole": (recipe(A, lanes=8, window_size=48), "window_size: must be a multiple of size * lanes = 32"),
    "window not whole for packs": (recipe(A, lanes=8, window_size=12, batching=PACK), "window_size: must be a multiple of the lanes"),
    "window too large": (recipe(A, window_size=2**22 + 4), "window_size: is too large"),
    "window of a group": (zipped(lanes=8) | {"sources": [group("speech", batching=FIXED, lanes=6, window_size=25), group("text", batching=FIXED, lanes=2)]}, "sources[0].window_size: must be"),
    "no path": (recipe(source(path=[])), 'sources[0] "a": `path` is missing'),
    "an empty path": (recipe(source(path="")), 'sources[0] "a": `path` is empty'),
    "shuffle_unit without shards": (recipe(source(shuffle_unit="block")), 'sources[0] "a": `shuffle_unit` requires'),
    "shuffle_group without shards": (recipe(source(shuffle_group=3)), 'sources[0] "a": `shuffle_group` requires'),
    "an empty rule": (recipe(source(keep={"d": []})), "sources[0].keep.d: is neither"),
    "half a range": (recipe(source(keep={"d": [1]})), "sources[0].keep.d: is neither"),
    "words and numbers": (recipe(source(keep={"d": ["a", 1]})), "sources[0].keep.d: is neither"),
    "words and null": (recipe(source(keep={"d": ["a", None]})), "sources[0].keep.d: is neither"),
    "a range backwards": (recipe(source(keep={"d": [2, 1]})), "sources[0].keep.d: the range is empty"),
    "a bad expression": (recipe(source(keep={"d": "re:("})), "sources[0].keep.d: is not a regular expression"),
    "a ratio of words": (recipe(source(keep={"a/b": ["x"]})), "sources[0].keep.a/b: a ratio of columns"),
    "a ratio by pattern": (recipe(source(keep={"a/b": "x*"})), "sources[0].keep.a/b: a ratio of columns"),
    "an unknown planned length": (recipe(source(keep={"@lenght": [1, 2]})), "sources[0].keep.@lenght: is not a planned"),
    "a planned length by words": (recipe(source(keep={"@length": ["x"]})), "sources[0].keep.@length: a length can only"),
    "no output length to keep by": (
        recipe(source(keep={"@output_length/@length": [1, 2]})),
        'sources[0].keep.@output_length/@length: source "a" has no `output_length`',
    ),
    "half a ratio": (recipe(source(keep={"a/": [1, 2]})), "sources[0].keep.a/: is not a column"),
    "a ratio of three": (recipe(source(keep={"a/b/c": [1, 2]})), "sources[0].keep.a/b/c: is not a column"),
    "a range of files backwards": (recipe(source(drop_rows=["x", "{2..1}"])), "sources[0].drop_rows[1]: a range of paths"),
    "a cache nowhere": (recipe(A, shard_cache={"dir": "", "max_bytes": 1}), "shard_cache.dir: is not a local directory"),
    "a cache in a bucket": (recipe(A, shard_cache={"dir": "s3://bucket/copies", "max_bytes": 1}), "shard_cache.dir: is not a local directory"),
}  # fmt: skip


@pytest.mark.parametrize("values", GOOD.values(), ids=GOOD.keys())
def test_good_recipes_are_taken(values):
    found = Recipe.parse(values, "/data")
    assert Recipe.parse(found.to_dict()) == found


@pytest.mark.parametrize(("values", "problem"), BAD.values(), ids=BAD.keys())
def test_bad_recipes_are_refused_with_their_place(values, problem):
    assert refusal(values).problem.startswith(problem)


def test_the_line_to_add_is_named():
    assert "`weights_in: length`" in str(refusal(BAD["weights_in missing"][0]))
    assert "`fuse: {speech: 1, text: 1}`" in str(refusal(BAD["no fuse"][0]))
    assert "`lanes: 8`" in str(refusal(BAD["zip with other lanes"][0]))
    assert "1, 2, 4, 8" in str(refusal(BAD["parts that do not divide"][0]))
    assert "for example 64" in str(refusal(BAD["window not whole"][0]))
