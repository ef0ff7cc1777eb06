"""Near ranges of a file read together: a wrapper around any storage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from playhead.store.files import Buffer, Files, Ranges, Stamp

NEAR_BYTES = 1 << 14  # reading this much for nothing costs less than another request
MOST_JOINED_BYTES = 1 << 22


@dataclass(frozen=True)
class JoiningFiles:
    """Law: what it reads is what the storage behind it reads, range by range."""

    files: Files
    near_bytes: int = NEAR_BYTES
    most_bytes: int = MOST_JOINED_BYTES

    def list(self, pattern: str) -> Sequence[str]:
        return self.files.list(pattern)

    def stamp(self, path: str) -> Stamp:
        return self.files.stamp(path)

    def read(
        self, path: str, stamp: Stamp | None, ranges: Ranges, into: Sequence[memoryview] | None = None
    ) -> Sequence[Buffer]:
        if into is not None or len(ranges.firsts) == 1 or self._far_apart(ranges.firsts):
            return self.files.read(path, stamp, ranges, into)
        joined, run_of = join_ranges(ranges, self.near_bytes, self.most_bytes)
        if len(joined.firsts) == len(ranges.firsts):
            return self.files.read(path, stamp, ranges)
        runs = self.files.read(path, stamp, joined)
        views = [memoryview(run) for run in runs]
        begins = joined.firsts
        return [
            views[run][first - begins[run] : end - begins[run]] for run, first, end in zip(run_of, *ranges, strict=True)
        ]

    def _far_apart(self, firsts: Sequence[int]) -> bool:
        """Whether ranges seem spread so widely that hardly any two are near; then sorting them is not worth its time.

        A guess from a few of them: a wrong one costs time, and nothing else.
        """
        some = firsts[:: len(firsts) // 8 + 1]
        return bool(some) and max(some) - min(some) > 2 * self.near_bytes * len(firsts)


def join_ranges(ranges: Ranges, near_bytes: int, most_bytes: int) -> tuple[Ranges, list[int]]:
    """Runs of near ranges, in order of place, and the run that each range is in.

    Law: every range is inside its run; a run of several is at most `most_bytes` long, with gaps of at most
    `near_bytes`.
    """
    firsts, ends = ranges
    joined = Ranges([], [])
    run_of = [0] * len(firsts)
    run_first = run_end = -1
    for i in sorted(range(len(firsts)), key=firsts.__getitem__):
        first, end = firsts[i], ends[i]
        if joined.firsts and first <= run_end + near_bytes and max(end, run_end) - run_first <= most_bytes:
            run_end = max(end, run_end)
            joined.ends[-1] = run_end
        else:
            run_first, run_end = first, end
            joined.firsts.append(first)
            joined.ends.append(end)
        run_of[i] = len(joined.firsts) - 1
    return joined, run_of
