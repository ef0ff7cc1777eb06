"""What limits a loader: a verdict by arithmetic on what a run measured.

A run of T seconds delivers N batches. The trainer waits `wait_seconds` of it and works `trainer_seconds`. The workers
are busy for `busy_seconds` together; of these every stage has its part, where `storage` is the time in which a worker
itself waited for bytes. The questions are asked in this order, and the first that is answered yes is the verdict:

1. *memory pressure*: did processes wait for memory for a tenth of T (the system's own count), or was a limit of memory
   reached while pages had to be read back (major faults, swap)?
2. *the consumer*, that is the trainer: is `wait_seconds` at most 2 % of T? Then loading is hidden behind training. With
   a trainer, waits for batches that were made already do not count, up to a tenth of T: loading is not why.
3. *delivery*, of light batches: does a batch take a worker less than half a millisecond, and do batches come hardly
   faster than one worker would make them? Then workers cost as much as they give. Of threads that keep one interpreter
   busy, the processor time of a batch is compared: the rest is waiting for the interpreter.
   Or was no worker making the batch in more than half of the time waited (without the longest: something may
   happen once)? Then handing over is the limit: its own process plans, receives and hands out.
4. *look-ahead*: is there capacity to spare? With a trainer: do W workers take less than 90 % of its time for a batch,
   and were they busy for less than 90 % of theirs?
   Without one: were they busy for less than 70 % of W x T, and were waits over five medians for batches that took over
   five medians to make (again without the longest) most of the time waited? Then batches come at uneven times, and too
   few are made ahead for the slow ones. A batch of s seconds is hidden by s / (time of the trainer for a batch) batches
   made ahead, over W workers.
5. Otherwise the workers are the limit, and the stage with the largest part of their time is the verdict; of storage,
   `storage_limit` tells latency and bandwidth apart. The storage is not it where files on a disk give these bytes, by
   the probe, in less than a fifth of the time, and processors are busy: then reading waits for one of them.

Before the second question: were there enough batches, and enough time, to say so (`is_enough`)?

To keep up, W workers need busy_seconds / N <= W x (time of the trainer for a batch). Workers that only wait need no
cores; those that compute share the cores that neither they nor other processes use.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Iterable, Iterator
from dataclasses import replace

from playhead.errors import WorkerError
from playhead.inspect.bench.memory_pressure import MemoryLimit
from playhead.inspect.bench.storage_limit import DEEPEST, less_to_read, missing_factor, storage_limit
from playhead.inspect.bench.values import Bottleneck, Limit, LoaderSettings, RunFigures, is_enough
from playhead.inspect.readable import readable_bytes, readable_count, readable_seconds, readable_share

HIDDEN_SHARE = 0.02  # of the time: a trainer that waits less has nothing to gain
DELIVERED_SHARE = 0.1  # of the time: what a trainer may wait for batches that are ready
BUSY_SHARE = 0.7  # of the workers' time: below it there is capacity to spare
SPARE_FACTOR = 0.9  # of a trainer's time for a batch
STALLED_SHARE = 0.1
NEAR_SHARE = 0.9  # of a limit of memory
DISTURBING_SHARE = 0.25  # of the cores, used by others
_FREE_CORES = 0.5
_WAITING_CORES = 0.1  # a worker that uses less waits, and needs no core
_HEAVY_SECONDS = 0.005  # to hand over a batch: larger batches would not help
_LIGHT_SECONDS = 0.0005  # to make a batch: a worker process takes as long to hand it over
_LIGHT_SHARE = 0.8  # of that time: workers that deliver a batch in less are worth something
_ONE_CORE = 0.7  # threads that use more keep one interpreter busy
_AT_ONCE_SHARE = 0.2


def judge(run: RunFigures) -> Bottleneck:
    """The bottleneck of a run; the rules are those of this module's docstring."""
    memory = _memory(run)
    if memory is not None:
        return memory
    if not is_enough(run.num_batches, run.seconds, run.settings):
        return _unknown(run)
    found = _limit_of_time(run)
    return replace(found, also=(*found.also, *_notes(run)))


