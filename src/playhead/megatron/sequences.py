"""The JSON of sequence and document counts that Megatron's fast start reads (`--per-dataset-sequences-path`)."""

from __future__ import annotations

import json
from pathlib import Path

from playhead.megatron.idx import Idx
from playhead.store import replacing


def write_sequences(path: str | Path, indexes: list[Idx]) -> None:
    """Each prefix with [sequences, document marks], as they stand in the header of its `.idx`."""
    counts = {idx.prefix: [idx.num_sequences, idx.num_document_marks] for idx in indexes}
    with replacing(path) as file:
        file.write(f"{json.dumps(counts, indent=4)}\n".encode())
