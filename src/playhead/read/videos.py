"""Videos, decoded by the user's function: no decoder of ours is part of the promise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from playhead.errors import SampleError
from playhead.formats.media import Media
from playhead.read.media_bytes import MediaBytes, all_bytes
from playhead.read.media_rules import MediaRules
from playhead.recipe.imports import resolve_function

BYTES = "_bytes"  # of a video as it is stored: not a field of samples


def decode_video(
    source: MediaBytes, group: Sequence[Media], rules: MediaRules, function: str | None
) -> list[dict[str, Any] | SampleError]:
    """What the function in `video` of the recipe returns for the bytes of a video, once for all that want it."""
    try:
        return [_decoded(source, rules, function)] * len(group)
    except SampleError as error:
        return [error] * len(group)


def _decoded(source: MediaBytes, rules: MediaRules, function: str | None) -> dict[str, Any]:
    if function is None:
        raise SampleError(
            f"{source.path}: is a video, and the recipe has no function that decodes videos",
            fix="give one, `video: package.module:function` of the bytes, or leave the row out",
        )
    decode = resolve_function(function, "video")
    data = all_bytes(source, rules)
    try:
        return {"": decode(data), BYTES: data}
    except Exception as error:
        raise SampleError(
            f"{source.path}: the function {function} failed", found=f"{type(error).__name__}: {error}"
        ) from error
