"""A dry run: what would be scanned, and about how large the index would be. Writes nothing."""

from __future__ import annotations

from itertools import chain

from playhead.formats.rows import Shard
from playhead.formats.schema import Track, bytes_per_row, index_schema, tracks_in
from playhead.index.layout import Layout
from playhead.prepare.one import Outcome
from playhead.prepare.options import PrepareOptions
from playhead.prepare.report import SourceReport
from playhead.prepare.stretches import placed_rows
from playhead.prepare.survey import survey_source

_SELECTION_BYTES = 0.2


def estimate_source(layout: Layout, options: PrepareOptions) -> Outcome:
    """The expected report of a source; its rows are estimated from the first chunk of one shard."""
    survey, failures = survey_source(layout, options)
    if failures:
        return Outcome(None, tuple(failures))
    up_to_date = survey.up_to_date(layout)
    scanned = [] if up_to_date else survey.to_scan()
    parts = [part.summary for parts in survey.parts.values() for part in parts]
    known = sum(summary.num_rows for summary in parts if summary is not None)
    reused = 0
    if survey.old is not None:
        places = [survey.old_places[files] for files in survey.files if files in survey.old_places]
        reused = sum(survey.old.meta.shards[place].num_rows for place in places)
    num_rows = known + reused
    tracks = survey.old.meta.tracks if survey.old is not None else (Track("file"),)
    if scanned:
        row_bytes, tracks = _row_bytes(layout, survey.shards[scanned[0]], options)
        num_rows += round(survey.num_bytes(scanned) / row_bytes)
    return Outcome(
        SourceReport(
            name=layout.leaf.source.name,
            path=layout.leaf.path,
            directory=str(layout.directory),
            num_shards=len(survey.shards),
            scanned_shards=len(scanned),
            scanned_bytes=survey.num_bytes(scanned),
            reused_shards=len(survey.shards) - len(scanned),
            total_bytes=survey.num_bytes(),
            num_rows=num_rows,
            length_sum=0,
            selected_rows=0,
            selected_length=0,
            losses=(),
            num_unknown_ids=0,
            index_bytes=round(num_rows * (bytes_per_row(index_schema(layout.spec, tracks)) + _SELECTION_BYTES)),
            changed=not up_to_date,
            measured_rows=num_rows - reused if layout.measured else 0,
            damaged=survey.damaged,
            evaluation=layout.leaf.evaluation,
        ),
        (),
    )


def _row_bytes(layout: Layout, shard: Shard, options: PrepareOptions) -> tuple[float, tuple[Track, ...]]:
    """The bytes of a row in all files of a shard, and its tracks, from the first chunk that has rows."""
    chunks = layout.registered.format.scan(shard, layout.spec.scanned, options.files, options.limits)
    first = next((chunk for chunk in chunks if chunk.num_rows), None)
    if first is None:
        return 1.0, ()
    tracks = tracks_in(first.arrays, [role for role, _ in shard.files])
    num_rows, places = next(placed_rows(chain([first], chunks), tracks))
    num_bytes = sum(int((found.ends - found.firsts).sum()) for found in places.values())
    return max(1.0, num_bytes / num_rows), tracks
