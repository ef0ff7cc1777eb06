"""Small jobs for the tests: datasets in a folder, and the flags of a training job over them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import oracle

NULL = ["--tokenizer-type", "NullTokenizer", "--vocab-size", str(oracle.VOCAB)]


def write_pair(folder: Path) -> tuple[str, str]:
    """Two datasets: 120 short documents, some empty, and 40 long ones."""
    rng = np.random.default_rng(5)
    a = oracle.write_dataset(folder / "a", oracle.documents_of(rng.integers(0, 50, 120), 1))
    b = oracle.write_dataset(folder / "b", oracle.documents_of(rng.integers(1, 400, 40), 2))
    return a, b


def flags_over(folder: Path, *changes: str) -> list[str]:
    """A blend of both, split three ways; a flag given again replaces the first."""
    standard = ["--data-path", "0.3", str(folder / "a"), "0.7", str(folder / "b"), "--split", "80,10,10"]
    counts = ["--seq-length", "16", "--train-samples", "500", "--global-batch-size", "4", "--eval-iters", "2"]
    return [*standard, *counts, "--eval-interval", "50", *NULL, "--data-cache-path", str(folder / "cache"), *changes]
