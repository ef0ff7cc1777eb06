from __future__ import annotations

import sys

import pytest

from playhead import Recipe
from recipe.recipes import FIXED, PACK, recipe, refusal, source

BUCKET = {"type": "bucket", "edges": [10, 20], "size": 4}
BUDGET = {"type": "budget", "budget": 100}
SECONDS = {"field": "duration", "unit": "seconds"}
MEASURED_SECONDS = {"measure": True, "unit": "seconds"}


def evaluated(batching, **fields):
    """Trained in buckets, evaluated otherwise."""
    dev = {"sources": [source("b", **fields.pop("dev", {}))], "batching": batching}
    return recipe(source("a"), batching=BUCKET, evaluation={"dev": dev}, **fields)


GOOD = {
    "a map and a collate": recipe(map="maps:crop", collate="batches:stack"),
    "a map of a source": recipe(source(map="a.b:C.d")),
    "lists": recipe(collate="list", decode=False, fields=["text"], on_error="substitute", max_bad=1),
    "padding to buckets": recipe(batching=BUCKET, pad_to="bucket", pad_batch=True, pad_values={"tokens": -1}),
    "padding packs": recipe(batching=PACK, pad_to="bucket"),
    "padding to a number": recipe(pad_to=128, pad_batch=True),
    "padding seconds": recipe(source(length=SECONDS), batching=BUCKET, pad_to="bucket", sequence_rate=16000),
    "measured": recipe(source(length={"measure": True}), sequence="ids"),
    "measured seconds": recipe(source(length=MEASURED_SECONDS), sequence_rate=100),
    "dtypes": recipe(dtypes={"doc_hash": "uint64", "signal": "float32"}),
    "masks": recipe(masks="padded", batching=BUCKET, pad_to="bucket"),
    "dtypes of fields": recipe(fields=["tokens", "n"], dtypes={"n": "int8"}, pad_values={"tokens": 3}),
    "lengths on trust": recipe(batching=BUDGET, sequence=None),
    "packs of your own": recipe(batching=PACK, sequence=None, collate="list"),
    "cutting seconds on trust": recipe(
        source(length=SECONDS), batching={**BUDGET, "overlong": "truncate"}, sequence=None
    ),
    "media left alone": recipe(media=False),
    "media from elsewhere": recipe(media={"allow": ["s3://speech/clean/", "audio"], "max_seconds": 60}),
    "cutting": recipe(on_length_mismatch="truncate"),
    "images of a size": recipe(image={"mode": "RGB", "size": [224, 224]}),
    "images of a source": recipe(source(image={"mode": None, "shortest": 256}), image={"longest": 512}),
    "large images": recipe(image={"size": [9000, 9000]}, media={"max_pixels": 81_000_000}),
}

BAD = {
    "media that are neither": (recipe(media="yes"), "media: invalid value"),
    "media from any server": (recipe(media={"allow": ["https://"]}), "media.allow[0]: does not name a bucket"),
    "media with a query": (recipe(media={"allow": ["https://h/a?b=c"]}), "media.allow[0]: does not name"),
    "media of a metadata server": (
        recipe(media={"allow": "http://169.254.169.254/"}),
        "media.allow[0]: is a link-local",
    ),
    "a limit that is none": (recipe(media={"max_bytes": 0}), "media.max_bytes: invalid value"),
    "a limit of no pixels": (recipe(media={"max_pixels": 0}), "media.max_pixels: invalid value"),
    "images resized in two ways": (
        recipe(image={"size": [8, 8], "shortest": 8}),
        "image: more than one size is given",
    ),
    "a source's images resized in two ways": (
        recipe(source(image={"shortest": 8, "longest": 8})),
        "sources[0].image: more than one size is given",
    ),
    "images of no size": (recipe(image={"size": [0, 8]}), "image.size[0]: invalid value"),
    "images of one number": (recipe(image={"size": 224}), "image.size: invalid value"),
    "images beyond the limit": (recipe(image={"size": [9000, 9000]}), "image.size: is more than one image may have"),
    "sides beyond the limit": (recipe(image={"shortest": 9000}), "image.shortest: is more than one image may have"),
    "evaluated images beyond the limit": (
        evaluated(FIXED, dev={"image": {"longest": 10**8}}),
        "evaluation.dev.sources[0].image.longest: is more than",
    ),
    "an unknown mode": (recipe(image={"mode": "rgb"}), "image.mode: unknown value"),
    "a misspelt key of images": (recipe(image={"sise": [8, 8]}), "image.sise: unknown key"),
    "a misspelt key of media": (recipe(media={"alow": []}), "media.alow: unknown key"),
    "a map that names no function": (recipe(map="crop"), "map: does not name a function"),
    "a source's map that names no function": (recipe(source(map="a/b:c")), "sources[0].map: does not"),
    "a collate that is not known": (recipe(collate="padd"), "collate: does not name a function"),
    "no fields": (recipe(fields=[]), "fields: is empty"),
    "packs padded to a number": (recipe(batching=PACK, pad_to=64), "pad_to: 64: packs are filled up to their own"),
    "fixed batches padded to a bucket": (recipe(pad_to="bucket"), "pad_to: bucket: no length to pad to"),
    "budgets padded to a bucket": (recipe(batching=BUDGET, pad_to="bucket"), "pad_to: bucket: no length"),
    "an evaluation set padded to a bucket": (evaluated(FIXED, pad_to="bucket"), "pad_to: bucket: no length"),
    "budgets of a full size": (recipe(batching=BUDGET, pad_batch=True), "pad_batch: no length to pad to"),
    "an evaluation set of a full size": (evaluated(BUDGET, pad_batch=True), "pad_batch: no length"),
    "seconds without a rate": (
        recipe(source(length=SECONDS), batching=BUCKET, pad_to="bucket"),
        "pad_to: bucket: the",
    ),
    "measured seconds without a rate": (recipe(source(length=MEASURED_SECONDS)), 'sources[0].length "a": the rate'),
    "seconds to cut without a rate": (
        recipe(source(length=SECONDS), batching={**BUDGET, "overlong": "truncate"}),
        "batching.overlong: the rate of `tokens` is missing",
    ),
    "evaluated seconds without a rate": (
        evaluated(BUCKET, dev={"length": MEASURED_SECONDS}),
        'evaluation.dev.sources[0].length "b": the rate of `tokens` is missing',
    ),
    "an unknown dtype": (recipe(dtypes={"a": "unit64"}), "dtypes.a: unknown value"),
    "dtypes of lists": (recipe(dtypes={"a": "int64"}, collate="list"), "dtypes: only `collate: pad` makes arrays"),
    "masks of lists": (recipe(masks="never", collate="list"), "masks: only `collate: pad` makes masks"),
    "an unknown kind of masks": (recipe(masks="none"), "masks: unknown value"),
    "a dtype of no field": (recipe(fields=["labels"], dtypes={"lables": "int8"}), "dtypes.lables: is not among the"),
    "padding of no field": (recipe(fields=["labels"], pad_values={"lables": 1}), "pad_values.lables: is not among"),
    "packs of nothing": (recipe(batching=PACK, sequence=None), "sequence: null: packs need a field to pack"),
    "evaluated packs of nothing": (evaluated(PACK, sequence=None), "sequence: null: packs need a field to pack"),
    "nothing to pad": (recipe(sequence=None, pad_to=64), "sequence: null: `pad_to` needs a field to pad"),
    "nothing to measure": (
        recipe(source(length={"measure": True}), sequence=None),
        'sources[0].length "a": no sequence field to measure',
    ),
    "nothing to cut": (
        recipe(sequence=None, on_length_mismatch="truncate"),
        "sequence: null: `on_length_mismatch` has nothing to compare",
    ),
    "a measured field": (recipe(source(length={"measure": True, "field": "n"})), "sources[0].length: needs exactly"),
    "measured bytes": (recipe(source(length={"measure": True, "unit": "bytes"})), "sources[0].length: a length in"),
    "a measured output": (recipe(source(output_length={"measure": True})), "sources[0].output_length: only `length`"),
    "a word that is no truth": (recipe(decode="maybe"), "decode: invalid value"),
    "a number that is no truth": (recipe(pad_batch=1), "pad_batch: invalid value"),
    "more than all bad": (recipe(max_bad=1.5), "max_bad: invalid value"),
    "no rate": (recipe(sequence_rate=0), "sequence_rate: invalid value"),
    "a misspelt padding": (recipe(pad_to="bach"), "pad_to: unknown value"),
    "padding to nothing": (recipe(pad_to=0), "pad_to: invalid value"),
    "a misspelt policy": (recipe(on_error="skip"), "on_error: unknown value"),
}


