"""Speech from tars, in decoded seconds of audio a second, beside the tools whose files they are.

- `lhotse_shar`, shuffled over all rows, clips of 10 s as WAV, beside lhotse's own reader (`CutSet.from_shar` with
  shuffled shards, `load_audio`); with plain cuts, and with the compressed ones that SharWriter writes.
- The same with FLAC beside soundfile decoding the same bytes from memory, and with two threads beside none.
- `webdataset` (wav, txt, json) beside the webdataset library with its shuffle buffer, which decodes by soundfile.
- Once: the index of 2,000 Shar shards, its time and size.

Playhead also collates: its figures are for batches. All contenders take turns, on CPU time but for threads; figures
are medians of the turns. Those for threads mean something only where two cores are idle: the table says how many cores
the process got. `--repeats N` says how many turns, `--json` prints the figures for machines.
"""

from __future__ import annotations

import argparse
import gc
import gzip
import io
import json
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import webdataset
from lhotse import CutSet, MonoCut, Recording, SupervisionSegment
from lhotse.shar import SharWriter
from rich.console import Console
from rich.table import Table

from playhead import Loader, Recipe, prepare_recipe

RATE, SECONDS = 16_000, 10
NUM_CLIPS, CLIPS_IN_SHARD = 240, 40
BATCH = 12
CLIPS_A_TURN = 480
NUM_SHARDS, ROWS_IN_SHARD = 2_000, 100
SHUFFLE_BUFFER = 1000
THREADS, LOOKAHEAD = 2, 2
UNTIMED = THREADS * LOOKAHEAD + 1  # made while others had their turn

Clips = Iterator[int]  # the number of samples of each clip, or of each batch


def signal(seed: int, seconds: float) -> Any:
    """Something like speech to a codec: noise under slow waves."""
    noise = np.random.default_rng(seed)
    envelope = np.abs(np.sin(np.linspace(0, 3 * seconds, int(seconds * RATE)))) * 0.3
    return (envelope * noise.standard_normal(len(envelope)) * 0.3).clip(-1, 1).astype(np.float32)


def make_cuts(folder: Path, count: int, seconds: float) -> Iterator[MonoCut]:
    folder.mkdir(exist_ok=True)
    for i in range(count):
        path = folder / f"{i:05}.wav"
        soundfile.write(path, signal(i, seconds), RATE, subtype="PCM_16")
        said = SupervisionSegment(f"s{i}", f"{i:05}", 0, seconds, text="words " * 20, speaker="x", language="en")
        yield MonoCut(f"cut-{i:05}", 0, seconds, 0, recording=Recording.from_file(path), supervisions=[said])


def write_shar(folder: Path, cuts: list[MonoCut], how: str, shard_size: int = CLIPS_IN_SHARD) -> None:
    folder.mkdir()
    with SharWriter(folder, {"recording": how}, shard_size=shard_size) as writer:
        for cut in cuts:
            writer.write(cut)


def plain_cuts(folder: Path) -> Path:
    """The same shards with cuts that are not compressed."""
    plain = folder.with_name(f"{folder.name}-plain")
    plain.mkdir()
    for path in folder.iterdir():
        if path.name.endswith(".gz"):
            (plain / path.name.removesuffix(".gz")).write_bytes(gzip.decompress(path.read_bytes()))
        else:
            os.link(path, plain / path.name)
    return plain


def write_tars(folder: Path, cuts: list[MonoCut]) -> None:
    folder.mkdir()
    with webdataset.ShardWriter(f"{folder}/%05d.tar", maxcount=CLIPS_IN_SHARD, verbose=False) as writer:
        for cut in cuts:
            wav = Path(cut.recording.sources[0].source).read_bytes()
            about = {"duration": cut.duration}
            writer.write({"__key__": cut.id, "wav": wav, "txt": cut.supervisions[0].text, "json": about})


def playhead_clips(folder: Path, source: dict[str, Any], field: str = "audio", workers: int = 0) -> Clips:
    """Samples of each batch, for ever."""
    source = {"name": "speech", **source}
    batching = {"type": "fixed", "size": BATCH}
    values = {"sources": [source], "batching": batching, "sequence": field, "fields": [field], "masks": "padded"}
    recipe = Recipe.parse(values | {"cache_dir": "cache"}, base_dir=folder)
    prepare_recipe(recipe)
    with Loader(recipe, workers=workers, worker_kind="thread", lookahead=LOOKAHEAD) as loader:
        for batch in loader:
            yield batch[field].size


def shar(folder: Path, name: str, workers: int = 0) -> Clips:
    return playhead_clips(folder, {"path": name, "format": "lhotse_shar"}, workers=workers)


def lhotse_clips(folder: Path) -> Clips:
    cuts = CutSet.from_shar(in_dir=folder, shuffle_shards=True)
    while True:
        for cut in cuts:
            yield cut.load_audio().size


def soundfile_clips(paths: list[Path]) -> Clips:
    contents = [path.read_bytes() for path in paths]
    while True:
        for content in contents:
            yield soundfile.read(io.BytesIO(content), dtype="float32")[0].size


def webdataset_clips(folder: Path) -> Clips:
    def decode(data: bytes) -> Any:
        return soundfile.read(io.BytesIO(data), dtype="float32")[0]

    urls = sorted(map(str, folder.iterdir()))
    dataset = webdataset.WebDataset(urls, shardshuffle=len(urls), empty_check=False).shuffle(SHUFFLE_BUFFER)
    dataset = dataset.decode(webdataset.handle_extension("wav", decode))
    while True:
        for sample in dataset:
            yield sample["wav"].size


