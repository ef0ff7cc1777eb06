"""One part of a file of JSON lines -> a small dataset of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from playhead.errors import DataError, RecipeError
from playhead.megatron.idx import bin_path
from playhead.megatron.idx_writing import best_dtype, write_idx
from playhead.store import replacing

_BATCH = 256


@dataclass(frozen=True)
class Part:
    """The lines of a file that begin in [start, end)."""

    file: str
    start: int
    end: int


@dataclass(frozen=True)
class Rules:
    """How text becomes tokens; `eod` is the token's id. `vocab_size` decides the type of the tokens."""

    tokenizer: str
    key: str
    eod: int | None
    special_tokens: bool
    vocab_size: int


def rules_for(tokenizer: str, key: str, eod: str | None, special_tokens: bool) -> Rules:
    model = _load(tokenizer)
    token = None if eod is None else model.token_to_id(eod)
    if eod is not None and token is None:
        raise RecipeError(f'--eod "{eod}": is not a token of {tokenizer}', expected="a token of the vocabulary")
    return Rules(tokenizer, key, token, special_tokens, model.get_vocab_size())


@lru_cache(maxsize=1)
def _load(path: str) -> Any:
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise RecipeError("tokenizing needs the package tokenizers", fix="pip install 'playhead[text]'") from error
    if not Path(path).is_file():
        raise DataError(f"{path}: no such file", expected="a tokenizer.json")
    try:
        return Tokenizer.from_file(path)
    except Exception as error:  # the package raises nothing more particular
        raise DataError(f"{path}: is not a tokenizer", found=str(error), expected="a tokenizer.json") from error


def write_part(part: Part, prefix: str, rules: Rules) -> None:
    """Law: as Megatron's preprocessing, each line is a document of one sequence; one without tokens has no sequence."""
    model, dtype = _load(rules.tokenizer), best_dtype(rules.vocab_size)
    lengths: list[int] = []
    marks = [0]
    with replacing(bin_path(prefix)) as file:
        for texts in _batches(part, rules.key):
            for encoding in model.encode_batch(texts, add_special_tokens=rules.special_tokens):
                ids = encoding.ids
                if ids:
                    tokens = ids if rules.eod is None else [*ids, rules.eod]
                    file.write(np.array(tokens, dtype).tobytes())
                    lengths.append(len(tokens))
                marks.append(len(lengths))
    write_idx(prefix, dtype, np.array(lengths, np.int32), np.array(marks, np.int64))


def _batches(part: Part, key: str) -> Iterator[list[str]]:
    texts: list[str] = []
    for offset, line in _lines(part):
        texts.append(_text(line, key, part.file, offset))
        if len(texts) == _BATCH:
            yield texts
            texts = []
    if texts:
        yield texts


def _lines(part: Part) -> Iterator[tuple[int, bytes]]:
    """The lines that begin in the part, blank ones left out; the last may end beyond it."""
    with Path(part.file).open("rb") as file:
        offset = part.start
        if offset:
            file.seek(offset - 1)
            offset += len(file.readline()) - 1  # the rest of a line that began before, or the newline just before us
        while offset < part.end and (line := file.readline()):
            if line.strip():
                yield offset, line
            offset += len(line)


def _text(line: bytes, key: str, file: str, offset: int) -> str:
    try:
        found = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DataError(
            f"{file}, byte {offset:,}: is not JSON", found=str(error), fix="fix or remove the line"
        ) from error
    text = found.get(key) if isinstance(found, dict) else None
    if not isinstance(text, str):
        raise DataError(
            f'{file}, byte {offset:,}: has no text under "{key}"',
            found=", ".join(map(str, found)) if isinstance(found, dict) else type(found).__name__,
            fix="name the field that holds the text with --key",
        )
    return text