def _notes(run: RunFigures) -> Iterator[str]:
    """What else is worth knowing about a run."""
    limit = run.memory.limit
    if limit is not None and limit.share >= NEAR_SHARE:
        used = f"{readable_share(limit.share)} of {readable_bytes(limit.limit_bytes)}"
        yield f"memory is nearly used up: {used} ({limit.origin})"
    if run.others_cores > DISTURBING_SHARE * run.cores:
        yield (
            f"other processes of this machine used {run.others_cores:.1f} cores meanwhile: "
            "measure again when it is idle"
        )


def _limit_of_time(run: RunFigures) -> Bottleneck:
    if run.wait_share <= HIDDEN_SHARE or (run.is_trained and _is_hidden(run)):
        return _consumer(run)
    if _is_light(run):
        return _light(run)
    if run.ready_seconds > run.wait_seconds / 2:
        return _delivery(run)
    if run.settings.workers and _has_capacity(run):
        return _look_ahead(run)
    stages = {name: seconds for name, seconds in run.stages.items() if name != "storage" or not _is_read_at_once(run)}
    stage = max(stages, key=lambda name: stages[name])
    return storage_limit(run) if stage == "storage" else _stage(run, stage)


def _is_read_at_once(run: RunFigures) -> bool:
    """Whether files on a disk give their bytes in far less than the time that passes in reading, while processors are
    busy: then that time is spent waiting for a core, or for the interpreter.
    """
    if run.requests_cost or not run.probe.bytes_per_second or not _is_computing(run):
        return False
    needed = run.num_requests * run.probe.latency_seconds + run.num_bytes / run.probe.bytes_per_second
    return needed < _AT_ONCE_SHARE * run.stages["storage"]


def _unknown(run: RunFigures) -> Bottleneck:
    evidence = (
        f"{readable_count(run.num_batches, 'batch', 'batches')} in {readable_seconds(run.seconds)}, {run.settings}"
    )
    more = "more data or smaller batches" if run.has_ended else "more time or steps (`--seconds`, `--steps`)"
    fewer = ", or with fewer workers and less look-ahead" if run.settings.num_ahead > 1 else ""
    return Bottleneck("unknown", evidence, f"bench with {more}{fewer}")


def _is_light(run: RunFigures) -> bool:
    """Whether batches are so light that workers cost as much as they give: one alone would make them as fast."""
    if not run.settings.workers or run.is_trained or run.requests_cost:  # they wait while others are made
        return False
    each = run.busy_seconds / run.num_batches
    if run.settings.worker_kind == "thread" and _is_computing(run):  # what they wait for is the interpreter
        each = min(each, run.cores_used * run.seconds / run.num_batches)
    return each < _LIGHT_SECONDS and run.seconds / run.num_batches > _LIGHT_SHARE * each


def _is_computing(run: RunFigures) -> bool:
    """Whether threads keep their one interpreter busy, as far as others leave them a core; or processes all cores."""
    if run.settings.worker_kind == "process":
        return run.cores_used > NEAR_SHARE * run.cores
    return run.cores_used > _ONE_CORE * min(1.0, max(0.5, run.cores - run.others_cores))


def _light(run: RunFigures) -> Bottleneck:
    made, came = run.busy_seconds / run.num_batches, run.seconds / run.num_batches
    waiting = ", most of it waiting for the interpreter" if made > _LIGHT_SECONDS else ""
    evidence = (
        f"a worker takes {readable_seconds(made)} for a batch{waiting}, and one comes every {readable_seconds(came)}: "
        "so light a batch costs as much to hand over as to make"
    )
    change = "make batches larger" if "workers" in run.settled else "use no workers, or make batches larger"
    return Bottleneck("delivery", evidence, change)


