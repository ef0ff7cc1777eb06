"""A human-readable description of work: its samples and where they are."""

from __future__ import annotations

from playhead.feed.tasks import Work
from playhead.index.table import Table
from playhead.recipe.tree import Leaf

_SHOWN = 8

Streams = list[list[tuple[Leaf, Table]]]


def describe(work: Work, streams: Streams) -> str:
    """The step and lane, and the rows and files of the first samples."""
    request = work.request
    picks = list(zip(request.picks.source.tolist(), request.picks.row.tolist(), strict=True))
    found = []
    for source, row in picks[:_SHOWN]:
        leaf, table = streams[request.stream][source]
        found.append(f"{leaf.source.name} row {row:,} ({table.place(row)})")
    more = f", and {len(picks) - _SHOWN:,} more" if len(picks) > _SHOWN else ""
    return f"step {request.step:,}, lane {request.lane}: {', '.join(found)}{more}"
