"""How fast rows are found and measured, beside the plain loops a user would write. One core, one run, best of three.

python benchmarks/bench_indexing.py [megabytes]
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from playhead.formats.contract import ScanLimits
from playhead.formats.jsonl import Jsonl
from playhead.formats.rows import Shard
from playhead.formats.spec import Spec
from playhead.recipe.values import Length
from playhead.store import all_files

WORDS = ("speech", "of", "a", "person", "who", "reads", "aloud", "in", "quiet", "rooms", "while", "rain", "falls")


def write_rows(path: Path, row_bytes: int, total_bytes: int) -> int:
    """Manifest-like rows of the given size, their texts cut from one long text, which is quick; returns how many."""
    rng = random.Random(7)
    words = " ".join(rng.choices(WORDS, k=1 << 16))
    count = total_bytes // row_bytes
    with path.open("w") as file:
        for i in range(count):
            audio, speaker = f"/data/audio/{i % 512:04d}/utt-{i:09d}.wav", f"spk-{rng.randrange(10_000):05d}"
            head = f'{{"audio_filepath": "{audio}", "duration": {rng.uniform(1, 30):.3f}, "lang": "en", "text": "'
            tail = f'", "speaker": "{speaker}"}}\n'
            size = row_bytes - len(head) - len(tail)
            start = rng.randrange(len(words) - size)
            file.write(f"{head}{words[start : start + size]}{tail}")
    return count


def plain_lengths(path: Path) -> int:
    """`readline` and `json.loads`, recording offset and length."""
    offsets, lengths = [], []
    with path.open("rb") as file:
        offset = 0
        while line := file.readline():
            offsets.append(offset)
            lengths.append(json.loads(line)["duration"])
            offset += len(line)
    return len(offsets)


def plain_offsets(path: Path) -> int:
    offsets = []
    with path.open("rb") as file:
        offset = 0
        while line := file.readline():
            offsets.append(offset)
            offset += len(line)
    return len(offsets)


def ours(spec: Spec) -> Callable[[Path], int]:
    def scan(path: Path) -> int:
        shard = Shard((("jsonl", str(path)),))
        return sum(chunk.num_rows for chunk in Jsonl().scan(shard, spec, all_files(), ScanLimits()))

    return scan


def best(work: Callable[[Path], int], path: Path, expected: int) -> float:
    times = []
    for _ in range(3):
        start = time.perf_counter()
        found = work(path)
        times.append(time.perf_counter() - start)
        assert found == expected
    return min(times)


def main() -> None:
    total = int(sys.argv[1]) << 20 if len(sys.argv) > 1 else 48 << 20
    with_length = Spec(length=Length(field="duration", unit="seconds"))
    cases = (
        ("offset + length, 225-byte rows", 225, plain_lengths, ours(with_length), 4.0),
        ("offset + length, 4 KB rows", 4096, plain_lengths, ours(with_length), 1.4),
        ("offsets alone, 225-byte rows", 225, plain_offsets, ours(Spec()), 2.0),
    )
    print(f"{'':32}{'plain rows/s':>14}{'ours rows/s':>14}{'ratio':>8}{'target':>8}")
    with tempfile.TemporaryDirectory() as folder:
        for name, row_bytes, plain, scan, target in cases:
            path = Path(folder) / f"{row_bytes}.jsonl"
            count = write_rows(path, row_bytes, total)
            scan(path)  # compile
            slow, fast = best(plain, path, count), best(scan, path, count)
            print(f"{name:32}{count / slow:>14,.0f}{count / fast:>14,.0f}{slow / fast:>8.1f}{target:>8.1f}")


if __name__ == "__main__":
    main()
