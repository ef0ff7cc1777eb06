from __future__ import annotations

from dataclasses import replace

import pytest

from playhead.errors import WorkerError
from playhead.inspect.bench.bottleneck import judge, killed_for_memory
from playhead.inspect.bench.memory_pressure import MemoryLimit, MemoryUse
from playhead.inspect.bench.storage_probe import StorageProbe
from playhead.inspect.bench.values import Bottleneck, LoaderSettings, RunFigures

STAGES = {"storage": 1.0, "decode": 1.0, "map": 1.0, "collate": 1.0, "other": 0.0}
CALM = MemoryUse(1 << 30, 0, 0, 0, 0.0, MemoryLimit("the machine", 64 << 30, 8 << 30))

# Ten seconds, 100 batches, no trainer: two workers that are always busy.
RUN = RunFigures(
    settings=LoaderSettings(workers=2, lookahead=2),
    seconds=10.0,
    num_batches=100,
    num_steps=100,
    num_samples=400,
    wait_seconds=9.9,
    ready_seconds=0.1,
    uneven_seconds=0.0,
    trainer_seconds=0.1,
    busy_seconds=20.0,
    busy_share=1.0,
    long_batch_seconds=0.2,
    stages=STAGES,
    num_requests=400,
    num_bytes=100_000_000,
    probe=StorageProbe(0.05, 200e6),
    cores_used=2.0,
    others_cores=0.0,
    cores=16.0,
    memory=CALM,
)


def mostly(stage: str, **changes: object) -> RunFigures:
    """The run, with most of the time in one stage."""
    return replace(RUN, stages={**STAGES, stage: 17.0}, **changes)  # type: ignore[arg-type]


def trained(run: RunFigures, trainer_seconds: float) -> RunFigures:
    """The run with a trainer that worked so long of its ten seconds."""
    return replace(run, trainer_seconds=trainer_seconds, wait_seconds=10 - trainer_seconds, is_trained=True)


@pytest.mark.parametrize(
    ("stage", "limit"),
    [("decode", "decode CPU"), ("map", "user map"), ("collate", "collation"), ("other", "other work")],
)
def test_busy_workers_are_limited_by_their_longest_stage_and_more_of_them_help(stage: str, limit: str) -> None:
    found = judge(mostly(stage))
    assert (found.limit, found.change) == (limit, "raise workers from 2 to 4")
    assert "85 %" in found.evidence or "81 %" in found.evidence


def test_workers_that_must_be_faster_for_a_trainer_are_raised_by_the_factor_that_is_missing() -> None:
    # A batch takes 0.2 s of work; the trainer works 0.04 s for it: five workers, and one to spare.
    assert judge(trained(mostly("map"), 4.0)).change == "raise workers from 2 to 6"


def test_more_workers_are_recommended_only_where_a_core_is_free() -> None:
    found = judge(mostly("decode", cores=2.0))
    assert found.change.startswith("no core is left for more workers: store data that decodes faster")
    assert judge(mostly("map", cores=2.0, cores_used=0.1)).change == "raise workers from 2 to 4"  # it only waits


def test_cores_that_others_use_are_not_free() -> None:
    busy = mostly("decode", cores=4.0, others_cores=2.0)
    assert judge(busy).change.startswith("no core is left for more workers")
    found = judge(replace(busy, others_cores=0.0))
    assert found.change == "raise workers from 2 to 4"
    assert any("decode threads" in note for note in found.also)
    assert judge(replace(busy, cores_used=0.1)).change == "raise workers from 2 to 4"  # they need none


def test_small_batches_are_not_left_to_workers_that_would_take_as_long_to_hand_them_over() -> None:
    alone = mostly("decode", settings=LoaderSettings(workers=0))
    assert judge(alone).change == "raise workers from 0 to 2"
    assert judge(replace(alone, busy_seconds=0.02)).change.startswith("make batches larger")


def light(**changes: object) -> RunFigures:
    """Small batches of local files: threads that mostly wait for the interpreter, which counts as reading."""
    settings = LoaderSettings(workers=2, worker_kind="thread")
    run = mostly("storage", settings=settings, num_batches=24_000, requests_cost=False, cores=2.0, cores_used=1.1)
    return replace(run, probe=StorageProbe(8e-6, 5e9), **changes)  # type: ignore[arg-type]


def test_batches_so_light_that_workers_cost_more_than_they_give_need_none() -> None:
    found = judge(light())
    assert (found.limit, found.change) == ("delivery", "use no workers, or make batches larger")
    processes = light(settings=LoaderSettings(workers=2), busy_seconds=7.0, ready_seconds=9.0, num_batches=20_000)
    assert judge(processes).change == "use no workers, or make batches larger"


