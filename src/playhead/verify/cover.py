"""Q1, Q2, Q3: a pass delivers every row once, each at one place."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import combinations

from playhead.seeds import hash_text
from playhead.verify.case import Case, failed_run
from playhead.verify.difference import NOTHING, Placed
from playhead.verify.enumeration import EnumeratedSource, id_of
from playhead.verify.runs import PASS
from playhead.verify.verdict import Difference, Verdict

Row = tuple[str, int]  # source, row
_MOST_STEPS = 20_000  # to look for the place of a row in


def q1_one_place(case: Case) -> Verdict:
    run = case.runs.done[PASS]
    if run.error is not None:
        return failed_run("Q1", run.error)
    places: dict[Row, tuple[int, int | None]] = {}
    seen: dict[Row, Placed] = {}
    for placed, slot, row in _samples(case):
        here = (placed.rank, placed.batch.worker)
        if places.setdefault(row, here) != here:
            other = seen[row]
            tag = "rank leak" if other.rank != placed.rank else "worker leak"
            first = f"rank {other.rank}, worker {other.batch.worker}, step {other.batch.step:,}"
            text = (
                f"{placed.batch.sample(slot)} came on {first} and on rank {placed.rank}, worker {placed.batch.worker}"
            )
            return Verdict("Q1", "failed", (text,), tag, _came(placed, slot))
        seen.setdefault(row, placed)
    workers = set(places.values())
    made = "" if all(worker is not None for _, worker in workers) else "; who made them was not said"
    text = f"{len(places):,} samples at {len(workers):,} places (rank, worker), each at one{made}"
    return Verdict("Q1", "passed", (text, *_how_much(case)))


def q3_disjoint_ranks(case: Case) -> Verdict:
    run = case.runs.done[PASS]
    if run.error is not None:
        return failed_run("Q3", run.error)
    rows: dict[int, set[Row]] = {rank.rank: set() for rank in run.ranks}
    where: dict[tuple[int, Row], tuple[Placed, int]] = {}
    for placed, slot, row in _samples(case):
        rows[placed.rank].add(row)
        where.setdefault((placed.rank, row), (placed, slot))
    for one, other in combinations(sorted(rows), 2):
        common = rows[one] & rows[other]
        if common:
            least = min(common, key=lambda row: where[other, row][0].batch.step)
            kind = "the same samples" if rows[one] == rows[other] else f"{len(common):,} samples in common"
            return Verdict(
                "Q3", "failed", (f"ranks {one} and {other} have {kind}",), "rank leak", _came(*where[other, least])
            )
    counts = ", ".join(f"{len(found):,}" for found in rows.values())
    if len(rows) == 1:
        return Verdict("Q3", "passed", (f"one rank, {counts} samples: there is none to share with", *_how_much(case)))
    return Verdict("Q3", "passed", (f"{len(rows)} ranks with {counts} samples, none in common", *_how_much(case)))


def q2_every_row(case: Case) -> Verdict:
    run = case.runs.done[PASS]
    if run.error is not None:
        return failed_run("Q2", run.error)
    if (stale := stale_index(case)) is not None:
        return stale
    delivered: Counter[Row] = Counter()
    first: dict[Row, tuple[Placed, int]] = {}
    for placed, slot, row in _samples(case):
        delivered[row] += 1
        first.setdefault(row, (placed, slot))
    problem = (
        _unknown(case, delivered, first) or _repeated(delivered, first) or _missing(case, delivered) or _other_ids(case)
    )
    if problem is not None:
        return problem
    return Verdict("Q2", "passed", (*_counts(case, delivered), *_id_evidence(case), *_how_much(case)))


def stale_index(case: Case) -> Verdict | None:
    """The verdict on a source whose files are not those of the index."""
    for source in case.rows.values():
        if source.stale is not None:
            text = f"{source.name}: {source.stale}; run `playhead prepare`"
            return Verdict("Q2", "failed", (text,), "stale index")
    return None


def _samples(case: Case) -> Iterator[tuple[Placed, int, Row]]:
    """Every sample that counts, with its micro-batch: idle ones do not, nor what is beyond the last whole window."""
    run = case.runs.done[PASS]
    steps_of: defaultdict[int, set[int]] = defaultdict(set)
    for placed in run.stream:
        batch = placed.batch
        if batch.idle:
            continue
        if not case.part.is_whole:
            steps_of[batch.stream].add(batch.step)
            if len(steps_of[batch.stream]) > case.part.stream_steps[batch.stream]:
                continue
        for slot, row in enumerate(zip(batch.sources, batch.rows, strict=True)):
            yield placed, slot, row


def _how_much(case: Case) -> tuple[str, ...]:
    if case.part.is_whole:
        return ()
    windows = ", ".join(str(count) for count in case.part.windows)
    return (
        f"a sample: {windows} whole windows, {sum(case.part.draws):,} of the {case.part.num_rows:,} samples of a pass",
    )


def _came(placed: Placed, slot: int) -> Difference:
    """A sample that should not have come."""
    return Difference(placed.batch.step, placed.batch.lane, placed.rank, NOTHING, placed.batch.sample(slot), ("", PASS))


def _unknown(case: Case, delivered: Counter[Row], first: dict[Row, tuple[Placed, int]]) -> Verdict | None:
    for source, row in delivered:
        if row >= case.rows[source].num_rows:
            text = f"{source}: row {row:,} was delivered, and its files hold {case.rows[source].num_rows:,} rows"
            return Verdict("Q2", "failed", (text,), "stale index", _came(*first[source, row]))
    return None


def _repeated(delivered: Counter[Row], first: dict[Row, tuple[Placed, int]]) -> Verdict | None:
    again = [row for row, count in delivered.items() if count > 1]
    if not again:
        return None
    least = min(again, key=lambda row: first[row][0].batch.step)
    text = f"{len(again):,} rows came more than once, the first {delivered[least]} times"
    return Verdict("Q2", "failed", (text,), "repeated", _came(*first[least]))


def _missing(case: Case, delivered: Counter[Row]) -> Verdict | None:
    if case.part.is_whole:
        missing = [
            (name, row)
            for name, source in case.rows.items()
            for row in range(source.num_rows)
            if not delivered[name, row]
        ]
        count = len(missing)
    else:
        missing, count = [], sum(case.part.draws) - sum(delivered.values())
    if not count:
        return None
    expected = sum(source.num_rows for source in case.rows.values()) if case.part.is_whole else sum(case.part.draws)
    text = f"{count:,} of {expected:,} rows did not come"
    return Verdict("Q2", "failed", (text,), "skipped", _planned_place(case, missing[0]) if missing else None)


def _planned_place(case: Case, missing: Row) -> Difference | None:
    """Where a row that did not come was planned."""
    source, row = missing
    for step, _ in case.pass_plan.steps():
        if step.number > _MOST_STEPS:
            return None
        for batch in step.micro_batches:
            names = case.pass_plan.streams[batch.stream].source_names
            picks = zip(batch.picks.source.tolist(), batch.picks.row.tolist(), strict=True)
            if not batch.idle and any((names[s], r) == (source, row) for s, r in picks):
                rank = batch.lane % case.settings.world_size
                return Difference(step.number, batch.lane, rank, f"{source}, row {row:,}", NOTHING, ("", PASS))
    return None


def _other_ids(case: Case) -> Verdict | None:
    """Compare the ids in the payload with those that the scan found for the rows."""
    substitutes = {(found.source, found.epoch, found.row): found.substitute for found in case.replaced}
    finders = {name: id_of(source) for name, source in case.rows.items()}
    wrong: defaultdict[str, list[tuple[Placed, int]]] = defaultdict(list)
    right: Counter[str] = Counter()
    known = {name: _known_ids(source) for name, source in case.rows.items()}
    for placed, slot, (source, row) in _samples(case):
        batch = placed.batch
        if batch.ids is None:
            continue
        actual = substitutes.get((source, batch.epochs[slot], row), row)
        expected = None if actual is None else finders[source](actual)
        if expected is None:
            continue
        if expected == hash_text(batch.ids[slot]):
            right[source] += 1
        else:
            wrong[source].append((placed, slot))
    for source, places in wrong.items():
        foreign = [at for at in places if hash_text(at[0].batch.ids[at[1]]) in known[source]]  # type: ignore[index]
        if not foreign and not right[source]:
            continue  # the map makes ids of its own
        placed, slot = (foreign or places)[0]
        text = f"{source}: {len(places):,} rows were delivered with another id than their files say"
        tag = "id collision" if right[source] else "stale index"
        return Verdict("Q2", "failed", (text,), tag, _came(placed, slot))
    return None


def _known_ids(source: EnumeratedSource) -> set[int]:
    return {int(one) for shard in source.shards if shard.ids is not None for one in shard.ids}


def _counts(case: Case, delivered: Counter[Row]) -> tuple[str, ...]:
    by_source = Counter(source for source, _ in delivered)
    if case.part.is_whole:
        counts = ", ".join(f"{name} {source.num_rows:,}" for name, source in case.rows.items())
        found = f"{sum(by_source.values()):,} rows, each once: {counts}"
    else:
        found = f"{sum(by_source.values()):,} rows, none twice, as many as their windows have draws"
    shards = sum(source.num_shards for source in case.rows.values())
    scanned = sum(len(source.shards) for source in case.rows.values())
    return found, f"{scanned:,} of {shards:,} shards scanned again: rows, places and lengths are those of the index"


def _id_evidence(case: Case) -> tuple[str, ...]:
    if not case.settings.payload:
        return ("ids in the payload were not compared: --no-payload",)
    finders = {name: id_of(source) for name, source in case.rows.items()}
    counts: Counter[str] = Counter()
    compared: set[str] = set()
    for placed, slot, (source, row) in _samples(case):
        expected = finders[source](row)
        if placed.batch.ids is not None and expected == hash_text(placed.batch.ids[slot]):
            compared.add(source)
            counts["same"] += 1
    others = [name for name in case.rows if name not in compared]
    texts = [f"{counts['same']:,} ids in the payload are those of the rows in the files"] if compared else []
    if others:
        field = f'the field "{case.settings.id_field}" of batches holds none of their ids (--id names another)'
        texts.append(f"of {', '.join(others)} only rows were compared: {field}")
    twins = sum(_num_twins(source) for source in case.rows.values())
    return (*texts, *([f"{twins:,} rows have an id that another row of their source has too"] if twins else []))


def _num_twins(source: EnumeratedSource) -> int:
    ids = [int(one) for shard in source.shards if shard.ids is not None for one in shard.ids]
    return sum(count for count in Counter(ids).values() if count > 1)
