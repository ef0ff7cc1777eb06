"""The rows of one source, read and decoded: members by their extension, media by their kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from playhead.errors import DataError, SampleError
from playhead.formats.conversation import CONVERSATION
from playhead.formats.registry import format_of
from playhead.formats.rows import Rows, Sample
from playhead.read.conversations import audio_as_conversation
from playhead.read.decode import decoded_until, with_media
from playhead.read.decode_threads import NO_THREADS, DecodeThreads
from playhead.read.media import NOTHING_FETCHED, FetchedMedia, decode_media, fetch_media
from playhead.read.media_rules import MediaRules, media_rules
from playhead.recipe.by_format import format_holds_conversations
from playhead.recipe.storage import uncached
from playhead.recipe.tree import Leaf, audio_conversations
from playhead.recipe.values import Recipe, Source
from playhead.store import Files, num_costly

_FOLDERS = ("data_folder", "audio_root")


def media_folders(source: Source) -> list[str]:
    """The folders that options of conversations name: rows may name what is in them."""
    given = [source.options.get(name, []) for name in _FOLDERS] if format_holds_conversations(source) else []
    return [path for paths in given for path in paths]


def _rules(recipe: Recipe, leaf: Leaf) -> MediaRules:
    folders = [f"{path.rstrip('/')}/" for path in media_folders(leaf.source)]
    return media_rules([*leaf.source.path, *folders], recipe.media, recipe.length_tolerance)


def may_name_remote(recipe: Recipe, leaf: Leaf, files: Files) -> bool:
    """Whether rows may name media whose requests take a round trip."""
    rules = _rules(recipe, leaf)
    return recipe.media is not False and num_costly(files, (*rules.roots, *rules.allow)) > 0


class RowDecoder:
    """Reads and decodes the rows of one source, in one process."""

    def __init__(self, recipe: Recipe, leaf: Leaf, files: Files, threads: DecodeThreads = NO_THREADS) -> None:
        found = format_of(leaf.source, leaf.path)
        self._reader = found.format.open(leaf.source, files)
        self.media_files = uncached(recipe, files)
        self._raw_members = found.raw_members
        self._decodes = recipe.decode and found.raw_members
        self.rules = _rules(recipe, leaf)
        self._media = self.rules if recipe.media is not False else None
        self._takes_extents = self._decodes if found.raw_members else self._media is not None
        self._video = recipe.video
        self._tags = dict(leaf.source.tags)
        self._as_conversation = audio_conversations(leaf.source)
        self._conversations = found.conversations
        self._audio = leaf.source.audio or recipe.audio
        self.image = leaf.source.image or recipe.image
        self.may_name_remote = may_name_remote(recipe, leaf, files)
        self._threads = threads

    @property
    def may_hold_media(self) -> bool:
        """Whether samples may hold media; checked after every read."""
        return self._decodes or self._as_conversation is not None or getattr(self._reader, "has_media", True)

    @property
    def has_choices(self) -> bool:
        """Whether samples may hold a `Choice`."""
        return getattr(self._reader, "has_choices", False)

    def raw(self, rows: Rows) -> list[Sample]:
        """The samples as they are in their files; where they are decoded, an Extent may stand for bytes."""
        heads = getattr(self._reader, "read_heads", None) if self._takes_extents else None
        samples = read_rows(self._reader.read if heads is None else heads, rows)
        if self._as_conversation is not None:
            return self._conversations_of(samples, rows)
        return [{**sample, **self._tags} for sample in samples] if self._tags and not self._conversations else samples

    def _conversations_of(self, samples: list[Sample], rows: Rows) -> list[Sample]:
        """Rows of audio as conversations."""
        assert self._as_conversation is not None
        made: list[Sample] = []
        for i, sample in enumerate(self.undecoded(samples)):
            try:
                made.append(audio_as_conversation(self._as_conversation, sample, self._tags, rows.place(i)))
            except DataError as error:
                error.at(rows.place(i))
                raise
        return made

    def with_media(self, raws: list[Sample]) -> list[Sample]:
        """The samples with their media as `Media` values, before anything is decoded."""
        return with_media(raws) if self._decodes and self._media is not None else raws

    def undecoded(self, raws: list[Sample]) -> list[Sample]:
        """The samples with their media as `Media` values, and every other member decoded."""
        if not self._raw_members or any(CONVERSATION in sample for sample in raws):
            return raws
        samples, problem = decoded_until(with_media(raws))
        if problem is not None:
            raise problem
        return samples

    def fetched(self, samples: list[Sample]) -> FetchedMedia:
        """What `decoded` needs of the media that these samples name, where requests take a round trip."""
        if self._media is None or not self.may_hold_media:
            return NOTHING_FETCHED
        return fetch_media(samples, self.media_files, self._media)

    def decoded(
        self, samples: list[Sample], fetched: FetchedMedia = NOTHING_FETCHED
    ) -> tuple[list[Sample], SampleError | DataError | None]:
        """Samples with `Media` values fetched and decoded, up to the first that fails, and its error."""
        problem: SampleError | DataError | None = None
        if self._media is not None and self.may_hold_media:
            how = self._audio, self.image, self._video
            samples, problem = decode_media(samples, self.media_files, self._media, *how, fetched, self._threads)
        if self._decodes:
            samples, failed = decoded_until(samples)
            problem = failed or problem
        return samples, problem


def read_rows(read: Callable[[Rows], Iterable[Sample]], rows: Rows) -> list[Sample]:
    """The samples from the reader of the format. Law: as many as requested."""
    raws = read(rows)
    found = raws if isinstance(raws, list) else [*raws]
    if len(found) != len(rows.numbers):
        raise DataError(
            "the bytes of the row hold a different number of samples",
            found=f"{len(found):,}",
            expected=f"{len(rows.numbers):,}",
        )
    return found
