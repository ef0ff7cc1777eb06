"""Tokenizing and merging, beside megatron-core's own builder."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import oracle
import pytest
import torch

from playhead import megatron
from playhead.errors import DataError, RecipeError
from playhead.megatron import tokenizing
from playhead.store import MEMORY
from small_data import bytes_of

WORDS = ["[UNK]", "</s>", *(f"w{i}" for i in range(50))]


def write_tokenizer(path: Path, num_words: int = len(WORDS)) -> Path:
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {word: i for i, word in enumerate([*WORDS, *(f"x{i}" for i in range(num_words - len(WORDS)))])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))  # noqa: S106 - a word, not a secret
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(path))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_tokenizer(tmp_path / "tokenizer.json")
    rng = np.random.default_rng(1)
    for name, count in (("one", 70), ("two", 31)):
        texts = [" ".join(f"w{i}" for i in rng.integers(0, 50, rng.integers(0, 9))) for _ in range(count)]
        lines = [json.dumps({"id": i, "text": text}) for i, text in enumerate(texts)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines) + ("\n\n" if name == "one" else ""))
    return tmp_path


def expected_bytes(folder: Path, names: list[str], eod: bool, dtype: type = np.uint16) -> dict[str, bytes]:
    """What the oracle's builder writes for the same ids: a document a line, without a sequence where it is empty."""
    (folder / "theirs").mkdir(exist_ok=True)
    builder = oracle.IndexedDatasetBuilder(str(folder / "theirs" / "x.bin"), dtype=dtype)
    for name in names:
        for line in filter(None, (folder / f"{name}.jsonl").read_text().split("\n")):
            ids = [WORDS.index(word) for word in json.loads(line)["text"].split()]
            if ids:
                builder.add_item(torch.tensor(ids + [1] * eod))
            builder.end_document()
    builder.finalize(str(folder / "theirs" / "x.idx"))
    return {Path(str(name)).suffix: data for name, data in bytes_of(folder / "theirs").items()}


def found_bytes(prefix: Path) -> dict[str, bytes]:
    return {suffix: Path(f"{prefix}{suffix}").read_bytes() for suffix in (".bin", ".idx")}


@pytest.mark.parametrize("eod", [None, "</s>"])
@pytest.mark.parametrize("part_bytes", [29, 97, 1 << 20])
def test_the_bytes_are_those_of_the_oracle_however_the_text_is_cut(folder: Path, eod, part_bytes: int) -> None:
    files = [folder / "one.jsonl", folder / "two.jsonl"]
    done = megatron.tokenize(files, folder / "tokenizer.json", folder / "x", eod=eod, part_bytes=part_bytes)
    assert found_bytes(folder / "x") == expected_bytes(folder, ["one", "two"], eod is not None)
    assert (done.written.num_documents, done.written.dtype) == (101, "uint16")
    assert not (folder / "x.parts").exists()


def test_workers_keep_the_order(folder: Path) -> None:
    files = [folder / "one.jsonl", folder / "two.jsonl"]
    megatron.tokenize(files, folder / "tokenizer.json", folder / "x", workers=2, part_bytes=700)
    assert found_bytes(folder / "x") == expected_bytes(folder, ["one", "two"], eod=False)


def test_a_large_vocabulary_makes_int32_tokens(folder: Path) -> None:
    write_tokenizer(folder / "large.json", 65_500)
    megatron.tokenize([folder / "one.jsonl"], folder / "large.json", folder / "x")
    assert found_bytes(folder / "x") == expected_bytes(folder, ["one"], eod=False, dtype=np.int32)


def test_an_interrupted_run_goes_on_where_it_was(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, written = tokenizing.write_part, []

    def write_some(part) -> None:
        if len(written) == 3:
            raise KeyboardInterrupt
        written.append(part)
        real(part)

    arguments = ([folder / "one.jsonl"], folder / "tokenizer.json", folder / "x")
    monkeypatch.setattr(tokenizing, "write_part", write_some)
    with pytest.raises(KeyboardInterrupt):
        megatron.tokenize(*arguments, part_bytes=300)
    assert not (folder / "x.idx").exists()
    monkeypatch.setattr(tokenizing, "write_part", real)
    done = megatron.tokenize(*arguments, part_bytes=300)
    assert done.reused_parts == 3
    assert found_bytes(folder / "x") == expected_bytes(folder, ["one"], eod=False)


def test_a_damaged_part_of_an_earlier_run_is_made_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizing, "merge_prefixes", lambda *_: 1 / 0)
    arguments = ([folder / "one.jsonl"], folder / "tokenizer.json", folder / "x")
    with pytest.raises(ZeroDivisionError):
        megatron.tokenize(*arguments, part_bytes=300)
    monkeypatch.undo()
    damaged = folder / "x.parts" / "000001.idx"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    done = megatron.tokenize(*arguments, part_bytes=300)
    assert done.reused_parts == done.num_parts - 1
    assert found_bytes(folder / "x") == expected_bytes(folder, ["one"], eod=False)


