"""Maps and collate functions of the loader's tests: at the top of a module, so that they travel to workers."""

from __future__ import annotations

import os
import resource
import signal
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

Sample = dict[str, Any]


def augmented(sample: Sample, generator: Any) -> Sample:
    """Adds what was drawn from the sample's generator: two draws, so that their order counts too."""
    return {**sample, "noise": generator.normal(size=3).astype(np.float32), "coin": int(generator.integers(1 << 40))}


def audio(sample: Sample, generator: Any) -> Sample:
    """A tar's sample as a training one: its signal with noise, in the sequence field."""
    signal_ = sample["npy"] + generator.normal(size=sample["npy"].shape).astype(np.float32)
    return {"tokens": signal_, "text": sample["txt"], "duration": sample["json"]["duration"], "key": sample["__key__"]}


def broken_in_places(sample: Sample) -> Sample:
    if sample["n"] % 7 == 3:
        raise ValueError(f"no good: {sample['id']}")
    return sample


def by_luck(sample: Sample, generator: Any) -> Sample:
    """Fails now and then, in one epoch and not in another."""
    if generator.random() < 0.15:
        raise ValueError("out of luck")
    return sample


def moody(sample: Sample) -> Sample:
    """Fails on some samples while the file that `MOOD` names is there."""
    if sample["n"] % 3 == 0 and Path(os.environ["MOOD"]).exists():
        raise ValueError("in a bad mood")
    return sample


def as_it_is(sample: Sample) -> Sample:
    return sample


def allows_small_files_only(sample: Sample) -> Sample:
    """Lets its process write no file beyond 16 KiB, shared memory included."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 14, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    return sample


def nothing(sample: Sample) -> None:
    del sample


def library_fails(sample: Sample) -> Sample:
    np.zeros(3).reshape(2, 2)  # raises inside numpy, called from here
    return sample


def doubled(sample: Sample) -> Sample:
    return {**sample, "tokens": [*sample["tokens"], *sample["tokens"]], "labels": [*sample["labels"]] * 2}


def halved(sample: Sample) -> Sample:
    keep = len(sample["tokens"]) // 2
    return {**sample, "tokens": sample["tokens"][:keep], "labels": sample["labels"][:keep]}


def hashed(sample: Sample) -> Sample:
    return {**sample, "doc_hash": 2**64 - sample["n"]}


def widened(sample: Sample) -> Sample:
    return {**sample, "wide": np.ones(2, np.longdouble)}


def kills_its_process(sample: Sample) -> Sample:
    """Ends the process, once: where the file that `KILL_MARK` names is not there yet."""
    mark = Path(os.environ["KILL_MARK"])
    if sample["id"] == os.environ["KILL_AT"] and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return sample


def slow(sample: Sample) -> Sample:
    time.sleep(0.002)
    return sample


def unsendable(sample: Sample) -> Sample:
    return {**sample, "handle": lambda: None}


def ids_only(samples: list[Sample]) -> dict[str, Any]:
    return {"ids": [sample["id"] for sample in samples]}


def count_them(samples: list[Sample]) -> int:
    return len(samples)


def bad_collate(samples: list[Sample]) -> dict[str, Any]:
    return {"x": samples[0]["no such field"]}


def hangs(sample: Sample) -> Sample:
    time.sleep(600)
    return sample


_REMEMBERED: list[int] = []


def remembers(number: int) -> None:
    """A function for workers to call when they start."""
    _REMEMBERED.append(number)


def about_its_worker(sample: Sample) -> Sample:
    import torch
    from torch.utils.data import get_worker_info

    about = get_worker_info()
    drawn = int(torch.randint(1 << 60, ()))
    own = {"worker": about.id, "workers": about.num_workers, "remembered": _REMEMBERED[-1]}
    return {"random": drawn, "threads": torch.get_num_threads(), "tokens": sample["tokens"], **own}


def tensors(samples: list[Sample]) -> dict[str, Any]:
    """Tensors of many kinds."""
    import torch

    numbers = torch.arange(60_000).reshape(3, -1)
    return {
        "large": numbers,
        "part": numbers[:, 5:17],
        "bfloat16": numbers.to(torch.bfloat16),
        "learned": torch.ones(3, requires_grad=True),
        "empty": torch.zeros((0, 4), dtype=torch.float16),
        "one": torch.tensor(len(samples)),
        "conjugate": torch.tensor([1 + 2j, 3 - 1j]).conj(),
        "yes": torch.tensor([True, False]),
    }


class Named(NamedTuple):
    tensor: Any


def nested(samples: list[Sample]) -> dict[str, Any]:
    """Arrays in collections of many kinds."""
    pairs = ([np.array([0.0, 1.0]), np.array([2.0])], samples[0]["id"] and "text")
    words = [np.array(["a"])]
    return {"inputs": {"numbers": np.arange(5)}, "pairs": pairs, "named": Named(np.ones(2, bool)), "words": words}


def bfloat16(sample: Sample) -> Sample:
    import torch

    return {**sample, "odd": torch.ones(2, dtype=torch.bfloat16)}


def learned(sample: Sample) -> Sample:
    import torch

    return {**sample, "odd": torch.ones(2, requires_grad=True)}


def sparse(sample: Sample) -> Sample:
    import torch

    return {**sample, "odd": torch.ones(2).to_sparse()}


def dated(sample: Sample) -> Sample:
    return {**sample, "at": np.zeros(3_000, "M8[s]")}