def test_workers_that_make_light_batches_faster_than_one_are_worth_their_cost() -> None:
    processes = light(settings=LoaderSettings(workers=4), busy_seconds=40.0, num_batches=100_000, cores=8.0)
    assert "no workers" not in judge(processes).change
    waiting = light(cores_used=0.2, stages={**STAGES, "map": 17.0})  # a map that sleeps
    assert judge(waiting).limit == "user map"
    assert "no workers" not in judge(trained(light(), 5.0)).change
    assert "no workers" not in judge(light(requests_cost=True)).change


def test_reading_is_not_the_limit_where_a_disk_takes_far_less_time_for_it_and_processors_are_busy() -> None:
    run = light(num_batches=2400, stages={**STAGES, "storage": 14.0, "decode": 5.0})
    found = judge(run)
    assert (found.limit, found.change) == ("decode CPU", "use worker processes: threads share one interpreter")
    assert judge(replace(run, cores_used=0.2)).limit == "storage latency"  # a disk that was slow then
    assert judge(replace(run, probe=StorageProbe(0.05, 5e9))).limit == "storage latency"
    assert judge(replace(run, requests_cost=True)).limit == "storage latency"


@pytest.mark.parametrize(
    ("num_batches", "seconds", "limit"),
    [(1, 0.018, "unknown"), (63, 0.5, "unknown"), (64, 0.5, "user map"), (64, 0.05, "unknown"), (4, 2.0, "user map")],
)
def test_there_is_no_verdict_where_less_was_measured_than_means_anything(
    num_batches: int, seconds: float, limit: str
) -> None:
    settings = LoaderSettings(workers=4, lookahead=8)
    run = mostly("map", settings=settings, num_batches=num_batches, seconds=seconds, wait_seconds=seconds)
    found = judge(run)
    assert found.limit == limit
    if limit == "unknown":
        assert str(found).startswith("too little was measured for a verdict: ")
        assert "`--seconds`" in found.change
        assert "more data" in judge(replace(run, has_ended=True)).change


def test_what_a_sweep_has_settled_is_not_advised_again() -> None:
    workers, ahead = ("workers",), ("workers", "lookahead", "threads")
    assert judge(mostly("map", settled=workers)).change.startswith("make the map cheaper")
    assert judge(light(settled=workers)).change == "make batches larger"
    assert judge(mostly("storage", settled=("lookahead",))).change == "raise workers from 2 to 4"
    assert judge(mostly("storage", settled=("threads",))).change == "raise look-ahead from 2 to 4"
    assert "raise" not in judge(mostly("storage", settled=ahead)).change
    uneven = replace(RUN, busy_share=0.3, busy_seconds=5.0, uneven_seconds=6.0, long_batch_seconds=0.8)
    assert "raise look-ahead" in judge(trained(uneven, 5.0)).change
    assert "raise" not in judge(replace(trained(uneven, 5.0), settled=ahead)).change
    idle = trained(replace(RUN, busy_seconds=4.0, settings=LoaderSettings(workers=8)), 9.9)
    assert judge(idle).also
    assert not judge(replace(idle, settled=workers)).also


def test_threads_that_share_an_interpreter_should_be_processes() -> None:
    settings = LoaderSettings(workers=4, worker_kind="thread")
    assert "worker processes" in judge(mostly("map", settings=settings, cores_used=1.0)).change


def test_a_storage_with_more_to_give_is_latency_and_one_without_is_bandwidth() -> None:
    latency = judge(mostly("storage"))  # 10 MB/s of 200
    change = "raise look-ahead from 2 to 4 and fetch threads from 2 to 4"
    assert (latency.limit, latency.change) == ("storage latency", change)
    bandwidth = judge(mostly("storage", num_bytes=1_500_000_000))
    assert bandwidth.limit == "storage bandwidth"
    assert "`shard_cache`" in bandwidth.change
    unknown = StorageProbe(0.0, 0.0)
    assert judge(mostly("storage", probe=unknown)).limit == "storage latency"
    assert judge(mostly("storage", probe=unknown, num_requests=10)).limit == "storage bandwidth"
    assert "max_bytes" in judge(mostly("storage", num_bytes=1_500_000_000, has_cache=True)).change


def test_a_probe_that_says_nothing_is_left_out_and_the_size_of_requests_decides() -> None:
    small = StorageProbe(0.05, 5e6)  # of a manifest of a few kilobytes; the run got 10 MB/s of something else
    assert judge(mostly("storage", probe=small)).limit == "storage latency"
    assert "large requests" not in judge(mostly("storage", probe=small)).evidence
    assert judge(mostly("storage", probe=small, num_requests=10)).limit == "storage bandwidth"
    slower = StorageProbe(0.05, 9e6)  # within what measurements differ
    assert judge(mostly("storage", probe=slower)).limit == "storage bandwidth"


