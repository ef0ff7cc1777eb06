"""The media that rows name by a path or URL, found by reading the rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from playhead.errors import DataError, SampleError
from playhead.formats.media import Media
from playhead.formats.registry import format_of
from playhead.formats.rows import Fetch, Sample
from playhead.index.table import Table
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


class _Problems:
    """What could not be found out, each with the first row that it concerns and the number of them."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], tuple[str, int]] = {}

    def add(self, table: Table, row: int, error: SampleError | DataError) -> None:
        key = table.name, error.problem
        line, count = self._found.get(key, ("", 0))
        if not count:
            line = error.at_row(f'source "{table.name}", row {row:,}', table.place(row)).problem
        self._found[key] = line, count + 1

    def lines(self) -> list[str]:
        return [line + (f" (in {count:,} rows)" if count > 1 else "") for line, count in self._found.values()]


def named_media(recipe: Recipe, sources: Iterable[SourceRows], files: Files) -> NamedMedia:
    """The media of rows that are files of their own. With `media: false` there are none: a map opens them itself."""
    paths: dict[str, None] = {}
    problems = _Problems()
    for source in sources:
        if recipe.media is False or not _may_name(source):
            continue
        decoder = RowDecoder(recipe, source.leaf, files)
        for row, media in _media(decoder, source, files, problems):
            try:
                paths[decoder.rules.resolve(media)] = None
            except SampleError as error:
                problems.add(source.table, row, error)
    return NamedMedia([*paths], problems.lines())


def _may_name(source: SourceRows) -> bool:
    """Members of tars are media themselves: their rows name no others."""
    found = format_of(source.leaf.source, source.leaf.path)
    return not found.raw_members or found.conversations


def _media(decoder: RowDecoder, source: SourceRows, files: Files, problems: _Problems) -> Iterator[tuple[int, Media]]:
    """The media that are not held in rows, each with its row."""
    for rows in source.sorted_chunks(_ROWS_AT_ONCE):
        for row, sample in _samples(decoder, source, rows, files, problems):
            for _, media in media_of(sample):
                yield from ((row, each) for each in media.parts or (media,) if each.data is None)
        if not decoder.may_hold_media:
            return


def _samples(
    decoder: RowDecoder, source: SourceRows, rows: IntArray, files: Files, problems: _Problems
) -> list[tuple[int, Sample]]:
    """Rows with their samples; where one cannot be read, the others are read one by one."""
    table = source.table
    fetch = Fetch(files, table.index.stamps)
    try:
        samples = decoder.with_media(decoder.raw(table.locate(rows, fetch)))
    except (SampleError, DataError) as error:
        if len(rows) == 1:
            problems.add(table, int(rows[0]), error)
            return []
    else:
        return list(zip(rows.tolist(), samples, strict=True))
    return [found for row in rows.tolist() for found in _samples(decoder, source, np.array([row]), files, problems)]
