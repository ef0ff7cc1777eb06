"""Dataset caches of Megatron: our time and peak memory beside megatron-core's, same job, one process each.

Both may build a dataset a core at a time, in threads. Ours forces every file to the disk; megatron-core does not.

python benchmarks/bench_megatron.py [millions of documents] [millions of samples]

Needs megatron-core (the test set-up has it) and about 8 GB of disk at full size. The `.bin` files are sparse.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from playhead.formats.megatron_idx import write_idx
from playhead.megatron.arguments import MegatronRequest
from playhead.megatron.counts import SampleCounts
from playhead.megatron.job import MegatronBlend, MegatronJob
from playhead.megatron.prepare_job import CacheOptions, prepare_request
from playhead.store import all_files

SEQUENCE_LENGTH = 64
VOCAB = 50_000
WEIGHTS = (0.4, 0.3, 0.2, 0.1)
THREADS = len(os.sched_getaffinity(0))


def make(prefix: Path, num_documents: int, num_tokens: int) -> None:
    """An index of documents of many lengths, and a `.bin` of the right size with nothing in it."""
    rng = np.random.default_rng(num_documents)
    lengths = rng.exponential(num_tokens / num_documents, num_documents).astype(np.int32) + 1
    rest = num_tokens - int(lengths.sum(dtype=np.int64))
    share, left = divmod(abs(rest), num_documents)
    lengths += np.int32(share if rest > 0 else -share)
    np.maximum(lengths, 0, out=lengths)
    lengths[:left] += 1
    write_idx(str(prefix), np.dtype(np.uint16), lengths, np.arange(num_documents + 1, dtype=np.int64))
    with Path(f"{prefix}.bin").open("wb") as file:
        file.truncate(2 * int(lengths.sum(dtype=np.int64)))


def job_of(case: str, folder: Path, num_samples: int) -> MegatronJob:
    names = ("one",) if case == "one" else ("a", "b", "c", "d")
    blend = MegatronBlend(tuple(str(folder / name) for name in names), None if case == "one" else WEIGHTS)
    tokenizer = {
        "class": "megatron.core.tokenizers.text.models.default_tokenizer.DefaultTokenizerText",
        "tokenizer_path": None,
        "vocab_size": str(VOCAB),
    }
    return MegatronJob(SEQUENCE_LENGTH, 1234, (num_samples, 0, 0), tokenizer, blends=(blend, None, None))


def run_ours(job: MegatronJob, cache: Path) -> float:
    counts = SampleCounts(1, 1, 1, 1, 1, job.sizes)
    start = time.perf_counter()
    request = MegatronRequest(job, counts, cache, "0.16", False, ())
    prepare_request(request, all_files(), CacheOptions(workers=THREADS))
    return time.perf_counter() - start


def run_oracle(job: MegatronJob, cache: Path) -> float:
    warnings.simplefilter("ignore")
    import torch
    from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
    from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
    from megatron.core.tokenizers import MegatronTokenizer

    torch.distributed.init_process_group("gloo", init_method=f"file://{cache}.meeting", rank=0, world_size=1)
    assert job.blends is not None
    blend = job.blends[0]
    assert blend is not None
    pair = (list(blend.prefixes), None if blend.weights is None else list(blend.weights))
    config = GPTDatasetConfig(
        random_seed=job.seed,
        sequence_length=job.sequence_length,
        blend_per_split=[pair, None, None],
        path_to_cache=str(cache),
        tokenizer=MegatronTokenizer.from_pretrained(metadata_path={"library": "null"}, vocab_size=VOCAB),
        reset_position_ids=False,
        reset_attention_mask=False,
        eod_mask_loss=False,
        num_dataset_builder_threads=THREADS,
    )
    start = time.perf_counter()
    BlendedMegatronDatasetBuilder(GPTDataset, list(job.sizes), lambda: True, config).build()
    return time.perf_counter() - start


def worker(who: str, case: str, folder: Path, num_samples: int) -> None:
    """One measurement in a process of its own; kernels are compiled, or loaded, before the clock starts."""
    run = {"ours": run_ours, "oracle": run_oracle}[who]
    if who == "ours":
        make(folder / "tiny", 100, 10_000)
        tiny_blend = MegatronBlend((str(folder / "tiny"),) * 2, (1.0, 1.0))
        tiny = MegatronJob(16, 1, (50, 0, 0), {}, blends=(tiny_blend, None, None))
        run_ours(tiny, folder / "tiny-cache")
    seconds = run(job_of(case, folder, num_samples), folder / f"{who}-{case}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"seconds": seconds, "peak_mb": peak / 1024}))


def digests(cache: Path) -> dict[str, str]:
    found = {}
    for path in sorted(cache.iterdir()):
        if not path.name.endswith("-manifest.json"):
            with path.open("rb") as file:
                found[path.name] = hashlib.file_digest(file, "blake2b").hexdigest()
    return found


def measure(case: str, folder: Path, num_samples: int) -> None:
    """Both in turn, the best of two each: the first to touch memory or the disk waits for the machine."""
    runs: dict[str, list[dict[str, float]]] = {"oracle": [], "ours": []}
    caches = {}
    for who in ("oracle", "ours") * 2:
        runs[who].append(json.loads(call("--worker", who, case, folder, num_samples).splitlines()[-1]))
        caches[who] = digests(folder / f"{who}-{case}")
        shutil.rmtree(folder / f"{who}-{case}")
        Path(f"{folder / who}-{case}.meeting").unlink(missing_ok=True)
        os.sync()
    assert caches["ours"] == caches["oracle"], "the caches differ"
    oracle, ours = (min(runs[who], key=lambda run: run["seconds"]) for who in ("oracle", "ours"))
    print(
        f"{case:<6} megatron-core {oracle['seconds']:7.1f} s {oracle['peak_mb']:7.0f} MB   "
        f"playhead {ours['seconds']:7.1f} s {ours['peak_mb']:7.0f} MB   "
        f"{oracle['seconds'] / ours['seconds']:.1f} times as fast (target: 3), "
        f"{ours['peak_mb'] / oracle['peak_mb']:.2f} of the memory (target: 0.5); "
        f"single runs {spread(runs['oracle'])} and {spread(runs['ours'])}",
        flush=True,
    )


def spread(runs: list[dict[str, float]]) -> str:
    return ", ".join(f"{run['seconds']:.1f}" for run in runs) + " s"


def call(*words: object) -> str:
    """This program in a process of its own; ours stays small, as a child's peak counts from its parent's size."""
    command = [sys.executable, __file__, *map(str, words)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout  # noqa: S603 - ourselves


def main() -> None:
    if sys.argv[1:2] == ["--worker"]:
        worker(sys.argv[2], sys.argv[3], Path(sys.argv[4]), int(sys.argv[5]))
        return
    if sys.argv[1:2] == ["--make"]:
        make(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
        return
    if find_spec("megatron") is None:
        print("megatron-core is not installed: nothing to compare with")
        return
    millions = [float(word) for word in sys.argv[1:]] or [30, 100]
    num_documents, num_samples = int(millions[0] * 1e6), int(millions[1] * 1e6)
    num_tokens = num_samples * SEQUENCE_LENGTH + 1
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print(f"{num_documents:,} documents, {num_samples:,} samples, the same bytes in every file")
        call("--make", folder / "one", num_documents, num_tokens)
        measure("one", folder, num_samples)
        for part in "abcd":
            call("--make", folder / part, num_documents // 4, num_tokens // 4)
        measure("blend", folder, num_samples)


if __name__ == "__main__":
    main()
