"""The record of bad samples: one append-only file per rank, merged on open, honoured on resume."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import msgspec

from playhead.errors import SampleError
from playhead.read import Incident
from playhead.recipe.values import Recipe
from playhead.store import writing_to


class Quarantine:
    """What was bad in this run and in earlier ones, on any rank.

    Laws: an entry is written before the batch it stood in is delivered; an entry once written is never changed.
    """

    def __init__(self, recipe: Recipe, fingerprint: str, rank: int, num_rows: dict[str, int]) -> None:
        folder = Path(recipe.cache_dir) / "quarantine" / fingerprint
        self._path = folder / f"rank-{rank:05}.jsonl"
        self._max_bad = recipe.max_bad
        self._num_rows = num_rows
        self.known = tuple(incident for path in sorted(folder.glob("rank-*.jsonl")) for incident in _read(path))
        self._bad = {(incident.source, incident.row) for incident in self.known}
        self._recorded = {(incident.source, incident.epoch, incident.row) for incident in self.known}

    def record(self, incidents: list[Incident]) -> None:
        """Write what is new; stop the run where a source has too many bad rows."""
        fresh = [found for found in incidents if (found.source, found.epoch, found.row) not in self._recorded]
        if not fresh:
            return
        data = b"".join(msgspec.json.encode(incident) + b"\n" for incident in fresh)
        with writing_to(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                os.write(descriptor, data)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        self._recorded |= {(found.source, found.epoch, found.row) for found in fresh}
        self._bad |= {(found.source, found.row) for found in fresh}
        self._check(fresh[-1])

    def _check(self, last: Incident) -> None:
        for source, count in Counter(name for name, _ in self._bad).items():
            if count > self._max_bad * self._num_rows[source]:
                raise SampleError(
                    f'source "{source}" has too many bad samples',
                    found=f"{count:,} of {self._num_rows[source]:,} rows; the last: {last.reason}",
                    expected=f"at most {self._max_bad:.2%} (`max_bad`)",
                    fix=f"look at {self._path.parent}, mend the data, or raise `max_bad`",
                )


def _read(path: Path) -> list[Incident]:
    """The whole lines of a file; a last one torn by a kill is left out, and found anew when its sample is read."""
    found = []
    for line in path.read_bytes().split(b"\n")[:-1]:
        try:
            found.append(msgspec.json.decode(line, type=Incident))
        except msgspec.DecodeError:
            continue
    return found
