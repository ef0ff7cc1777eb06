"""`tokenize`: tokens of a text put into samples, many at once."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from playhead.errors import DataError, SampleError
from playhead.formats.rows import Sample
from playhead.formats.tokens import Tokens, field_of
from playhead.recipe.values import Tokenize


class SampleTokens:
    """Adds tokens to samples. Law: the tokens of a sample depend only on the sample."""

    def __init__(self, given: Tokenize, tokenizers: Mapping[str, str]) -> None:
        self._tokens, self._to = Tokens(given, tokenizers), given.to

    def run(self, samples: list[Sample]) -> tuple[list[Sample], SampleError | None]:
        """The samples with their tokens, up to the first that has no text, and its error."""
        texts: list[str] = []
        problem = None
        try:
            for sample in samples:
                texts.append(self._tokens.text(partial(field_of, sample)))  # noqa: PERF401 - as many as have one
        except DataError as error:
            shown = f"fields: {', '.join(map(str, samples[len(texts)])) or 'none'}"
            problem = SampleError(error.problem, found=shown, expected=error.expected, fix="name another in `tokenize`")
        found = zip(samples, self._tokens.ids(texts), strict=False)
        return [{**sample, self._to: tokens} for sample, tokens in found], problem
