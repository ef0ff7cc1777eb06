"""How many samples a job needs from train, valid and test, by release."""

from __future__ import annotations

from dataclasses import dataclass

from playhead.errors import RecipeError
from playhead.megatron.flags import Flags
from playhead.megatron.job import LARGEST_COUNT
from playhead.megatron.releases import since


@dataclass(frozen=True)
class SampleCounts:
    """The effective sizes of a job. None in `samples` is one pass over the data."""

    world_size: int
    data_parallel_size: int
    micro_batch_size: int | None
    global_batch_size: int
    train_iters: int
    samples: tuple[int | None, int | None, int | None]


def count_samples(flags: Flags) -> SampleCounts:
    world, parallel = _parallel(flags)
    micro = flags.at_least("micro-batch-size", 1)
    batch = flags.at_least("global-batch-size", 1)
    if batch is None:
        if micro is None:
            raise RecipeError(
                "the batch size is missing",
                expected="--global-batch-size, or --micro-batch-size and --prepare-cache-world-size",
            )
        batch = micro * parallel
    samples, iters = flags.at_least("train-samples", 1), flags.at_least("train-iters", 1)
    if (samples is None) == (iters is None):
        raise RecipeError("the training length is missing", expected="either --train-samples or --train-iters")
    if iters is None:
        assert samples is not None
        iters = _train_iters(flags, samples, batch, (micro or 1) * parallel)
    train = iters * batch if samples is None else samples
    if flags.has("phase-transition-iterations"):
        train = _phase(flags, train, batch)
    valid, test = _evaluation(flags, iters, batch)
    _check_counts(train, valid, test)
    return SampleCounts(world, parallel, micro, batch, iters, (train, valid, test))


def _check_counts(*counts: int | None) -> None:
    largest = max(count for count in counts if count is not None)
    if largest > LARGEST_COUNT:
        raise RecipeError(
            "the job needs more samples than can be counted",
            found=f"{largest:,}",
            expected=f"at most {LARGEST_COUNT:,}",
            fix="lower --train-iters, --train-samples, --eval-iters or --global-batch-size",
        )


def _parallel(flags: Flags) -> tuple[int, int]:
    world = flags.at_least("prepare-cache-world-size", 1) or 1
    names = ("tensor-model-parallel-size", "pipeline-model-parallel-size", "context-parallel-size")
    model = 1
    for name in names:
        model *= flags.at_least(name, 1) or 1
    if not flags.has("prepare-cache-world-size") and flags.has("global-batch-size"):
        world = max(world, model)  # the batch size is given: the world size has no effect
    if world % model:
        raise RecipeError(
            f"--prepare-cache-world-size {world}: is not a multiple of the model's {model} parallel ranks",
            found=", ".join(f"--{name} {flags.text(name)}" for name in names if flags.has(name)),
            expected=f"the number of GPUs of the job, a multiple of {model}",
            fix="give --prepare-cache-world-size as the job will run",
        )
    return world, world // model


def _train_iters(flags: Flags, samples: int, batch: int, step: int) -> int:
    ramp = flags.many("rampup-batch-size")
    if ramp is None or since(flags.release, "0.18"):
        return samples // batch
    try:
        start, increment, ramp_samples = (int(word) for word in ramp)
        valid = (
            start > 0 and increment > 0 and ramp_samples >= 0 and (batch - start) % increment == 0 and batch >= start
        )
    except ValueError:
        valid = False
    if not valid:
        raise RecipeError(
            f"--rampup-batch-size {' '.join(ramp)}",
            expected="a first batch size, an increment that leads from it to the global one, and a number of samples",
        )
    steps = (batch - start) // increment
    decrease = flags.has("decrease-batch-size-if-needed")
    iterations = consumed = 0
    while consumed <= ramp_samples and consumed <= samples:
        now = batch
        if steps and consumed <= ramp_samples:
            now = min(batch, start + increment * int(consumed / (ramp_samples / steps))) if ramp_samples else start
        consumed += now // step * step if decrease else now
        iterations += 1
    return iterations + max(0, samples - consumed) // batch


def _phase(flags: Flags, train: int, batch: int) -> int:
    """The samples of the current phase of training."""
    iteration = flags.at_least("prepare-cache-start-iteration", 0)
    if iteration is None:
        iteration = flags.at_least("at-iteration", 0) or 0
    text = flags.text("phase-transition-iterations") or ""
    try:
        turns = sorted(int(word) * batch for word in text.split(","))
    except ValueError as error:
        raise RecipeError(f"--phase-transition-iterations {text}", expected="iterations, as in 1000,5000") from error
    ends, now = [0, *turns, train], iteration * batch
    if now >= train:
        raise RecipeError(f"iteration {iteration}: is past the end of training", expected=f"below {train // batch}")
    return min(end for end in ends if end > now) - max(end for end in ends if end <= now)


def _evaluation(flags: Flags, iters: int, batch: int) -> tuple[int | None, int]:
    rounds = flags.at_least("eval-iters", 0) or 0
    size = flags.at_least("eval-global-batch-size", 1) or batch
    if flags.has("full-validation"):
        return None, rounds * size
    if flags.has("skip-train") and since(flags.release, "0.16"):
        return rounds * size, rounds * size
    interval = flags.at_least("eval-interval", 1)
    if interval is None:
        raise RecipeError(
            "--eval-interval: is missing",
            found=f"release {flags.release}, where it has no default: the job itself would stop without it",
            expected="the number of iterations between evaluations, or --full-validation",
            fix="add --eval-interval to the job and here; 1000 was the default up to 0.15",
        )
    start = flags.at_least("start-eval-at-iter", 0) or 0
    points = iters // interval + 1 - start // interval
    return max(0, points) * rounds * size, rounds * size
