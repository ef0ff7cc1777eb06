"""Hypothesis strategies for valid recipes, as plain values."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

words = st.text("abcd$é{} 0-", min_size=1, max_size=8).filter(str.strip)
fields = st.sampled_from(["size", "num_tokens", "snr"])
ranges = st.tuples(st.none() | st.integers(-9, 0), st.none() | st.floats(0, 99)).map(list)
rules = st.one_of(
    ranges, st.lists(st.sampled_from(["en", "pl", "no"]), min_size=1), st.sampled_from(["*.wav", "re:^a"])
)
lengths = st.one_of(
    fields, fields.map(lambda name: {"field": name}), st.just({"function": "lengths:count"}), st.just({"measure": True})
)
positive = st.integers(1, 10**6)
small = st.integers(1, 999)
overlong = {"overlong": st.sampled_from(["error", "drop", "alone", "truncate"])}
shuffles = st.one_of(
    st.just({}),
    st.sampled_from(["none", "global", "shards"]).map(lambda kind: {"shuffle": kind}),
    st.integers(1, 99).map(lambda size: {"shuffle": "shards", "shuffle_group": size}),
    st.just({"shuffle": "shards", "shuffle_unit": "block"}),
)


augments = st.lists(
    st.one_of(
        st.just({"type": "speed", "factors": [0.9, 1.1]}),
        st.just({"type": "crop", "seconds": 2, "probability": 0.5}),
        st.just({"type": "gain", "decibels": [-6, 6], "field": "wav"}),
        st.just({"type": "pad", "seconds": 1.5}),
    ),
    max_size=3,
)


images = st.fixed_dictionaries(
    {}, optional={"mode": st.sampled_from([None, "RGB", "L", "RGBA"]), "size": st.just([224, 196])}
) | st.sampled_from([{"shortest": 224}, {"longest": 512}])


def batching(kind: str, **required: Any) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({"type": st.just(kind), **required}, optional=overlong)


batchings = st.one_of(
    batching("fixed", size=small),
    batching("fixed", size=small, max_length=positive).filter(lambda found: found.get("overlong") != "alone"),
    batching("budget", budget=positive),
    batching("budget", budget=positive, quadratic=positive),
    batching("pack", max_length=positive),
    batching("bucket", num=small, budget=positive),
    st.sets(positive, min_size=1, max_size=5).map(
        lambda edges: {"type": "bucket", "edges": sorted(edges), "size": [1] * len(edges)}
    ),
)


@st.composite
def sources(draw: st.DrawFn, name: str, weighted: bool) -> dict[str, Any]:
    paths = words.map(lambda word: word.replace("$", "$$"))
    found = draw(
        st.fixed_dictionaries(
            {"path": paths | st.lists(paths, min_size=1, max_size=3), "length": lengths},
            optional={
                "format": st.sampled_from(["jsonl", "webdataset"]),
                "ids": fields,
                "keep": st.dictionaries(fields, rules, max_size=2),
                "augment": augments,
                "image": images,
                "columns": st.lists(fields, max_size=2),
                "options": st.dictionaries(st.sampled_from(["x", "y"]), st.none() | st.integers() | st.just("$${X}")),
            },
        )
    )
    return {"name": name, **found, **draw(shuffles), **_weight(draw, weighted)}


def _weight(draw: st.DrawFn, weighted: bool) -> dict[str, float]:
    return {"weight": draw(st.floats(0.001, 1000))} if weighted else {}


@st.composite
def entries(draw: st.DrawFn, prefix: str, depth: int, weights: bool) -> list[dict[str, Any]]:
    """A list of sources and groups, all of them weighted or none."""
    weighted = weights and draw(st.booleans())
    found = []
    for i in range(draw(st.integers(1, 3))):
        name = f"{prefix}{i}"
        if depth > 0 and draw(st.booleans()):
            members = draw(entries(f"{name}.", depth - 1, weights))
            found.append({"name": f"group {name}", "sources": members, **_weight(draw, weighted)})
        else:
            found.append(draw(sources(name, weighted)))
    return found


deliveries = st.fixed_dictionaries(
    {},
    optional={
        "map": st.just("maps:crop"),
        "decode": st.booleans(),
        "image": images,
        "media": st.booleans() | st.just({"allow": ["s3://speech/", "audio"], "max_seconds": 10}),
        "collate": st.sampled_from(["pad", "list", "batches:stack"]),
        "fields": st.lists(fields, min_size=1, max_size=2),
        "sequence": fields,
        "sequence_rate": st.floats(1, 48000),
        "pad_to": st.just("batch") | positive,
        "pad_values": st.dictionaries(fields, st.floats(-9, 9)),
        "masks": st.sampled_from(["always", "padded", "never"]),
        "dtypes": st.dictionaries(fields, st.sampled_from(["int32", "uint64", "float32"])),
        "on_error": st.sampled_from(["raise", "substitute"]),
        "on_length_mismatch": st.sampled_from(["error", "truncate", "substitute"]),
        "augment": augments,
        "noises": st.just([{"name": "street noise", "path": "street.jsonl"}]),
        "max_bad": st.floats(0, 1),
    },
)


def _names_augments(values: Any) -> bool:
    if isinstance(values, dict):
        return "augment" in values or any(map(_names_augments, values.values()))
    return isinstance(values, list) and any(map(_names_augments, values))


@st.composite
def recipes(draw: st.DrawFn) -> dict[str, Any]:
    ending = draw(st.sampled_from([{}, {"epochs": 2}, {"exhaustion": "drop"}, {"exhaustion": "stop_first"}]))
    found = {
        "sources": draw(entries("s", 2, weights="epochs" not in ending)),
        "batching": draw(batchings),
        "weights_in": draw(st.sampled_from(["samples", "length"])),
        "seed": draw(st.integers(0, 2**64 - 1)),
        "lanes": draw(st.integers(1, 256)),
        **ending,
        **draw(deliveries),
    }
    if draw(st.booleans()):
        evaluated = draw(sources("dev source", weighted=False))
        evaluated.pop("shuffle", None)
        evaluated.pop("shuffle_group", None)
        evaluated.pop("shuffle_unit", None)
        found["evaluation"] = {"dev": {"sources": [evaluated], "batching": draw(batchings)}}
    batched = [found["batching"], *(chosen["batching"] for chosen in found.get("evaluation", {}).values())]
    if any(chosen["type"] == "pack" for chosen in batched):
        found.pop("pad_to", None)  # packs are filled up to their own length
    if found.get("media") is False and _names_augments(found):  # nothing is decoded that could be augmented
        del found["media"]
    if found.get("collate", "pad") != "pad":
        for key in ("dtypes", "masks"):  # only padding makes arrays
            found.pop(key, None)
    if "fields" in found:  # what is not delivered has neither dtype nor padding
        for key in {"dtypes", "pad_values"} & found.keys():
            found[key] = {name: value for name, value in found[key].items() if name in found["fields"]}
    return found
