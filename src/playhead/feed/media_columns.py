"""The media of conversations in a batch: those of all samples one after another, with what they belong to.

Beside the media of a field `audio` are `audio_positions`, where the first token of each is in the sequence, and
`audio_num_tokens`, how many tokens stand for each in the plan. `audio_rows` is the sample that each belongs to or, in a
pack, `audio_segments`, as in `segment_ids`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeGuard

import numpy as np

from playhead.errors import SampleError
from playhead.feed.numbers import arrays_of
from playhead.feed.padding import Making, Payload, no_arrays, padded_arrays
from playhead.formats.conversation import MediaInTokens
from playhead.read.stored import StoredArray
from playhead.types import Array

_UINT8 = np.dtype(np.uint8)


def are_media(values: list[Any]) -> TypeGuard[list[MediaInTokens]]:
    return {*map(type, values)} == {MediaInTokens}


def media_columns(
    name: str,
    values: list[MediaInTokens],
    making: Making,
    there: Sequence[int] | None = None,
    bounds: Array | None = None,
) -> Payload:
    """The columns of one kind of media. In a pack, `there` are the samples that it holds, and `bounds` their places.

    Law: media are in the order of their tokens in the batch.
    """
    chosen = range(len(values)) if there is None else there
    media = [each for i in chosen for each in values[i].media]
    owners = [i for i in chosen for _ in values[i].media]
    shift = np.zeros(len(values) + 1, np.int64) if bounds is None else bounds
    positions = [int(shift[i]) + place for i in chosen for place in values[i].positions]
    of_media = making.of(len(media))
    payload = _values(name, media, values, of_media)
    rates = [rate for i in chosen for rate in values[i].rates or ()]
    if values[0].rates is not None and len(rates) == len(media):
        payload[f"{name}_rates"] = of_media.column(np.array(rates, np.int32))
    payload[f"{name}_positions"] = of_media.column(np.array(positions, np.int64))
    counts = [count for i in chosen for count in values[i].num_tokens]
    payload[f"{name}_num_tokens"] = of_media.column(np.array(counts, np.int64))
    if bounds is None:
        payload[f"{name}_rows"] = of_media.column(np.array(owners, np.int32))
    else:
        payload[f"{name}_segments"] = of_media.column(np.array(owners, np.int32) + np.int32(1))
    return payload


def _values(name: str, media: list[Any], values: list[MediaInTokens], making: Making) -> Payload:
    """The media, with lengths and a mask where they are padded. Law: a batch without media has the same fields."""
    like, declared = values[0], making.how.dtypes.get(name)
    if like.dtype is not None:
        if not media:
            return no_arrays(name, declared or np.dtype(like.dtype), making)
        return padded_arrays(name, *arrays_of(name, media, declared), making, None)
    shapes = {each.shape for each in media} if like.shape else {()}  # a map may have changed them
    if like.shape is None or any(each.shape is None for each in values) or len(shapes) > 1:
        if declared is not None:
            raise SampleError(
                f'field "{name}" cannot have a dtype: its arrays may differ in shape, and are delivered as a list',
                fix=f"remove `dtypes: {{{name}: ...}}`, or give images one `size` and `mode`",
            )
        return {name: [making.unbatched(each) for each in media]}
    arrays, dtype = arrays_of(name, media, declared) if media else ([], declared or _UINT8)
    out = making.array((len(media), *(shapes.pop() if shapes else like.shape)), dtype)
    for array, place in zip(arrays, out, strict=True):
        if type(array) is StoredArray:
            making.read_later(array, place)
        else:
            place[...] = array
    return {name: out}
