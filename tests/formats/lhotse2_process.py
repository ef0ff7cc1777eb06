"""What lhotse 2.0 reads by sidecars, or writes; run with that version first on the path.

Usage: lhotse2_process.py read PATH ... | shar DIRECTORY INDEXES_ROOT | write PATH ...
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import lhotse
from lhotse import CutSet
from lhotse.indexing import IndexedJsonlReader, IndexedTarReader, create_jsonl_index, create_tar_index


def records(path: str) -> list[Any]:
    if path.endswith(".tar"):
        return [name.stem for _, name in IndexedTarReader(path, auto_create_index=False)]
    return [*IndexedJsonlReader(path, auto_create_index=False)]


def cuts(directory: str, root: str) -> list[Any]:
    found = CutSet.from_shar(in_dir=directory, indexed=True, indexes_root=root or None)
    return [[cut.id, hashlib.sha256(cut.load_audio().tobytes()).hexdigest()] for cut in found]


def main() -> None:
    assert lhotse.__version__.startswith("2.0"), lhotse.__version__
    task, *paths = sys.argv[1:]
    if task == "shar":
        print(json.dumps(cuts(*paths)))
    elif task == "read":
        print(json.dumps({Path(path).name: records(path) for path in paths}))
    else:
        for path in paths:
            (create_tar_index if path.endswith(".tar") else create_jsonl_index)(path)


if __name__ == "__main__":
    main()
