"""Rows cut into windows in a second: beside plain Python that does the same, beside another commit, two processes over
one, and the time that compiling takes.

python benchmarks/bench_curate.py [rows] [--against COMMIT]

From reading to files that are safe on disk (fsync), for all alike. Plain Python is `json.loads`, the stages over
dictionaries, `json.dumps` and a file; it makes the same rows and the same manifest of windows. Every figure is the
median of runs in processes of their own, in turn. Ratios are of wall time, and of CPU time in parentheses, which a busy
machine disturbs less.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

WORDS = ("the", "budget", "plans", "of", "this", "team", "seem", "viable", "and", "we", "agree", "on", "infrastructure")
PLAIN_ROWS = 300
REPEATS = 3
SOURCES = Path(__file__).resolve().parents[1] / "src"

Figures = dict[str, float]


def conversation(rng: random.Random, number: int, *, with_words: bool = False) -> dict[str, object]:
    """A meeting like those of ALM samples: 30 to 50 short turns of three or four people, a row of about 6 KB; more with
    its words.
    """
    segments, now = [], 0.0
    people = rng.choice([3, 3, 4])
    for i in range(rng.randint(30, 51)):
        now = round(now + rng.choice([0.3, 0.5, 0.7, 0.8, 0.9]) + (80.0 if i % 9 == 8 else 0.0), 1)
        end = round(now + rng.uniform(2.5, 5.5), 1)
        words = rng.choices(WORDS, k=7)
        speaker, metrics = f"speaker_{i % people}", {"bandwidth": rng.choice([8200, 8350, 8500, 8650, 8900])}
        segment = {"text": " ".join(words), "start": now, "end": end, "speaker": speaker, "metrics": metrics}
        if with_words:
            each = (end - now) / len(words)
            times = [round(now + each * place, 2) for place in range(len(words) + 1)]
            segment["words"] = [
                {"word": word, "start": times[place], "end": times[place + 1]} for place, word in enumerate(words)
            ]
        segments.append(segment)
        now = end
    path = f"/data/audio/conversation_{number:06d}.wav"
    return {"audio_filepath": path, "audio_sample_rate": 16000, "duration": now, "segments": segments}


def measured(work: Callable[[], None]) -> Figures:
    os.sync()  # the disk is done with what the run before left
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}


def plainly(manifest: Path, out: Path) -> Figures:
    """Figures for a row."""
    from playhead.curate.build import build_windows
    from playhead.curate.config import WindowConfig
    from playhead.curate.manifest import WindowSource, window_lines
    from playhead.curate.overlap import filter_overlaps

    config, num_rows = WindowConfig(), 0

    def work() -> None:
        nonlocal num_rows
        with manifest.open() as lines, (out / "rows").open("w") as rows, (out / "windows").open("wb") as windows:
            for number, line in zip(range(PLAIN_ROWS), lines, strict=False):
                row = json.loads(line)
                done = filter_overlaps(build_windows(row, config), config)
                rows.write(json.dumps(done, ensure_ascii=False) + "\n")
                kept = [window["segments"] for window in done["filtered_windows"]]
                windows.write(window_lines(row, kept, WindowSource(str(manifest), number)))
                num_rows += 1
            for file in (rows, windows):
                file.flush()
                os.fsync(file.fileno())

    return {name: seconds / num_rows for name, seconds in measured(work).items()}


def curated(manifest: Path, small: Path, out: Path, workers: int) -> Figures:
    """Figures for the whole manifest; `first` is the CPU time of a first use on a few rows, `start` that of workers."""
    from playhead.curate.run import curate_windows

    def run(path: Path, rows_per_shard: int) -> Figures:
        found = measured(
            lambda: curate_windows([str(path)], out / "run", workers=workers, rows_per_shard=rows_per_shard)
        )
        shutil.rmtree(out / "run")
        return found

    first = run(small, 1)["cpu"]
    start = run(small, 1)["wall"]
    return {**run(manifest, 2000), "first": first, "start": start}


def child(sources: Path, words: list[str], cache: str | None = None) -> Figures:
    """Figures of a process of its own that uses the package in these sources."""
    environment = os.environ | {"PYTHONPATH": str(sources)} | ({} if cache is None else {"NUMBA_CACHE_DIR": cache})
    command = [sys.executable, __file__, "--child", *words]
    run = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603  # itself
    found: Figures = json.loads(run.stdout.splitlines()[-1])
    return found


def in_turn(runs: dict[str, Callable[[], Figures]]) -> dict[str, Figures]:
    """The medians of several runs of each."""
    found: dict[str, list[Figures]] = {name: [] for name in runs}
    for _ in range(REPEATS):
        for name, run in runs.items():
            found[name].append(run())
    return {
        name: {key: statistics.median(each[key] for each in all_) for key in all_[0]} for name, all_ in found.items()
    }


def ratio(over: Figures, under: Figures, times: float = 1.0) -> str:
    return f"{times * over['wall'] / under['wall']:.2f} ({times * over['cpu'] / under['cpu']:.2f} by CPU)"


def write_rows(path: Path, num_rows: int, *, with_words: bool) -> None:
    rng = random.Random(7)
    with path.open("w") as file:
        for number in range(num_rows):
            file.write(json.dumps(conversation(rng, number, with_words=with_words)) + "\n")


def compare(folder: Path, num_rows: int, before: Path | None) -> None:
    small = folder / "small.jsonl"
    write_rows(small, 2, with_words=True)
    bars = {False: 0.6, True: 0.95}
    for with_words, bar in bars.items():
        manifest, out = folder / "rows.jsonl", folder / "out"
        out.mkdir(exist_ok=True)
        write_rows(manifest, num_rows, with_words=with_words)
        words = ["windows", str(manifest), str(small), str(out)]
        runs: dict[str, Callable[[], Figures]] = {
            "plain": lambda words=words: child(SOURCES, ["plain", *words[1:]]),
            "one": lambda words=words: child(SOURCES, [*words, "1"]),
            "two": lambda words=words: child(SOURCES, [*words, "2"]),
        }
        if before is not None:
            runs["before"] = lambda words=words: child(before, [*words, "1"])
        found = in_turn(runs)
        one, two = found["one"], found["two"]
        print(f"{num_rows:,} rows {'with' if with_words else 'without'} words")
        print(f"  plain Python            {1 / found['plain']['wall']:,.0f} rows/s")
        print(f"  one core                {num_rows / one['wall']:,.0f} rows/s")
        print(f"  over plain Python       {ratio(found['plain'], one, num_rows)}, target 6")
        print(f"  two processes over one  {one['wall'] / (two['wall'] - two['start']):.2f}, target 1.7;", end=" ")
        print(f"the start of two, {two['start']:.1f} s, left out")
        if before is not None:
            print(f"  over the other commit   {ratio(found['before'], one)}, target {bar}")
    with tempfile.TemporaryDirectory() as cache:
        first = child(SOURCES, ["windows", str(small), str(small), str(folder / "out"), "1"], cache)
    print(f"first use, compiling      {first['first']:.1f} s of CPU, target 10")


def main(num_rows: int, commit: str | None) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if commit is None:
            compare(folder, num_rows, None)
            return
        git = ["git", "-C", str(SOURCES.parent), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(folder / "before"), commit], check=True)  # noqa: S603
        try:
            compare(folder, num_rows, folder / "before" / "src")
        finally:
            subprocess.run([*git, "remove", "--force", str(folder / "before")], check=True)  # noqa: S603


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        what, manifest, small, out, *workers = sys.argv[2:]
        paths = Path(manifest), Path(out)
        figures = plainly(*paths) if what == "plain" else curated(paths[0], Path(small), paths[1], int(workers[0]))
        print(json.dumps(figures))
    else:
        parser = argparse.ArgumentParser(description=__doc__)
        parser.add_argument("rows", nargs="?", type=int, default=20_000)
        parser.add_argument("--against", metavar="COMMIT", help="another commit to run in turn with this one")
        given = parser.parse_args()
        main(given.rows, given.against)
