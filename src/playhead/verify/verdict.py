"""Verdicts: what was asked, what was found, and what it was found on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Outcome = Literal["passed", "failed", "unproven", "not asked"]

QUESTIONS = {
    "Q1": "no sample at two places (rank, worker) in one pass",
    "Q2": "a pass is every row that the files hold, once",
    "Q3": "no two ranks have a sample in common",
    "Q4": "a resumed run goes on with the very next micro-batch, bit for bit",
    "Q5": "two runs from the start are identical",
    "Q6": "other numbers of ranks and workers go on with the same stream",
    "Q7": "after kills nothing is lost and nothing comes twice",
    "Q8": "a killed worker is reported, and the run goes on from its state",
    "Q9": "sources come in the proportions of their weights",
    "Q10": "every rank has as many micro-batches, and the receipts agree",
    "Q11": "memory stays flat",
    "Q12": "kinds of workers and loaders deliver the same",
}

TAGS = {
    "rank leak": "a sample was delivered on two ranks",
    "worker leak": "a sample was delivered by two workers of a rank",
    "skipped": "samples that should have come did not",
    "repeated": "samples came more often than they should",
    "id collision": "one sample was delivered in place of another",
    "stale index": "the index is not that of the files as they are now",
    "resume divergence": "after resuming, other samples or other contents come",
    "resume length": "after resuming, more or fewer micro-batches come",
    "resume ahead": "the state counts batches that were not delivered: they are lost",
    "resume behind": "the state does not count batches that were delivered: they come twice",
    "non-determinism": "two runs of the same recipe differ",
    "unseeded map": "the same samples have other contents in every run",
    "elastic divergence": "the stream depends on the number of ranks or workers",
    "worker-dependent payload": "the contents of samples depend on how their workers run",
    "crash loss": "samples were lost in a crash",
    "crash repeat": "samples came twice after a crash",
    "torn checkpoint": "a kill during a save left no checkpoint to go on from",
    "silent worker death": "a dead worker was not reported",
    "wrong proportions": "sources do not come in the shares of their weights",
    "uneven ranks": "ranks are given different numbers of micro-batches",
    "receipt mismatch": "the receipt is not that of what was delivered",
    "memory growth": "memory grows with every step",
    "failed run": "a run that the question needs ended with an error",
}

SEEDING = (
    "a global random generator in the map: take the second argument, the sample's own generator, in its place",
    "a cache, or any state of the map, that is keyed by worker or by what came before",
    "the time, a process id, or a file that changes",
    "the order of a set or a dictionary, which differs from process to process",
)
STATE = (
    "a state that was taken after more batches than the training loop was given: use state_dict(after=batch)",
    "a wrapper around the loader that fetches ahead, or skips",
    "a loader made with another recipe than the state",
)


@dataclass(frozen=True)
class Difference:
    """The smallest difference found: the first in the order of steps and lanes.

    `expected` and `delivered` are samples. For payloads `field` and `element` say where, and the values are those of
    the same micro-batch made once more by both runs. `runs` are the run to compare with and the run that differs.
    """

    step: int
    lane: int
    rank: int | None
    expected: str
    delivered: str
    runs: tuple[str, str] = ("", "")
    field: str | None = None
    element: str | None = None
    expected_value: str | None = None
    delivered_value: str | None = None
    note: str | None = None
    causes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """What became of a question."""

    question: str
    outcome: Outcome
    evidence: tuple[str, ...]
    tag: str | None = None
    difference: Difference | None = None
    seconds: float = 0.0

    @property
    def title(self) -> str:
        return QUESTIONS[self.question]

    @property
    def is_good(self) -> bool:
        return self.outcome in ("passed", "not asked")


@dataclass(frozen=True)
class Share:
    """A source in the blend: what its weight asks for, what was planned, what was delivered."""

    source: str
    stream: str
    weight: float
    planned: float
    delivered: float
    num_planned: int
    num_delivered: int
    bound: float