def turn(clips: Clips, clock: Callable[[], float]) -> float:
    """Decoded seconds a second, over as many clips as a turn has; what workers made in advance is not timed."""
    gc.collect()
    for _ in range(UNTIMED):
        next(clips)
    begin, samples = clock(), 0
    for count in clips:
        samples += count
        if samples >= CLIPS_A_TURN * SECONDS * RATE:
            return samples / RATE / (clock() - begin)
    raise AssertionError("contenders are endless")


def medians(contenders: dict[str, Clips], repeats: int, clock: Callable[[], float]) -> dict[str, float]:
    """All contenders in turn, again and again; the first turn of each warms up."""
    found: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(repeats + 1):
        for name, clips in contenders.items():
            rate = turn(clips, clock)
            if number:
                found[name].append(rate)
    return {name: statistics.median(rates) for name, rates in found.items()}


def bench(folder: Path, repeats: int) -> dict[str, dict[str, float]]:
    cuts = list(make_cuts(folder / "audio", NUM_CLIPS, SECONDS))
    for how in ("wav", "flac"):
        write_shar(folder / how, cuts, how)
        plain_cuts(folder / how)
    write_tars(folder / "tars", cuts)
    flacs = []
    for cut in cuts:
        path = Path(cut.recording.sources[0].source).with_suffix(".flac")
        soundfile.write(path, cut.load_audio()[0], RATE, format="FLAC", subtype="PCM_16")
        flacs.append(path)
    tars = {"path": "tars/*.tar", "length": {"field": "json.duration", "unit": "seconds"}}
    wav = {
        "lhotse": lhotse_clips(folder / "wav-plain"),
        "lhotse_shar": shar(folder, "wav-plain"),
        "lhotse_shar, cuts in gzip": shar(folder, "wav"),
        "lhotse_shar, cuts in gzip, by shards": playhead_clips(
            folder, {"path": "wav", "format": "lhotse_shar", "shuffle": "shards", "shuffle_group": 2}
        ),
    }
    flac = {"soundfile": soundfile_clips(flacs), "lhotse_shar": shar(folder, "flac-plain")}
    threads = {"no thread": shar(folder, "flac-plain"), "2 threads": shar(folder, "flac-plain", workers=THREADS)}
    packed = {
        "webdataset library": webdataset_clips(folder / "tars"),
        "webdataset": playhead_clips(folder, tars, "wav"),
    }
    begin, used = time.perf_counter(), time.process_time()
    by_threads = medians(threads, repeats, time.perf_counter)
    cores = (time.process_time() - used) / (time.perf_counter() - begin)
    return {
        "wav, CPU time": medians(wav, repeats, time.process_time),
        "flac, CPU time": medians(flac, repeats, time.process_time),
        f"flac, wall time, {cores:.2f} cores": by_threads,
        "webdataset, CPU time": medians(packed, repeats, time.process_time),
    }


def bench_index(folder: Path) -> dict[str, float]:
    """An index of many shards; their files are one file each, under many names."""
    write_shar(folder / "one", list(make_cuts(folder / "short", ROWS_IN_SHARD, 0.1)), "wav", ROWS_IN_SHARD)
    (folder / "many").mkdir()
    for number in range(NUM_SHARDS):
        for path in (folder / "one").iterdir():
            os.link(path, folder / "many" / path.name.replace("000000", f"{number:06}"))
    source = {"name": "many", "path": "many", "format": "lhotse_shar"}
    values = {"sources": [source], "batching": {"type": "fixed", "size": 8}, "sequence": None, "cache_dir": "indexes"}
    recipe = Recipe.parse(values, base_dir=folder)
    begin = time.perf_counter()
    prepare_recipe(recipe)
    seconds = time.perf_counter() - begin
    begin = time.perf_counter()
    with Loader(recipe, map=lambda sample: {"id": sample["id"]}) as loader:
        opened = time.perf_counter() - begin
        next(islice(loader, 1))
    sizes = [path.stat().st_size for path in (folder / "indexes").rglob("*") if path.is_file()]
    points = [path.stat().st_size for path in (folder / "indexes" / "compressed").rglob("*") if path.is_file()]
    rows = NUM_SHARDS * ROWS_IN_SHARD
    return {
        "shards": NUM_SHARDS,
        "rows": rows,
        "prepare, s": seconds,
        "open, s": opened,
        "index, MB": (sum(sizes) - sum(points)) / 1e6,
        "points of gzip, MB": sum(points) / 1e6,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--no-index", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore", ResourceWarning)
    with tempfile.TemporaryDirectory() as folder:
        found = bench(Path(folder), options.repeats)
        index = {} if options.no_index else bench_index(Path(folder))
    if options.json:
        print(json.dumps({**found, "index": index}))
        return
    table = Table("what", "contender", "decoded s/s", "times the first")
    for what, rates in found.items():
        first = next(iter(rates.values()))
        for name, rate in rates.items():
            table.add_row(what, name, f"{rate:,.0f}", f"{rate / first:.2f}")
    for name, value in index.items():
        table.add_row("index", name, f"{value:,.1f}", "")
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
