"""The JSON of sequence and document counts that Megatron's fast start reads (`--per-dataset-sequences-path`)."""

from __future__ import annotations

import json
from pathlib import Path

from playhead.errors import RecipeError
from playhead.formats.megatron_idx import DTYPES, Idx
from playhead.store import replacing

_INT32, _UINT16 = 4, 8
_LARGEST_UINT16_VOCABULARY = 2**16


def misread_tokens(indexes: list[Idx], vocab_size: int | None) -> list[str]:
    """The datasets whose tokens Megatron would read with a wrong type.

    With these counts it does not read the header of an `.idx`: it reads tokens as uint16, or as int32 if the
    tokenizer has more tokens than uint16 can represent.
    """
    found = []
    for idx in indexes:
        if vocab_size is None:
            if idx.dtype_code != _UINT16:
                found.append(
                    f"{idx.prefix}: tokens are {idx.dtype}, and Megatron reads int32 only where the tokenizer has more "
                    f"than {_LARGEST_UINT16_VOCABULARY:,} tokens: give their number with --vocab-size"
                )
            continue
        code = _INT32 if vocab_size > _LARGEST_UINT16_VOCABULARY else _UINT16
        if idx.dtype_code != code:
            found.append(
                f"{idx.prefix}: tokens are {idx.dtype}, and Megatron would read {DTYPES[code]}, "
                f"as the tokenizer has {vocab_size:,} tokens"
            )
    return found


def write_sequences(path: str | Path, indexes: list[Idx], vocab_size: int | None) -> None:
    """Each prefix with [sequences, document marks], as in the header of its `.idx`."""
    misread = misread_tokens(indexes, vocab_size)
    if misread:
        raise RecipeError(
            "--per-dataset-sequences: with these counts Megatron would read other tokens",
            found="; ".join(misread),
            expected="uint16 data, or int32 data and a tokenizer of more than 65,536 tokens",
            fix="let the job read the headers: leave --per-dataset-sequences-path out",
        )
    counts = {idx.prefix: [idx.num_sequences, idx.num_document_marks] for idx in indexes}
    with replacing(path) as file:
        file.write(f"{json.dumps(counts, indent=4)}\n".encode())
