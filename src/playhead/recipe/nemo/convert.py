"""A NeMo configuration as a recipe: its data to train on, its evaluation sets, and the notes on both."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playhead.errors import RecipeError
from playhead.recipe.environment import unset_names
from playhead.recipe.nemo.context import Context
from playhead.recipe.nemo.delivery import delivery_values
from playhead.recipe.nemo.files import note_sidecars
from playhead.recipe.nemo.interpolation import Document, dotted
from playhead.recipe.nemo.report import Imported
from playhead.recipe.nemo.sections import Block, find_evaluation, find_train, num_lanes
from playhead.recipe.nemo.stream import Stream, read_stream
from playhead.recipe.nemo.streams import evaluation_values, fused, read_evaluation, read_streams
from playhead.recipe.nemo.yaml_text import read_yaml, with_overrides
from playhead.recipe.read import parse
from playhead.recipe.values import Recipe

TOKENIZER = "${TOKENIZER:-tokenizer.json}"
TEMPLATE = "${CHAT_TEMPLATE:-chat_template.jinja}"


@dataclass(frozen=True)
class ImportOptions:
    """What a configuration does not say, or says in a part that is to be chosen.

    `base_dir` is where relative paths begin, by default the working directory, as in NeMo; `recipe_dir` is where the
    recipe will be, by default the same. `overrides` are values by their dotted keys, as a job is started with.
    """

    section: str | None = None
    lanes: int | None = None
    tokenizer: str | None = None
    template: str | None = None
    base_dir: Path | None = None
    recipe_dir: Path | None = None
    overrides: Sequence[str] = ()


def import_nemo(config: str | Path, options: ImportOptions | None = None) -> Imported:
    """The recipe of a NeMo configuration. What cannot be mapped raises a RecipeError that names it."""
    try:
        return _import(config, options or ImportOptions())
    except RecursionError:
        raise RecipeError(
            f"{config}: contains itself", fix="remove the YAML alias that points to its own parent"
        ) from None


def _import(config: str | Path, options: ImportOptions) -> Imported:
    base_dir = (options.base_dir or Path()).absolute()
    context = Context(
        base_dir,
        (options.recipe_dir or base_dir).absolute(),
        options.tokenizer or TOKENIZER,
        options.template or TEMPLATE,
    )
    document = Document(with_overrides(read_yaml(str(config)), options.overrides), str(config))
    train = find_train(document, options.section)
    found = document.get(train)
    place = dotted(train)
    if isinstance(found, (list, str)):
        found, place = _without_batching(found, context), place or "the list"
    block = Block(found, place, context.notes)
    streams = read_streams(block, context) if block.flag("multi_config") else [read_stream(block, context)]
    lanes = _lanes(document, options, context)
    evaluation: dict[str, Stream] = {}
    for name, path in find_evaluation(document, train):
        for own, found_set in read_evaluation(name, document.get(path), dotted(path), context).items():
            evaluation[own if own not in evaluation else f"{name}-{own}"] = found_set
    values = _recipe_values(block, streams, lanes, evaluation, context)
    block.finish()
    _note_other_files(document, context)
    context.notes.stop_if_refused()
    note_sidecars(streams, values.get("indexes_root"), context)
    _note_paths(context, options)
    return Imported(str(config), values, _checked(values, context), context.notes)


def _without_batching(entries: list[Any] | str, context: Context) -> dict[str, Any]:
    """A list of datasets alone, for which nothing says how samples become batches."""
    context.notes.check(
        "Write the `batching` of the recipe: a list of datasets does not say how large batches are, "
        "so the recipe has micro-batches of one sample"
    )
    return {"input_cfg": entries, "batch_size": 1, "shuffle": True}


def _recipe_values(
    block: Block, streams: list[Stream], lanes: int | None, evaluation: dict[str, Stream], context: Context
) -> dict[str, Any]:
    values: dict[str, Any] = {}
    # First, because it may give sources settings of their own.
    delivery = delivery_values(streams, evaluation, context)
    if len(streams) == 1 and streams[0].name is None:
        values |= {"sources": streams[0].entries_as_values(), "batching": streams[0].sampling.batching}
    else:
        values["sources"] = [stream.as_group(block, lanes) for stream in streams]
        values |= fused(block, streams, context)
    values["weights_in"] = "samples"
    fused_lanes = (lanes or 1) * len(streams) if values.get("fuse") == "zip" else lanes
    if fused_lanes is not None:
        values["lanes"] = fused_lanes
    values |= _order(block, context)
    values |= delivery
    if evaluation:
        values["evaluation"] = {name: evaluation_values(each) for name, each in evaluation.items()}
    return values


def _order(block: Block, context: Context) -> dict[str, Any]:
    found: dict[str, Any] = {}
    seed = block.take("seed", 0)
    if isinstance(seed, int) and not isinstance(seed, bool):
        found["seed"] = seed
        if block.has("seed"):
            context.notes.mapped(block.at("seed"), seed, f"seed: {seed}")
    else:
        found["seed"] = 0
        context.notes.changed(block.at("seed"), seed, "seed: 0", "the stream is a function of a number", at="seed")
    if block.flag("force_finite"):
        found["exhaustion"] = "drop"
        why = "a source that ends is left out, and the stream ends with the last one"
        context.notes.changed(block.at("force_finite"), True, "exhaustion: drop", why, at="exhaustion")
    roots = {root for root in (block.text("indexes_root"), *context.indexes_roots) if root is not None}
    if len(roots) == 1:
        root = roots.pop()
        found["indexes_root"] = context.placed(root)
        context.notes.mapped(block.at("indexes_root"), root, "indexes_root")
    elif roots:
        why = "a recipe has one root: sidecars there are not used, `playhead prepare` reads the files instead"
        context.notes.ignored(block.at("indexes_root"), sorted(roots), why)
    return found


def _lanes(document: Document, options: ImportOptions, context: Context) -> int | None:
    if options.lanes is not None:
        context.notes.mapped("--lanes", options.lanes, f"lanes: {options.lanes}", "micro-batches in an optimizer step")
        return options.lanes
    found = num_lanes(document)
    if found is None:
        context.notes.checklist.insert(
            0,
            "Set `lanes` in the recipe: the micro-batches of one optimizer step, that is ranks * accumulated batches. "
            "NeMo's `batch_size` counts for each rank, and this configuration does not say how many there are. "
            "Import again with --lanes N, or write it; without it the stream is that of one rank.",
        )
        return None
    lanes, text = found
    context.notes.mapped("trainer", text, f"lanes: {lanes}", "micro-batches in an optimizer step, on all ranks")
    context.notes.check(
        f"`lanes: {lanes}` was computed from the trainer ({text}): correct it if the job is started otherwise"
    )
    return lanes


def _note_other_files(document: Document, context: Context) -> None:
    defaults = document.raw(("defaults",)) if isinstance(document.raw(), dict) else None
    if defaults:
        context.notes.ignored("defaults", defaults, "other files that Hydra composes are not read")
        context.notes.check(
            "The configuration has Hydra `defaults`, which are not read: import the composed one (--cfg job)"
        )


def _note_paths(context: Context, options: ImportOptions) -> None:
    where = "the working directory" if options.base_dir is None else "--base"
    context.notes.check(
        f"Relative paths of the configuration were taken from {where}, as NeMo takes them from the directory "
        "in which a job is started."
    )


def _checked(values: dict[str, Any], context: Context) -> Recipe:
    """The recipe, with stand-ins for variables that are not set where it is imported."""
    unset = unset_names(values, os.environ)
    if unset:
        context.notes.check(f"Set {', '.join(unset)} in the environment of the job: the recipe refers to it")
    try:
        return parse(values, context.recipe_dir, {**os.environ, **{name: f"/{name}" for name in unset}})
    except RecipeError as error:
        raise RecipeError(
            f"the recipe made of this configuration is not valid: {error.problem}",
            found=error.found,
            expected=error.expected,
            fix=error.fix,
        ) from error
