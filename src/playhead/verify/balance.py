"""Q9, Q10, Q11: proportions of the sources, counts and receipts of the ranks, memory."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from statistics import median

import numpy as np

from playhead.order import blend as blending
from playhead.order.picks import picks_between
from playhead.plan.plan import Plan
from playhead.plan.segments import segment_at, window_draws
from playhead.recipe.tree import branches
from playhead.resolve.weights import sample_weights
from playhead.seeds import fold, hash_text
from playhead.types import IntArray
from playhead.verify.case import Case
from playhead.verify.difference import NOTHING
from playhead.verify.record import BatchLine, StepLine
from playhead.verify.runs import BASELINE, PASS
from playhead.verify.verdict import Difference, Share, Verdict

TOLERANCE = 0.01  # of all samples: what is delivered may differ by so much from what is planned
_FEW_SAMPLES = 8  # or by this many: those that are lost or come twice are for other questions
_PLANNED_DRAWS = 1 << 16
_GROWTH_BYTES = 24 << 20
_GROWTH = 0.05
_FEWEST_STEPS = 16
MIB = 1 << 20


def q9_blend(case: Case) -> Verdict:
    shares, texts = case.shares, []
    for share in shares:
        if abs(share.planned - share.weight) > share.bound:
            text = (
                f"{share.source}: {share.planned:.2%} of the planned samples of {share.stream}, "
                f"where its weight asks for {share.weight:.2%}, give or take {share.bound:.2%}"
            )
            return Verdict("Q9", "failed", (text,), "wrong proportions")
    for share in shares:
        total = sum(other.num_planned for other in shares if other.stream == share.stream)
        if abs(share.num_delivered - share.num_planned) > max(_FEW_SAMPLES, TOLERANCE * total):
            text = (
                f"{share.source}: {share.num_delivered:,} samples in {case.steps:,} steps ({share.delivered:.2%} of "
                f"{share.stream}), where {share.num_planned:,} are planned and the weight asks for {share.weight:.2%}"
            )
            return Verdict("Q9", "failed", (text,), "wrong proportions")
    for share in shares:
        delivered = f"{share.num_delivered:,} delivered" if share.num_delivered else "none delivered yet"
        texts.append(
            f"{share.source}: weight {share.weight:.2%}, planned {share.planned:.2%} (bound {share.bound:.2%}), "
            f"{delivered} of {share.num_planned:,} planned in these steps"
        )
    return Verdict("Q9", "passed", (*texts, *_turns(case)))


def shares_of(case: Case) -> tuple[Share, ...]:
    """Every source of every sub-stream: its weight, its part of whole planned windows, and of what was delivered."""
    plan, found = case.plan, []
    delivered = Counter(
        (placed.batch.stream, source)
        for placed in case.runs.done[BASELINE].stream
        if not placed.batch.idle
        for source in placed.batch.sources
    )
    planned = _planned_counts(plan, case.steps)
    for i, stream in enumerate(plan.streams):
        weights = _weights(case, i)
        counts, draws = _draws_by_source(plan, i)
        totals = [sum(count for (s, _), count in table.items() if s == i) for table in (planned, delivered)]
        for s, name in enumerate(stream.source_names):
            found.append(
                Share(
                    name,
                    stream.name,
                    float(weights[s]),
                    float(counts[s]) / max(1, draws),
                    delivered[i, name] / max(1, totals[1]),
                    planned[i, name],
                    delivered[i, name],
                    _bound(plan, i, draws),
                )
            )
    return tuple(found)


def _weights(case: Case, i: int) -> list[Fraction]:
    """The share of each source of a sub-stream in its samples, by the recipe's weights; of passes, by the rows."""
    stream = case.plan.streams[i]
    if stream.epochs is not None:
        rows = [Fraction(order.num_rows) for order in stream.orders]
    else:
        branch = branches(case.recipe)[0 if case.recipe.parts > 1 else i]
        weights = sample_weights(branch, case.tables)
        by_name = {leaf.source.name: weights[leaf.path] for leaf in branch.leaves()}
        rows = [by_name[name] for name in stream.source_names]
    return [row / sum(rows) for row in rows]


def _draws_by_source(plan: Plan, i: int) -> tuple[IntArray, int]:
    """How often each source is drawn in the first whole windows, and the draws of these.

    No further than the first source leaves, where one does.
    """
    stream = plan.streams[i]
    segment = stream.segments[0]
    stop = segment.pieces[0].stop_draw
    number = draws = 0
    while draws < _PLANNED_DRAWS:
        _, end = window_draws(segment_at(stream, number), number)
        if stop is not None and end > stop:
            break
        number, draws = number + 1, end
        if end == stop:
            break
    drawn = picks_between(segment.pieces, stream.orders, 0, draws).source
    return np.bincount(drawn, minlength=len(stream.source_names)), draws


def _bound(plan: Plan, i: int, draws: int) -> float:
    """How far the share of a source may be from its weight after a number of draws: one draw at each start of a
    block, and what is left of the current block.
    """
    if not draws:
        return 1.0
    piece = plan.streams[i].segments[0].pieces[0]
    inside = (draws % piece.blend.pass_draws if piece.blend.pass_draws else draws) % piece.blend.block
    return (1 + min(inside, piece.blend.block - inside)) / draws


def _planned_counts(plan: Plan, steps: int) -> Counter[tuple[int, str]]:
    counts: Counter[tuple[int, str]] = Counter()
    for step, _ in plan.steps():
        if step.number == steps:
            break
        for batch in step.micro_batches:
            if not batch.idle:
                names = plan.streams[batch.stream].source_names
                counts.update((batch.stream, names[source]) for source in batch.picks.source.tolist())
    return counts


