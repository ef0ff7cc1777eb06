"""Messages in the style of OpenAI as conversations: texts, and media by URL or as base64."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from playhead.errors import DataError
from playhead.formats.conversation import Conversation, MediaPart, Part, Turn, make_conversation, role_of, seconds_of
from playhead.formats.conversation_lines import NamedMedia, list_of, own_tags, text_of
from playhead.formats.media import Media, MediaKind
from playhead.formats.nemo import SKIP, is_skipped

MESSAGES = "messages"
_URLS: dict[str, MediaKind] = {"image_url": "image", "audio_url": "audio", "video_url": "video"}
_OF_TURN = {"role", "content"}


class MessagesOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """`field` holds the messages; `data_folder` is where relative paths begin, if not beside the file."""

    field: str = MESSAGES
    data_folder: list[str] = msgspec.field(default_factory=list)

    @property
    def tar(self) -> list[str]:
        return []


def parse_messages(
    row: Mapping[str, Any], row_id: str, tags: Mapping[str, Any], named: NamedMedia, options: MessagesOptions
) -> Conversation:
    """`{"messages": [{"role", "content": text | [{"type", ...}]}], "tools"?}`; turns are kept as they are."""
    turns = [_turn(entry, named) for entry in list_of(_plain(row.get(options.field)), f'"{options.field}"')]
    tools = row.get("tools")
    return make_conversation(
        row_id, turns, tags, own_tags(row), merge=False, tools=tools if isinstance(tools, list) else None
    )


def parse_columns(
    row: Mapping[str, Any], row_id: str, tags: Mapping[str, Any], named: NamedMedia, options: MessagesOptions
) -> Conversation:
    """The same of a row of columns, which cannot be left out of an index: one that asks for it is refused."""
    if is_skipped(row):
        raise DataError(
            f'is marked by "{SKIP}", and rows of columns are not left out for it',
            fix="write the file without such rows",
        )
    return parse_messages(row, row_id, tags, named, options)


def _plain(value: Any) -> Any:
    """A list in place of an array of a column."""
    return value.tolist() if isinstance(value, np.ndarray) else value


def _turn(entry: Mapping[str, Any], named: NamedMedia) -> Turn:
    role, content = role_of(entry.get("role")), _plain(entry.get("content"))
    extra = {name: value for name, value in entry.items() if name not in _OF_TURN and value is not None}
    if content is None:
        return Turn(role, ("",), extra)
    if isinstance(content, str):
        return Turn(role, (content,), extra)
    parts = [_part(part, named) for part in list_of(content, '"content"')]
    return Turn(role, tuple(parts) or ("",), extra)


def _part(part: Mapping[str, Any], named: NamedMedia) -> Part:
    kind = part.get("type")
    if kind == "text":
        return text_of(part.get("text"), '"text" of a part')
    if kind == "input_audio":
        held = part.get(kind)
        return MediaPart(_held("audio", held.get("data") if isinstance(held, dict) else held))
    if not isinstance(kind, str) or kind not in _URLS:
        raise DataError(
            "unknown part of a message",
            found=f"type: {kind!r}"[:80],
            expected=f"one of: text, {', '.join(_URLS)}, input_audio",
        )
    given = part.get(kind)
    about = given if isinstance(given, dict) else {"url": given}
    url = text_of(about.get("url"), f'"url" of {kind}')
    offset, duration = (seconds_of(about.get(name), f'"{name}"') for name in ("offset", "duration"))
    if url.startswith("data:"):
        media = replace(_held(_URLS[kind], _base64_in(url)), offset=offset or 0.0, duration=duration)
    else:
        media = named(_URLS[kind], url, offset or 0.0, duration)
    return MediaPart(media, duration if _URLS[kind] == "audio" else None)


def _base64_in(url: str) -> str:
    """The text after the comma of a data URL."""
    about, comma, data = url.partition(",")
    if not comma or not about.endswith(";base64"):
        raise DataError("a data URL without base64", found=repr(url[:60]), expected="data:<type>;base64,<text>")
    return data


def _held(kind: MediaKind, data: Any) -> Media:
    """A medium that the row holds as base64."""
    try:
        return Media(kind, base64.b64decode(text_of(data, f"the {kind} of a part"), validate=True))
    except ValueError as error:
        raise DataError(f"the {kind} of a part is not base64", found=str(error)) from None
