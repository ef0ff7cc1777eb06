"""NeMo's multimodal conversations: each turn is a text, or names a recording or an image."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from playhead.errors import DataError
from playhead.formats.collect import ROW_ID
from playhead.formats.conversation import Conversation, MediaPart, Turn, make_conversation, role_of, seconds_of
from playhead.formats.conversation_lines import (
    ConversationLines,
    LineOptions,
    NamedMedia,
    list_of,
    own_tags,
    text_of,
)
from playhead.formats.nemo_tarred import TAR
from playhead.formats.registry import register
from playhead.formats.rows import Sample


def parse_multimodal(
    row: Sample, row_id: str, tags: Mapping[str, Any], named: NamedMedia, _options: LineOptions
) -> Conversation:
    """`{"id", "conversations": [{"value", "from", "type", "duration"?, "offset"?}], "custom"?}`."""
    turns = [_turn(entry, named) for entry in list_of(row.get("conversations"), '"conversations"')]
    return make_conversation(row_id, turns, tags, own_tags(row))


def _turn(entry: Mapping[str, Any], named: NamedMedia) -> Turn:
    role, kind = role_of(entry.get("from")), entry.get("type", "text")
    value = text_of(entry.get("value"), f'"value" of a turn of type {kind}')
    if kind == "text":
        return Turn(role, (value,))
    if kind not in ("audio", "image"):
        raise DataError("unknown type of a turn", found=repr(kind)[:80], expected="text, audio or image")
    if not value:
        raise DataError(f"a turn of type {kind} names no file", found=repr(dict(entry))[:120])
    offset, duration = (seconds_of(entry.get(name), f'"{name}"') for name in ("offset", "duration"))
    media = named(kind, value, offset or 0.0, duration if kind == "audio" else None)
    return Turn(role, (MediaPart(media, duration if kind == "audio" else None),))


register(
    "multimodal_conversation",
    default_id=ROW_ID,
    raw_members=False,
    options=LineOptions,
    path_options=(TAR, "data_folder"),
    conversations=True,
)(partial(ConversationLines, parse_multimodal))
