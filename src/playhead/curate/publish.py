"""Outputs in a store: `curate.json` claims the place for a request, the outputs follow, and it is completed last.

Law: two runs of different requests cannot mix in one place: each object is created where there is none, or replaced
only as the version that was there when the place was claimed. (Of one over 256 MiB, which is sent in parts, that is
asked before it is sent: no store makes such an upload conditional.) An upload that was interrupted goes on when the
same request is run again: objects that are there with the same bytes are kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from playhead.curate.outputs import (
    TIMED,
    CurateLayout,
    CurateLedger,
    CurateRequest,
    checked_ledger,
    is_output,
    ledger_bytes,
    refusal,
)
from playhead.curate.summary import CurateSummary
from playhead.errors import StoreError
from playhead.store.objects import Version, create, is_same, names_under, read_object, remove, replace, version_of

_LEDGER = "curate.json"


@dataclass(frozen=True)
class Claim:
    """A place that is claimed for a request: the version of its ledger, and of what an earlier run left to replace."""

    out: str
    ledger: Version
    is_finished: bool
    replaced: dict[str, Version]

    def finished_summary(self) -> CurateSummary | None:
        """The summary of an earlier run of the same request that was completed."""
        if not self.is_finished:
            return None
        found = read_object(f"{self.out}/summary.json")
        try:
            return msgspec.json.decode(b"" if found is None else found[0], type=CurateSummary)
        except msgspec.DecodeError:
            raise refusal(self.out, ["summary.json is missing, or has been changed since it was written"]) from None

    def publish(self, layout: CurateLayout) -> bool:
        """Write the outputs of a finished run; whether anything was missing."""
        outputs = [path for path in (*layout.own_files(), *layout.audio_files()) if path != layout.ledger]
        written = [self._write(path) for path in sorted(outputs, key=lambda path: path.name in TIMED)]
        for name in self.replaced.keys() - {path.name for path in outputs}:
            remove(f"{self.out}/{name}")
        if not self.is_finished:
            replace(f"{self.out}/{_LEDGER}", layout.ledger.read_bytes(), self.ledger)
        return any(written) or not self.is_finished

    def _write(self, path: Path) -> bool:
        """Whether it was written: not if it is there already. A finished run keeps its times."""
        url, version = f"{self.out}/{path.name}", self.replaced.get(path.name)
        if version is not None:
            if is_same(url, path):
                return False
            replace(url, path, version)
            return True
        if self.is_finished and path.name in TIMED:
            return False
        before = version_of(url)
        if before is None and create(url, path):
            return True
        if path.name in TIMED and (now := before or version_of(url)) is not None:
            replace(url, path, now)
            return True
        if not is_same(url, path):
            raise StoreError(
                f"{url}: is there already, with other bytes",
                found="an object that another run wrote",
                expected="none, or the one that this run made",
                fix="choose another --out, or write it again with --force",
            )
        return False


def claim_place(out: str, request: CurateRequest, *, force: bool) -> Claim:
    """Claim a place for a request. One that another request claimed is refused, unless `force`."""
    out = out.rstrip("/")
    place, claimed = f"{out}/{_LEDGER}", ledger_bytes(CurateLedger(request))
    version = version_of(place)
    replaced: dict[str, Version] = {}
    if force:
        names = [name for name in names_under(out) if is_output(name) and name != _LEDGER]
        replaced = {name: found for name in names if (found := version_of(f"{out}/{name}")) is not None}
        if version is not None:
            replace(place, claimed, version)
    elif version is None:
        left = [name for name in names_under(out) if is_output(name)]
        if left and left != [_LEDGER]:
            raise refusal(out, [f"{left[0]} exists, but no {_LEDGER} describes it"])
    if version is None:
        create(place, claimed)  # another run may be first: then its ledger decides
    there = read_object(place)
    if there is None:
        raise StoreError(f"{place}: was removed while this run began", fix="run it again")
    ledger = checked_ledger(out, there[0], request)
    return Claim(out, there[1], ledger.outputs is not None, replaced)