@pytest.mark.parametrize("values", GOOD.values(), ids=GOOD.keys())
def test_good_delivery_is_taken(values):
    found = Recipe.parse(values, "/data")
    assert Recipe.parse(found.to_dict()) == found


@pytest.mark.parametrize(("values", "problem"), BAD.values(), ids=BAD.keys())
def test_bad_delivery_is_refused_with_its_place(values, problem):
    assert refusal(values).problem.startswith(problem)


def test_the_remedy_is_named():
    assert "`sequence_rate: 16000`" in str(refusal(BAD["measured seconds without a rate"][0]))
    assert "batching of type budget" in str(refusal(BAD["budgets of a full size"][0]))
    assert "did you mean `uint64`?" in str(refusal(BAD["an unknown dtype"][0]))
    assert "did you mean `labels`?" in str(refusal(BAD["padding of no field"][0]))
    assert "one of: L, RGB, RGBA" in str(refusal(BAD["an unknown mode"][0]))
    assert "`media: {max_pixels: ...}`" in str(refusal(BAD["sides beyond the limit"][0]))
    assert "true or false" in str(refusal(BAD["a word that is no truth"][0]))


def test_truth_values_are_read_from_yaml_and_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("DECODE", "false")
    monkeypatch.setenv("PAD", "128")
    file = tmp_path / "recipe.yaml"
    text = "sources: [{name: a, path: a.jsonl}]\nbatching: {type: fixed, size: 1}\n"
    file.write_text(text + "decode: ${DECODE}\npad_batch: true\npad_to: ${PAD}\n")
    found = Recipe.load(file)
    assert (found.decode, found.pad_batch, found.pad_to) == (False, True, 128)
    file.write_text(text + "decode: no\n")
    with pytest.raises(Exception, match="decode: some YAML readers treat this word"):
        Recipe.load(file)


@pytest.mark.parametrize(
    "fields",
    [
        {"map": "beside_it:f"},
        {"collate": "beside_it:f"},
        {"sources": [source(map="beside_it:f")]},
        {"sources": [source(length={"function": "beside_it:f"})]},
        {"sources": [source(output_length={"function": "beside_it:f"})]},
        {"evaluation": {"dev": {"sources": [source("b", map="beside_it:f")], "batching": FIXED}}},
    ],
)
def test_modules_beside_the_recipe_are_found_where_a_function_is_named(tmp_path, monkeypatch, fields):
    monkeypatch.setattr(sys, "path", [*sys.path])
    Recipe.parse({**recipe(), **fields}, tmp_path)
    assert sys.path[-1] == str(tmp_path)


def test_without_a_function_nothing_is_searched(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    Recipe.parse(recipe(collate="list"), tmp_path)
    assert str(tmp_path) not in sys.path
