"""Conversations in the style of ShareGPT in tars: `0.json` and `0.wav` are a sample."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from playhead.formats.conversation import Conversation
from playhead.formats.conversation_tars import ConversationTars
from playhead.formats.media import Media, MediaKind
from playhead.formats.registry import register
from playhead.formats.rows import Sample
from playhead.formats.share_gpt import Placeholders, parse_with_sounds
from playhead.formats.webdataset import KEY


class ShareGptTarOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """`placeholders` stand for audio in texts."""

    placeholders: Placeholders = field(default_factory=lambda: ["<sound>", "<speech>"])


def _parse(
    row: Sample, row_id: str, tags: Mapping[str, Any], media: Mapping[str, Media], options: ShareGptTarOptions
) -> Conversation:
    def named(kind: MediaKind, path: str, offset: float = 0.0, duration: float | None = None) -> Media:
        return replace(media[path], kind=kind, offset=offset, duration=duration)

    return parse_with_sounds(row, row_id, tags, named, options.placeholders, list(media))


register("share_gpt_webdataset", default_id=KEY, raw_members=False, options=ShareGptTarOptions, conversations=True)(
    partial(ConversationTars, _parse, ShareGptTarOptions)
)
