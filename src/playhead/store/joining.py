"""Near ranges of a file read together: a wrapper around any storage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import gt

from playhead.store.files import Buffer, Files, Ranges, Stamp, check_buffers, check_ranges

NEAR_BYTES = 1 << 14  # reading this many unneeded bytes costs less than another request
MOST_JOINED_BYTES = 1 << 22
STRAIGHT_BYTES = 1 << 16  # reading a range of this size directly into a buffer costs less than a copy out of a run
_COPIED_BYTES = 1 << 12  # below this average size copying bytes is faster than making a view


@dataclass(frozen=True)
class JoiningFiles:
    """Law: it reads the same bytes as the wrapped storage, range by range."""

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
        if into is not None:
            check_buffers(ranges, into)
            if any(buffer.nbytes >= STRAIGHT_BYTES for buffer in into):
                return self._read_large(path, stamp, ranges, into)
        if len(ranges.firsts) < 2 or self._far_apart(ranges.firsts):
            return self.files.read(path, stamp, ranges, into)
        joined, run_of = join_ranges(ranges, self.near_bytes, self.most_bytes)
        if len(joined.firsts) == len(ranges.firsts):
            return self.files.read(path, stamp, ranges, into)
        found = _parts(self.files.read(path, stamp, joined), joined.firsts, run_of, ranges)
        if into is None:
            return found
        for buffer, data in zip(into, found, strict=True):
            buffer[:] = data
        return into

    def _read_large(
        self, path: str, stamp: Stamp | None, ranges: Ranges, into: Sequence[memoryview]
    ) -> Sequence[Buffer]:
        """Large ranges without a copy in between, then the others."""
        large = [i for i, buffer in enumerate(into) if buffer.nbytes >= STRAIGHT_BYTES]
        small = [i for i, buffer in enumerate(into) if buffer.nbytes < STRAIGHT_BYTES]
        self.files.read(path, stamp, _chosen(ranges, large), [into[i] for i in large])
        if small:
            self.read(path, stamp, _chosen(ranges, small), [into[i] for i in small])
        return into

    def _far_apart(self, firsts: Sequence[int]) -> bool:
        """Whether ranges seem spread so widely that hardly any two are near; then sorting them is not worth its time.

        An estimate from a few ranges: a wrong one only costs time.
        """
        some = firsts[:: len(firsts) // 8 + 1]
        return max(some) - min(some) > 2 * self.near_bytes * len(firsts)


def _chosen(ranges: Ranges, numbers: list[int]) -> Ranges:
    return Ranges([ranges.firsts[i] for i in numbers], [ranges.ends[i] for i in numbers])


def join_ranges(ranges: Ranges, near_bytes: int, most_bytes: int) -> tuple[Ranges, list[int]]:
    """Runs of near ranges, in order of place, and the run that each range is in.

    Law: every range that is not empty is inside its run; a run has gaps of at most `near_bytes`, is at most as long as
    `most_bytes` or its longest range, and ends where one of its ranges does.
    """
    firsts, ends = ranges
    if any(map(gt, firsts, ends)):
        check_ranges(ranges)
    joined = Ranges([], [])
    run_of = [0] * len(firsts)
    run, run_end, near, most = -1, -1, -1, -1
    for i in sorted(range(len(firsts)), key=firsts.__getitem__):
        first, end = firsts[i], ends[i]
        if first > near or end > most:
            if run >= 0:
                joined.ends.append(run_end)
            joined.firsts.append(first)
            run, run_end, near, most = run + 1, end, end + near_bytes, first + most_bytes
        elif first < end > run_end:  # an empty range may be past the end of the file
            run_end, near = end, end + near_bytes
        run_of[i] = run
    if run >= 0:
        joined.ends.append(run_end)
    return joined, run_of


def _parts(runs: Sequence[Buffer], begins: Sequence[int], run_of: Sequence[int], ranges: Ranges) -> list[Buffer]:
    """Each range out of its run: small ones as copies, others as views."""
    if sum(ranges.ends) - sum(ranges.firsts) > _COPIED_BYTES * len(run_of):
        runs = [memoryview(run) for run in runs]
    if len(runs) == 1:
        run, begin = runs[0], begins[0]
        return [run[first - begin : end - begin] for first, end in zip(*ranges, strict=True)]
    return [runs[run][first - begins[run] : end - begins[run]] for run, first, end in zip(run_of, *ranges, strict=True)]
