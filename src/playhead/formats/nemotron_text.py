"""Nemotron's conversations of text: turns of fragments, in JSON Lines or in tars of JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from playhead.errors import DataError, RecipeError
from playhead.formats.collect import ROW_ID
from playhead.formats.contract import Chunk, RowReader, ScanLimits, Section
from playhead.formats.conversation import Conversation, Turn, make_conversation, role_of
from playhead.formats.conversation_lines import TRACK as LINES
from playhead.formats.conversation_lines import ConversationLines, NamedMedia, list_of, own_tags, text_of
from playhead.formats.conversation_tars import ConversationTars
from playhead.formats.media import Media
from playhead.formats.nemo_sft import TextLineOptions
from playhead.formats.registry import register
from playhead.formats.rows import Rows, Sample, Shard
from playhead.formats.spec import Spec
from playhead.recipe.values import Source
from playhead.store import Files, compression_of


def parse_nemotron(
    row: Sample,
    row_id: str,
    tags: Mapping[str, Any],
    _media: NamedMedia | Mapping[str, Media],
    _options: TextLineOptions,
) -> Conversation:
    """`{"conversation": [{"sender", "fragments": [text | {"t": "text", "value"}]}]}`."""
    turns = [
        Turn(role_of(entry.get("sender")), (_text(entry.get("fragments", [])),))
        for entry in list_of(row.get("conversation"), '"conversation"')
    ]
    return make_conversation(row_id, turns, tags, own_tags(row))


def _text(fragments: Any) -> str:
    if not isinstance(fragments, list):
        raise DataError('"fragments" is not a list', found=repr(fragments)[:80])
    texts = []
    for fragment in fragments:
        if isinstance(fragment, dict):
            if fragment.get("t", "text") != "text":
                raise DataError("unknown kind of a fragment", found=repr(fragment.get("t"))[:80], expected="text")
            texts.append(text_of(fragment.get("value"), '"value" of a fragment'))
        else:
            texts.append(text_of(fragment, "a fragment"))
    return "".join(texts)


@register("nemotron_text", default_id=ROW_ID, raw_members=False, options=TextLineOptions, conversations=True)
class NemotronText:
    """Files of lines, tars, or directories of tars."""

    def __init__(self) -> None:
        self._lines = ConversationLines(parse_nemotron, TextLineOptions)
        self._tars = ConversationTars(parse_nemotron, TextLineOptions)
        self.section_bytes = self._lines.section_bytes

    def discover(self, source: Source, files: Files) -> Sequence[Shard]:
        kinds = {_has_lines(path) for path in source.path}
        if len(kinds) > 1:
            raise RecipeError(f'source "{source.name}": has both files of lines and tars', fix="make a source of each")
        return (self._lines if kinds.pop() else self._tars).discover(source, files)

    def scan(self, shard: Shard, spec: Spec, files: Files, limits: ScanLimits) -> Iterator[Chunk]:
        return (self._lines if _is_lines(shard) else self._tars).scan(shard, spec, files, limits)

    def sections(self, shard: Shard, spec: Spec, files: Files, limits: ScanLimits) -> Sequence[Section]:
        return self._lines.sections(shard, spec, files, limits) if _is_lines(shard) else []

    def scan_section(
        self, shard: Shard, section: Section, spec: Spec, files: Files, limits: ScanLimits
    ) -> Iterator[Chunk]:
        return self._lines.scan_section(shard, section, spec, files, limits)

    def open(self, source: Source, files: Files) -> RowReader:
        return _Reader(self._lines.open(source, files), self._tars.open(source, files))


class _Reader:
    has_media = False

    def __init__(self, lines: RowReader, tars: RowReader) -> None:
        self._lines, self._tars = lines, tars

    def read(self, rows: Rows) -> list[Sample]:
        return list((self._lines if LINES in rows.places else self._tars).read(rows))


def _is_lines(shard: Shard) -> bool:
    return shard.files[0][0] == LINES


def _has_lines(path: str) -> bool:
    return path.removesuffix(compression_of(path) or "").endswith((".jsonl", ".json"))
