"""NeMo's conversations of text for supervised fine-tuning."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from msgspec import Struct

from playhead.errors import DataError
from playhead.formats.collect import ROW_ID
from playhead.formats.conversation import SYSTEM, USER, Conversation, Turn, make_conversation, role_of
from playhead.formats.conversation_lines import ConversationLines, NamedMedia, list_of, own_tags, text_of
from playhead.formats.registry import register
from playhead.formats.rows import Sample


class TextLineOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """Conversations of text have no options."""

    @property
    def tar(self) -> list[str]:
        return []

    @property
    def data_folder(self) -> list[str]:
        return []


def parse_sft(
    row: Sample, row_id: str, tags: Mapping[str, Any], _named: NamedMedia, _options: TextLineOptions
) -> Conversation:
    """`{"conversations": [{"value", "from", ...}], "mask": "User", "system": ...}`; `mask` is who is not trained on."""
    masked = row.get("mask")
    if masked is not None and role_of(masked) != USER:
        raise DataError(
            "only turns of the assistant are trained on",
            found=f"mask: {masked!r}",
            expected="the role of the user",
            fix="leave the row out, or use `format: jsonl` and a map",
        )
    turns = [
        Turn(role_of(entry.get("from")), (text_of(entry.get("value"), '"value" of a turn'),))
        for entry in list_of(row.get("conversations"), '"conversations"')
    ]
    system = row.get("system")
    if system:
        turns.insert(0, Turn(SYSTEM, (text_of(system, '"system"'),)))
    return make_conversation(row_id, turns, tags, own_tags(row))


register("nemo_sft", default_id=ROW_ID, raw_members=False, options=TextLineOptions, conversations=True)(
    partial(ConversationLines, parse_sft, TextLineOptions)
)