def _is_hidden(run: RunFigures) -> bool:
    """Whether a trainer hardly waited for a batch that was not made, and not long for those that were."""
    late = run.wait_seconds - run.ready_seconds - run.longest_ready_seconds
    return late <= HIDDEN_SHARE * run.seconds and run.wait_share <= DELIVERED_SHARE


def _has_capacity(run: RunFigures) -> bool:
    if run.is_trained:
        return max(missing_factor(run), run.busy_share) < SPARE_FACTOR
    return run.busy_share < BUSY_SHARE and run.uneven_seconds > run.wait_seconds / 2


def _memory(run: RunFigures) -> Bottleneck | None:
    memory, limit = run.memory, run.memory.limit
    if limit is None:
        return None
    stalled = (memory.stalled_seconds or 0.0) / run.seconds
    reads_back = memory.major_faults > run.num_batches or memory.swap_bytes > 0
    if stalled <= STALLED_SHARE and not (memory.hits and limit.share >= NEAR_SHARE and reads_back):
        return None
    evidence = (
        f"{readable_bytes(limit.used_bytes)} of {readable_bytes(limit.limit_bytes)} in use ({limit.origin}), "
        f"{memory.major_faults:,} major faults, {readable_bytes(memory.swap_bytes)} swapped out, "
        f"{readable_share(stalled)} of the time waited for memory"
    )
    return Bottleneck("memory pressure", evidence, _fewer_in_memory(run.settings))


def _fewer_in_memory(settings: LoaderSettings) -> str:
    """What to change where memory is short."""
    if settings.workers and settings.lookahead > 1:
        fewer = f"look-ahead from {settings.lookahead} to {settings.lookahead // 2}"
    elif settings.workers > 1:
        fewer = f"workers from {settings.workers} to {settings.workers // 2}"
    else:
        return "raise the limit of memory, or make batches smaller"
    return f"lower {fewer}, or raise the limit of memory"


def killed_for_memory(
    error: WorkerError, settings: LoaderSettings, before: Iterable[MemoryLimit], after: Iterable[MemoryLimit]
) -> WorkerError | None:
    """The error of a worker that was killed while a limit of memory was reached; None if it died of something else."""
    hits = {limit.origin: limit.hits for limit in before}
    reached = [limit for limit in after if limit.hits > hits.get(limit.origin, limit.hits)]
    if not reached or signal.SIGKILL.name not in error.problem:
        return None
    smallest = min(reached, key=lambda limit: limit.limit_bytes)
    return WorkerError(
        f"limited by memory pressure: {error.problem}",
        found=f"the limit of memory was reached: {readable_bytes(smallest.limit_bytes)} ({smallest.origin})",
        fix=_fewer_in_memory(settings),
    )


def _consumer(run: RunFigures) -> Bottleneck:
    each, loading = run.trainer_seconds / run.num_batches, run.busy_seconds / run.num_batches / run.num_makers
    evidence = (
        f"it waited {readable_share(run.wait_share)} of the time; it takes {readable_seconds(each)} for a batch, "
        f"and loading one {readable_seconds(loading)}"
    )
    needed = math.ceil(1.25 * run.busy_seconds / run.seconds) + 1
    too_many = run.settings.workers > needed and "workers" not in run.settled
    also = (f"{needed} workers would do",) if too_many else ()
    return Bottleneck("the consumer", evidence, "nothing to change, loading is hidden behind it", also)


def _delivery(run: RunFigures) -> Bottleneck:
    ready, each = run.ready_seconds / run.wait_seconds, run.wait_seconds / run.num_batches
    evidence = (
        f"batches were made already, or on their way, in {readable_share(ready)} of the time waited; to plan, send and "
        f"receive one takes {readable_seconds(each)}, and workers were busy {readable_share(run.busy_share)} of the "
        "time with making them"
    )
    change = "make batches larger; this is the ceiling that `--mock` shows"
    if each > _HEAVY_SECONDS and run.settings.workers and run.settings.worker_kind == "process":
        change = (
            "deliver arrays in place of Python objects, and fewer `fields`, or use worker threads, which send nothing"
        )
    return Bottleneck("delivery", evidence, change)