@pytest.mark.parametrize("workers", [1, 2])
def test_after_a_bad_line_finished_parts_are_kept_and_no_other_is_begun(folder: Path, workers: int) -> None:
    lines = (folder / "one.jsonl").read_text().split("\n")
    (folder / "one.jsonl").write_text("\n".join([*lines[:20], "{", *lines[20:]]))
    arguments = ([folder / "one.jsonl"], folder / "tokenizer.json", folder / "x")
    with pytest.raises(DataError, match="is not JSON"):
        megatron.tokenize(*arguments, part_bytes=300, workers=workers)
    num_parts = -(-(folder / "one.jsonl").stat().st_size // 300)
    assert 0 < len(list((folder / "x.parts").glob("*.idx"))) < num_parts - 1
    assert not (folder / "x.idx").exists()


def test_texts_may_be_in_any_storage(folder: Path) -> None:
    path = MEMORY.write(f"memory://{folder.name}/one.jsonl", (folder / "one.jsonl").read_bytes())
    megatron.tokenize([path], folder / "tokenizer.json", folder / "x", part_bytes=97)
    assert found_bytes(folder / "x") == expected_bytes(folder, ["one"], eod=False)


@pytest.mark.parametrize("read_bytes", [1, 7, 1 << 20])
def test_lines_are_whole_however_they_are_read(folder: Path, monkeypatch: pytest.MonkeyPatch, read_bytes: int) -> None:
    monkeypatch.setattr(tokenizing, "_READ_BYTES", read_bytes)
    megatron.tokenize([folder / "one.jsonl"], folder / "tokenizer.json", folder / "x", part_bytes=97)
    assert found_bytes(folder / "x") == expected_bytes(folder, ["one"], eod=False)


def test_parts_of_other_settings_are_not_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizing, "merge_prefixes", lambda *_: 1 / 0)
    arguments = ([folder / "one.jsonl"], folder / "tokenizer.json", folder / "x")
    with pytest.raises(ZeroDivisionError):
        megatron.tokenize(*arguments, part_bytes=300)
    monkeypatch.undo()
    done = megatron.tokenize(*arguments, part_bytes=300, eod="</s>")
    assert done.reused_parts == 0
    assert found_bytes(folder / "x") == expected_bytes(folder, ["one"], eod=True)


@pytest.mark.parametrize(
    ("line", "problem"),
    [('{"text": "w1"', "two.jsonl, byte 14: is not JSON"), ('{"other": 1}', 'has no text under "text"'), ("3", "int")],
)
def test_a_bad_line_is_named_by_its_place(folder: Path, line: str, problem: str) -> None:
    (folder / "two.jsonl").write_text('{"text":"w1"}\n' + line + "\n")
    with pytest.raises(DataError) as caught:
        megatron.tokenize([folder / "two.jsonl"], folder / "tokenizer.json", folder / "x")
    assert problem in str(caught.value)


def test_wrong_tokenizers_and_tokens_are_refused(folder: Path) -> None:
    files = [folder / "one.jsonl"]
    with pytest.raises(RecipeError, match="is not a token of"):
        megatron.tokenize(files, folder / "tokenizer.json", folder / "x", eod="<none>")
    with pytest.raises(DataError, match="is not a tokenizer"):
        megatron.tokenize(files, folder / "one.jsonl", folder / "x")
    with pytest.raises(DataError, match="no such file"):
        megatron.tokenize(files, folder / "none.json", folder / "x")


def test_merging_gives_the_bytes_of_the_oracle(tmp_path: Path) -> None:
    prefixes = []
    for i, lengths in enumerate([[3, 0, 5], [1], [], [7, 2]]):
        prefixes.append(oracle.write_dataset(tmp_path / f"p{i}", oracle.documents_of(lengths, i), np.int32))
    (tmp_path / "theirs").mkdir()
    builder = oracle.IndexedDatasetBuilder(str(tmp_path / "theirs" / "x.bin"), dtype=np.int32)
    for prefix in prefixes:
        builder.add_index(prefix)
    builder.finalize(str(tmp_path / "theirs" / "x.idx"))
    written = megatron.merge(prefixes, str(tmp_path / "x"))
    assert found_bytes(tmp_path / "x") == found_bytes(tmp_path / "theirs" / "x")
    assert (written.num_documents, written.num_tokens) == (6, 18)


def test_datasets_of_several_kinds_are_not_merged(tmp_path: Path) -> None:
    a = oracle.write_dataset(tmp_path / "a", [[1, 2]], np.int32)
    b = oracle.write_dataset(tmp_path / "b", [[1, 2]], np.uint16)
    with pytest.raises(DataError, match="differs in type"):
        megatron.merge([a, b], str(tmp_path / "x"))
    with pytest.raises(RecipeError, match="is among the datasets"):
        megatron.merge([a], a)
    assert not (tmp_path / "x.bin").exists()
