"""How fast rows are found and measured, beside the plain loops a user would write. CPU time, one run, best of three.

The loop over `readline` that finds offsets is also how lhotse 2.0 makes its index of a JSON Lines file
(`create_jsonl_index`); where that version is installed, it is measured itself.

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
from playhead.formats.registry import format_of
from playhead.formats.spec import Spec
from playhead.recipe.values import Length, Source
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


def write_cuts(path: Path, total_bytes: int) -> int:
    """Cuts as lhotse writes them, of about 700 bytes."""
    rng = random.Random(7)
    size = count = 0
    with path.open("w") as file:
        while size < total_bytes:
            seconds, name = round(rng.uniform(1, 30), 3), f"utt-{count:09d}"
            supervision = {
                "id": name,
                "recording_id": name,
                "start": 0.0,
                "duration": seconds,
                "channel": 0,
                "text": " ".join(rng.choices(WORDS, k=20)),
                "language": "English",
                "speaker": f"spk-{rng.randrange(10_000):05d}",
            }
            recording = {
                "id": name,
                "sources": [{"type": "file", "channels": [0], "source": f"/data/{name}.wav"}],
                "sampling_rate": 16000,
                "num_samples": int(seconds * 16000),
                "duration": seconds,
                "channel_ids": [0],
            }
            cut = {"id": name, "start": 0.0, "duration": seconds, "channel": 0, "supervisions": [supervision]}
            size += file.write(json.dumps({**cut, "recording": recording, "type": "MonoCut"}) + "\n")
            count += 1
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


def lhotse_offsets(path: Path) -> int:
    """The index of lhotse 2.0, or the loop that it is."""
    try:
        from lhotse.indexing import create_jsonl_index
    except ImportError:
        return plain_offsets(path)
    return Path(create_jsonl_index(path)).stat().st_size // 8 - 1


def ours(format_name: str, spec: Spec) -> Callable[[Path], int]:
    def scan(path: Path) -> int:
        source = Source(name="rows", path=[str(path)], format=format_name)
        kind, files = format_of(source, "").format, all_files()
        (shard,) = kind.discover(source, files)
        return sum(chunk.num_rows for chunk in kind.scan(shard, spec, files, ScanLimits()))

    return scan


def best(work: Callable[[Path], int], path: Path, expected: int) -> float:
    times = []
    for _ in range(3):
        start = time.process_time()
        found = work(path)
        times.append(time.process_time() - start)
        assert found == expected
    return min(times)


def main() -> None:
    total = int(sys.argv[1]) << 20 if len(sys.argv) > 1 else 48 << 20
    seconds = Spec(length=Length(field="duration", unit="seconds"))
    cases = (
        ("jsonl, offset and length, rows of 225 bytes", 225, plain_lengths, ours("jsonl", seconds), 4.0),
        ("jsonl, offset and length, rows of 4 KB", 4096, plain_lengths, ours("jsonl", seconds), 1.4),
        ("jsonl, offsets alone, rows of 225 bytes", 225, lhotse_offsets, ours("jsonl", Spec()), 2.0),
        ("nemo, offset and duration, rows of 225 bytes", 225, plain_lengths, ours("nemo", seconds), 3.0),
        ("lhotse, offset and duration, cuts", 0, plain_lengths, ours("lhotse", seconds), 3.0),
        ("jsonl, offsets alone, cuts", 0, lhotse_offsets, ours("jsonl", Spec()), 2.0),
    )
    print(f"{'':46}{'plain rows/s':>14}{'ours rows/s':>14}{'ratio':>8}{'target':>8}")
    with tempfile.TemporaryDirectory() as folder:
        for name, row_bytes, plain, scan, target in cases:
            path = Path(folder) / f"{row_bytes}.jsonl"
            count = write_rows(path, row_bytes, total) if row_bytes else write_cuts(path, total)
            scan(path)  # compile
            slow, fast = best(plain, path, count), best(scan, path, count)
            print(f"{name:46}{count / slow:>14,.0f}{count / fast:>14,.0f}{slow / fast:>8.1f}{target:>8.1f}")


if __name__ == "__main__":
    main()
