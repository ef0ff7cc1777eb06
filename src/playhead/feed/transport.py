"""Results of worker processes on their way to the owner: large arrays in shared memory, the rest as a pickle.

Law: what arrives is what was sent. An array arrives writable if it was.
"""

from __future__ import annotations

import copyreg
import io
import pickle
import sys
from typing import Any

import numpy as np

from playhead.feed.segments import Arena, Segments, Span


def pack(result: Any, arena: Arena) -> bytes:
    """The message that `unpack` makes the result of again. Arrays that are in the arena's segment are not copied."""
    spans: list[Span] = []

    def is_small(buffer: pickle.PickleBuffer) -> bool:
        span = arena.place(buffer.raw())
        if span is not None:
            spans.append(span)
        return span is None

    file = io.BytesIO()
    pickler = pickle.Pickler(file, protocol=5, buffer_callback=is_small)
    if "torch" in sys.modules:
        pickler.dispatch_table = copyreg.dispatch_table | {sys.modules["torch"].Tensor: _reduced_tensor}
    try:
        pickler.dump(result)
    except BaseException:
        arena.clear()
        raise
    segment = arena.hand_over() if spans else None
    return pickle.dumps((segment, spans, pickle.PickleBuffer(file.getbuffer())), protocol=5)


def unpack(message: bytes, segments: Segments) -> Any:
    segment, spans, data = pickle.loads(message)  # noqa: S301  # from our own worker
    return pickle.loads(data, buffers=segments.views(segment, spans) if spans else ())  # noqa: S301


def _reduced_tensor(tensor: Any) -> tuple[Any, ...]:
    """A plain tensor travels as an array of bytes; any other as torch pickles it."""
    import torch

    plain = tensor.layout == torch.strided and tensor.device.type == "cpu" and not tensor.is_quantized
    if not plain or tensor.requires_grad or not tensor.numel():
        return tensor.__reduce_ex__(5)  # type: ignore[no-any-return]
    data = tensor.resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8).numpy()
    return _tensor, (data, tensor.dtype, tensor.shape)


def _tensor(data: np.ndarray[Any, Any], dtype: Any, shape: tuple[int, ...]) -> Any:
    import torch

    return torch.from_numpy(data).view(dtype).reshape(shape)
