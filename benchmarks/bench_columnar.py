"""Arrow and Parquet rows, beside the package `datasets` on the same files: rows for a second of CPU time.

- Arrow with audio-sized rows (5 s of 16 kHz WAV each), globally shuffled, in padded batches, beside `Dataset.shuffle`,
  iteration, the same decoder and padding.
- Arrow with small text rows, globally and block-shuffled, beside the same.
- Parquet with small text rows, block-shuffled, beside sequential streaming.
- One Parquet file of 4 GB with row groups of 64 MB, block-shuffled in groups of 2: what a process takes of memory for a
  pass over half of it, and for the other half, beside the 4 row groups that it may keep.

Ratios are medians of interleaved repeats, each of some thousands of rows after a warm-up. `--scale 0.01` shows that it
works, on a hundredth of the rows; `--memory` is the size of the large file in GB, 0 for none.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import statistics
import tempfile
import time
import wave
from collections.abc import Callable, Iterator
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from playhead import Loader, Recipe, prepare_recipe
from playhead.read.media_bytes import MediaBytes
from playhead.read.recordings import open_recording

SIZE = 32
REPEATS = 5
GROUP_BYTES, ROW_BYTES = 64 << 20, 1 << 16
WORDS = np.array(["the", "play", "head", "goes", "on", "where", "it", "was", "and", "nothing", "is", "lost"])


def wav(noise: np.random.Generator, seconds: float = 5.0) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(16000)
        out.writeframes(noise.integers(-3000, 3000, int(16000 * seconds), dtype=np.int16).tobytes())
    return file.getvalue()


def signal_of(data: bytes) -> np.ndarray:
    """What a loader makes of audio, by the same decoder."""
    source = MediaBytes("audio", len(data), data)
    recording = open_recording(source)
    first, end = recording.byte_range(0, recording.num_frames)
    return np.asarray(recording.floats(source.read(first, end - first), 0, recording.num_frames))


def texts(count: int) -> dict[str, list[Any]]:
    noise = np.random.default_rng(1)
    rows = [" ".join(found) for found in WORDS[noise.integers(0, len(WORDS), (count, 90))]]
    return {"id": list(range(count)), "text": rows, "num_tokens": [90] * count}


def save_audio(folder: Path, count: int) -> Path:
    noise = np.random.default_rng(0)
    rows = ({"audio": {"bytes": wav(noise), "path": None}, "text": "word " * 12} for _ in range(count))
    datasets.Dataset.from_list(list(rows)).save_to_disk(str(folder / "audio"), num_shards=4)
    return folder / "audio"


def save_texts(folder: Path, count: int) -> tuple[Path, Path]:
    dataset = datasets.Dataset.from_dict(texts(count))
    dataset.save_to_disk(str(folder / "text"), num_shards=4)
    (folder / "parquet").mkdir()
    for part in range(4):
        shard = dataset.shard(4, part).with_format("arrow")[:]
        pq.write_table(shard, folder / "parquet" / f"{part}.parquet", row_group_size=10_000)
    return folder / "text", folder / "parquet"


def loader_batches(folder: Path, *, audio: bool = False, **source: Any) -> Iterator[Any]:
    delivery = {"sequence": "audio", "masks": "never"} if audio else {"collate": "list", "sequence": None}
    values = {"batching": {"type": "fixed", "size": SIZE}, **delivery}
    recipe = Recipe.parse({"sources": [{"name": "s", **source}], **values, "cache_dir": str(folder / "cache")})
    prepare_recipe(recipe)
    for batch in Loader(recipe, rank=0, world_size=1):
        yield batch["audio"] if audio else batch["samples"]


def batched(rows: Iterator[Any]) -> Iterator[list[Any]]:
    """Rows as a training loop takes them, too: so many in memory at a time."""
    while batch := list(islice(rows, SIZE)):
        yield batch


def padded(batches: Iterator[list[Any]]) -> Iterator[Any]:
    """The audio of each batch in one array."""
    for rows in batches:
        decoded = [signal_of(row["audio"]["bytes"]) for row in rows]
        batch = np.zeros((len(rows), max(map(len, decoded))), np.float32)
        for place, signal in zip(batch, decoded, strict=True):
            place[: len(signal)] = signal
        yield batch


def saved_rows(path: Path) -> Iterator[Any]:
    dataset = datasets.load_from_disk(str(path))
    for epoch in range(99):
        yield from dataset.shuffle(seed=epoch)


def streamed_rows(path: Path) -> Iterator[Any]:
    files = sorted(str(file) for file in path.glob("*.parquet"))
    for _ in range(99):
        yield from datasets.load_dataset("parquet", data_files=files, split="train", streaming=True)


def rate(batches: Iterator[Any], count: int) -> float:
    begin, done = time.process_time(), 0
    while done < count:
        done += len(next(batches))
    return done / (time.process_time() - begin)


def compare(table: Table, what: str, ours: Iterator[Any], other: Iterator[Any], count: int, target: float) -> None:
    for batches in (ours, other):
        rate(batches, 2 * count)
    pairs = [(rate(ours, count), rate(other, count)) for _ in range(REPEATS)]
    fast, slow = (statistics.median(side) for side in zip(*pairs, strict=True))
    ratio = statistics.median(mine / theirs for mine, theirs in pairs)
    table.add_row(what, f"{fast:,.0f}", f"{slow:,.0f}", f"{ratio:.2f}", f"{target:g}")


def rates(folder: Path, scale: float) -> Table:
    table = Table("rows/s of CPU", "playhead", "datasets", "ratio", "target", box=None)
    audio = save_audio(folder, max(64, int(2000 * scale)))
    text, parquet = save_texts(folder, max(4000, int(500_000 * scale)))
    blocks = {"shuffle": "shards", "shuffle_unit": "block"}
    sources: list[tuple[str, dict[str, Any], Callable[[], Iterator[Any]], int, float]] = [
        (
            "arrow, audio, global",
            {"path": str(audio), "format": "arrow", "options": {"audio": ["audio"]}, "audio": True},
            lambda: padded(batched(saved_rows(audio))),
            800,
            2,
        ),
        ("arrow, text, global", {"path": str(text), "format": "arrow"}, lambda: batched(saved_rows(text)), 20_000, 1),
        (
            "arrow, text, blocks",
            {"path": str(text), "format": "arrow", **blocks},
            lambda: batched(saved_rows(text)),
            20_000,
            3,
        ),
        (
            "parquet, text, blocks",
            {"path": f"{parquet}/*.parquet", **blocks},
            lambda: batched(streamed_rows(parquet)),
            40_000,
            2,
        ),
    ]
    for what, source, other, count, target in sources:
        compare(table, what, loader_batches(folder, **source), other(), max(SIZE, int(count * scale)), target)
    return table


def write_large(folder: Path, num_groups: int) -> None:
    noise = np.random.default_rng(0)
    schema = pa.schema({"n": pa.int64(), "blob": pa.binary()})
    with pq.ParquetWriter(folder / "large.parquet", schema, compression="none", use_dictionary=False) as writer:
        for group in range(num_groups):
            blobs = [noise.bytes(ROW_BYTES) for _ in range(GROUP_BYTES // ROW_BYTES)]
            writer.write_table(pa.table({"n": [group] * len(blobs), "blob": blobs}, schema))


def peak_megabytes() -> float:
    """The most memory that this process had; `ru_maxrss` would begin with that of the process which started it."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def read_large(folder: Path, num_groups: int, results: Any) -> None:
    how = {"shuffle": "shards", "shuffle_unit": "block", "shuffle_group": 2, "length": "n"}
    pq.write_table(pa.table({"n": [1] * SIZE, "blob": [b""] * SIZE}), folder / "small.parquet")
    next(loader_batches(folder, path=str(folder / "small.parquet"), **how))  # what is imported and compiled once
    before = peak_megabytes()
    batches = loader_batches(folder, path=str(folder / "large.parquet"), **how)
    half = num_groups * (GROUP_BYTES // ROW_BYTES) // SIZE // 2
    peaks, begin = [], time.perf_counter()
    for _ in range(2):
        for _ in islice(batches, half):
            pass
        peaks.append(peak_megabytes() - before)
    results.put((*peaks, time.perf_counter() - begin))


def memory(folder: Path, gigabytes: float) -> Table:
    """What reading of one large file takes, beyond what the process had before."""
    num_groups = max(8, int(gigabytes * (1 << 30)) // GROUP_BYTES)
    context = get_context("spawn")
    results = context.Queue()
    for target, arguments in ((write_large, (num_groups,)), (read_large, (num_groups, results))):
        process = context.Process(target=target, args=(folder, *arguments))
        process.start()
        if target is read_large:
            half, whole, seconds = results.get()
        process.join()
    table = Table("MB more at the peak", "half", "whole", "4 row groups", "seconds", box=None)
    what = f"parquet, {num_groups * GROUP_BYTES / (1 << 30):g} GB, row groups of {GROUP_BYTES >> 20} MB"
    table.add_row(what, f"{half:,.0f}", f"{whole:,.0f}", f"{4 * GROUP_BYTES >> 20:,}", f"{seconds:.1f}")
    return table


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--scale", type=float, default=1.0)
    options.add_argument("--memory", type=float, default=4.0, metavar="GB")
    chosen = options.parse_args()
    datasets.disable_progress_bars()
    console = Console(width=120)
    with tempfile.TemporaryDirectory() as name:
        console.print(rates(Path(name), chosen.scale))
    if chosen.memory:
        with tempfile.TemporaryDirectory() as name:
            console.print(memory(Path(name), chosen.memory * chosen.scale))


if __name__ == "__main__":
    main()