def _turns(case: Case) -> tuple[str, ...]:
    """The steps of each sub-stream where they are fused by weight."""
    plan = case.plan
    if plan.fuse is None:
        return ()
    members, _ = blending.resolve(plan.fuse, 0, plan.fuse.block)
    planned = np.bincount(members, minlength=len(plan.streams)) / len(members)
    steps = {(placed.batch.step, placed.batch.stream) for placed in case.runs.done[BASELINE].stream}
    counts = Counter(stream for _, stream in steps)
    texts = [
        f"{stream.name} {plan.fuse.shares[i] / plan.fuse.total:.2%} (planned {planned[i]:.2%}, {counts[i]:,} delivered)"
        for i, stream in enumerate(plan.streams)
    ]
    return (f"steps: {', '.join(texts)}",)


def q10_even_ranks(case: Case) -> Verdict:
    baseline = case.runs.done[BASELINE]
    per_rank = case.lanes // baseline.world_size
    counts = {record.rank: len(record.batches) for record in baseline.ranks}
    if len({*counts.values()}) > 1:
        short = min(counts, key=lambda rank: counts[rank])
        text = ", ".join(f"rank {rank} {count:,}" for rank, count in counts.items())
        longer = max(baseline.ranks, key=lambda record: len(record.batches)).batches[counts[short]]
        lane = longer.lane % baseline.world_size + short
        where = Difference(longer.step, lane, short, "a micro-batch, as on other ranks", NOTHING, ("", BASELINE))
        return Verdict("Q10", "failed", (f"micro-batches: {text}",), "uneven ranks", where)
    for record in baseline.ranks:
        for step, count in Counter(batch.step for batch in record.batches).items():
            if count != per_rank:
                text = f"rank {record.rank}, step {step:,}: {count} micro-batches, expected {per_rank}"
                return Verdict("Q10", "failed", (text,), "uneven ranks")
    states = [[(line.step, line.state) for line in record.steps] for record in baseline.ranks]
    for record, own in zip(baseline.ranks, states, strict=True):
        if own != states[0]:
            step = next(a[0] for a, b in zip(own, states[0], strict=False) if a != b)
            text = f"after step {step:,} the states of ranks 0 and {record.rank} differ"
            return Verdict("Q10", "failed", (text,), "receipt mismatch")
    if not states[0]:
        return Verdict("Q10", "failed", ("no rank was delivered a whole step",), "skipped")
    text = f"{counts[0]:,} micro-batches on each of {len(counts)} ranks"
    if any(line.receipt is None for line in baseline.ranks[0].steps):
        return Verdict("Q10", "unproven", (text, "the states hold no receipt to compare"))
    wrong = _wrong_receipt(baseline.ranks[0].steps, case)
    if wrong is not None:
        return wrong
    last = baseline.ranks[0].steps[-1]
    same = f"after every step the states are equal on all ranks; receipt {last.receipt} after step {last.step:,}"
    return Verdict("Q10", "passed", (text, f"{same}, which is that of the samples delivered"))


def _wrong_receipt(steps: list[StepLine], case: Case) -> Verdict | None:
    """Compare the receipts in the states with those of what was delivered, folded here once more."""
    by_step: dict[int, list[BatchLine]] = {}
    for placed in case.runs.done[BASELINE].stream:
        by_step.setdefault(placed.batch.step, []).append(placed.batch)
    receipt = 0
    for line in steps:
        receipt = fold(receipt, line.step)
        for batch in sorted(by_step[line.step], key=lambda batch: (batch.stream, batch.lane)):
            if batch.idle:
                continue
            receipt = fold(fold(receipt, batch.lane), len(batch.rows))
            for source, epoch, row in batch.picks:
                receipt = fold(receipt, fold(fold(hash_text(source), epoch), row))
        if f"{receipt:016x}" != line.receipt:
            text = f"the receipt after step {line.step:,} is {line.receipt}; what was delivered has {receipt:016x}"
            return Verdict("Q10", "failed", (text,), "receipt mismatch")
    return None


def q11_memory(case: Case) -> Verdict:
    """Flat: in the last quarter of the steps the median is hardly above that of the second quarter.

    The first quarter is for warming up. The longer of the runs is looked at.
    """
    runs = [run for name in (BASELINE, PASS) if (run := case.runs.done.get(name)) is not None and run.error is None]
    run = max(runs, key=lambda run: min(len(record.steps) for record in run.ranks))
    texts = []
    for record in run.ranks:
        memory = [line.memory_bytes for line in record.steps]
        if len(memory) < _FEWEST_STEPS:
            if _is_finished(case):
                return Verdict("Q11", "not asked", (f"the whole stream has {case.steps} steps",))
            text = f"{len(memory)} steps are too few to tell: at least {_FEWEST_STEPS}"
            return Verdict("Q11", "unproven", (text,))
        quarter = len(memory) // 4
        before, after = median(memory[quarter : 2 * quarter]), median(memory[-quarter:])
        bound = max(_GROWTH_BYTES, _GROWTH * before)
        text = (
            f"rank {record.rank} and its workers: {before / MIB:,.0f} MiB, then {after / MIB:,.0f} MiB over "
            f"{len(memory):,} steps of the run {run.name}; bound {bound / MIB:,.0f} MiB more"
        )
        if after - before > bound:
            grown = (after - before) / max(1, len(memory) - 2 * quarter) / 1024
            return Verdict("Q11", "failed", (f"{text}; {grown:,.0f} KiB more with every step",), "memory growth")
        texts.append(text)
    return Verdict("Q11", "passed", tuple(texts))


def _is_finished(case: Case) -> bool:
    """Whether the first run reached the end of the stream."""
    end = case.runs.done[BASELINE].ranks[0].end
    return end is not None and end.finished
