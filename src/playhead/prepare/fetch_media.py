"""The media that rows name by a path or URL, found by reading the rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from playhead.errors import DataError, SampleError
from playhead.formats.media import Media
from playhead.formats.registry import format_of
from playhead.formats.rows import Fetch, Sample
from playhead.prepare.fetch_steps import SourceRows
from playhead.read.media import media_of
from playhead.read.row_decoder import RowDecoder
from playhead.recipe.values import Recipe
from playhead.store import Files
from playhead.types import IntArray

_ROWS_AT_ONCE = 1 << 10


class NamedMedia(NamedTuple):
    """The paths of media, each once, and what could not be found out: rows that cannot be read, paths not allowed."""

    paths: list[str]
    problems: list[str]


def named_media(recipe: Recipe, sources: Iterable[SourceRows], files: Files) -> NamedMedia:
    """The media of rows that are files of their own. With `media: false` there are none: a map opens them itself."""
    paths: dict[str, None] = {}
    problems: dict[str, None] = {}
    for source in sources:
        if recipe.media is False or not _may_name(source):
            continue
        decoder = RowDecoder(recipe, source.leaf, files)
        for media in _media(decoder, source, files, problems):
            try:
                paths[decoder.rules.resolve(media)] = None
            except SampleError as error:
                problems[f'source "{source.table.name}": {error.problem}'] = None
    return NamedMedia([*paths], [*problems])


def _may_name(source: SourceRows) -> bool:
    """Members of tars are media themselves: their rows name no others."""
    found = format_of(source.leaf.source, source.leaf.path)
    return not found.raw_members or found.conversations


def _media(decoder: RowDecoder, source: SourceRows, files: Files, problems: dict[str, None]) -> Iterator[Media]:
    for rows in source.sorted_chunks(_ROWS_AT_ONCE):
        for sample in _samples(decoder, source, rows, files, problems):
            for _, media in media_of(sample):
                yield from (each for each in media.parts or (media,) if each.data is None)
        if not decoder.may_hold_media:
            return


def _samples(
    decoder: RowDecoder, source: SourceRows, rows: IntArray, files: Files, problems: dict[str, None]
) -> list[Sample]:
    """The samples of rows; where one cannot be read, the others are read one by one."""
    table = source.table
    fetch = Fetch(files, table.index.stamps)
    try:
        return decoder.with_media(decoder.raw(table.locate(rows, fetch)))
    except (SampleError, DataError) as error:
        if len(rows) == 1:
            problems[f'source "{table.name}", row {int(rows[0]):,} ({table.place(int(rows[0]))}): {error.problem}'] = (
                None
            )
            return []
    return [sample for row in rows.tolist() for sample in _samples(decoder, source, np.array([row]), files, problems)]