def test_a_probe_that_waited_for_round_trips_is_a_lower_bound() -> None:
    found = judge(mostly("storage", probe=StorageProbe(0.05, 11e6, at_least=True)))
    assert found.limit == "storage latency"
    assert "large requests get at least 11 MB/s" in found.evidence


def test_a_run_that_takes_half_of_the_bandwidth_has_latency_as_long_as_more_can_be_in_flight() -> None:
    half = mostly("storage", num_bytes=1_000_000_000)
    assert judge(half).limit == "storage latency"
    assert judge(mostly("storage", num_bytes=1_450_000_000)).limit == "storage bandwidth"
    most = LoaderSettings(workers=16, lookahead=16, threads=16)
    assert judge(replace(half, settings=most)).limit == "storage bandwidth"
    assert judge(mostly("storage", settings=most)).limit == "storage latency"


def test_a_shard_cache_is_not_recommended_for_media_that_it_does_not_hold() -> None:
    media = mostly("storage", num_bytes=1_500_000_000, waits_for_media=True)
    assert judge(media).change.startswith("copy the media to a local disk")


def test_files_on_a_disk_are_read_by_more_workers_and_not_by_threads_that_fetch_ahead() -> None:
    found = judge(mostly("storage", requests_cost=False))
    assert (found.limit, found.change) == ("storage latency", "raise workers from 2 to 4")
    assert "faster disk" in judge(mostly("storage", requests_cost=False, num_bytes=1_500_000_000)).change


def test_look_ahead_that_is_deep_already_leaves_more_workers() -> None:
    deep = LoaderSettings(workers=2, lookahead=16, threads=16)
    assert judge(mostly("storage", settings=deep)).change == "raise workers from 2 to 4"
    assert judge(mostly("storage", settings=LoaderSettings(workers=0))).change.startswith("raise workers from 0 to 4")


def test_a_trainer_that_hardly_waits_is_the_limit_and_workers_too_many_are_named() -> None:
    run = trained(replace(RUN, busy_seconds=4.0, busy_share=0.05), 9.9)
    assert judge(run).limit == "the consumer"
    assert judge(replace(run, settings=LoaderSettings(workers=8))).also == ("2 workers would do",)


def test_waits_of_a_trainer_for_batches_that_were_ready_are_not_blamed_on_loading() -> None:
    run = trained(replace(RUN, busy_seconds=0.1, busy_share=0.01, ready_seconds=0.0), 9.7)
    assert judge(run).limit == "look-ahead"
    assert judge(replace(run, longest_ready_seconds=0.15)).limit == "the consumer"
    assert judge(replace(run, ready_seconds=0.15)).limit == "the consumer"
    assert judge(replace(run, ready_seconds=0.25, is_trained=False)).limit == "delivery"
    assert judge(replace(trained(run, 8.5), ready_seconds=1.4)).limit == "delivery"


def test_idle_workers_and_long_waits_now_and_then_are_look_ahead() -> None:
    run = replace(RUN, busy_share=0.3, busy_seconds=5.0, uneven_seconds=6.0, long_batch_seconds=0.8)
    with_trainer = trained(run, 5.0)  # 0.8 s are 16 batches of the trainer, over two workers
    assert (judge(with_trainer).limit, judge(with_trainer).change) == ("look-ahead", "raise look-ahead from 2 to 9")
    assert judge(run).limit == "look-ahead"
    assert judge(replace(run, uneven_seconds=0.5, stages={**STAGES, "map": 4.0})).limit == "user map"


def test_workers_that_were_busy_all_the_time_had_no_capacity_to_spare() -> None:
    run = trained(mostly("storage", busy_seconds=5.0, busy_share=0.3, num_bytes=1_500_000_000), 5.0)
    assert judge(run).limit == "look-ahead"
    assert judge(replace(run, busy_share=0.96)).limit == "storage bandwidth"


def test_batches_that_were_ready_are_delivery() -> None:
    ready = replace(RUN, ready_seconds=3.0, wait_seconds=4.0, num_batches=1000)
    assert judge(ready).limit == "delivery"
    assert judge(ready).change.startswith("make batches larger")


def test_batches_that_take_long_to_hand_over_would_only_take_longer_if_they_were_larger() -> None:
    heavy = replace(RUN, ready_seconds=6.0)  # 0.1 s for each
    assert judge(heavy).change.startswith("deliver arrays in place of Python objects")
    threads = LoaderSettings(workers=2, worker_kind="thread")
    assert judge(replace(heavy, settings=threads)).change.startswith("make batches larger")


