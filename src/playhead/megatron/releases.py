"""The releases of Megatron that are known, their flags, and what those do to a dataset cache. Names without the dashes.

Every flag of a release is known: it is taken, refused, or has no effect on the cache. The table beside this file was
derived from the parsers of the releases themselves (tests/megatron/derive_flags.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from playhead.errors import RecipeError

RELEASES = ("0.15", "0.16", "0.17", "0.18", "0.19", "main")
_DEFAULT = "0.16"

_INTEGERS = """
seq-length seed train-samples train-iters global-batch-size micro-batch-size eval-interval eval-iters
start-eval-at-iter eval-global-batch-size prepare-cache-world-size prepare-cache-start-iteration at-iteration
tensor-model-parallel-size pipeline-model-parallel-size context-parallel-size vocab-size tiktoken-num-special-tokens
null-tokenizer-eod-id null-tokenizer-pad-id
"""
INTEGERS = frozenset(_INTEGERS.split())
NUMBERS = frozenset(["mid-level-dataset-surplus"])
_OTHERS = """
data-path data-args-path split train-data-path valid-data-path test-data-path per-split-data-args-path
data-cache-path rampup-batch-size decrease-batch-size-if-needed full-validation multiple-validation-sets skip-train
phase-transition-iterations keep-partial-validation-sequence like tokenizer-type tokenizer-model tokenizer-metadata
legacy-tokenizer vocab-file merge-file tokenizer-special-tokens tiktoken-special-tokens tiktoken-pattern
tokenizer-hf-use-fast tokenizer-hf-include-special-tokens tokenizer-hf-no-use-fast
tokenizer-hf-no-include-special-tokens tokenizer-sentencepiece-legacy
no-tokenizer-sentencepiece-ignore-extra-whitespaces disable-tokenizer-sentencepiece-ignore-extra-whitespaces
sft-tokenizer-prompt-format use-gigatoken trust-remote-code chat-template dataloader-fast-cache-load
dataloader-defer-npy-index-mmap per-dataset-sequences-path
"""
TAKEN = INTEGERS | NUMBERS | frozenset(_OTHERS.split())

REFUSED = {
    "mock-data": "mock data needs no cache",
    "sft": "fine-tuning data is packed differently",
    "fim-data": "fill-in-the-middle data makes another cache",
    "step-batch-size-schedule": "a schedule of batch sizes changes the counts",
    "yaml-cfg": "the arguments would be in that file",
    "retro-project-dir": "a Retro project overrides the data arguments",
    "perform-rl-step": "reinforcement learning draws its own samples",
    "encoder-seq-length": "it would replace --seq-length",
    "use-checkpoint-args": "the arguments would be in the checkpoint",
    "use-mp-args-from-checkpoint-args": "the parallel sizes would be in the checkpoint",
    "batch-size": "Megatron no longer takes it; use --micro-batch-size",
    "model-parallel-size": "Megatron no longer takes it; use --tensor-model-parallel-size",
}

# Of Megatron's tool that prepares caches, and our own: they work for every release.
_FOR_ALL = {
    **dict.fromkeys(("prepare-cache-world-size", "prepare-cache-start-iteration", "at-iteration", "like"), "1"),
    "keep-partial-validation-sequence": "0",
}

# Flags of torchrun, which are in the same launch scripts.
_LAUNCHER = """
nnodes nproc-per-node node-rank master-addr master-port local-addr max-restarts monitor-interval rdzv-backend
rdzv-conf rdzv-endpoint rdzv-id role run-path standalone start-method tee redirects log-dir
"""
LAUNCHER = frozenset(_LAUNCHER.split())


@dataclass(frozen=True)
class FlagTable:
    """The flags of one release: how many values each takes (a number, `*` or `+`), and the defaults of those taken.

    A flag without a default here is off, or has none.
    """

    takes: Mapping[str, str]
    defaults: Mapping[str, Any]


@cache
def flags_of(release: str) -> FlagTable:
    source = _source()
    place = RELEASES.index(release)
    takes = dict(_FOR_ALL)
    for group in source["flags"]:
        if RELEASES.index(group["first"]) <= place <= RELEASES.index(group["last"]):
            takes.update(dict.fromkeys(" ".join(group["names"]).split(), group["takes"]))
    defaults = {name: found[release] for name, found in source["defaults"].items() if release in found}
    return FlagTable(takes, defaults)


def releases_with(name: str) -> list[str]:
    return [release for release in RELEASES if name in flags_of(release).takes]


@cache
def _source() -> Any:
    return json.loads(Path(__file__).with_name("flags_by_release.json").read_text(encoding="utf-8"))


def release_of(name: str | None) -> str:
    """The requested release; otherwise that of the installed megatron.core; otherwise 0.16."""
    if name is None:
        name = _installed() or _DEFAULT
    short = ".".join(name.split(".")[:2])
    if short not in RELEASES:
        raise RecipeError(
            f"unknown Megatron release {name}",
            expected=f"one of {', '.join(RELEASES)}",
            fix="name the nearest with --megatron-release, and take the tokenizer from a description: --like",
        )
    return short


def since(release: str, first: str) -> bool:
    return RELEASES.index(release) >= RELEASES.index(first)


def _installed() -> str | None:
    try:
        found = version("megatron-core")
    except PackageNotFoundError:
        return None
    short = ".".join(found.split(".")[:2])
    return short if short in RELEASES else None
