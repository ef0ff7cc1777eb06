"""The contents of a batch: their digests, and where two of them differ.

A payload is taken apart into its *parts*: arrays, and values that are not in a collection. A tensor and an array of the
same numbers are the same part.
"""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from playhead.types import Array

DIGEST_BYTES = 16
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_SHOWN = 80


@dataclass(frozen=True)
class Part:
    """An array, or a value as text, by where it is in the payload; `dtype` names the type of either."""

    path: str
    dtype: str
    value: Array | str

    def raw(self) -> Array | bytes:
        if isinstance(self.value, str):
            return self.value.encode("utf-8", "surrogatepass")
        return np.ascontiguousarray(self.value).reshape(-1).view(np.uint8)


@dataclass(frozen=True)
class PartDifference:
    """The first element that differs between two payloads, or that only one of them has."""

    path: str
    element: str
    expected: str
    delivered: str


def digests_of(payload: Mapping[str, Any]) -> dict[str, str]:
    """A digest of the names, types, shapes and bytes of every field."""
    return {name: _digest(name, payload[name]) for name in sorted(payload)}


def parts_of(payload: Mapping[str, Any]) -> list[Part]:
    return [part for name in sorted(payload) for part in _parts(name, payload[name])]


def first_difference(expected: list[Part], delivered: list[Part]) -> PartDifference | None:
    """The first part that differs, and its first element that does; None where all bits are equal."""
    found = {part.path: part for part in delivered}
    for part in expected:
        if part.path not in found:
            return PartDifference(part.path, "", _about(part), "no such field")
        difference = _compared(part, found.pop(part.path))
        if difference is not None:
            return difference
    return next((PartDifference(part.path, "", "no such field", _about(part)) for part in found.values()), None)


def difference_in_words(first: Mapping[str, Any], second: Mapping[str, Any]) -> str | None:
    """What a second payload has differently; None where all bits are equal."""
    found = first_difference(parts_of(first), parts_of(second))
    return None if found is None else f"{found.path}{found.element}: {found.expected}, then {found.delivered}"


def write_parts(folder: Path, parts: list[Part]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    plain: list[list[str | None]] = []
    for number, part in enumerate(parts):
        if isinstance(part.value, str):
            plain.append([part.path, part.dtype, part.value])
        else:
            plain.append([part.path, part.dtype, None])
            np.save(folder / f"{number}.npy", part.value, allow_pickle=False)
    (folder / "parts.json").write_text(json.dumps(plain))


def read_parts(folder: Path) -> list[Part] | None:
    """The parts of a micro-batch that was written down; None where it was not."""
    listed = folder / "parts.json"
    if not listed.exists():
        return None
    return [
        Part(path, dtype, np.load(folder / f"{number}.npy") if value is None else value)
        for number, (path, dtype, value) in enumerate(json.loads(listed.read_text()))
    ]


def _digest(name: str, value: Any) -> str:
    found = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for part in _parts(name, value):
        shape = "" if isinstance(part.value, str) else str(part.value.shape)
        raw = part.raw()
        size = raw.nbytes if isinstance(raw, np.ndarray) else len(raw)
        found.update(f"{part.path}\0{part.dtype}\0{shape}\0{size}\0".encode("utf-8", "surrogatepass"))
        found.update(raw.data if isinstance(raw, np.ndarray) else raw)
    return found.hexdigest()


def _parts(path: str, value: Any) -> Iterator[Part]:
    array = _as_array(value)
    if array is not None:
        yield Part(path, *array)
    elif isinstance(value, Mapping):
        yield Part(path, "mapping", f"{len(value)} entries")
        for key in sorted(value, key=repr):
            yield from _parts(f"{path}.{key}", value[key])
    elif isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.ndim):
        yield Part(path, "list", f"{len(value)} entries")
        for number, item in enumerate(value):
            yield from _parts(f"{path}[{number}]", item)
    elif isinstance(value, (set, frozenset)):
        yield Part(path, "set", repr(sorted(value, key=repr)))
    else:
        yield Part(path, type(value).__name__, _text(value))


def _as_array(value: Any) -> tuple[str, Array] | None:
    """A name of the dtype, and the numbers, of an array or a tensor; None for anything else."""
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "biufc":
            return None
        native = value.astype(value.dtype.newbyteorder("="), copy=False)
        return native.dtype.name, native
    if not hasattr(value, "__array__") or isinstance(value, np.generic):
        return None
    if not hasattr(value, "untyped_storage"):
        return _as_array(np.asarray(value))
    import torch

    tensor = value.detach().cpu().resolve_conj().resolve_neg().contiguous()
    name = str(tensor.dtype).removeprefix("torch.")
    try:
        return name, tensor.numpy()
    except TypeError:  # numpy has no such dtype; its bits do as well
        return name, tensor.reshape(-1).view(torch.uint8).numpy()


def _text(value: Any) -> str:
    if value is None or isinstance(value, (bool, int, float, str, bytes, np.generic)):
        return repr(value)
    pickled = io.BytesIO()
    pickler = pickle.Pickler(pickled)
    pickler.fast = True  # the bytes do not tell one text that is there twice from two that are equal
    try:
        pickler.dump(value)
        return hashlib.blake2b(pickled.getvalue(), digest_size=DIGEST_BYTES).hexdigest()
    except Exception:  # noqa: BLE001  # pickling runs code of the user's classes
        return _ADDRESS.sub("", repr(value))


def _compared(expected: Part, delivered: Part) -> PartDifference | None:
    left, right = expected.value, delivered.value
    same_kind = expected.dtype == delivered.dtype and isinstance(left, str) == isinstance(right, str)
    if not same_kind or (not isinstance(left, str) and not isinstance(right, str) and left.shape != right.shape):
        return PartDifference(expected.path, "", _about(expected), _about(delivered))
    if isinstance(left, str) or isinstance(right, str):
        return None if left == right else PartDifference(expected.path, "", _about(expected), _about(delivered))
    if not left.size:
        return None
    bits = [np.ascontiguousarray(side).reshape(-1).view(np.uint8).reshape(left.size, -1) for side in (left, right)]
    rows = np.flatnonzero((bits[0] != bits[1]).any(axis=1))
    if not len(rows):
        return None
    at = np.unravel_index(int(rows[0]), left.shape)
    element = f"[{', '.join(str(int(i)) for i in at)}]"
    return PartDifference(expected.path, element, str(left[at]), str(right[at]))


def _about(part: Part) -> str:
    if isinstance(part.value, str):
        return part.value if len(part.value) <= _SHOWN else f"{part.value[:_SHOWN]}..."
    return f"{part.dtype} of shape {part.value.shape}"
