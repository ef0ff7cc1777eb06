"""Tokenizing with a Hugging Face `tokenizer.json`, for lengths and for `tokenize`.

Laws: a length by a tokenizer is the number of tokens that `tokenize` with the same settings delivers; tokens come from
the file that the digest was made of, even if the file changes later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from string import Formatter
from typing import Any

import msgspec
import numpy as np

from playhead.errors import DataError, RecipeError, StoreError
from playhead.fingerprint import digest_bytes
from playhead.formats.lengths import MISSING, read_field
from playhead.recipe.values import Length, Tokenize
from playhead.types import IntArray, LengthArray

_TEXT = "text"


class Tokens:
    """A tokenizer with the settings of a length or of `tokenize`, loaded when it is first used.

    `digests` are those of tokenizers by path: a file that has changed since is a StoreError.
    """

    def __init__(self, given: Length | Tokenize, digests: Mapping[str, str]) -> None:
        assert given.tokenizer is not None
        self._path, self._special, self._max = given.tokenizer, given.special, given.max
        self._digest = digests[given.tokenizer]
        self._pieces = text_pieces(given)

    def text(self, get: Callable[[str], Any]) -> str:
        """The text of a row, whose fields `get` returns."""
        parts: list[str] = []
        for literal, field in self._pieces:
            parts.append(literal)
            if field is not None:
                parts.append(_part(get(field), field))
        return "".join(parts)

    def counts(self, texts: Sequence[str]) -> LengthArray:
        """The number of tokens of each text."""
        return np.array([len(found.ids) for found in self._encoded(texts)], np.uint32)

    def ids(self, texts: Sequence[str]) -> list[IntArray]:
        """The tokens of each text."""
        return [np.array(found.ids, np.int64) for found in self._encoded(texts)]

    def _encoded(self, texts: Sequence[str]) -> Sequence[Any]:
        if not texts:
            return []
        encode = getattr(self._model, "encode_batch_fast", self._model.encode_batch)  # without offsets, from 0.20 on
        found: Sequence[Any] = encode(list(texts), add_special_tokens=self._special)
        return found

    @cached_property
    def _model(self) -> Any:
        model = tokenizer_of(self._path, self._digest, self._max)
        num_special = model.num_special_tokens_to_add(is_pair=False) if self._special else 0
        if self._max is not None and self._max < num_special:
            raise RecipeError(
                f"max: {self._max}: is less than the number of special tokens in every text",
                found=f"{num_special} of them, by {self._path}",
                fix=f"raise it to {num_special} at least, or set `special: false`",
            )
        return model


def text_fields(given: Length | Tokenize) -> list[str]:
    """The fields that the text is made of."""
    return [field for _, field in text_pieces(given) if field is not None]


def text_pieces(given: Length | Tokenize) -> list[tuple[str, str | None]]:
    """The parts of the text template: literal text, and the field after it, if any."""
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
            f"{where}: no such tokenizer",
            found=path,
            expected="the path of a `tokenizer.json`, on a local disk",
        ) from error


@lru_cache(maxsize=16)
def _digest(path: str, _size: int, _mark: int) -> str:
    return digest_bytes(Path(path).read_bytes())


def load_tokenizer(path: str) -> Any:
    """The current tokenizer at the path of a `tokenizer.json`; the last few are cached."""
    try:
        found = Path(path).stat()
        return tokenizer_of(path, _digest(path, found.st_size, found.st_mtime_ns))
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: no such file", expected="a tokenizer.json") from error


@lru_cache(maxsize=8)
def tokenizer_of(path: str, digest: str, most: int | None = None) -> Any:
    """The tokenizer with a digest. It truncates texts to `most` tokens, and keeps their special tokens.

    Padding and truncation that are written in the file are left out: the tokens of a text must not depend on the texts
    that happen to be encoded with it.
    """
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise RecipeError("tokenizing needs the package tokenizers", fix="pip install 'playhead[text]'") from error
    data = _read(path)
    if digest_bytes(data) != digest:
        raise StoreError(
            f"{path}: the tokenizer has changed since it was first used",
            found="other contents",
            expected="those that lengths were counted with, or that the loader was opened with",
            fix="restore the file, or run `playhead prepare` on the recipe and start again",
        )
    try:
        model = Tokenizer.from_buffer(data)
    except Exception as error:  # the package raises no more specific error
        raise DataError(f"{path}: is not a tokenizer", found=str(error), expected="a tokenizer.json") from error
    model.no_padding()
    model.no_truncation()
    if most is not None:
        model.enable_truncation(most)
    return model


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise StoreError(f"{path}: cannot be read", found=str(error), expected="a tokenizer.json") from error


def by_digest(given: Any, digests: dict[str, str]) -> Any:
    """A length, or `tokenize`, with the digest of its tokenizer's file in place of the path: files may move."""
    if isinstance(given, Length) and given.sum:
        return msgspec.structs.replace(given, sum=[by_digest(term, digests) for term in given.sum])
    if given is None or given.tokenizer is None:
        return given
    return msgspec.structs.replace(given, tokenizer=digests[given.tokenizer])
