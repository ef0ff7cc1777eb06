"""What a training was given, in a file of its own for each rank; and what must be equal about two trainings."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

VOCABULARY = 50


def write_line(file: Path, place: tuple[int, int], ids: list[str], loss: float) -> None:
    """A line for a micro-batch that was trained on, written at once: a kill loses none."""
    with file.open("a") as out:
        out.write(json.dumps([*place, ids, loss.hex()]) + "\n")


def trained(*files: Path) -> list[list[Any]]:
    """What the ranks of a run trained on, in the order of steps and lanes."""
    return sorted(json.loads(line) for file in files if file.exists() for line in file.read_text().splitlines())


def joined(first: list[list[Any]], second: list[list[Any]]) -> list[list[Any]]:
    """A run up to the checkpoint that another one went on from, and the other: what the model was trained on."""
    return [line for line in first if line[0] < second[0][0]] + second


def samples(lines: list[list[Any]]) -> Counter[str]:
    return Counter(name for _, _, ids, _ in lines for name in ids)
