"""Chat templates of Hugging Face, run in jinja2's sandbox, and the parts of their text that are trained on.

Laws: a template sees messages and variables, never files, the clock or Python; its text depends on these alone. The
parts are those between `{% generation %}` and `{% endgeneration %}` or, in a template without them, what each turn of
the assistant adds to the text before it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from playhead.errors import DataError, RecipeError
from playhead.formats.conversation import ASSISTANT

_GENERATION = re.compile(r"\{%[-+]?\s*generation\s*[-+]?%\}")
_SPECIAL_TOKEN = re.compile(r"\w+_token")
_KNOWN = {"messages", "tools", "documents", "add_generation_prompt", "raise_exception"}
_CLOCK = "strftime_now"

Message = dict[str, Any]
Span = tuple[int, int]  # the first character and the end


class Rendered(NamedTuple):
    """The text of a conversation, the spans that are trained on, and where its last turn begins."""

    text: str
    trained: list[Span]
    last: int | None


class TemplateText(Struct, frozen=True):
    """A template and the variables that it may use."""

    text: str
    variables: dict[str, Any]


def read_template(path: str, variables: Mapping[str, Any], where: str) -> TemplateText:
    """The template in a Jinja file, or in a JSON file as `chat_template`; `where` is its place in the recipe.

    A `tokenizer_config.json` also has special tokens, such as `eos_token`, which become variables.
    """
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise RecipeError(
            f"{where}: no such chat template", found=path, expected="a Jinja file, or a tokenizer_config.json"
        ) from error
    found: dict[str, Any] = {}
    if path.endswith(".json"):
        text, found = _in_json(text, path, where)
    made = TemplateText(text, {**found, **variables})
    _check(made, path, where)
    return made


def _in_json(text: str, path: str, where: str) -> tuple[str, dict[str, Any]]:
    try:
        values = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise RecipeError(f"{where}: is not JSON", found=f"{path}: {error}") from None
    template = values.get("chat_template") if isinstance(values, dict) else None
    if isinstance(template, list):  # several, by name
        named = {each.get("name"): each.get("template") for each in template if isinstance(each, dict)}
        template = named.get("default")
    if not isinstance(template, str):
        raise RecipeError(f"{where}: has no `chat_template`", found=path, fix="name the Jinja file of the template")
    tokens = {name: value for name, value in values.items() if _SPECIAL_TOKEN.fullmatch(name)}
    contents = {name: value.get("content") if isinstance(value, dict) else value for name, value in tokens.items()}
    return template, {name: value for name, value in contents.items() if isinstance(value, str)}


def _check(template: TemplateText, path: str, where: str) -> None:
    """Refuse a template that cannot be compiled, or that uses a special token without a value."""
    import jinja2.meta

    environment = _environment()
    try:
        parsed = environment.parse(template.text)
        _compiled(template.text)
    except jinja2.TemplateError as error:
        line = getattr(error, "lineno", None)
        raise RecipeError(
            f"{where}: is not a chat template",
            found=f"{path}{'' if line is None else f', line {line}'}: {error.message}",
        ) from error
    given = _KNOWN | template.variables.keys() | environment.globals.keys()
    used = jinja2.meta.find_undeclared_variables(parsed) - given
    missing = sorted(name for name in used if _SPECIAL_TOKEN.fullmatch(name))
    if missing:
        raise RecipeError(
            f"{where}: the template uses special tokens that have no value",
            found=f"{path}: {', '.join(missing)}",
            fix=f'give them, for example `variables: {{{missing[0]}: "..."}}`, or name the tokenizer_config.json',
        )
    if _CLOCK in used and not re.search(rf"{_CLOCK}\s+is\s+(not\s+)?defined", template.text):
        raise RecipeError(
            f"{where}: the template uses the clock",
            found=f"{path}: {_CLOCK}",
            expected="a text that depends on the conversation alone, so that every run sees the same tokens",
            fix="write the date into the template, or give it as a variable",
        )


def render(template: TemplateText, messages: Sequence[Message], tools: list[Any] | None) -> Rendered:
    """The text of messages, with the spans that are trained on. Errors do not name the conversation."""
    if _GENERATION.search(template.text):
        text, trained = _marked(template, messages, tools)
        last = trained[-1][0] if trained and messages[-1]["role"] == ASSISTANT else None
        return Rendered(text, trained, last)
    text = _text(template, messages, tools)
    trained = []
    end = 0
    for i, message in enumerate(messages):
        if message["role"] == ASSISTANT:
            before = _prefix(template, messages[:i], tools, text, generation=True)
            after = len(text) if i + 1 == len(messages) else _prefix(template, messages[: i + 1], tools, text)
            if not end <= before <= after:
                raise _no_prefix(text, text[:before])
            trained.append((before, after))
            end = after
    return Rendered(text, trained, trained[-1][0] if trained and end == len(text) else None)


def last_turn(template: TemplateText, messages: Sequence[Message], tools: list[Any] | None, found: Rendered) -> int:
    """Where the last turn begins in the text."""
    if found.last is not None:
        return found.last
    return _prefix(template, messages[:-1], tools, found.text) if len(messages) > 1 else 0


def _prefix(
    template: TemplateText,
    messages: Sequence[Message],
    tools: list[Any] | None,
    whole: str,
    *,
    generation: bool = False,
) -> int:
    """The length of the text of the first messages, which must be how the whole text begins."""
    text = _text(template, messages, tools, add_generation_prompt=generation)
    if not whole.startswith(text):
        raise _no_prefix(whole, text)
    return len(text)


def _no_prefix(whole: str, text: str) -> DataError:
    first = next((i for i, (one, other) in enumerate(zip(whole, text, strict=False)) if one != other), len(whole))
    around = slice(max(first - 20, 0), first + 20)
    return DataError(
        "the template writes earlier turns differently when others follow, so the turns of the assistant are not found",
        found=f"{text[around]!r} without them, {whole[around]!r} with them",
        expected="the text of the first turns as the beginning of the whole text",
        fix="mark what is trained on in the template with {% generation %} and {% endgeneration %}",
    )


def _text(template: TemplateText, messages: Sequence[Message], tools: list[Any] | None, **more: Any) -> str:
    import jinja2

    given = {"tools": tools, "documents": None, "add_generation_prompt": False, **template.variables, **more}
    try:
        return str(_compiled(template.text).render(messages=list(messages), **given))
    except jinja2.TemplateError as error:
        raise DataError(
            "the chat template refuses the conversation",
            found=str(error)[:300],
            fix="correct the row, leave it out (`_skipme`), or change the template",
        ) from error
    except Exception as error:  # a template can raise anything on values that it does not expect
        raise DataError(
            "the chat template failed on the conversation",
            found=f"{type(error).__name__}: {error}"[:300],
            fix="correct the row or the template, or choose what it gets as content: `content: text` or `parts`",
        ) from error


def _marked(template: TemplateText, messages: Sequence[Message], tools: list[Any] | None) -> tuple[str, list[Span]]:
    """The text, and the spans of its generation blocks, by marks that occur nowhere else."""
    number, content = 0, json.dumps([list(messages), tools, template.variables], ensure_ascii=False, default=str)
    while f"\\u0002{number}\\u0003" in content:
        number += 1
    mark = f"\x02{number}\x03"
    pieces = _text(template, messages, tools, **{_MARK: mark}).split(mark)
    if len(pieces) % 2 == 0:
        raise DataError("the generation blocks of the chat template are cut off", fix="close each with endgeneration")
    spans, end = [], 0
    for i, piece in enumerate(pieces):
        if i % 2:
            spans.append((end, end + len(piece)))
        end += len(piece)
    return "".join(pieces), spans


_MARK = "playhead_generation_mark"


@lru_cache(maxsize=1)
def _environment() -> Any:
    try:
        from jinja2 import nodes
        from jinja2.exceptions import TemplateError
        from jinja2.ext import Extension
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError as error:
        raise RecipeError("chat templates need the package jinja2", fix="pip install 'playhead[chat]'") from error

    class Generation(Extension):
        """`{% generation %}`: what the model is trained to write."""

        tags = {"generation"}  # noqa: RUF012 - as jinja2 has it

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            call = self.call_method("mark", [nodes.ContextReference()])
            return nodes.CallBlock(call, [], [], body).set_lineno(line)

        @staticmethod
        def mark(context: Any, caller: Callable[[], str]) -> str:
            mark = context.get(_MARK, "")
            return f"{mark}{caller()}{mark}"

    def raise_exception(message: str) -> None:
        raise TemplateError(message)

    def tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None, **more: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **more)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"]
    )
    del environment.globals["lipsum"]  # random words
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    return environment


@lru_cache(maxsize=32)
def _compiled(text: str) -> Any:
    return _environment().from_string(text)
