"""Q4, Q5, Q6, Q12: resumed, repeated, elastic and differently made runs deliver the same, to the last bit."""

from __future__ import annotations

from playhead.verify.case import Case, failed_run
from playhead.verify.difference import Kind, Mismatch, compare, in_words, placed_on, smallest, with_causes
from playhead.verify.runs import AGAIN, BASELINE, Run
from playhead.verify.verdict import Verdict

_RESUME_TAGS: dict[Kind, str] = {
    "ahead": "resume ahead",
    "behind": "resume behind",
    "short": "resume length",
    "long": "resume length",
}


def q4_resumed(case: Case) -> Verdict:
    resumed = case.runs.with_prefix("resumed-")
    baseline = case.runs.done[BASELINE]
    if not resumed:
        return Verdict("Q4", "unproven", ("the stream is too short to be saved inside it",))
    num_compared = 0
    for run in resumed:
        if run.error is not None:
            return failed_run("Q4", run.error)
        name = run.name.removeprefix("resumed-")
        mismatches = []
        for record in run.ranks:
            saved = next(rank for rank in baseline.ranks if rank.rank == record.rank)
            if name not in saved.saves:
                return _not_reached("Q4", record.rank, name)
            whole, count = placed_on(record.rank, saved.batches), saved.saves[name].num_batches
            expected, names = whole[count:], (BASELINE, run.name)
            mismatches.append(compare(expected, placed_on(record.rank, record.batches), names, whole[:count]))
            num_compared += len(expected)
        found = smallest(mismatches)
        if found is not None:
            tag = _RESUME_TAGS.get(found.kind, "resume divergence")
            text = f"saved {_where(name)}, resumed on {run}: {in_words(found)}"
            return Verdict("Q4", "failed", (text,), tag, with_causes(found))
    places = ", ".join(_where(run.name.removeprefix("resumed-")) for run in resumed)
    notes = [f"{num_compared:,} micro-batches after states saved {places} are equal{_how(case)}"]
    if not any(run.name.endswith("inside") for run in resumed):
        notes.append("each rank has one micro-batch in a step, so there is no place inside one")
    return Verdict("Q4", "passed", tuple(notes))


def q5_repeated(case: Case) -> Verdict:
    baseline, again = case.runs.done[BASELINE], case.runs.done[AGAIN]
    if again.error is not None:
        return failed_run("Q5", again.error)
    found = _by_rank(baseline, again)
    if found is not None:
        return Verdict("Q5", "failed", (in_words(found),), "non-determinism", with_causes(found))
    count = sum(len(record.batches) for record in again.ranks)
    return Verdict("Q5", "passed", (f"{count:,} micro-batches of two runs are equal{_how(case)}, rank by rank",))


def q6_elastic(case: Case) -> Verdict:
    baseline = case.runs.done[BASELINE]
    hops = case.runs.with_prefix("elastic-")
    whole = baseline.stream
    states = {line.step: line.state for line in baseline.ranks[0].steps}
    num_compared = 0
    for run in hops:
        if run.error is not None:
            return failed_run("Q6", run.error)
        first = _first_place(run, baseline)
        if first is None:
            return _not_reached("Q6", baseline.world_size - 1, "inside")
        until = run.phase.until or 0
        expected = [p for p in whole if first <= (p.batch.step, p.batch.lane) and p.batch.step < until]
        found = compare(expected, run.stream, (BASELINE, run.name))
        if found is not None:
            text = f"resumed on {run}: {in_words(found)}"
            return Verdict("Q6", "failed", (text,), "elastic divergence", with_causes(found))
        saved = run.ranks[0].saves.get("end")
        if saved is None or saved.digest != states.get(until - 1):
            text = f"the state after step {until - 1:,} on {run} is not the one of {baseline}"
            return Verdict("Q6", "failed", (text,), "elastic divergence")
        num_compared += len(expected)
    path = " -> ".join(f"{run.world_size} x {run.phase.options.workers}" for run in (baseline, *hops))
    text = f"ranks x workers {path}: {num_compared:,} micro-batches and every state are equal{_how(case)}"
    tried = {run.world_size for run in (baseline, *hops)}
    missing = [str(world) for world in range(1, case.lanes + 1) if case.lanes % world == 0 and world not in tried]
    if missing or len(hops) < 2:
        text = f"{text}; there are too few steps to go on" + (
            f" on {', '.join(missing)} ranks" if missing else " twice"
        )
        return Verdict("Q6", "unproven", (text,))
    return Verdict("Q6", "passed", (text,))


def q12_kinds(case: Case) -> Verdict:
    baseline = case.runs.done[BASELINE]
    kinds = case.runs.with_prefix("kind-")
    left_out = [f"not asked: {title}: {reason}" for title, reason in case.runs.not_made.items()]
    if not kinds:
        return Verdict("Q12", "not asked", tuple(left_out))
    for run in kinds:
        if run.error is not None:
            return failed_run("Q12", run.error)
        found = _by_rank(baseline, run, until=run.phase.until)
        if found is not None:
            text = f"{run.phase.options}, against {baseline.phase.options}: {in_words(found)}"
            tag = "worker-dependent payload" if found.kind in ("payload", "ids") else "non-determinism"
            return Verdict("Q12", "failed", (text,), tag, with_causes(found))
    count = sum(len(record.batches) for run in kinds for record in run.ranks)
    text = f"{count:,} micro-batches are equal{_how(case)}: {baseline.phase.options}; "
    text += "; ".join(str(run.phase.options) for run in kinds)
    return Verdict("Q12", "passed", (text, *left_out))


def _first_place(run: Run, baseline: Run) -> tuple[int, int] | None:
    """The step and lane that a run is to begin with: after the state it was given, by the record of who saved it.

    None where a rank did not come as far as to save it.
    """
    if run.phase.state is None or f"/{BASELINE}/" not in run.phase.state:
        return run.phase.first, 0
    name = run.phase.state.rpartition("/rank-0-")[2].removesuffix(".json")
    if any(name not in record.saves for record in baseline.ranks):
        return None
    done = sum(record.saves[name].num_batches for record in baseline.ranks)
    batch = baseline.stream[done].batch if done < len(baseline.stream) else None
    return None if batch is None else (batch.step, batch.lane)


def _not_reached(question: str, rank: int, name: str) -> Verdict:
    text = f"rank {rank} of the run {BASELINE} did not come as far as to the state saved {_where(name)}"
    return Verdict(question, "failed", (text,), "uneven ranks")


def _by_rank(expected: Run, delivered: Run, until: int | None = None) -> Mismatch | None:
    """The smallest difference between two runs, each rank compared with itself."""
    mismatches = []
    for record in delivered.ranks:
        wanted = [batch for batch in expected.of_rank(record.rank) if until is None or batch.step < until]
        names = (expected.name, delivered.name)
        mismatches.append(compare(placed_on(record.rank, wanted), placed_on(record.rank, record.batches), names))
    return smallest(mismatches)


def _where(name: str) -> str:
    return "inside a step" if name == "inside" else f"after {int(name.rpartition('-')[2]):,} steps"


def _how(case: Case) -> str:
    return ", bit for bit" if case.settings.payload else " in their samples"
