"""Q7, Q8: killed ranks and killed workers."""

from __future__ import annotations

from playhead.verify.case import Case, failed_run
from playhead.verify.difference import Kind, compare, in_words, placed_on, smallest, with_causes
from playhead.verify.runs import BASELINE, WORKER
from playhead.verify.verdict import Verdict

REPORTED_WITHIN_SECONDS = 30.0
_CRASH_TAGS: dict[Kind, str] = {
    "ahead": "crash loss",
    "behind": "crash repeat",
    "short": "crash loss",
    "long": "crash repeat",
    "samples": "crash loss",
}


def q7_crashes(case: Case) -> Verdict:
    crashed = case.runs.crashed
    assert crashed is not None
    endings = "; ".join(life.ending for life in crashed.lives if life.ending.startswith("SIGKILL"))
    if crashed.error is not None:
        tag = "torn checkpoint" if crashed.lives[-1].resumed_from is not None else "failed run"
        return Verdict("Q7", "failed", (f"after {endings or 'nothing'}: {crashed.error.message()}",), tag)
    baseline = case.runs.done[BASELINE]
    found = smallest(
        compare(placed_on(record.rank, record.batches), crashed.of_rank(record.rank), (BASELINE, "crash"))
        for record in baseline.ranks
    )
    if found is not None:
        tag = _CRASH_TAGS.get(found.kind, "resume divergence")
        return Verdict("Q7", "failed", (f"{in_words(found)}, after {endings}",), tag, with_causes(found))
    count = sum(len(record.batches) for record in baseline.ranks)
    starts = ", ".join(f"{life.resumed_from or 0:,}" for life in crashed.lives[1:])
    texts = [f"{crashed.num_kills} kills: {endings}"]
    texts.append(
        f"{count:,} micro-batches are those of the run left alone; resumed after {starts} steps; "
        f"{crashed.num_wasted:,} that came after the last checkpoint were delivered again"
    )
    if crashed.num_kills < case.settings.kills:
        texts.append(f"the run ended before all of {case.settings.kills} kills: raise --steps")
        return Verdict("Q7", "unproven", tuple(texts))
    return Verdict("Q7", "passed", tuple(texts))


def q8_killed_worker(case: Case) -> Verdict:
    run = case.runs.done.get(WORKER)
    if run is None:
        return Verdict("Q8", "not asked", ("workers are threads, which cannot be killed: --threads",))
    (record,) = run.ranks
    killed = [fault for fault in record.faults if fault.problem is None]
    reported = [fault for fault in record.faults if fault.problem is not None]
    if run.error is not None:
        if killed and not reported:
            texts = (f"worker {killed[0].worker} was killed, and nothing was said of it", run.error.message())
            return Verdict("Q8", "failed", texts, "silent worker death")
        return failed_run("Q8", run.error)
    if not killed:
        return Verdict("Q8", "not asked", ("the loader has no worker processes",))
    expected = [batch for batch in case.runs.done[BASELINE].of_rank(record.rank) if batch.step < (run.phase.until or 0)]
    rank = record.rank
    found = compare(placed_on(rank, expected), placed_on(rank, record.batches), (BASELINE, run.name))
    if found is not None:
        tag = _CRASH_TAGS.get(found.kind, "resume divergence")
        text = f"worker {killed[0].worker} was killed; then {in_words(found)}"
        return Verdict("Q8", "failed", (text,), tag, with_causes(found))
    same = f"the {len(expected):,} micro-batches before and after it are those of the run left alone"
    if not reported:
        return Verdict(
            "Q8", "passed", (f"worker {killed[0].worker} was killed, and the loader went on without an error", same)
        )
    fault = reported[0]
    text = f"reported after {fault.seconds:.1f} s: {fault.problem}"
    if fault.seconds > REPORTED_WITHIN_SECONDS:
        return Verdict("Q8", "failed", (text,), "silent worker death")
    return Verdict("Q8", "passed", (text, f"resumed from the state of that moment; {same}"))
