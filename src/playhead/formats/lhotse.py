"""Lhotse manifests: one cut per line, in `.jsonl` or `.jsonl.gz`; the cuts name the files of their recordings."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct, field

from playhead.errors import DataError, RecipeError
from playhead.formats.contract import Chunk, RowReader, ScanLimits, Section
from playhead.formats.jsonl import TRACK, Jsonl
from playhead.formats.lhotse_cuts import (
    AUDIO,
    BY_DURATION,
    CUTS,
    ID,
    ManifestPaths,
    cut_part,
    cut_sample,
    decode_cut,
    named_media,
)
from playhead.formats.registry import options_of, register
from playhead.formats.rows import Rows, Sample, Shard
from playhead.formats.spec import Spec
from playhead.recipe.values import Source
from playhead.store import Buffer, Files, is_url
from playhead.types import UIntArray


class LhotseOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """`root` is the directory at which relative paths of recordings begin."""

    root: list[str] = field(default_factory=list)


@register(
    "lhotse",
    default_id=ID,
    raw_members=False,
    options=LhotseOptions,
    default_length=BY_DURATION,
    default_sequence="audio",
    path_options=("root",),
)
class Lhotse:
    """Files of cuts, one a line."""

    section_bytes = Jsonl.section_bytes

    def __init__(self) -> None:
        self._lines = Jsonl(CUTS)

    def discover(self, source: Source, files: Files) -> Sequence[Shard]:
        named_root(source)
        return self._lines.discover(source, files)

    def scan(self, shard: Shard, spec: Spec, files: Files, limits: ScanLimits) -> Iterator[Chunk]:
        return self._lines.scan(shard, spec, files, limits)

    def sections(self, shard: Shard, spec: Spec, files: Files, limits: ScanLimits) -> Sequence[Section]:
        return self._lines.sections(shard, spec, files, limits)

    def scan_section(
        self, shard: Shard, section: Section, spec: Spec, files: Files, limits: ScanLimits
    ) -> Iterator[Chunk]:
        return self._lines.scan_section(shard, section, spec, files, limits)

    def open(self, source: Source, files: Files) -> RowReader:  # noqa: ARG002
        return _LhotseReader(named_root(source))

    def sidecars(self, shard: Shard, files: Files, limits: ScanLimits) -> Iterable[tuple[str, Iterable[UIntArray]]]:
        return self._lines.sidecars(shard, files, limits)


class _LhotseReader:
    def __init__(self, root: str | None) -> None:
        self._root = root

    def read(self, rows: Rows) -> Iterable[Sample]:
        return [self._sample(rows, i, line) for i, line in enumerate(rows.payloads(TRACK))]

    def _sample(self, rows: Rows, i: int, line: Buffer) -> Sample:
        place = place_of(rows.shards[i].name, self._root)
        try:
            cut = decode_cut(line)
            audio = {} if cut.recording is None else {AUDIO: named_media(cut.recording, cut_part(cut), place)}
            return cut_sample(cut, audio, place)
        except DataError as error:
            error.at(rows.place(i))
            raise


def named_root(source: Source) -> str | None:
    """The root in the options of a source."""
    given = options_of(LhotseOptions, {"root": source.options.get("root", [])}).root
    if len(given) > 1:
        raise RecipeError(
            f'source "{source.name}": `root` is one directory',
            found=", ".join(given),
            fix="make a source for each",
        )
    return given[0] if given else None


def place_of(manifest: str, root: str | None) -> ManifestPaths:
    """The paths of the recordings that a manifest names.

    Relative paths begin at the root or, as in lhotse, at the working directory; those of a remote manifest, which may
    not name local files, beside it.
    """
    base = manifest.rpartition("/")[0]
    return ManifestPaths(base, root or (base if is_url(manifest) else os.getcwd()))  # noqa: PTH109 - a text is wanted
