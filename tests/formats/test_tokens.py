"""Lengths counted by a tokenizer and tokens delivered by `tokenize`, against the tokenizers package itself."""

from __future__ import annotations

import io
import json
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers

from format_worlds import check_worlds, recipe_of
from playhead import Loader
from playhead.errors import NotPreparedError, PrepareError, RecipeError, SampleError, StoreError
from playhead.feed.produce import Blueprint
from playhead.formats.contract import ScanLimits
from playhead.formats.rows import Shard
from playhead.index.layout import layout_of
from playhead.index.opened import open_index
from playhead.prepare import prepare
from playhead.recipe.tree import leaves
from playhead.recipe.values import Recipe
from playhead.store import all_files

TEXTS = ["a note", "", "déjà vu: another note", "line\nbreak", "notes " * 20, "\U0001f600 smile", "123", " 1e5 "]
ROWS = [{"title": f"title {i}", "text": text, "n": i} for i, text in enumerate(TEXTS * 6)]
TOKENS = {"tokenizer": "tokenizer.json"}


def write_tokenizer(path: Path, vocab_size: int = 300, **saved: Any) -> Tokenizer:
    """A byte-level BPE with a start token and, if need be, an end token, as small as can be."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=["<s>", "<pad>", "</s>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    around = {"single": "<s> $A </s>" if "end" in saved else "<s> $A"}
    tokenizer.post_processor = processors.TemplateProcessing(**around, special_tokens=[("<s>", 0), ("</s>", 2)])
    if "padding" in saved:
        tokenizer.enable_padding(pad_id=1, pad_token="<pad>")  # noqa: S106 - a word, not a secret
        tokenizer.enable_truncation(3)
    tokenizer.save(str(path))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


@pytest.fixture
def tokenizer(tmp_path: Path) -> Tokenizer:
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return write_tokenizer(tmp_path / "tokenizer.json")


def lengths_of(recipe: Recipe) -> list[int]:
    index = open_index(layout_of(leaves(recipe)[0], recipe).directory)
    assert index is not None
    assert index.lengths is not None
    return index.lengths.tolist()


def expected_ids(tokenizer: Tokenizer, texts: list[str], special: bool = True) -> list[list[int]]:
    return [tokenizer.encode(text, add_special_tokens=special).ids for text in texts]


def in_order(folder: Path, source: dict[str, Any], **fields: Any) -> list[dict[str, Any]]:
    recipe = recipe_of(folder, {"shuffle": "none", **source}, lanes=1, collate="list", **fields)
    return [sample for batch in Loader(recipe) for sample in batch["samples"]]


@pytest.mark.parametrize(
    ("length", "made"),
    [
        ({}, lambda row: row["text"]),
        ({"field": "title"}, lambda row: row["title"]),
        ({"template": "{{{title}}} {text}!{n}"}, lambda row: f"{{{row['title']}}} {row['text']}!{row['n']}"),
        ({"special": False}, lambda row: row["text"]),
    ],
)
def test_lengths_are_what_the_tokenizer_counts(tmp_path: Path, tokenizer: Tokenizer, length: Any, made: Any) -> None:
    recipe = recipe_of(tmp_path, {"path": "a.jsonl", "length": TOKENS | length}, sequence=None)
    expected = expected_ids(tokenizer, [made(row) for row in ROWS], length.get("special", True))
    assert lengths_of(recipe) == list(map(len, expected))
    prepare(recipe, force=True, workers=2, processes=True, memory_mb=8)
    assert lengths_of(recipe) == list(map(len, expected))


@pytest.mark.parametrize("options", [{}, {"special": False}, {"max": 4}, {"template": "{title}: {text}"}])
def test_the_tokens_of_every_sample_are_those_that_were_counted(
    tmp_path: Path, tokenizer: Tokenizer, options: dict[str, Any]
) -> None:
    given = TOKENS | options
    found = in_order(tmp_path, {"path": "a.jsonl", "length": given, "tokenize": given})
    texts = [f"{row['title']}: {row['text']}" if "template" in options else row["text"] for row in ROWS]
    expected = expected_ids(tokenizer, texts, options.get("special", True))
    assert [sample["tokens"].tolist() for sample in found] == [ids[: options.get("max")] for ids in expected]
    assert all(sample["tokens"].dtype == np.int64 for sample in found)
    assert [sample["text"] for sample in found] == [row["text"] for row in ROWS]


@pytest.mark.parametrize("special", [True, False])
@pytest.mark.parametrize("most", [2, 3, 7, 1000])
def test_texts_are_cut_as_the_tokenizer_cuts_them_with_their_special_tokens_whole(
    tmp_path: Path, most: int, special: bool
) -> None:
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    tokenizer = write_tokenizer(tmp_path / "tokenizer.json", end=True)
    tokenizer.enable_truncation(most)
    expected = expected_ids(tokenizer, [row["text"] for row in ROWS], special)
    assert any(len(ids) == most for ids in expected) == (most < 1000)
    given = TOKENS | {"max": most, "special": special}
    found = in_order(tmp_path, {"path": "a.jsonl", "length": given, "tokenize": given})
    assert [sample["tokens"].tolist() for sample in found] == expected
    assert not special or all(sample["tokens"][-1] == 2 for sample in found)
    recipe = recipe_of(tmp_path, {"path": "a.jsonl", "length": given}, sequence=None)
    assert lengths_of(recipe) == list(map(len, expected))


def test_room_for_fewer_tokens_than_the_special_ones_is_refused(tmp_path: Path, tokenizer: Tokenizer) -> None:
    write_tokenizer(tmp_path / "tokenizer.json", end=True)
    with pytest.raises(PrepareError, match=r"max: 1: is less than the number of special tokens[\s\S]*`special: false`"):
        recipe_of(tmp_path, {"path": "a.jsonl", "length": TOKENS | {"max": 1}})
    recipe_of(tmp_path, {"path": "a.jsonl", "length": TOKENS | {"max": 1, "special": False}})


def test_padding_and_truncation_in_the_file_change_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    tokenizer = write_tokenizer(tmp_path / "tokenizer.json", padding=True)
    found = in_order(tmp_path, {"path": "a.jsonl", "length": TOKENS}, tokenize=TOKENS)
    assert [sample["tokens"].tolist() for sample in found] == expected_ids(tokenizer, [row["text"] for row in ROWS])


@pytest.mark.parametrize("name", ["text", "text_jsonl", "text_pair", "webdataset"])
def test_every_format_of_text_is_counted_and_tokenized(tmp_path: Path, tokenizer: Tokenizer, name: str) -> None:
    texts = [text.replace("\n", " ") for text in TEXTS]
    field = {"text_pair": "target", "webdataset": "txt"}.get(name, "text")
    source: dict[str, Any] = {"path": "b", "format": name}
    if name == "webdataset":
        with tarfile.open(tmp_path / "b", "w") as tar:
            for i, text in enumerate(texts):
                member = tarfile.TarInfo(f"{i}.txt")
                member.size = len(text.encode())
                tar.addfile(member, io.BytesIO(text.encode()))
    elif name == "text_jsonl":
        (tmp_path / "b").write_text("".join(json.dumps({"body": text}) + "\n" for text in texts))
        source |= {"options": {"field": "body"}}
    else:
        (tmp_path / "b").write_text("\n".join(texts) + "\n")
        source |= {"options": {"second": "b"}} if name == "text_pair" else {}
    for given in ({"field": field}, {"template": f"{{{{{{{field}}}}}}}"}):
        both = {"length": TOKENS | given, "tokenize": TOKENS | given}
        found = in_order(tmp_path, source | both)
        written = [f"{{{text}}}" for text in texts] if "template" in given else texts
        assert [sample["tokens"].tolist() for sample in found] == expected_ids(tokenizer, written)


def test_tokens_are_packed_and_the_map_sees_them(tmp_path: Path, tokenizer: Tokenizer) -> None:
    (tmp_path / "own_token_maps.py").write_text("def own(sample):\n    return {'tokens': sample['ids'] + 1}\n")
    tokenize = TOKENS | {"to": "ids"}
    source = {"path": "a.jsonl", "length": TOKENS}
    packs = {"batching": {"type": "pack", "max_length": 128}, "map": "own_token_maps:own", "tokenize": tokenize}
    recipe = recipe_of(tmp_path, source, lanes=1, **packs)
    expected = sorted(t + 1 for ids in expected_ids(tokenizer, [row["text"] for row in ROWS]) for t in ids)
    found = sorted(t for batch in Loader(recipe) for t in batch["tokens"][batch["segment_ids"] > 0].tolist())
    assert found == expected


def test_lengths_can_be_measured_after_tokenizing(tmp_path: Path, tokenizer: Tokenizer) -> None:
    values = {"sources": [{"name": "s", "path": "a.jsonl", "length": {"measure": True}}], "tokenize": TOKENS}
    recipe = Recipe.parse({**values, "batching": {"type": "fixed", "size": 1}}, base_dir=tmp_path)
    prepare(recipe, measure=True)
    assert lengths_of(recipe) == list(map(len, expected_ids(tokenizer, [row["text"] for row in ROWS])))
    write_tokenizer(tmp_path / "tokenizer.json", 280)
    with pytest.raises(NotPreparedError):
        Loader(recipe).state_dict()
    with pytest.raises(PrepareError, match="its lengths are not measured"):
        prepare(recipe)


def test_a_source_has_tokens_of_its_own_or_none(tmp_path: Path, tokenizer: Tokenizer) -> None:
    own = {"path": "a.jsonl", "tokenize": TOKENS | {"field": "title", "to": "titles"}}
    assert set(in_order(tmp_path, own, tokenize=TOKENS, sequence=None)[0]) == {"title", "text", "n", "titles"}
    none = {"path": "a.jsonl", "tokenize": False}
    assert set(in_order(tmp_path, none, tokenize=TOKENS, sequence=None)[0]) == {"title", "text", "n"}


def test_ranks_are_disjoint_and_complete_and_resume_on_another_world_size(tmp_path: Path, tokenizer: Tokenizer) -> None:
    source = {"path": "a.jsonl", "length": TOKENS, "tokenize": TOKENS}
    check_worlds(recipe_of(tmp_path, source, fields=["tokens", "n"]), len(ROWS))


def test_worker_processes_tokenize_alike(tmp_path: Path, tokenizer: Tokenizer) -> None:
    source = {"path": "a.jsonl", "length": TOKENS, "tokenize": TOKENS}
    recipe = recipe_of(tmp_path, source, lanes=1, fields=["tokens"])
    alone = [batch["tokens"].tolist() for batch in Loader(recipe)]
    with Loader(recipe, workers=2) as loader:
        assert [batch["tokens"].tolist() for batch in loader] == alone


def test_another_vocabulary_is_another_index_and_payload_and_another_place_is_not(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    def recipe(path: str, **more: Any) -> Recipe:
        given = {"tokenizer": path} | more
        values = {"sources": [{"name": "s", "path": "a.jsonl", "length": given}], "tokenize": given}
        return Recipe.parse({**values, "batching": {"type": "fixed", "size": 1}}, base_dir=tmp_path)

    def prints(found: Recipe) -> tuple[str, str]:
        return layout_of(leaves(found)[0], found).fingerprint, Blueprint(found).fingerprint()

    first = prints(recipe("tokenizer.json"))
    (tmp_path / "moved.json").write_bytes((tmp_path / "tokenizer.json").read_bytes())
    assert prints(recipe("moved.json")) == first
    assert not set(prints(recipe("moved.json", special=False))) & set(first)
    write_tokenizer(tmp_path / "moved.json", 280)
    assert not set(prints(recipe("moved.json"))) & set(first)
    prepare(recipe("tokenizer.json"))
    write_tokenizer(tmp_path / "tokenizer.json", 280)
    with pytest.raises(NotPreparedError, match="older than the recipe"):
        next(iter(Loader(recipe("tokenizer.json"))))
    prepare(recipe("tokenizer.json"))
    now = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert lengths_of(recipe("tokenizer.json")) == list(map(len, expected_ids(now, [row["text"] for row in ROWS])))


def test_a_tokenizer_that_is_overwritten_in_mid_run_changes_no_token(tmp_path: Path, tokenizer: Tokenizer) -> None:
    recipe = recipe_of(tmp_path, {"path": "a.jsonl", "shuffle": "none"}, tokenize=TOKENS, lanes=1, collate="list")
    expected = expected_ids(tokenizer, [row["text"] for row in ROWS])
    loader = Loader(recipe)
    batches = iter(loader)
    found = [*next(batches)["samples"]]
    write_tokenizer(tmp_path / "tokenizer.json", 280)
    found += [sample for batch in batches for sample in batch["samples"]]
    assert [sample["tokens"].tolist() for sample in found] == expected


@pytest.mark.parametrize("length", [None, TOKENS])
def test_a_tokenizer_that_changed_after_the_loader_opened_is_refused_by_its_workers(
    tmp_path: Path, tokenizer: Tokenizer, length: Any
) -> None:
    source = {"path": "a.jsonl", "length": length} if length else {"path": "a.jsonl"}
    recipe = recipe_of(tmp_path, source, tokenize=TOKENS, lanes=1, collate="list", on_error="substitute")
    for workers, size in ((0, 292), (1, 293)):
        write_tokenizer(tmp_path / "tokenizer.json", size)
        prepare(recipe)
        with Loader(recipe, workers=workers) as loader:
            write_tokenizer(tmp_path / "tokenizer.json", 280)
            with pytest.raises(
                (StoreError, NotPreparedError), match=r"tokenizer\.json|older than the recipe"
            ) as caught:
                next(iter(loader))
        assert length is not None or isinstance(caught.value, StoreError)


def test_a_scan_by_another_tokenizer_than_was_meant_is_refused(tmp_path: Path, tokenizer: Tokenizer) -> None:
    write_tokenizer(tmp_path / "tokenizer.json", 291)  # which no other test has loaded
    values = {"sources": [{"name": "s", "path": "a.jsonl", "length": TOKENS}], "batching": {"type": "fixed", "size": 1}}
    recipe = Recipe.parse(values, base_dir=tmp_path)
    layout = layout_of(leaves(recipe)[0], recipe)
    write_tokenizer(tmp_path / "tokenizer.json", 280)
    shard, files = Shard((("jsonl", str(tmp_path / "a.jsonl")),)), all_files()
    with pytest.raises(StoreError, match=r"tokenizer\.json: the tokenizer has changed since"):
        list(layout.registered.format.scan(shard, layout.spec, files, ScanLimits()))


def test_tokens_of_another_vocabulary_than_lengths_are_counted_with_are_refused_when_a_loader_opens(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    write_tokenizer(tmp_path / "other.json", 280)
    (tmp_path / "same.json").write_bytes((tmp_path / "tokenizer.json").read_bytes())
    values = {"sources": [{"name": "s", "path": "a.jsonl", "length": TOKENS}], "batching": {"type": "fixed", "size": 1}}

    def recipe(path: str, **fields: Any) -> Recipe:
        return Recipe.parse({**values, "tokenize": {"tokenizer": path}, **fields}, base_dir=tmp_path)

    prepare(recipe("same.json"))
    next(iter(Loader(recipe("same.json"))))
    for refusing in (prepare, Loader):
        with pytest.raises(RecipeError, match=r"tokenize\.tokenizer: differs from the tokenizer that counts") as caught:
            refusing(recipe("other.json"))
        assert str(tmp_path / "other.json") in str(caught.value)
        assert str(tmp_path / "tokenizer.json") in str(caught.value)
    prepare(recipe("other.json", map="own:map"))  # which may make anything of them


@pytest.mark.parametrize("unit", ["characters", "bytes"])
def test_characters_and_bytes_of_a_field_are_counted(tmp_path: Path, tokenizer: Tokenizer, unit: str) -> None:
    recipe = recipe_of(tmp_path, {"path": "a.jsonl", "length": {"unit": unit, "field": "text"}}, sequence=None)
    texts = [row["text"] for row in ROWS]
    assert lengths_of(recipe) == [len(text if unit == "characters" else text.encode()) for text in texts]


def test_a_row_without_a_text_is_named_by_prepare_and_by_the_loader(tmp_path: Path, tokenizer: Tokenizer) -> None:
    (tmp_path / "b.jsonl").write_text('{"text": "one"}\n{"txt": "two"}\n')
    with pytest.raises(PrepareError, match=r'b\.jsonl, line 2, byte 16: field "text" holds no text'):
        recipe_of(tmp_path, {"path": "b.jsonl", "length": TOKENS})
    recipe = recipe_of(tmp_path, {"path": "b.jsonl", "shuffle": "none"}, tokenize=TOKENS, lanes=1, sequence=None)
    with pytest.raises(SampleError, match=r'row 1 .*b\.jsonl.*field "text" holds no text') as caught:
        list(Loader(recipe))
    assert "fields: txt" in str(caught.value)


@pytest.mark.parametrize("unit", [{"unit": "characters", "field": "text"}, TOKENS])
def test_a_value_that_is_no_text_is_named(tmp_path: Path, tokenizer: Tokenizer, unit: dict[str, Any]) -> None:
    (tmp_path / "b.jsonl").write_text('{"text": "one"}\n{"text": ["two"]}\n')
    with pytest.raises(PrepareError, match=r'b\.jsonl, line 2, byte 16: field "text"'):
        recipe_of(tmp_path, {"path": "b.jsonl", "length": unit})


def test_a_text_that_is_no_unicode_is_named(tmp_path: Path, tokenizer: Tokenizer) -> None:
    (tmp_path / "b.jsonl").write_text('{"text": "one"}\n{"text": "\\ud800"}\n')
    with pytest.raises(PrepareError, match=r"b\.jsonl, line 2, byte 16"):
        recipe_of(tmp_path, {"path": "b.jsonl", "length": TOKENS})


def test_a_tokenizer_that_is_absent_or_none_is_refused(tmp_path: Path, tokenizer: Tokenizer) -> None:
    with pytest.raises(RecipeError, match=r"sources\[0\].length.tokenizer: no such tokenizer"):
        recipe_of(tmp_path, {"path": "a.jsonl", "length": {"tokenizer": "absent.json"}})
    (tmp_path / "bad.json").write_text('{"model": 1}')
    with pytest.raises(PrepareError, match=r"bad\.json: is not a tokenizer"):
        recipe_of(tmp_path, {"path": "a.jsonl", "length": {"tokenizer": "bad.json"}})


def test_a_missing_package_is_named_with_its_extra(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(PrepareError, match=r"pip install 'playhead\[text\]'"):
        recipe_of(tmp_path, {"path": "a.jsonl", "length": TOKENS})


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"length": TOKENS | {"unit": "seconds"}}, "length: a tokenizer counts the tokens of a text"),
        ({"length": TOKENS | {"function": "a:b"}}, "length: a tokenizer counts the tokens of a text"),
        ({"length": TOKENS | {"field": "a", "template": "{b}"}}, "length: has both `field` and `template`"),
        ({"length": TOKENS | {"template": "no field"}}, "length.template: is not a template"),
        ({"length": TOKENS | {"template": "{a"}}, "length.template: is not a template"),
        ({"length": TOKENS | {"template": "{}"}}, "length.template: is not a template"),
        ({"length": TOKENS | {"template": "{a!r:>9}"}}, "length.template: is not a template"),
        ({"length": {"field": "n", "max": 4}}, "length.max: requires `tokenizer`"),
        ({"length": {"unit": "characters"}}, "length: a length in characters is that of the text in a field"),
        ({"tokenize": True}, "tokenize: needs a tokenizer"),
        ({"tokenize": {"field": "text"}}, "tokenize: `tokenizer` is missing"),
        ({"tokenize": {"tokenizer": "s3://bucket/tokenizer.json"}}, "tokenize.tokenizer: must be on a local disk"),
    ],
)
def test_settings_that_mean_nothing_are_refused(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(RecipeError) as caught:
        Recipe.parse(
            {"sources": [{"name": "s", "path": "a.jsonl", **fields}], "batching": {"type": "fixed", "size": 1}}
        )
    assert caught.value.problem == f"sources[0].{problem}"
