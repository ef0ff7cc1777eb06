"""Two text files whose lines belong together: a row is a line of each, blank ones too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from msgspec import Struct

from playhead.errors import DataError, RecipeError
from playhead.formats.collect import ROW_ID, Collector
from playhead.formats.contract import Chunk, RowReader, ScanLimits
from playhead.formats.lines import read_every_line
from playhead.formats.registry import options_of, register
from playhead.formats.rows import Rows, Sample, Shard
from playhead.formats.schema import Track
from playhead.formats.spec import Spec
from playhead.formats.text import LineRow, texts_of
from playhead.recipe.values import Source
from playhead.store import File, Files, list_files, open_file
from playhead.types import Array, IntArray

FIRST, SECOND = "first", "second"
_TRACKS = tuple(Track(role).array("offsets") for role in (FIRST, SECOND))


class TextPairOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """`second` names the files beside those of `path`, in the same order; `names` are those of the two texts."""

    second: str | list[str] = ""
    names: tuple[str, str] = ("source", "target")


@register("text_pair", default_id=ROW_ID, raw_members=False, options=TextPairOptions, path_options=("second",))
class TextPair:
    """Pairs of files, line by line."""

    def discover(self, source: Source, files: Files) -> Sequence[Shard]:
        options = options_of(TextPairOptions, source.options)
        if not options.second or options.names[0] == options.names[1]:
            raise RecipeError(
                f'source "{source.name}": its options do not name two texts',
                found=f"second: {options.second or '(none)'}, names: {', '.join(options.names)}",
                fix="use for example `options: {second: train.de, names: [en, de]}`",
            )
        first = list_files(files, source.path)
        second = list_files(files, [options.second] if isinstance(options.second, str) else options.second)
        if len(first) != len(second):
            raise DataError(
                f'source "{source.name}": `path` and `second` name different numbers of files',
                found=f"{len(first):,} ({first[0]}, ...) and {len(second):,} ({second[0]}, ...)",
                expected="a second file for each first",
            )
        return [Shard(((FIRST, one), (SECOND, other))) for one, other in zip(first, second, strict=True)]

    def scan(self, shard: Shard, spec: Spec, files: Files, limits: ScanLimits) -> Iterator[Chunk]:
        names = options_of(TextPairOptions, spec.options).names
        opened = [open_file(files, shard.path(role)) for role in (FIRST, SECOND)]
        collector, number = Collector(spec, shard.name), 0
        for sides in _aligned(opened, limits, spec.reads_content):
            count = len(sides[0].starts)
            arrays = {track: side.starts.astype(np.uint64) for track, side in zip(_TRACKS, sides, strict=True)}
            if spec.reads_content:
                arrays |= _columns(opened, sides, names, number, collector)
            yield Chunk(count, arrays)
            number += count
        ends = {track: np.array([file.size], np.uint64) for track, file in zip(_TRACKS, opened, strict=True)}
        yield Chunk(0, {**ends, **collector.take()})

    def open(self, source: Source, files: Files) -> RowReader:  # noqa: ARG002
        return _TextPairReader(options_of(TextPairOptions, source.options).names)


class _TextPairReader:
    has_media = False

    def __init__(self, names: tuple[str, str]) -> None:
        self._names = names

    def read(self, rows: Rows) -> Iterable[Sample]:
        one, other = self._names
        pairs = zip(texts_of(rows, FIRST), texts_of(rows, SECOND), strict=True)
        return [{one: first, other: second} for first, second in pairs]


class _Side:
    """Pending lines of one file, until those of the other are read: where each begins and, if needed, its bytes."""

    def __init__(self, starts: IntArray, lines: list[bytes]) -> None:
        self.starts, self.lines = starts, lines

    def taken(self, count: int) -> tuple[_Side, _Side]:
        """The first `count` lines, and the rest."""
        return (
            _Side(self.starts[:count], self.lines[:count]),
            _Side(self.starts[count:], self.lines[count:]),
        )


def _aligned(opened: Sequence[File], limits: ScanLimits, with_lines: bool) -> Iterator[list[_Side]]:
    """Runs of lines of both files, as many of each. Files of different numbers of lines are refused."""
    runs = [_sides(file, limits, with_lines) for file in opened]
    waiting = [next(run, None) for run in runs]
    while waiting[0] is not None and waiting[1] is not None:
        count = min(len(waiting[0].starts), len(waiting[1].starts))
        (one, rest), (other, more) = waiting[0].taken(count), waiting[1].taken(count)
        yield [one, other]
        waiting = [side if len(side.starts) else next(run, None) for side, run in zip((rest, more), runs, strict=True)]
    if waiting != [None, None]:
        raise _unequal(opened, limits)


def _sides(file: File, limits: ScanLimits, with_lines: bool) -> Iterator[_Side]:
    for lines in read_every_line(file, limits):
        yield _Side(lines.starts + lines.base, lines.contents() if with_lines else [])


def _unequal(opened: Sequence[File], limits: ScanLimits) -> DataError:
    one, other = (sum(len(lines.starts) for lines in read_every_line(file, limits)) for file in opened)
    return DataError(
        f"{opened[0].path}: has a different number of lines than {opened[1].path}",
        found=f"{one:,} lines and {other:,}",
        expected="a line of the one for each line of the other",
        fix="restore or align the files; blank lines count",
    )


def _columns(
    opened: Sequence[File], sides: Sequence[_Side], names: tuple[str, str], number: int, collector: Collector
) -> dict[str, Array]:
    for i, pair in enumerate(zip(sides[0].lines, sides[1].lines, strict=True)):
        try:
            collector.add(LineRow(dict(zip(names, pair, strict=True))))
        except DataError as error:
            error.at(f"{opened[0].path} and {opened[1].path}, line {number + i + 1:,}")
            raise
    return collector.take()
