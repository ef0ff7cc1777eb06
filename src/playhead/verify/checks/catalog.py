"""Every check, in the order of codes."""

from __future__ import annotations

from playhead.verify.checks import (
    batches,
    drift,
    first_batches,
    functions,
    ids,
    indexes,
    machine,
    recipe_text,
    row_contents,
    shard_access,
    weights,
    worlds,
)
from playhead.verify.checks.registry import Check

_MODULES = (
    recipe_text,
    indexes,
    shard_access,
    row_contents,
    first_batches,
    ids,
    worlds,
    weights,
    batches,
    functions,
    machine,
    drift,
)

CHECKS: tuple[Check, ...] = tuple(
    sorted(
        (found for module in _MODULES for found in vars(module).values() if isinstance(found, Check)),
        key=lambda found: found.code,
    )
)
