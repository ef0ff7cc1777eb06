"""Formats beside the readers of the tools that write them: the same data, on one core, in one run, interleaved.

- `megatron`: samples of 4,096 tokens in random order, stacked as int64 in batches of several sizes, beside those of
  megatron-core's GPTDataset (its tokens alone, without the masks and positions it makes of them). They are not the
  same samples: GPTDataset shuffles documents and cuts them end to end, so that a sample is several reads; a chunk of
  ours is cut in file order, and is one read.
- Lines in gzip and in seekable zstd, in file order and in a global shuffle, beside the same lines not compressed. The
  files are larger than what a decompressor keeps.
"""

from __future__ import annotations

import gzip
import json
import logging
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyzstd
from rich.console import Console
from rich.table import Table

from playhead import Loader, Recipe, prepare_recipe
from playhead.formats.megatron_idx import write_idx

REPEATS = 9
TOKENS, SAMPLE = 40_000_000, 4096
SIZES = (1, 8, 16, 32, 64)
SAMPLES = 768
LINES, DISTINCT = 300_000, 20_000


def write_tokens(prefix: Path) -> None:
    """Documents of about 800 tokens each."""
    rng = np.random.default_rng(1)
    lengths = np.maximum(1, rng.lognormal(6.3, 0.9, TOKENS // 800)).astype(np.int32)
    marks = np.arange(len(lengths) + 1, dtype=np.int64)
    rng.integers(0, 50_000, int(lengths.sum()), np.uint16).tofile(f"{prefix}.bin")
    write_idx(str(prefix), np.dtype(np.uint16), lengths, marks)


def theirs(folder: Path) -> Any:
    """A GPTDataset over the tokens, its own caches built."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
        from megatron.core.datasets.indexed_dataset import IndexedDataset
        from megatron.core.datasets.utils import Split
        from megatron.core.tokenizers import MegatronTokenizer

        tokenizer = MegatronTokenizer.from_pretrained(metadata_path={"library": "null"}, vocab_size=50_000)
        config = GPTDatasetConfig(
            random_seed=1,
            sequence_length=SAMPLE,
            path_to_cache=str(folder / "theirs"),
            tokenizer=tokenizer,
            reset_position_ids=False,
            reset_attention_mask=False,
            eod_mask_loss=False,
            blend=([str(folder / "a")], None),
            split="1",
        )
        documents = IndexedDataset(str(folder / "a"), mmap=True)
        chosen = np.arange(len(documents), dtype=np.int32)
        return GPTDataset(documents, str(folder / "a"), chosen, None, Split.train, config)


def their_batches(dataset: Any, size: int) -> Iterator[Any]:
    while True:
        for first in range(0, len(dataset) - size, size):
            texts = [dataset._query_document_sample_shuffle_indices(i)[0] for i in range(first, first + size)]
            yield np.stack([text[:SAMPLE].astype(np.int64) for text in texts])


def recipe_of(folder: Path, name: str, source: dict[str, Any], **fields: Any) -> Recipe:
    values = {"sources": [{"name": name, **source}], "cache_dir": "cache", **fields}
    recipe = Recipe.parse(values, base_dir=folder)
    prepare_recipe(recipe)
    return recipe


def our_batches(recipe: Recipe) -> Iterator[Any]:
    for batch in Loader(recipe, rank=0, world_size=1):
        yield batch["tokens"] if "tokens" in batch else batch["text"]


def interleaved(kinds: dict[str, Iterator[Any]], num_batches: int) -> dict[str, float]:
    """The median CPU seconds that some batches take of each kind, after some that do not count."""
    for batches in kinds.values():
        next(batches)
    taken: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(REPEATS):
        for name, batches in kinds.items():
            start = time.process_time()
            for _batch in islice(batches, num_batches):
                pass
            taken[name].append(time.process_time() - start)
    return {name: median(times) for name, times in taken.items()}


def bench_megatron(folder: Path, table: Table) -> None:
    write_tokens(folder / "a")
    dataset = theirs(folder)
    source = {"path": "a.bin", "options": {"chunk": SAMPLE, "across": True}}
    for size in SIZES:
        batching = {"batching": {"type": "fixed", "size": size}, "lanes": 1, "masks": "never"}
        fields = {"fields": ["tokens"], "dtypes": {"tokens": "int64"}, **batching}
        kinds = {
            f"megatron-core GPTDataset, {size} samples": their_batches(dataset, size),
            f"playhead, {size} samples": our_batches(recipe_of(folder, "across", source, **fields)),
        }
        num_batches = SAMPLES // size
        found = interleaved(kinds, num_batches)
        (_, first), _ = found.items()
        for name, seconds in found.items():
            add_row(table, name, num_batches * size * SAMPLE / seconds, "tokens", first / seconds)


def seekable_zstd(path: Path, data: bytes) -> None:
    with pyzstd.SeekableZstdFile(path, "w", max_frame_content_size=1 << 18) as file:
        file.write(data)


def bench_compressed(folder: Path, table: Table) -> None:
    rng = np.random.default_rng(2)
    words = [f"{word:x}" for word in rng.integers(0, 1 << 20, 4000).tolist()]
    texts = [" ".join(words[j] for j in rng.integers(0, 4000, 60)) for _ in range(DISTINCT)]
    data = b"".join(json.dumps({"id": i, "text": texts[i % DISTINCT]}).encode() + b"\n" for i in range(LINES))
    writers: dict[str, Callable[[Path, bytes], Any]] = {
        ".jsonl": Path.write_bytes,
        ".jsonl.gz": lambda path, data: path.write_bytes(gzip.compress(data, 1)),
        ".jsonl.zst": seekable_zstd,
    }
    kinds = {}
    for ending, write in writers.items():
        for shuffle in ("global", "none"):
            if not (folder / f"lines{ending}").exists():
                write(folder / f"lines{ending}", data)
            source = {"path": f"lines{ending}", "shuffle": shuffle}
            fields = {"batching": {"type": "fixed", "size": 32}, "lanes": 1, "sequence": None, "fields": ["text"]}
            recipe = recipe_of(folder, f"{ending[1:]} {shuffle}", source, **fields)
            kinds[f"{ending}, shuffle: {shuffle}"] = our_batches(recipe)
    found = interleaved(kinds, 12)
    for name, seconds in found.items():
        plain = found[f".jsonl, {name.partition(', ')[2]}"]
        add_row(table, name, 12 * 32 / seconds, "lines", plain / seconds)


def add_row(table: Table, name: str, rate: float, what: str, times: float) -> None:
    table.add_row(name, f"{rate:,.0f} {what}", f"{times:.2f}")


def main() -> None:
    logging.disable(logging.WARNING)
    for title, bench in (("Megatron datasets", bench_megatron), ("Compressed lines", bench_compressed)):
        table = Table(title=f"{title}, median of {REPEATS} interleaved repeats")
        table.add_column("read by")
        table.add_column("per CPU second", justify="right")
        table.add_column("times the first of its kind", justify="right")
        with tempfile.TemporaryDirectory() as folder:
            bench(Path(folder), table)
        Console(width=120).print(table)


if __name__ == "__main__":
    main()
