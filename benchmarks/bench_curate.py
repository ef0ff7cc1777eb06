"""Rows cut into windows in a second, beside plain Python that does the same, and two processes over one.

python benchmarks/bench_curate.py [rows]

From reading to files on disk, fsync included for ours and left out for plain Python. Plain Python is `json.loads`, the
stages over dictionaries, `json.dumps` and a file; it makes the same rows and the same manifest of windows.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from playhead.curate.build import build_windows
from playhead.curate.config import WindowConfig
from playhead.curate.manifest import WindowSource, window_lines
from playhead.curate.overlap import filter_overlaps
from playhead.curate.run import curate_windows

WORDS = ("the", "budget", "plans", "of", "this", "team", "seem", "viable", "and", "we", "agree", "on", "infrastructure")
PLAIN_ROWS = 300


def conversation(rng: random.Random, number: int) -> dict[str, object]:
    """A meeting like those of ALM samples: 30 to 50 short turns of three or four people, a row of about 6 KB."""
    segments, now = [], 0.0
    people = rng.choice([3, 3, 4])
    for i in range(rng.randint(30, 51)):
        now = round(now + rng.choice([0.3, 0.5, 0.7, 0.8, 0.9]) + (80.0 if i % 9 == 8 else 0.0), 1)
        end = round(now + rng.uniform(2.5, 5.5), 1)
        text = " ".join(rng.choices(WORDS, k=7))
        speaker, metrics = f"speaker_{i % people}", {"bandwidth": rng.choice([8200, 8350, 8500, 8650, 8900])}
        segments.append({"text": text, "start": now, "end": end, "speaker": speaker, "metrics": metrics})
        now = end
    path = f"/data/audio/conversation_{number:06d}.wav"
    return {"audio_filepath": path, "audio_sample_rate": 16000, "duration": now, "segments": segments}


def plainly(manifest: Path, out: Path, num_rows: int) -> float:
    """Seconds for a row."""
    config = WindowConfig()
    os.sync()
    began = time.perf_counter()
    with manifest.open() as lines, (out / "rows").open("w") as rows, (out / "windows").open("wb") as windows:
        for number, line in zip(range(num_rows), lines, strict=False):
            row = json.loads(line)
            done = filter_overlaps(build_windows(row, config), config)
            rows.write(json.dumps(done, ensure_ascii=False) + "\n")
            kept = [window["segments"] for window in done["filtered_windows"]]
            windows.write(window_lines(row, kept, WindowSource(str(manifest), number)))
    return (time.perf_counter() - began) / num_rows


def ours(manifest: Path, out: Path, workers: int) -> float:
    os.sync()  # the disk is done with what the run before left
    began = time.perf_counter()
    curate_windows([str(manifest)], out, workers=workers, rows_per_shard=1 if out.name == "warm" else 2000)
    seconds = time.perf_counter() - began
    shutil.rmtree(out)
    return seconds


def main(num_rows: int) -> None:
    rng = random.Random(7)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        manifest, small = folder / "rows.jsonl", folder / "small.jsonl"
        manifest.write_text("".join(json.dumps(conversation(rng, i)) + "\n" for i in range(num_rows)))
        small.write_text((json.dumps(conversation(rng, 0)) + "\n") * 2)
        ours(small, folder / "warm", 1)
        slow = min(plainly(manifest, folder, min(PLAIN_ROWS, num_rows)) for _ in range(2))
        one = min(ours(manifest, folder / "out", 1) for _ in range(2))
        begin = min(ours(small, folder / "warm", 2) for _ in range(2))
        two = min(ours(manifest, folder / "out", 2) for _ in range(2)) - begin
    print(f"rows                    {num_rows:,}")
    print(f"plain Python            {1 / slow:,.0f} rows/s")
    print(f"one core                {num_rows / one:,.0f} rows/s")
    print(f"over plain Python       {slow / (one / num_rows):.1f} (target 6)")
    print(f"two processes over one  {one / two:.2f} (target 1.7), {num_rows / two:,.0f} rows/s")
    print(f"                        the start of two, {begin:.1f} s, left out")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000)
