"""NeMo's tarred datasets: manifests whose rows name members of tars, found by the shards' numbers.

A row is in two files: a line of a manifest, and the bytes of a member. Rows are in the order of their manifest.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from playhead.errors import DataError, RecipeError
from playhead.formats.contract import Chunk, RowReader, ScanLimits, Section
from playhead.formats.jsonl import read_objects, row_object, scan_lines
from playhead.formats.lines import num_newlines
from playhead.formats.media import Media
from playhead.formats.nemo import (
    AUDIO,
    DURATION,
    MANIFEST_LINES,
    ROW_ID,
    SLACK_SECONDS,
    TRACK,
    audio_path,
    kept_rows,
    segment_of,
    spans,
)
from playhead.formats.registry import options_of, register
from playhead.formats.rows import Rows, Sample, Shard
from playhead.formats.spec import Spec
from playhead.formats.tar import TarMember, TarReader
from playhead.recipe.values import Source
from playhead.store import File, Files, list_files, open_file
from playhead.types import IntArray

TAR = "tar"

_NUMBER = re.compile(r"_(\d+)[^/_]*$")
_SEGMENT = re.compile(r"-sub\d+(?=\.[^./]*$|$)")
_HEAD_BYTES = 1 << 12
_SHARD_ID = "shard_id"


class NemoTarredOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """`tar` are the tars. `skip_missing` leaves rows out whose member is not in the tar."""

    tar: list[str]
    skip_missing: bool = False


@register(
    "nemo_tarred",
    raw_members=False,
    default_id=ROW_ID,
    options=NemoTarredOptions,
    default_length=DURATION,
    path_options=(TAR,),
    default_sequence=AUDIO,
)
class NemoTarred:
    """Manifests and tars of audio."""

    def discover(self, source: Source, files: Files) -> Sequence[Shard]:
        manifests = list_files(files, source.path)
        tars = list_files(files, options_of(NemoTarredOptions, source.options).tar)
        if len(manifests) == 1 and _number(manifests[0]) is None:
            return [Shard(((TRACK, manifests[0]), (TAR, path))) for path in tars]
        return [Shard(((TRACK, manifest), (TAR, tar))) for manifest, tar in _paired(source, manifests, tars)]

    def scan(self, shard: Shard, spec: Spec, files: Files, limits: ScanLimits) -> Iterator[Chunk]:
        options = options_of(NemoTarredOptions, spec.options)
        manifest, tar = open_file(files, shard.name), open_file(files, shard.path(TAR))
        find = _finder(manifest, tar, options.skip_missing, by_shard=_number(shard.name) is None)
        for lines, arrays in scan_lines(manifest, Section(0, manifest.size), spec, limits, MANIFEST_LINES):
            firsts, ends = lines.starts + lines.base, lines.ends + lines.base
            kept = kept_rows(manifest, lines)
            places = np.full((lines.starts.size, 2), -1, np.int64)
            for i in np.flatnonzero(kept).tolist():
                found = find(lines.data[lines.starts[i] : lines.ends[i]], int(firsts[i]))
                if found is None:
                    kept[i] = False
                else:
                    places[i] = found
            chosen = {**spans(TRACK, firsts[kept], ends[kept]), **spans(TAR, *_columns(places[kept]))}
            columns = {name: array[kept] for name, array in arrays.items()}
            yield Chunk(int(kept.sum()), {**chosen, **columns}, num_skipped=int((~kept).sum()))

    def open(self, source: Source, files: Files) -> RowReader:  # noqa: ARG002
        return _NemoTarredReader()


class _NemoTarredReader:
    has_media = True

    def read(self, rows: Rows) -> Iterable[Sample]:
        samples = read_objects(rows, TRACK)
        for i, (sample, member) in enumerate(zip(samples, rows.extents(TAR, _HEAD_BYTES), strict=True)):
            try:
                offset, duration = segment_of(sample)
            except DataError as error:
                error.at(rows.place(i))
                raise
            name = f'{rows.shards[i].path(TAR)}, member "{sample.get("audio_filepath")}"'
            sample[AUDIO] = Media("audio", member, name, offset, duration, slack=SLACK_SECONDS)
        return samples


def _paired(source: Source, manifests: Sequence[str], tars: Sequence[str]) -> list[tuple[str, str]]:
    """Each manifest with its tar: that of the same number or, where numbers come again, of the same occurrence."""
    by_place = dict(zip(_places(tars), tars, strict=True))
    pairs = [
        (manifest, by_place.pop(place, None)) for place, manifest in zip(_places(manifests), manifests, strict=True)
    ]
    alone = [manifest for manifest, tar in pairs if tar is None]
    if alone or by_place:
        one = f"no tar for {alone[0]}" if alone else f"no manifest for {next(iter(by_place.values()))}"
        raise RecipeError(
            f'source "{source.name}": manifests and tars do not pair',
            found=f"{len(manifests)} manifests, {len(tars)} tars; {one}",
            expected="for each manifest, as `manifest_3.json`, one tar of the same number, as `audio_3.tar`",
            fix="correct `path` and `options.tar`, or restore the files that are missing",
        )
    return [(manifest, tar) for manifest, tar in pairs if tar is not None]


def _places(paths: Iterable[str]) -> list[tuple[int | None, int]]:
    """The number in each name, and how often it came before."""
    seen: Counter[int | None] = Counter()
    found = []
    for path in paths:
        number = _number(path)
        found.append((number, seen[number]))
        seen[number] += 1
    return found


def _number(path: str) -> int | None:
    found = _NUMBER.search(path.rpartition("/")[2])
    return None if found is None else int(found[1])


_Find = Callable[[bytes, int], tuple[int, int] | None]


def _finder(manifest: File, tar: File, skip_missing: bool, by_shard: bool) -> _Find:
    """A function that gives the place of a row's member in the tar; None for a row that is not of this shard."""
    members: dict[str, TarMember] = {member.name: member for member in TarReader(tar).members()}
    shard = _number(tar.path)

    def find(raw: bytes, at: int) -> tuple[int, int] | None:
        try:
            row = row_object(raw, "replace")
            if by_shard and _shard_id(row, tar) != shard:
                return None
            member = _member(row, members)
            if member is None and not skip_missing:
                raise _missing(row, len(members), tar)
        except DataError as error:
            error.at(f"{manifest.path}, line {1 + num_newlines(manifest, at):,}, byte {at:,}")
            raise
        return None if member is None else (member.data, member.data + member.size)

    return find


def _missing(row: Mapping[str, Any], num_members: int, tar: File) -> DataError:
    return DataError(
        f'its audio is not in the tar: "{row.get("audio_filepath")}"',
        found=f"{num_members:,} members in {tar.path}",
        fix="write the shard again, or leave such rows out with `options: {skip_missing: true}`",
    )


def _member(row: Mapping[str, Any], members: Mapping[str, TarMember]) -> TarMember | None:
    """The member that a row names; `-sub1` and so on before the extension are segments of one."""
    name = audio_path(row)
    found = members.get(name)
    return members.get(_SEGMENT.sub("", name)) if found is None else found


def _shard_id(row: Mapping[str, Any], tar: File) -> int:
    found = row.get(_SHARD_ID)
    if isinstance(found, bool) or not isinstance(found, int) or _number(tar.path) is None:
        raise DataError(
            "which tar the row is in is not known",
            found=f"{_SHARD_ID}: {found!r}, in a manifest for several tars; one of them is {tar.path}",
            expected="a whole number, which is in the name of a tar, as 3 in `audio_3.tar`",
        )
    return found


def _columns(places: IntArray) -> tuple[IntArray, IntArray]:
    return places[:, 0], places[:, 1]
