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
from playhead.formats.collect import ROW_ID
from playhead.formats.contract import Chunk, RowReader, ScanLimits
from playhead.formats.jsonl import collect_lines, read_objects, row_object
from playhead.formats.lines import Lines, gather_lines, line_place, read_lines
from playhead.formats.media import Media
from playhead.formats.nemo import (
    AUDIO,
    DURATION,
    MANIFEST_LINES,
    TRACK,
    audio_path,
    kept_rows,
    segment_of,
    spans,
)
from playhead.formats.registry import options_of, register
from playhead.formats.rows import Rows, Sample, Shard
from playhead.formats.rows_by_tar import SHARD_ID, rows_by_tar
from playhead.formats.sidecar_offsets import first_by_stem, line_sidecars, tar_offsets
from playhead.formats.spec import Spec
from playhead.formats.tar import TarMember, TarReader
from playhead.formats.tar_hints import tar_hints
from playhead.recipe.values import Source
from playhead.store import Extent, File, Files, list_files, open_file
from playhead.types import UIntArray

TAR = "tar"

_NUMBERS = re.compile(r"_(\d+)")
_SEGMENT = re.compile(r"-sub\d+(?=\.[^./]*$|$)")
_HEAD_BYTES = 1 << 12
_LIMITS = ScanLimits()
_MISSING = (-1, -1)


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
        if len(manifests) == 1 and len(tars) > 1:
            _check_numbers(source, open_file(files, manifests[0]), tars)
            return [Shard(((TAR, tar), (TRACK, manifests[0]))) for tar in tars]
        pairs = [(manifests[0], tars[0])] if len(manifests) == len(tars) == 1 else paired(source, manifests, tars)
        return [Shard(((TRACK, manifest), (TAR, tar))) for manifest, tar in pairs]

    def scan(self, shard: Shard, spec: Spec, files: Files, limits: ScanLimits) -> Iterator[Chunk]:
        options = options_of(NemoTarredOptions, spec.options)
        manifest, tar = open_file(files, shard.path(TRACK)), open_file(files, shard.path(TAR))
        find = _finder(manifest, tar, tar_members(tar, limits), options.skip_missing)
        if _is_one_of_many(shard):
            stretches = rows_by_tar(manifest, limits).of(_number(tar.path) or 0)
            runs = gather_lines(manifest, limits, *stretches)
        else:
            runs = read_lines(manifest, limits)
        for lines, arrays in collect_lines(manifest, runs, spec, MANIFEST_LINES):
            places = np.array([find(*row) or _MISSING for row in lines.rows()], np.int64).reshape(-1, 2)
            found = places[:, 0] != _MISSING[0]
            firsts, ends = lines.places
            chosen = {**spans(TRACK, firsts[found], ends[found]), **spans(TAR, *places[found].T)}
            columns = {name: array[found] for name, array in arrays.items()}
            yield Chunk(int(found.sum()), {**chosen, **columns}, lines.num_left_out + int((~found).sum()))

    def open(self, source: Source, files: Files) -> RowReader:  # noqa: ARG002
        return _NemoTarredReader()

    def sidecars(self, shard: Shard, files: Files, limits: ScanLimits) -> Iterable[tuple[str, Iterable[UIntArray]]]:
        yield from line_sidecars([shard.path(TRACK)], files, limits)
        tar = open_file(files, shard.path(TAR))
        yield tar.path, tar_offsets(tar, first_by_stem(TarReader(tar).members()))


class _NemoTarredReader:
    has_media = True

    def read(self, rows: Rows) -> Iterable[Sample]:
        return self._samples(rows, [bytes(member) for member in rows.payloads(TAR)])

    def read_heads(self, rows: Rows) -> Iterable[Sample]:
        """The samples with audio as extents, of which the beginning is read."""
        return self._samples(rows, rows.extents(TAR, _HEAD_BYTES))

    def _samples(self, rows: Rows, members: Sequence[bytes | Extent]) -> list[Sample]:
        samples = read_objects(rows, TRACK)
        for i, (sample, member) in enumerate(zip(samples, members, strict=True)):
            try:
                offset, duration = segment_of(sample)
            except DataError as error:
                error.at(rows.place(i))
                raise
            name = f'{rows.shards[i].path(TAR)}, member "{sample.get("audio_filepath")}"'
            sample[AUDIO] = Media("audio", member, name, offset, duration)
        return samples


