"""Conversations in tars: of the members of a sample, one is JSON, and the others are its media."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from playhead.errors import DataError
from playhead.formats import wids
from playhead.formats.collect import Collector, own_id
from playhead.formats.contract import Chunk, RowReader, ScanLimits
from playhead.formats.conversation import CONVERSATION, Conversation, naming
from playhead.formats.jsonl import row_object, text_bytes
from playhead.formats.lengths import MISSING, read_field
from playhead.formats.media import Media
from playhead.formats.nemo import is_skipped, spans
from playhead.formats.registry import options_of
from playhead.formats.rows import Rows, Sample, Shard
from playhead.formats.spec import Spec
from playhead.formats.tar import TarMember, TarReader
from playhead.formats.tar_hints import tar_hints
from playhead.formats.tar_rows import row_tars
from playhead.formats.webdataset import KEY, TRACK, Group, all_groups, groups
from playhead.recipe.values import Source
from playhead.store import Files, list_files, open_file

JSON = "json"
_ROWS_AT_ONCE = 1 << 12
_HEAD_BYTES = 1 << 12

# The JSON of a sample, its id, the tags of the source, the contents of its other members by name, and the options.
ParseGroup = Callable[[Sample, str, Mapping[str, Any], Mapping[str, Media], Any], Conversation]


@dataclass(frozen=True)
class ConversationTars:
    """A format of conversations in tars, or in directories of them, that `parse` reads."""

    parse: ParseGroup
    options: type[Any]

    def discover(self, source: Source, files: Files) -> Sequence[Shard]:
        """The tars that a `wids-meta.json` lists, or every tar in a directory."""
        named = wids.expand_lists(source.path, files)
        patterns = [path if path.endswith(".tar") else f"{path.rstrip('/')}/**/*.tar" for path in named]
        return [Shard(((TRACK, path),), named.get(path)) for path in list_files(files, patterns)]

    def scan(self, shard: Shard, spec: Spec, files: Files, limits: ScanLimits) -> Iterator[Chunk]:
        file, options = open_file(files, shard.name), options_of(self.options, spec.options)
        collector = Collector(spec)
        places: list[tuple[int, int]] = []
        skipped: list[int] = []
        for group in all_groups(TarReader(file, hints=tar_hints(file, limits)), skipped):
            try:
                row = _GroupRow(self.parse, options, group, limits.longest_row_bytes)
                if is_skipped(row.value):
                    skipped.append(group.first)
                    continue
                collector.add(row, group.where)
            except DataError as error:
                error.at(group.where)
                raise
            places.append((group.first, min(group.end, file.size)))
            if len(places) == _ROWS_AT_ONCE:
                yield _chunk(collector, places)
                places = []
        yield _chunk(collector, places, len(skipped))

    def open(self, source: Source, files: Files) -> RowReader:  # noqa: ARG002
        return _Reader(self.parse, options_of(self.options, source.options), source.tags)


def _chunk(collector: Collector, places: list[tuple[int, int]], num_skipped: int = 0) -> Chunk:
    firsts, ends = np.array(places, np.int64).reshape(-1, 2).T
    return Chunk(len(places), {**spans(TRACK, firsts, ends), **collector.take()}, num_skipped)


class _GroupRow:
    """A sample as a row for a Collector: its fields are those of its JSON."""

    def __init__(self, parse: ParseGroup, options: Any, group: Group, longest: int) -> None:
        self._parse, self._options, self._group = parse, options, group
        self.value = group_object(group, longest)

    def get(self, field: str) -> Any:
        found = read_field(self.value, field)
        return self._group.key if field == KEY and found is MISSING else found

    def size(self, field: str | None) -> int:
        if field is None:
            return sum(member.size for member in self._group.members.values())
        return text_bytes(self.get(field), field)

    def sample(self) -> Sample:
        return self.value

    def conversation(self, tags: Mapping[str, Any]) -> Conversation:
        media = {name: Media("audio") for name in media_members(self._group)}
        row_id = own_id(self.value) or self._group.key
        with naming(row_id):
            return self._parse(self.value, row_id, tags, media, self._options)


def group_object(group: Group, longest: int | None = None) -> Sample:
    """The object in the JSON member of a sample."""
    if JSON not in group.members:
        raise DataError(
            "has no member of JSON", found=f"members: {', '.join(group.members)}", expected=f"{group.key}.{JSON}"
        )
    size = group.members[JSON].size
    if longest is not None and size > longest:
        raise DataError("its JSON is too large", found=f"{size:,} bytes", expected=f"at most {longest:,}")
    return row_object(group.content(JSON).strip(), "strict")


def media_members(group: Group) -> dict[str, TarMember]:
    return {name: member for name, member in group.members.items() if name != JSON}


class _Reader:
    has_media = True

    def __init__(self, parse: ParseGroup, options: Any, tags: Mapping[str, Any]) -> None:
        self._parse, self._options, self._tags = parse, options, tags

    def read(self, rows: Rows) -> Iterable[Sample]:
        firsts, ends = rows.places[TRACK].ranges
        heads = [min(first + _HEAD_BYTES, end) for first, end in zip(firsts, ends, strict=True)]
        for i, row in enumerate(row_tars(rows, TRACK, ends if rows.requests_cost(TRACK) else heads)):
            for group in groups(TarReader(row, ahead=_HEAD_BYTES)):
                path = rows.shards[i].name
                media = {
                    name: Media("audio", row.extent(member), f'{path}, member "{member.name}"')
                    for name, member in media_members(group).items()
                }
                try:
                    value = group_object(group)
                    row_id = own_id(value) or group.key
                    with naming(row_id):
                        found = self._parse(value, row_id, self._tags, media, self._options)
                except DataError as error:
                    error.at(rows.place(i))
                    raise
                yield {"id": row_id, CONVERSATION: found}
