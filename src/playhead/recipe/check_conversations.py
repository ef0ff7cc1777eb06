"""Rules about conversations: their templates, and what can be done with sources of them."""

from __future__ import annotations

from playhead.errors import RecipeError
from playhead.recipe.by_format import format_holds_conversations, holds_conversations
from playhead.recipe.imports import check_function_name
from playhead.recipe.tree import Leaf, augments_of, leaves, template_of, tokenize_of
from playhead.recipe.values import Length, Pack, Recipe, Template, VisualTokens
from playhead.store import is_url


def check_conversations(recipe: Recipe) -> None:
    if recipe.template is not None:
        _check_template(recipe.template, "template")
    if recipe.video is not None:
        check_function_name(recipe.video, "video")
    for leaf in leaves(recipe):
        own = leaf.source.template
        if own is True:
            raise RecipeError(
                f"{leaf.path}.template: needs a template", found="true", expected="a mapping, or false for none"
            )
        if isinstance(own, Template):
            _check_template(own, f"{leaf.path}.template")
        if leaf.source.as_conversation and format_holds_conversations(leaf.source):
            raise RecipeError(
                f"{leaf.path}.as_conversation: the rows of this format are conversations already",
                found=f"format: {leaf.source.format}",
                fix="remove `as_conversation`",
            )
        template = template_of(recipe, leaf) if holds_conversations(leaf.source) else None
        _check_lengths(leaf, template is not None)
        if holds_conversations(leaf.source):
            _check_source(recipe, leaf, None if template is None else template[0])


def _check_source(recipe: Recipe, leaf: Leaf, template: Template | None) -> None:
    name = f'{leaf.path} "{leaf.source.name}"'
    if augments_of(recipe, leaf):
        raise RecipeError(
            f"{name}: the audio of conversations is not augmented",
            fix="set `augment: []` for this source, and change its audio in the map",
        )
    if template is None:
        return
    if tokenize_of(recipe, leaf) is not None:
        raise RecipeError(
            f"{name}: has both a template and `tokenize`, which make tokens",
            fix="set `tokenize: false` for this source",
        )
    if not template.expand_placeholders and isinstance(leaf.batching, Pack):
        raise RecipeError(
            f"{name}: packs need every placeholder as often as the plan counts it",
            found="`expand_placeholders: false` with batching of type pack",
            fix="remove `expand_placeholders: false`, or choose another batching",
        )
    truncates = leaf.batching.overlong == "truncate" or recipe.on_length_mismatch == "truncate"
    if template.media_tags and truncates:
        key = "overlong" if leaf.batching.overlong == "truncate" else "on_length_mismatch"
        raise RecipeError(
            f"{name}: conversations with media cannot be truncated",
            found=f"`{key}: truncate`, and a template with tags for media",
            fix="use `drop` or `alone` for overlong samples, and `error` or `substitute` for mismatches",
        )
    length = leaf.source.length
    if recipe.pad_to == "bucket" and length is not None and length.turns not in (None, "all"):
        raise RecipeError(
            "pad_to: bucket: tokens have both the input and the output, and a bucket has an edge for each",
            fix="remove `pad_to`, or give a number",
        )


def _check_lengths(leaf: Leaf, has_template: bool) -> None:
    for key, length in (("length", leaf.source.length), ("output_length", leaf.source.output_length)):
        terms = [] if length is None else [length, *length.sum]
        if any(term.turns for term in terms):
            where = f"{leaf.path}.{key}"
            if not holds_conversations(leaf.source):
                raise RecipeError(
                    f"{where}.turns: the rows of this source are not conversations",
                    fix="use a format of conversations, or `as_conversation`",
                )
            if not has_template:
                raise RecipeError(
                    f"{where}.turns: counting the tokens of conversations needs a template",
                    fix="add `template: {tokenizer: tokenizer.json, file: chat_template.jinja}` to the recipe",
                )
            _check_alone(terms[0], where)


def _check_alone(length: Length, where: str) -> None:
    names = ("field", "function", "measure", "tokenizer", "audio", "image", "per_second", "sum")
    given = [name for name in names if getattr(length, name)]
    if given or length.unit != "tokens":
        found = f"`{given[0]}`" if given else f"`unit: {length.unit}`"
        raise RecipeError(
            f"{where}: `turns` counts all tokens of a conversation, media included", found=found, fix=f"remove {found}"
        )


def _check_template(template: Template, where: str) -> None:
    if (template.file is None) == (template.function is None):
        raise RecipeError(
            f"{where}: needs exactly one of `file` and `function`",
            found="both" if template.file else "neither",
            fix="name the chat template, for example `file: chat_template.jinja`",
        )
    if template.function is not None:
        check_function_name(template.function, f"{where}.function")
    for key, path in (("tokenizer", template.tokenizer), ("file", template.file)):
        if is_url(path or ""):
            raise RecipeError(
                f"{where}.{key}: must be on a local disk", found=path, fix="download the file, and give its path"
            )
    tags = list(template.media_tags.values())
    if len(set(tags)) < len(tags) or not all(tags):
        raise RecipeError(f"{where}: each kind of media needs a tag of its own", found=", ".join(map(repr, tags)))
    for kind, how in (("image", template.image), ("video", template.video)):
        if how is not None:
            _check_visual(how, kind, f"{where}.{kind}")


def _check_visual(how: VisualTokens, kind: str, where: str) -> None:
    names = ("tokens", "patch", "function") if kind == "image" else ("tokens", "function")
    found = [name for name in ("tokens", "patch", "function") if getattr(how, name) is not None]
    if len(found) != 1 or found[0] not in names:
        raise RecipeError(
            f"{where}: needs exactly one of {', '.join(f'`{name}`' for name in names)}",
            found=" and ".join(f"`{name}`" for name in found) or "none of them",
        )
    if how.function is not None:
        check_function_name(how.function, f"{where}.function")
