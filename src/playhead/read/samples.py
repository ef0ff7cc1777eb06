"""The one way to make samples of a source: rows read, media fetched, members decoded, texts tokenized, the map run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, NamedTuple

from playhead.errors import DataError, PlayheadError
from playhead.formats.registry import format_of
from playhead.formats.rows import Rows, Sample
from playhead.read.decode import decoded_until, with_media
from playhead.read.generator import SampleGenerator
from playhead.read.mapping import Mapper
from playhead.read.media import decode_media
from playhead.read.media_rules import media_rules
from playhead.read.recount import recount_of
from playhead.read.stored import read_arrays
from playhead.read.tokens import SampleTokens
from playhead.recipe.imports import resolve_function
from playhead.recipe.tree import Leaf, map_of, tokenize_of
from playhead.recipe.values import Recipe
from playhead.store import Files


class Made(NamedTuple):
    """Samples, up to the first that fails, and how that one does; `counted` are their lengths where these are counted
    by terms, before the map.
    """

    samples: list[Sample]
    problem: PlayheadError | None
    counted: list[int] | None = None


class SampleMaker:
    """Makes the samples of one source, in one process.

    Where `stored_arrays` may be in samples, and no map is to see them, arrays are left in their files.
    """

    def __init__(
        self,
        recipe: Recipe,
        leaf: Leaf,
        files: Files,
        given_map: Callable[..., Any] | None = None,
        *,
        stored_arrays: bool = False,
    ) -> None:
        found = format_of(leaf.source, leaf.path)
        function = map_function(recipe, leaf, given_map)
        self._reader = found.format.open(leaf.source, files)
        self._files = files
        self._raw_members = found.raw_members
        self._decodes = recipe.decode and found.raw_members
        self.rules = media_rules(leaf.source.path, recipe.media)
        self._media = self.rules if recipe.media is not False else None
        self._takes_extents = self._decodes if found.raw_members else self._media is not None
        self._audio = leaf.source.audio or recipe.audio
        self.image = leaf.source.image or recipe.image
        self.recount = recount_of(recipe, leaf)
        tokenize = tokenize_of(recipe, leaf)
        self._tokens = None if tokenize is None else SampleTokens(tokenize[0])
        self._mapper = None if function is None else Mapper(function)
        self._stored_arrays = stored_arrays and function is None

    def raw(self, rows: Rows) -> list[Sample]:
        """The samples as they are in their files; where they are decoded, an Extent may stand for bytes."""
        heads = getattr(self._reader, "read_heads", None) if self._takes_extents else None
        return read_rows(self._reader.read if heads is None else heads, rows)

    def undecoded(self, raws: list[Sample]) -> list[Sample]:
        """The samples with their media as they are, and every other member decoded."""
        if not self._raw_members:
            return raws
        samples, problem = decoded_until(with_media(raws))
        if problem is not None:
            raise problem
        return samples

    def make(self, raws: list[Sample], generators: Iterable[SampleGenerator]) -> Made:
        """What becomes of them."""
        samples, problem = raws, None
        may_hold_media = self._decodes or getattr(self._reader, "has_media", True)
        if self._media is not None and may_hold_media:
            samples = with_media(samples) if self._decodes else samples
            samples, problem = decode_media(samples, self._files, self._media, self._audio, self.image)
        if self._decodes:
            samples, failed = decoded_until(samples)
            problem = failed or problem
        counted = None
        if self.recount is not None:
            samples, counted, failed = self.recount.run(raws, samples)
            problem = failed or problem
        if not self._stored_arrays and may_hold_media:
            samples = read_arrays(samples)
        if self._tokens is not None:
            samples, failed = self._tokens.run(samples)
            problem = failed or problem
        if self._mapper is not None:
            samples, failed = self._mapper.run(samples, islice(generators, len(samples)))
            problem = failed or problem
        return Made(samples, problem, counted)


def map_function(recipe: Recipe, leaf: Leaf, given: Callable[..., Any] | None = None) -> Callable[..., Any] | None:
    """The map of a source. A function given in place of the recipe's map does not replace a source's own."""
    named = map_of(recipe, leaf)
    return given if named is None or (given is not None and leaf.source.map is None) else resolve_function(*named)


def read_rows(read: Callable[[Rows], Iterable[Sample]], rows: Rows) -> list[Sample]:
    """The samples as a reader has them. Law: as many as were asked for."""
    raws = read(rows)
    found = raws if isinstance(raws, list) else [*raws]
    if len(found) != len(rows.numbers):
        raise DataError(
            "the bytes of the row hold another number of samples",
            found=f"{len(found):,}",
            expected=f"{len(rows.numbers):,}",
        )
    return found
