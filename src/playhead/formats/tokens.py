"""Texts into tokens by a Hugging Face `tokenizer.json`: what a length counts, and what `tokenize` delivers.

Law: a length by a tokenizer is the number of tokens that `tokenize` with the same settings delivers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from string import Formatter
from typing import Any

import msgspec
import numpy as np

from playhead.errors import DataError, RecipeError
from playhead.fingerprint import digest_bytes
from playhead.formats.lengths import MISSING, read_field
from playhead.recipe.values import Length, Tokenize
from playhead.types import IntArray, LengthArray

_TEXT = "text"


class Tokens:
    """A tokenizer with its settings, as a length or `tokenize` gives them, loaded when it is first used."""

    def __init__(self, given: Length | Tokenize) -> None:
        assert given.tokenizer is not None
        self._path, self._special, self._max = given.tokenizer, given.special, given.max
        self._pieces = text_pieces(given)

    @property
    def fields(self) -> list[str]:
        """The fields that the text is made of."""
        return [field for _, field in self._pieces if field is not None]

    def text(self, get: Callable[[str], Any]) -> str:
        """The text of a row, of which `get` gives the fields."""
        parts: list[str] = []
        for literal, field in self._pieces:
            parts.append(literal)
            if field is not None:
                parts.append(_part(get(field), field))
        return "".join(parts)

    def counts(self, texts: Sequence[str]) -> LengthArray:
        """The number of tokens of each text."""
        return np.array([min(len(found.ids), self._most) for found in self._encoded(texts)], np.uint32)

    def ids(self, texts: Sequence[str]) -> list[IntArray]:
        """The tokens of each text."""
        return [np.array(found.ids[: self._max], np.int64) for found in self._encoded(texts)]

    @property
    def _most(self) -> int:
        return 2**32 - 1 if self._max is None else self._max

    def _encoded(self, texts: Sequence[str]) -> Sequence[Any]:
        if not texts:
            return []
        model = load_tokenizer(self._path)
        encode = getattr(model, "encode_batch_fast", model.encode_batch)  # without offsets, from tokenizers 0.20 on
        found: Sequence[Any] = encode(list(texts), add_special_tokens=self._special)
        return found


def text_pieces(given: Length | Tokenize) -> list[tuple[str, str | None]]:
    """What the text is made of: literal text, and the field after it, if any."""
    if given.template is None:
        return [("", given.field or _TEXT)]
    return [(literal, field) for literal, field, _, _ in Formatter().parse(given.template)]


def field_of(sample: Any, name: str) -> Any:
    """A field of a sample; `meta.text` reaches inside a dictionary."""
    return sample[name] if name in sample else read_field(sample, name)


def _part(value: Any, field: str) -> str:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise DataError(
            f'field "{field}" holds no text to tokenize',
            found="no such field" if value is MISSING else repr(value)[:80],
            expected="a text",
        )
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise DataError(f'field "{field}" is not valid Unicode', found=str(error)[:120]) from error
    return value


def tokenizer_digest(path: str, where: str) -> str:
    """A digest of a tokenizer's file; `where` is its place in the recipe."""
    try:
        found = Path(path).stat()
        return _digest(path, found.st_size, found.st_mtime_ns)
    except (OSError, ValueError) as error:
        raise RecipeError(
            f"{where}: there is no such tokenizer",
            found=path,
            expected="the path of a `tokenizer.json`, on a local disk",
        ) from error


@lru_cache(maxsize=16)
def _digest(path: str, _size: int, _mark: int) -> str:
    return digest_bytes(Path(path).read_bytes())


def load_tokenizer(path: str) -> Any:
    """A tokenizer by the path of its `tokenizer.json`; the last few are kept.

    Padding and truncation that are written in the file are left out: the tokens of a text must not depend on the texts
    that happen to be encoded with it.
    """
    try:
        found = Path(path).stat()
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: no such file", expected="a tokenizer.json") from error
    return _loaded(path, found.st_size, found.st_mtime_ns)


@lru_cache(maxsize=4)
def _loaded(path: str, _size: int, _mark: int) -> Any:
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise RecipeError("tokenizing needs the package tokenizers", fix="pip install 'playhead[text]'") from error
    try:
        model = Tokenizer.from_file(path)
    except Exception as error:  # the package raises nothing more particular
        raise DataError(f"{path}: is not a tokenizer", found=str(error), expected="a tokenizer.json") from error
    model.no_padding()
    model.no_truncation()
    return model


def by_digest(given: Any, digests: dict[str, str]) -> Any:
    """A length, or `tokenize`, with the digest of its tokenizer's file in place of the path: files may move."""
    if isinstance(given, Length) and given.sum:
        return msgspec.structs.replace(given, sum=[by_digest(term, digests) for term in given.sum])
    if given is None or given.tokenizer is None:
        return given
    return msgspec.structs.replace(given, tokenizer=digests[given.tokenizer])
