"""A job and a cache -> whether the job will hit it, and if not, why.

Megatron's key is the path, not the content: it reuses a cache whose data changed, which is stale here. For a
missing entry, the nearest existing description shows which argument differs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from playhead.formats.megatron_idx import Idx
from playhead.jobs import default_workers
from playhead.megatron.arguments import MegatronRequest
from playhead.megatron.cache_plan import BlendEntry, Entry, plan_cache, text_of
from playhead.megatron.cache_report import CheckReport, Finding
from playhead.megatron.entry_files import state_of
from playhead.megatron.job_indexes import open_indexes
from playhead.megatron.sequences import misread_tokens
from playhead.megatron.staging import sweep
from playhead.store import Files

_FLAGS = {
    "dataset_path": "the data paths",
    "num_samples": "the number of samples (--train-samples, --train-iters, --global-batch-size, --eval-*)",
    "random_seed": "--seed",
    "sequence_length": "--seq-length",
    "split": "--split",
    "tokenizer": "the tokenizer's flags, or --megatron-release",
    "weights": "the weights of the blend",
    "size": "the number of samples (--train-samples, --train-iters, --global-batch-size, --eval-*)",
    "datasets": "the datasets of the blend, see above",
}
_SHORT = 60


def check_request(request: MegatronRequest, files: Files, workers: int | None = None) -> CheckReport:
    sweep(request.cache)
    indexes = open_indexes(request.job, files, workers or default_workers())
    others = _descriptions(request.cache)
    entries = plan_cache(request.job, indexes).entries
    findings = tuple(_find(request.cache, entry, indexes, others) for entry in entries)
    split_needed = "the data is given by --data-path: --dataloader-fast-cache-load needs data for each split"
    misread = misread_tokens(list(indexes.values()), request.vocab_size) if request.given_sequences else []
    return CheckReport(
        cache=str(request.cache),
        good=all(finding.state == "ok" for finding in findings),
        findings=findings,
        fast_load=() if request.job.blend is None else (split_needed,),
        misread=tuple(misread),
        ignored=request.ignored,
    )


def _find(cache: Path, entry: Entry, indexes: dict[str, Idx], others: list[dict[str, Any]]) -> Finding:
    state, details = state_of(cache, entry, indexes)
    if state == "missing":
        details = tuple(_differences(entry, others))
    return Finding(entry.name, entry.split, state, details)


def _descriptions(cache: Path) -> list[dict[str, Any]]:
    found = []
    for path in sorted(cache.glob("*-description.txt")):
        try:
            found.append(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError):
            continue  # not a description of a cache; it cannot be the nearest
    return found


def _differences(entry: Entry, others: list[dict[str, Any]]) -> list[str]:
    """How the nearest description of the same kind differs; one of the same data is always nearer."""
    wanted = json.loads(text_of(entry.description))
    split = "split" if isinstance(entry, BlendEntry) else "index_split"
    alike = [one for one in others if one.get("class") == wanted["class"] and one.get(split) == entry.split]
    if not alike:
        return [f"the cache has no {wanted['class']} for {entry.split}"]

    def distance(other: dict[str, Any]) -> tuple[bool, int]:
        return other.get("dataset_path") != wanted.get("dataset_path"), len(_unequal(wanted, other))

    nearest = min(alike, key=distance)
    return [
        f"{_FLAGS.get(key, key)}: {_short(nearest.get(key))} in the cache, {_short(wanted[key])} for this job"
        for key in _unequal(wanted, nearest)
    ]


def _unequal(wanted: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Keys that differ; the split matrix only repeats the split."""
    return [key for key, value in wanted.items() if key != "split_matrix" and other.get(key) != value]


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= _SHORT else f"{text[:_SHORT]}..."
