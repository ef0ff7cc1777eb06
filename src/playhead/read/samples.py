"""Makes the samples of a source: rows decoded, audio augmented, texts tokenized, the map run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from time import monotonic
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from playhead.errors import PlayheadError
from playhead.formats.rows import Choice, Rows, Sample
from playhead.index.layout import chat_of
from playhead.read.augment import Augmenter
from playhead.read.conversations import SampleChat
from playhead.read.decode_threads import NO_THREADS, DecodeThreads
from playhead.read.generator import SampleGenerator
from playhead.read.headers import UndecodedRow
from playhead.read.mapping import Mapper
from playhead.read.media import NOTHING_FETCHED, FetchedMedia
from playhead.read.recount import Counted, Recount, recount_of
from playhead.read.row_decoder import RowDecoder
from playhead.read.stored import read_arrays
from playhead.read.tokens import SampleTokens
from playhead.recipe.imports import resolve_function
from playhead.recipe.tree import Leaf, map_of, tokenize_of
from playhead.recipe.values import Recipe
from playhead.store import SPANS, Files

NONE: Mapping[str, str] = MappingProxyType({})


class MadeSamples(NamedTuple):
    """Samples, up to the first that fails, and its error; `counted` are their lengths before the map, if these are
    counted by terms.
    """

    samples: list[Sample]
    problem: PlayheadError | None
    counted: Counted | None = None


class Maker(Protocol):
    """Makes the samples of one source, in one process. `recount` counts lengths by terms again, if they are checked.

    Look-ahead threads call `raw` and `fetch`, and never `make`, which calls the user's map.
    """

    @property
    def recount(self) -> Recount | None: ...

    def raw(self, rows: Rows) -> list[Sample]:
        """What is read of the rows. A broken row raises DataError or SampleError."""

    def fetch(self, raws: list[Sample], generators: Iterable[SampleGenerator]) -> FetchedMedia:
        """What `make` will need of remote media that the rows name."""

    def make(
        self, raws: list[Sample], generators: Iterable[SampleGenerator], fetched: FetchedMedia = NOTHING_FETCHED
    ) -> MadeSamples:
        """The samples of what was read and fetched."""


NewMaker = Callable[[Recipe, Leaf, Files], Maker]


class SampleMaker:
    """Makes the samples of one source, in one process.

    If `stored_arrays` is true and there is no map, arrays are left in their files. Without an `augmenter` audio is not
    changed. `tokenizers` are the digests of the tokenizers that it needs, by path. `threads` decode media.
    """

    def __init__(
        self,
        recipe: Recipe,
        leaf: Leaf,
        files: Files,
        given_map: Callable[..., Any] | None = None,
        *,
        stored_arrays: bool = False,
        augmenter: Augmenter | None = None,
        tokenizers: Mapping[str, str] = NONE,
        threads: DecodeThreads = NO_THREADS,
    ) -> None:
        function = map_function(recipe, leaf, given_map)
        self._decoder = RowDecoder(recipe, leaf, files, threads)
        self._augmenter = augmenter
        self.recount = recount_of(recipe, leaf, tokenizers)
        tokenize = tokenize_of(recipe, leaf)
        self._tokens = None if tokenize is None else SampleTokens(tokenize[0], tokenizers)
        chat = chat_of(recipe, leaf)
        headers = UndecodedRow({}, self._decoder.media_files, self._decoder.rules, self._decoder.image)
        audio_dtype = None if recipe.media is False else (leaf.source.audio or recipe.audio).dtype
        self._chat = None if chat is None else SampleChat(chat, tokenizers, headers, audio_dtype)
        self._mapper = None if function is None else Mapper(function)
        self._stored_arrays = stored_arrays and function is None

    def raw(self, rows: Rows) -> list[Sample]:
        """The samples as they are in their files; where they are decoded, an Extent may stand for bytes."""
        return self._decoder.raw(rows)

    def fetch(self, raws: list[Sample], generators: Iterable[SampleGenerator]) -> FetchedMedia:
        if not self._decoder.may_name_remote:
            return NOTHING_FETCHED
        return self._decoder.fetched(self._undecoded(raws, self._drawn(raws, generators)))

    def make(
        self, raws: list[Sample], generators: Iterable[SampleGenerator], fetched: FetchedMedia = NOTHING_FETCHED
    ) -> MadeSamples:
        """Decode, augment, tokenize and map raw samples."""
        drawn = self._drawn(raws, generators)
        undecoded = self._undecoded(raws, drawn)
        samples, problem = self._decoder.decoded(undecoded, fetched)
        if self._augmenter is not None:
            samples, failed = self._augmenter.run(undecoded, read_arrays(samples), drawn or [])
            problem = failed or problem
        return self._finished(raws, samples, problem, generators if drawn is None else drawn)

    def _drawn(self, raws: list[Sample], generators: Iterable[SampleGenerator]) -> list[SampleGenerator] | None:
        """The generators that are needed before samples are decoded."""
        if self._augmenter is None and not self._decoder.has_choices:
            return None
        return [*islice(generators, len(raws))]

    def _undecoded(self, raws: list[Sample], drawn: list[SampleGenerator] | None) -> list[Sample]:
        """The samples with their media as `Media` values, and the segments of them that are wanted."""
        undecoded = self._decoder.with_media(raws)
        if drawn is not None:
            undecoded = [chosen(sample, generator) for sample, generator in zip(undecoded, drawn, strict=True)]
        if self._augmenter is not None:
            undecoded = self._augmenter.set_segments(undecoded, drawn or [])
        return undecoded

    def _finished(
        self,
        raws: list[Sample],
        samples: list[Sample],
        problem: PlayheadError | None,
        generators: Iterable[SampleGenerator],
    ) -> MadeSamples:
        """Decoded samples counted, tokenized and mapped."""
        counted = None
        failed: PlayheadError | None
        if self.recount is not None:
            samples, counted, failed = self.recount.run(raws, samples)
            problem = failed or problem
        if self._chat is not None:
            samples, failed = self._chat.run(samples)
            problem = failed or problem
        if not self._stored_arrays and self._decoder.may_hold_media:
            samples = read_arrays(samples)
        if self._tokens is not None:
            samples, failed = self._tokens.run(samples)
            problem = failed or problem
        if self._mapper is not None:
            began = monotonic()
            samples, failed = self._mapper.run(samples, islice(generators, len(samples)))
            problem = failed or problem
            spans = SPANS.get()
            if spans is not None:
                spans.append(("map", began, monotonic(), None, 0, 0))
        return MadeSamples(samples, problem, counted)


def chosen(sample: Sample, generator: SampleGenerator) -> Sample:
    """The sample with one of the options in place of each choice."""
    found = {
        name: value.options[generator.choose(name, len(value.options))]
        for name, value in sample.items()
        if type(value) is Choice
    }
    return {**sample, **found} if found else sample


def map_function(recipe: Recipe, leaf: Leaf, given: Callable[..., Any] | None = None) -> Callable[..., Any] | None:
    """The map of a source. A function that replaces the recipe's map does not replace that of a source."""
    named = map_of(recipe, leaf)
    return given if named is None or (given is not None and leaf.source.map is None) else resolve_function(*named)
