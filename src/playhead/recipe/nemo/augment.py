"""NeMo's augmentations that Playhead has too, in NeMo's order: noise, speed, truncation, padding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from playhead.errors import RecipeError
from playhead.recipe.nemo.block import Block
from playhead.recipe.nemo.context import Context
from playhead.recipe.nemo.entries import as_values, datasets_of
from playhead.recipe.nemo.known_keys import DATA_KEYS
from playhead.recipe.nemo.notes import shown
from playhead.recipe.nemo.tree import read_entries

_SPEEDS = [0.9, 1.0, 1.1]
_SNR = [10.0, 20.0]
_PROBABILITY = 0.5


def read_augments(block: Block, context: Context) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The augmentations of a dataset, and the sources of noise that they draw on."""
    augments: list[dict[str, Any]] = []
    noises: list[dict[str, Any]] = []
    if block.has("noise_path"):
        noise = _noise(block, context)
        snr = block.take("noise_snr", _SNR)
        if not isinstance(snr, list) or len(snr) != 2:
            raise RecipeError(f"{block.at('noise_snr')}: is not a range", found=shown(snr), expected="[low, high]")
        probability = block.number("noise_mix_prob", _PROBABILITY)
        augments.append({"type": "noise", "source": noise["name"], "snr": snr, "probability": probability})
        noises.append(noise)
        block.notes.mapped(block.at("noise_path"), block.values["noise_path"], f'noises "{noise["name"]}"')
    if block.flag("perturb_speed"):
        augments.append({"type": "speed", "factors": _SPEEDS})
        why = "each factor as often as the others; limits on the duration apply to the recording as it is"
        block.notes.changed(block.at("perturb_speed"), True, f"speed {shown(_SPEEDS)}", why, at="augment")
    if block.has("truncate_duration"):
        _only_value(block, "truncate_offset_type", "random")
        seconds = block.number("truncate_duration")
        augments.append({"type": "crop", "seconds": seconds})
        block.notes.mapped(block.at("truncate_duration"), seconds, "augment of type crop")
    if block.has("pad_min_duration"):
        _only_value(block, "pad_direction", "right")
        seconds = block.number("pad_min_duration")
        augments.append({"type": "pad", "seconds": seconds})
        block.notes.mapped(block.at("pad_min_duration"), seconds, "augment of type pad")
    return augments, noises


def _only_value(block: Block, name: str, supported: str) -> None:
    given = block.take(name, supported)
    if given != supported:
        block.notes.refused(block.at(name), given, f"only `{supported}` is supported")


def _noise(block: Block, context: Context) -> dict[str, Any]:
    given = block.take("noise_path")
    place = block.at("noise_path")
    if isinstance(given, str):
        key = "manifest_filepath"
        if given.endswith((".yaml", ".yml")):
            key = "input_cfg"
        elif given.endswith((".jsonl", ".jsonl.gz")):
            key = "cuts_path"
        given = {key: given}
    if not isinstance(given, Mapping):
        raise RecipeError(f"{place}: is neither a path nor a dataset", found=shown(given))
    inner = Block(given, place, context.notes)
    found = list(datasets_of(read_entries(inner, context)))
    inner.finish(told=DATA_KEYS)
    if len(found) > 1:
        raise RecipeError(
            f"{place}: names several sources of noise",
            found=", ".join(f'"{each.name}"' for each in found),
            expected="one: an augmentation draws on one source",
            fix="join their manifests",
        )
    values = as_values(found[0])
    return {key: value for key, value in values.items() if key not in ("weight", "shuffle")}