@pytest.mark.parametrize(
    "memory",
    [
        MemoryUse(60 << 30, 0, 0, 0, 1.5, MemoryLimit("cgroup", 64 << 30, 63 << 30)),
        MemoryUse(60 << 30, 0, 5000, 12, None, MemoryLimit("cgroup", 64 << 30, 63 << 30)),
        MemoryUse(60 << 30, 1 << 30, 0, 12, 0.0, MemoryLimit("cgroup", 64 << 30, 63 << 30)),
    ],
    ids=["stalled", "faults", "swap"],
)
def test_waiting_for_memory_comes_before_everything_else(memory: MemoryUse) -> None:
    found = judge(trained(replace(RUN, memory=memory), 9.9))
    assert found.limit == "memory pressure"
    assert found.change == "lower look-ahead from 2 to 1, or raise the limit of memory"
    assert "63" not in judge(replace(RUN, memory=CALM)).evidence


def test_a_worker_that_was_killed_while_a_limit_of_memory_was_reached_is_memory_pressure() -> None:
    killed = WorkerError("worker 1 (process 7) died with signal SIGKILL", fix="look for a crash")
    limits = [MemoryLimit("cgroup a", 2 << 30, 1 << 30, 5), MemoryLimit("the machine", 64 << 30, 8 << 30)]
    reached = [replace(limits[0], hits=9), limits[1]]
    found = killed_for_memory(killed, RUN.settings, limits, reached)
    assert found is not None
    assert found.problem == "limited by memory pressure: worker 1 (process 7) died with signal SIGKILL"
    assert found.found == "the limit of memory was reached: 2.1 GB (cgroup a)"
    assert found.fix == "lower look-ahead from 2 to 1, or raise the limit of memory"
    assert killed_for_memory(killed, RUN.settings, limits, limits) is None
    assert killed_for_memory(WorkerError("worker 1 died with signal SIGSEGV"), RUN.settings, limits, reached) is None


def test_major_faults_alone_are_no_memory_pressure() -> None:
    """Mapped indexes that are read for the first time cause them, too."""
    memory = MemoryUse(1 << 30, 0, 9000, 0, 0.0, MemoryLimit("the machine", 64 << 30, 63 << 30))
    assert judge(mostly("map", memory=memory)).limit == "user map"


def test_memory_that_is_nearly_used_up_is_mentioned_beside_another_verdict() -> None:
    memory = MemoryUse(1 << 30, 0, 0, 0, 0.0, MemoryLimit("the machine", 64 << 30, 62 << 30))
    found = judge(mostly("map", memory=memory))
    assert found.limit == "user map"
    assert found.also[-1] == "memory is nearly used up: 97 % of 69 GB (the machine)"


def test_a_machine_that_others_use_is_mentioned() -> None:
    assert judge(mostly("map", others_cores=3.0)).also[-1].startswith("make the map cheaper")
    assert judge(mostly("map", others_cores=5.0)).also[-1].startswith("other processes of this machine used 5.0 cores")


def test_a_verdict_is_one_line() -> None:
    found = judge(mostly("map"))
    assert isinstance(found, Bottleneck)
    assert "\n" not in str(found)
    assert str(found).startswith("limited by user map: ")


def test_bytes_of_the_shard_cache_are_not_those_of_the_storage() -> None:
    """900 MB/s from the cache say nothing about a storage that gives 20 MB/s."""
    probe = StorageProbe(0.05, 20e6)
    run = mostly("storage", num_bytes=9_000_000_000, cache_bytes=9_000_000_000, has_cache=True, probe=probe)
    idle = judge(run)
    assert idle.limit == "storage bandwidth"
    assert "900 MB/s from the shard cache" in idle.evidence
    assert "faster disk" in idle.change
    filled = judge(replace(run, copied_bytes=180_000_000))  # all that the storage gives
    assert filled.limit == "storage bandwidth"
    assert "get 18 MB/s" in filled.evidence
    assert "`max_bytes`" in filled.change


def test_look_ahead_deeper_than_memory_allows_is_not_recommended() -> None:
    """Steps of 1.5 s and shards that take minutes to load: more batches in progress are no remedy."""
    run = trained(mostly("storage"), 5.0)
    run = replace(run, busy_seconds=5.0, busy_share=0.3, uneven_seconds=4.9, long_batch_seconds=40.0)
    found = judge(run)
    assert found.limit == "look-ahead"
    assert found.change.startswith("set `shard_cache`")
    assert judge(replace(run, long_batch_seconds=0.4)).change.startswith("raise look-ahead from 2 to ")
