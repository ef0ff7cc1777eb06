"""Conversations in the style of ShareGPT: placeholders in the texts of the user stand for the recordings of the row."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any

from msgspec import Meta, Struct, field

from playhead.errors import DataError
from playhead.formats.collect import ROW_ID
from playhead.formats.conversation import (
    USER,
    Conversation,
    MediaPart,
    Part,
    Turn,
    make_conversation,
    role_of,
    seconds_of,
)
from playhead.formats.conversation_lines import (
    ConversationLines,
    NamedMedia,
    list_of,
    own_tags,
    text_of,
)
from playhead.formats.nemo_tarred import TAR
from playhead.formats.registry import register
from playhead.formats.rows import Sample

Placeholders = Annotated[list[Annotated[str, Meta(min_length=1)]], Meta(min_length=1)]

_FIELDS = ("sound", "ori_sound")


class ShareGptOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """`placeholders` stand for audio in texts; `audio_root` is where relative paths begin, if not beside the file.

    `tar` and `skip_missing` are those of `multimodal_conversation`.
    """

    placeholders: Placeholders = field(default_factory=lambda: ["<sound>", "<speech>"])
    audio_root: list[str] = field(default_factory=list)
    tar: list[str] = field(default_factory=list)
    skip_missing: bool = False

    @property
    def data_folder(self) -> list[str]:
        return self.audio_root


def parse_share_gpt(
    row: Sample, row_id: str, tags: Mapping[str, Any], named: NamedMedia, options: ShareGptOptions
) -> Conversation:
    """`{"id"?, "sound" | "ori_sound", "conversations": [{"from", "value", "duration"?, "offset"?}]}`."""
    return parse_with_sounds(row, row_id, tags, named, options.placeholders, _sounds(row))


def parse_with_sounds(
    row: Sample,
    row_id: str,
    tags: Mapping[str, Any],
    named: NamedMedia,
    placeholders: Sequence[str],
    sounds: Sequence[str],
) -> Conversation:
    """The conversation of a row whose recordings are known.

    One recording is used for every placeholder. Several are used one after another, if there are as many placeholders;
    all at once, if there is one.
    """
    entries = list_of(row.get("conversations"), '"conversations"')
    pattern = re.compile("|".join(map(re.escape, placeholders)))
    roles = [role_of(entry.get("from")) for entry in entries]
    texts = [text_of(entry.get("value"), '"value" of a turn') for entry in entries]
    pieces = [_split(text, pattern if role == USER else None) for role, text in zip(roles, texts, strict=True)]
    num_places = sum(len(found) - 1 for found in pieces)
    chosen = _chosen(sounds, num_places, placeholders)
    turns = []
    for entry, role, texts_around in zip(entries, roles, pieces, strict=True):
        parts: list[Part] = []
        for i, text in enumerate(texts_around):
            if i:
                parts += [_audio(entry, sounds[j], j, named) for j in next(chosen)]
            if text.strip():
                parts.append(text.strip())
        turns.append(Turn(role, tuple(parts) or ("",)))
    return make_conversation(row_id, turns, tags, own_tags(row))


def _split(text: str, pattern: re.Pattern[str] | None) -> list[str]:
    """The texts around the placeholders."""
    return [text] if pattern is None else pattern.split(text)


def _chosen(sounds: Sequence[str], num_places: int, placeholders: Sequence[str]) -> Any:
    """The numbers of the recordings at each placeholder."""
    if num_places and not sounds:
        raise DataError(
            "a placeholder without audio",
            found=f"{num_places} of {' and '.join(placeholders)}, and no recording",
            fix="add the recording, or leave the row out",
        )
    if len(sounds) > 1 and num_places > 1 and len(sounds) != num_places:
        raise DataError(
            "recordings and placeholders do not match",
            found=f"{len(sounds)} recordings, {num_places} placeholders",
            expected="one recording for all placeholders, one for each, or one placeholder for all",
        )
    if sounds and not num_places:
        raise DataError(
            "audio without a placeholder",
            found=f"{len(sounds)} recordings, and none of {' and '.join(placeholders)} in a text of the user",
            fix="name the placeholder in `options: {placeholders: [...]}`, or leave the row out",
        )
    if len(sounds) == 1:
        return iter([[0]] * num_places)
    return iter([list(range(len(sounds)))] if num_places == 1 else [[i] for i in range(num_places)])


def _audio(entry: Mapping[str, Any], path: str, number: int, named: NamedMedia) -> MediaPart:
    offset, duration = (
        seconds_of(_of_list(entry.get(name), number, name), f'"{name}"') for name in ("offset", "duration")
    )
    return MediaPart(named("audio", path, offset or 0.0, duration), duration)


def _of_list(value: Any, number: int, name: str) -> Any:
    if not isinstance(value, list):
        return value
    if len(value) == 1:
        return value[0]
    if number >= len(value):
        raise DataError(f'"{name}" has too few values', found=f"{len(value)} for recording {number + 1}")
    return value[number]


def _sounds(row: Sample) -> list[str]:
    found: Any = next((row[name] for name in _FIELDS if row.get(name) not in (None, "", [])), [])
    paths = [found] if isinstance(found, str) else found
    if not isinstance(paths, list) or not all(isinstance(path, str) and path for path in paths):
        raise DataError(
            '"sound" does not name audio',
            found=repr(found)[:80],
            expected="a path, or a list",
        )
    return paths


register(
    "share_gpt",
    default_id=ROW_ID,
    raw_members=False,
    options=ShareGptOptions,
    path_options=(TAR, "audio_root"),
    conversations=True,
)(partial(ConversationLines, parse_share_gpt, ShareGptOptions))