def paired(source: Source, manifests: Sequence[str], tars: Sequence[str]) -> list[tuple[str, str]]:
    """Each manifest with its tar: that of the same number or, where numbers repeat, of the same occurrence."""
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
    """The number in each name, and how often it occurred before."""
    seen: Counter[int | None] = Counter()
    found = []
    for path in paths:
        number = _number(path)
        found.append((number, seen[number]))
        seen[number] += 1
    return found


def _number(path: str) -> int | None:
    """The last number after an underscore, as in `manifest_3.json` and `audio_3_clean.tar`."""
    found = _NUMBERS.findall(path.rpartition("/")[2])
    return int(found[-1]) if found else None


def _is_one_of_many(shard: Shard) -> bool:
    """Whether the manifest covers several tars: then the tar is the first file, and names the shard."""
    return shard.files[0][0] == TAR


def _check_numbers(source: Source, manifest: File, tars: Sequence[str]) -> None:
    """Refuse tars whose numbers are not distinct, and rows whose number no tar has."""
    by_number: dict[int | None, str] = {}
    for tar in tars:
        number = _number(tar)
        if number is None or number in by_number:
            raise RecipeError(
                f'source "{source.name}": one manifest for {len(tars)} tars, whose numbers are not distinct',
                found=f"{tar}: {'no number in its name' if number is None else f'same as {by_number[number]}'}",
                expected="a number in the name of each tar, as in `audio_3.tar`: the `shard_id` of its rows",
                fix="name the manifests of all tars in `path`, or rename the tars",
            )
        by_number[number] = tar
    rows = rows_by_tar(manifest, _LIMITS)
    for number in rows.numbers:
        if number not in by_number:
            for lines in gather_lines(manifest, _LIMITS, *rows.of(number)):
                _check_all_skipped(manifest, lines, tars)


def _check_all_skipped(manifest: File, lines: Lines, tars: Sequence[str]) -> None:
    for raw, position in lines.only(kept_rows(manifest, lines)).rows():
        error = _without_tar(row_object(raw, "replace"), tars)
        error.at(line_place(manifest, position))
        raise error


_Find = Callable[[bytes, int], tuple[int, int] | None]


def _finder(manifest: File, tar: File, members: Mapping[str, TarMember], skip_missing: bool) -> _Find:
    """A function that returns the place of a row's member in the tar; None for a row that is left out."""
    number = _number(tar.path)
    check_number = number is not None and _number(manifest.path) != number

    def find(raw: bytes, at: int) -> tuple[int, int] | None:
        try:
            row = row_object(raw, "replace")
            if check_number and row.get(SHARD_ID, number) != number:
                raise _without_tar(row, [tar.path])
            member = _member(row, members)
            if member is None and not skip_missing:
                raise _missing(row, len(members), tar)
        except DataError as error:
            error.at(line_place(manifest, at))
            raise
        return None if member is None else (member.data, member.data + member.size)

    return find


def tar_members(tar: File, limits: ScanLimits) -> dict[str, TarMember]:
    found: dict[str, TarMember] = {}
    for member in TarReader(tar, hints=tar_hints(tar, limits)).members():
        first = found.setdefault(member.name, member)
        if first is not member:
            raise DataError(
                f'{tar.path}, byte {member.first:,}: member "{member.name}" is a duplicate',
                found=f"another of this name at byte {first.first:,}",
                expected="unique member names: rows refer to them",
                fix="write the shard again",
            )
    return found


def _without_tar(row: Mapping[str, Any], tars: Sequence[str]) -> DataError:
    return DataError(
        f"no tar for the row: {SHARD_ID} {row.get(SHARD_ID)}",
        found=f"{len(tars):,} {'tar' if len(tars) == 1 else 'tars'}, from {tars[0]} to {tars[-1]}",
        expected="a tar that has this number in its name",
        fix="name all tars of the manifest in `options.tar`, or restore those that are missing",
    )


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
