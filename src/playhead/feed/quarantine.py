"""The record of bad samples: one append-only file per rank, merged on open, honoured on resume."""

from __future__ import annotations

import io
import os
from collections import Counter
from pathlib import Path

import msgspec

from playhead.errors import SampleError
from playhead.order.picks import Picks
from playhead.read import Incident
from playhead.recipe.values import Recipe
from playhead.store import writing_to

_FLOOR = 10  # bad rows allowed in a small source, up to a tenth of its rows


class Quarantine:
    """The bad samples of this run and of earlier ones, on any rank.

    Laws: an entry is written before the batch with its sample is delivered; an entry never changes once written.
    """

    def __init__(self, recipe: Recipe, fingerprint: str, rank: int, num_rows: dict[str, int]) -> None:
        folder = quarantine_folder(recipe, fingerprint)
        self._path = folder / f"rank-{rank:05}.jsonl"
        self._max_bad = recipe.max_bad
        self._num_rows = num_rows
        self._bad: set[tuple[str, int]] = set()
        self._substitutes: dict[tuple[str, int, int], int | None] = {}
        for path in sorted(folder.glob("rank-*.jsonl")):
            self._add(_read(path))

    def known(self, picks: Picks, source_names: tuple[str, ...]) -> dict[int, int | None] | None:
        """The rows that replaced bad picks before, by position in the picks; None if no pick was replaced."""
        if not self._substitutes:
            return None
        columns = zip(picks.source.tolist(), picks.epoch.tolist(), picks.row.tolist(), strict=True)
        names = [(source_names[source], epoch, row) for source, epoch, row in columns]
        return {i: self._substitutes[name] for i, name in enumerate(names) if name in self._substitutes} or None

    def record(self, incidents: list[Incident]) -> None:
        """Write what is new; stop the run where a source has too many bad rows."""
        fresh = [found for found in incidents if (found.source, found.epoch, found.row) not in self._substitutes]
        if not fresh:
            return
        data = b"".join(msgspec.json.encode(incident) + b"\n" for incident in fresh)
        with writing_to(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("ab+", buffering=0) as file:
                if _is_torn(file):
                    data = b"\n" + data
                file.write(data)
                os.fsync(file.fileno())
        self._add(fresh)
        self._check({found.source: found.reason for found in fresh})

    def _add(self, incidents: list[Incident]) -> None:
        for found in incidents:
            self._bad.add((found.source, found.row))
            self._substitutes.setdefault((found.source, found.epoch, found.row), found.substitute)

    def _check(self, reasons: dict[str, str]) -> None:
        counts = Counter(name for name, _ in self._bad)
        for source, reason in reasons.items():
            allowed = num_allowed(self._max_bad, self._num_rows[source])
            if counts[source] > allowed:
                raise SampleError(
                    f'source "{source}" has too many bad samples',
                    found=f"{counts[source]:,} of {self._num_rows[source]:,} rows; the last: {reason}",
                    expected=f"at most {allowed:,} (`max_bad: {self._max_bad:g}`)",
                    fix=f"check {self._path.parent}, fix the data, or raise `max_bad`",
                )


def quarantine_folder(recipe: Recipe, fingerprint: str) -> Path:
    """Where the records of a plan are: a file `rank-*.jsonl` of each rank."""
    return Path(recipe.cache_dir) / "quarantine" / fingerprint


def num_allowed(max_bad: float, num_rows: int) -> int:
    """How many rows of a source may be bad: the share `max_bad`, or 10 rows if that is more, up to a tenth of the rows.

    `max_bad: 0` allows none.
    """
    return int(max(max_bad * num_rows, min(_FLOOR, num_rows // 10))) if max_bad else 0


def _is_torn(file: io.FileIO) -> bool:
    """Whether a kill truncated the last line: the next one must not be appended to it."""
    size = file.seek(0, os.SEEK_END)
    if not size:
        return False
    file.seek(size - 1)
    return file.read(1) != b"\n"


def _read(path: Path) -> list[Incident]:
    """The entries of a file; a last line truncated by a kill is left out: its sample is found again."""
    found = []
    for line in path.read_bytes().split(b"\n")[:-1]:
        try:
            found.append(msgspec.json.decode(line, type=Incident))
        except msgspec.DecodeError:
            continue
    return found
