"""The lengths of decoded samples, counted again by the terms that the plan counted: text, audio, images.

A length that is the size of the sequence field is compared with that field (length.py). A sum of terms, or a count of
audio steps, image patches or characters, is counted here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np

from playhead.errors import DataError, SampleError
from playhead.formats.lengths import MISSING, planned_seconds
from playhead.formats.registry import format_of
from playhead.formats.row_lengths import RowLengths, num_bytes
from playhead.formats.rows import Sample
from playhead.formats.tokens import field_of
from playhead.read.length import LengthError
from playhead.recipe.augment_lengths import may_be_shorter
from playhead.recipe.augments import Augment
from playhead.recipe.tree import Leaf, length_changes
from playhead.recipe.values import Length, Recipe

Counted = list[int | None]

_MILLISECONDS = Length(field="-", unit="seconds")


@dataclass(frozen=True)
class Recount:
    """Counts the samples of a source.

    `changes` are the augmentations that change the length of audio, `tokenizers` digests by path.
    """

    length: Length
    changes: Sequence[Augment]
    tokenizers: Mapping[str, str]
    tolerance_seconds: float
    shorter_passes: bool = False

    @property
    def tolerance(self) -> int:
        """How many steps a sample may differ from its plan, because manifests round."""
        audio = (term for term in self.length.terms if term.audio is not None)
        return sum(ceil(self.tolerance_seconds * (term.per_second or 1000)) for term in audio)

    def run(self, raws: Sequence[Sample], samples: list[Sample]) -> tuple[list[Sample], Counted, SampleError | None]:
        """The samples, with audio truncated to the length in its row, and their lengths; up to the first that has
        none, and its error. The characters of a field that is not delivered as text are unknown.
        """
        if self.length.unit == "characters" and not self.length.sum:
            texts = [field_of(sample, str(self.length.field)) for sample in samples]
            return samples, [len(text) if isinstance(text, str) else None for text in texts], None
        lengths = RowLengths(self.length, self.changes, self.tokenizers, delivered=True)
        done: list[Sample] = []
        problem = None
        try:
            for raw, sample in zip(raws, samples, strict=False):
                made = self._cut_to_row(sample)
                lengths.add(_Delivered(raw, made))
                done.append(made)
        except DataError as error:
            problem = SampleError(error.problem, found=error.found, expected=error.expected, fix=error.fix)
        return done, [*lengths.take().tolist()], problem

    def mismatch(self, counted: int | None, planned: int) -> LengthError | None:
        """The error for a sample of this length; None if it is accepted. An empty sample is planned with length 1."""
        if counted is None or (counted, planned) == (0, 1):
            return None
        if counted <= planned and (self.shorter_passes or planned - counted <= self.tolerance):
            return None
        return LengthError(
            "the sample is not as long as planned",
            found=f"{counted:,} {self.length.unit}, counted by the terms of `length`",
            expected=f"{planned:,}, its length in the index",
            fix="correct the row or its media, leave the row out, or set `on_length_mismatch: substitute`",
        )

    def all_as_planned(self, counted: Counted, planned: Sequence[int]) -> bool:
        return not any(map(self.mismatch, counted, planned))

    def _cut_to_row(self, sample: Sample) -> Sample:
        """Manifests round: audio may be a little longer than its row declares, and is truncated to that."""
        for term in self.length.terms:
            declared = field_of(sample, term.field) if term.audio and term.field else MISSING
            decoded_seconds = _seconds(sample, term.audio) if term.audio else None
            if decoded_seconds is None or declared is MISSING or declared is None:
                continue
            planned = planned_seconds(declared, _MILLISECONDS, f'field "{term.field}"', self.changes) / 1000
            if planned < decoded_seconds <= planned + self.tolerance_seconds:
                end = int(planned * sample[f"{term.audio}_rate"])
                sample = {**sample, str(term.audio): sample[str(term.audio)][:end]}
        return sample


def recount_of(recipe: Recipe, leaf: Leaf, tokenizers: Mapping[str, str]) -> Recount | None:
    """None if lengths are not counted by terms, or an image that must be counted is not decoded."""
    length = leaf.source.length
    if length is None or not length.by_terms:
        return None
    if any(term.image for term in length.terms) and not _decodes_media(recipe, leaf):
        return None
    changes = length_changes(recipe, leaf)
    shorter_passes = may_be_shorter(changes) or recipe.on_length_mismatch != "error"
    return Recount(length, changes, tokenizers, recipe.length_tolerance, shorter_passes)


def _decodes_media(recipe: Recipe, leaf: Leaf) -> bool:
    return recipe.media is not False and (recipe.decode or not format_of(leaf.source, leaf.path).raw_members)


def _seconds(sample: Sample, field: str) -> float | None:
    """The length of the audio in a field; None if there is none."""
    audio, rate = sample.get(field), sample.get(f"{field}_rate")
    return None if not hasattr(audio, "shape") or not rate else len(audio) / rate  # type: ignore[arg-type]


@dataclass(frozen=True)
class _Delivered:
    """A decoded sample as a row; `raw` is the sample as stored in its file."""

    raw: Sample
    value: Sample

    def get(self, field: str) -> Any:
        found = field_of(self.value, field)
        return found.item() if isinstance(found, np.generic) else found

    def size(self, field: str | None) -> int:
        return num_bytes(None if field is None else self.get(field), field)

    def sample(self) -> Sample:
        return self.raw

    def seconds(self, field: str) -> float | None:
        return _seconds(self.value, field)

    def image_size(self, field: str) -> tuple[int, int]:
        shape: tuple[int, ...] = getattr(self.value.get(field), "shape", ())
        if len(shape) not in (2, 3):
            raise DataError(f'field "{field}" is not an image', found=type(self.value.get(field)).__name__)
        return shape[1], shape[0]