def _look_ahead(run: RunFigures) -> Bottleneck:
    settings, longest = run.settings, run.long_batch_seconds
    mean = run.busy_seconds / run.num_batches
    evidence = (
        f"the workers were busy only {readable_share(run.busy_share)} of the time, yet the consumer waited "
        f"{readable_share(run.wait_share)}: some batches take {readable_seconds(longest)}, "
        f"the mean {readable_seconds(mean)}"
    )
    pace = max(run.pace_seconds, mean / settings.workers)
    wanted = max(2 * settings.lookahead, math.ceil(longest / pace / settings.workers) + 1)
    is_settled = "lookahead" in run.settled
    if wanted <= DEEPEST and not is_settled:
        return Bottleneck("look-ahead", evidence, f"raise look-ahead from {settings.lookahead} to {wanted}")
    stage = max(run.stages, key=lambda name: run.stages[name])
    remedy = less_to_read(run) if stage == "storage" else _CHEAPER[stage]
    if is_settled:
        return Bottleneck("look-ahead", evidence, f"{remedy}: the sweep found that more look-ahead does not help")
    change = f"{remedy}: to hide the slow ones, each worker would have to make {wanted} batches ahead"
    return Bottleneck("look-ahead", evidence, change)


def _stage(run: RunFigures, stage: str) -> Bottleneck:
    settings = run.settings
    name = _LIMITS[stage]
    share = run.stages[stage] / run.busy_seconds
    each = run.stages[stage] / run.num_batches
    used = run.cores_used
    evidence = (
        f"{readable_share(share)} of the workers' time, {readable_seconds(each)} for a batch; "
        f"{used:.1f} of {run.cores:g} cores are in use"
    )
    if settings.worker_kind == "thread" and settings.workers > 1 and run.cores >= 2 and _ONE_CORE < used < 1.3:
        return Bottleneck(name, evidence, "use worker processes: threads share one interpreter")
    if not settings.workers and run.busy_seconds / run.num_batches < _LIGHT_SECONDS:
        change = "make batches larger: workers would take as long to hand over such small ones"
        return Bottleneck(name, evidence, change, (_CHEAPER[stage],))
    workers = _enough_workers(run)
    if workers > settings.workers:
        also = [_CHEAPER[stage]]
        if stage == "decode":
            also.append("or raise decode threads, which take less memory than workers, if it is audio or images")
        return Bottleneck(name, evidence, f"raise workers from {settings.workers} to {workers}", tuple(also))
    if "workers" in run.settled:
        return Bottleneck(name, evidence, f"{_CHEAPER[stage]}: the sweep found that more workers do not help")
    return Bottleneck(name, evidence, f"no core is left for more workers: {_CHEAPER[stage]}")


def _enough_workers(run: RunFigures) -> int:
    """As many as keep up with the trainer and find a core; those that a sweep has settled on."""
    if "workers" in run.settled:
        return run.settings.workers
    workers = run.num_makers
    wanted = math.ceil(workers * missing_factor(run)) + (1 if run.is_trained else 0)
    each = run.cores_used / workers  # of a core
    free = run.cores - run.cores_used - run.others_cores
    if run.settings.workers == 0:
        return max(1, min(wanted, int(run.cores)))
    if each < _WAITING_CORES:
        return wanted
    room = workers + int((free + _FREE_CORES) / each) if free >= _FREE_CORES else workers
    return max(run.settings.workers, min(wanted, room))


_LIMITS: dict[str, Limit] = {
    "decode": "decode CPU",
    "map": "user map",
    "collate": "collation",
    "other": "other work",
}
_CHEAPER = {
    "decode": "store data that decodes faster, or deliver fewer `fields`",
    "map": "make the map cheaper, or do its work once, offline",
    "collate": "make the collate function cheaper, or leave out fields and masks",
    "other": "make batches smaller",
}
