"""The media of conversations in a batch: those of all samples one after another, with what they belong to.

Beside the media of a field `audio` are `audio_positions`, where the first token of each is in the sequence, and
`audio_num_tokens`, how many tokens stand for each in the plan. `audio_rows` is the sample that each belongs to or, in a
pack, `audio_segments`, as in `segment_ids`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeGuard

import numpy as np

from playhead.feed.numbers import arrays_of
from playhead.feed.padding import Making, Payload, padded_arrays
from playhead.formats.conversation import MediaInTokens
from playhead.read.stored import StoredArray
from playhead.types import Array

_INT32, _INT64 = np.dtype(np.int32), np.dtype(np.int64)


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
    payload = _values(name, media, values[0], of_media)
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


def _values(name: str, media: list[Any], like: MediaInTokens, making: Making) -> Payload:
    if like.dtype is not None:
        if media:
            return padded_arrays(name, *arrays_of(name, media, making.how.dtypes.get(name)), making, None)
        dtype = making.how.dtypes.get(name, np.dtype(like.dtype))
        return {name: making.array((0, 0), dtype), f"{name}_lengths": making.array((0,), _INT64)}
    if not like.stacked or not media:
        return {name: [making.unbatched(each) for each in media]}
    dtype, shape = media[0].dtype, media[0].shape
    if any((each.dtype, each.shape) != (dtype, shape) for each in media):
        return {name: [making.unbatched(each) for each in media]}
    out = making.array((len(media), *shape), dtype)
    for array, place in zip(media, out, strict=True):
        if type(array) is StoredArray:
            making.read_later(array, place)
        else:
            place[...] = array
    return {name: out}
