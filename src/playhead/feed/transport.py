"""Results sent from worker processes to the owner: large data in shared memory, the rest as a pickle.

Law: what arrives is what was sent. An array arrives writable if it was.
"""

from __future__ import annotations

import copyreg
import io
import pickle
import sys
from functools import partial
from typing import Any

import numpy as np

from playhead.feed.arena import SMALLEST_SHARED_BYTES, Arena
from playhead.feed.shared_memory import SharedBuffers, Span
from playhead.types import Array


def pack(result: Any, arena: Arena) -> bytes:
    """The message from which `unpack` restores the result. Arrays in the arena's buffer are not copied."""
    spans: list[Span] = []

    def is_small(buffer: pickle.PickleBuffer) -> bool:
        span = arena.place(buffer.raw())
        if span is not None:
            spans.append(span)
        return span is None

    file = io.BytesIO()
    pickler = pickle.Pickler(file, protocol=5, buffer_callback=is_small)
    pickler.dispatch_table = copyreg.dispatch_table | {np.ndarray: partial(_reduced_array, arena)}
    if "torch" in sys.modules:
        pickler.dispatch_table[sys.modules["torch"].Tensor] = _reduced_tensor
    try:
        pickler.dump(result)
        data = pickle.PickleBuffer(file.getbuffer())
        is_beside = is_small(data)  # else it is in the last span
    except BaseException:
        arena.clear()
        raise
    shared = None
    if spans:
        shared = arena.hand_over()
    else:
        arena.clear()
    return pickle.dumps((shared, spans, data if is_beside else None), protocol=5)


def unpack(message: bytes, buffers: SharedBuffers) -> Any:
    shared, spans, data = pickle.loads(message)  # noqa: S301  # from our own worker
    views = buffers.views(shared, spans) if spans else []
    return pickle.loads(views.pop() if data is None else data, buffers=views)  # noqa: S301


def _reduced_array(arena: Arena, array: Array) -> tuple[Any, ...]:
    """An array as numpy pickles it; the bytes of a large one stay out of the pickle."""
    if array.nbytes >= SMALLEST_SHARED_BYTES and not array.dtype.hasobject:
        if not (array.flags.c_contiguous or array.flags.f_contiguous):
            found = arena.empty(array.shape, array.dtype)
            found[...] = array
            array = found
        try:
            memoryview(array)  # type: ignore[arg-type]
        except ValueError:  # for example dates
            as_bytes = array.view(np.dtype((np.void, array.itemsize)))
            return _as_dtype, (as_bytes, array.dtype)
    return array.__reduce_ex__(5)  # type: ignore[return-value]


def _as_dtype(array: Array, dtype: np.dtype[Any]) -> Array:
    return array.view(dtype)


def _reduced_tensor(tensor: Any) -> tuple[Any, ...]:
    """A plain tensor is sent as an array of bytes; any other as torch pickles it."""
    import torch

    plain = tensor.layout == torch.strided and tensor.device.type == "cpu" and not tensor.is_quantized
    if not plain or tensor.requires_grad or not tensor.numel():
        return tensor.__reduce_ex__(5)  # type: ignore[no-any-return]
    data = tensor.resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8).numpy()
    return _tensor, (data, tensor.dtype, tensor.shape)


def _tensor(data: np.ndarray[Any, Any], dtype: Any, shape: tuple[int, ...]) -> Any:
    import torch

    return torch.from_numpy(data).view(dtype).reshape(shape)
