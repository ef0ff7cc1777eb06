"""Several datasets -> one: their documents one after the other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from msgspec import Struct

from playhead.errors import DataError, RecipeError
from playhead.formats.megatron_idx import Idx, bin_path, open_idx, write_idx
from playhead.store import Files, open_file, replacing


class WrittenDataset(Struct, frozen=True):
    """A dataset that was written."""

    prefix: str
    num_documents: int
    num_sequences: int
    num_tokens: int
    dtype: str


def merge_prefixes(files: Files, prefixes: list[str], out: str) -> WrittenDataset:
    """Merge datasets. Law: the bytes are those of megatron-core's builder for the same prefixes in the same order."""
    if not prefixes:
        raise RecipeError("nothing to merge", expected="at least one prefix")
    if Path(bin_path(out)).resolve() in {Path(bin_path(prefix)).resolve() for prefix in prefixes}:
        raise RecipeError(f"{out}: is among the datasets to merge", fix="give the result another name")
    parts = [open_idx(files, prefix) for prefix in prefixes]
    first = parts[0]
    for part in parts:
        if (part.dtype_code, part.has_modes) != (first.dtype_code, first.has_modes):
            raise DataError(
                f"{part.prefix}: differs in type from the first dataset",
                found=_kind(part),
                expected=f"{_kind(first)}, as {first.prefix}",
                fix="merge only datasets of one tokenizer",
            )
    with replacing(bin_path(out)) as target:
        for part in parts:
            for piece in open_file(files, bin_path(part.prefix)).pieces():
                target.write(piece)
    lengths = np.concatenate([part.lengths() for part in parts])
    starts = np.cumsum([0, *(part.num_sequences for part in parts)])
    marks = [part.document_marks()[1:] + start for part, start in zip(parts, starts, strict=False)]
    modes = np.concatenate([part.modes() for part in parts]) if first.has_modes else None
    all_marks = np.concatenate([np.zeros(1, np.int64), *marks])
    write_idx(out, first.dtype, lengths, all_marks, modes)
    num_tokens = sum(part.num_tokens for part in parts)
    return WrittenDataset(out, len(all_marks) - 1, len(lengths), num_tokens, str(first.dtype))


def _kind(idx: Idx) -> str:
    return f"{idx.dtype} tokens{' with modes' if idx.has_modes else ''}"
