"""Chat templates held against transformers: the same tokens, and the same mask of what the assistant says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chat_data import MARKED, PLAIN, write_tokenizer
from playhead.formats.chat import Chat, chat_spec
from playhead.formats.conversation import Conversation, Turn
from playhead.formats.tokens import tokenizer_digest
from playhead.recipe.values import Template

pytestmark = pytest.mark.trainers

TOOLS = """{% if tools %}<s>{{ tools | tojson }}{% endif %}{% set ns = namespace(n=0) %}{% for m in messages %}
{%- if m.role == 'system' %}{% continue %}{% endif %}
{% set ns.n = ns.n + 1 %}{{ ns.n }}. {{ m['content'] | trim }}
{%- if m.tool_calls is defined %}{{ m.tool_calls | tojson(indent=2) }}{% endif %}{{ eos_token }}
{% endfor %}"""
TALKS: list[list[dict[str, Any]]] = [
    [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "there"}],
    [
        {"role": "system", "content": "żółw 漢字 😀"},
        {"role": "user", "content": " what is said?\n"},
        {"role": "assistant", "content": "{{ 1 }} <b>&</b>"},
        {"role": "user", "content": ""},
        {"role": "assistant", "content": "😀 in the audio"},
    ],
    [{"role": "assistant", "content": "hello", "tool_calls": [{"name": "é", "arguments": {"a": 1}}]}],
]


@pytest.mark.parametrize("template", [MARKED, PLAIN, TOOLS], ids=["marked", "plain", "tools"])
@pytest.mark.parametrize("messages", TALKS, ids=["short", "long", "tool"])
def test_tokens_and_masks_are_those_of_transformers(
    tmp_path: Path, template: str, messages: list[dict[str, Any]]
) -> None:
    from transformers import PreTrainedTokenizerFast

    path = str(write_tokenizer(tmp_path / "tokenizer.json"))
    (tmp_path / "chat.jinja").write_text(template)
    theirs = PreTrainedTokenizerFast(tokenizer_file=path, eos_token="</s>", chat_template=template)  # noqa: S106
    tools = [{"type": "function", "function": {"name": "n", "description": "ż < 2"}}]
    marked = "generation %}" in template
    expected = theirs.apply_chat_template(
        messages, tools=tools, tokenize=True, return_dict=True, return_assistant_tokens_mask=marked
    )
    given = Template(tokenizer=path, file=str(tmp_path / "chat.jinja"), variables={"eos_token": "</s>"})
    chat = Chat(chat_spec(given, None, {}, "template"), {path: tokenizer_digest(path, "template")})
    others = ({key: value for key, value in each.items() if key not in ("role", "content")} for each in messages)
    turns = [Turn(each["role"], (each["content"],), extra) for each, extra in zip(messages, others, strict=True)]
    conversation = Conversation("c", tuple(turns), tools=tools)
    (found,) = chat.tokenized([conversation], None)  # type: ignore[arg-type]
    assert found.tokens.tolist() == expected["input_ids"]
    if marked:
        assert found.loss_mask.astype(int).tolist() == expected["assistant_masks"]
