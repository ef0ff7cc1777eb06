"""A dry run: what would be scanned, and about how large the index would be. Writes nothing."""

from __future__ import annotations

from playhead.formats.contract import Shard
from playhead.formats.spec import Spec
from playhead.index.layout import Layout
from playhead.prepare.one import Outcome
from playhead.prepare.options import PrepareOptions
from playhead.prepare.report import SourceReport
from playhead.prepare.survey import survey_source

_SELECTION_BYTES = 0.2


def estimate_source(layout: Layout, options: PrepareOptions) -> Outcome:
    """The report of a source as it would be; its rows are judged from the first chunk of one shard."""
    survey, failures = survey_source(layout, options)
    if failures:
        return Outcome(None, tuple(failures))
    up_to_date = survey.up_to_date(layout)
    scanned = [] if up_to_date else survey.to_scan()
    known = sum(summary.num_rows for summary in survey.parts.values())
    reused = 0
    if survey.old is not None:
        places = [survey.old_places[entry.files] for entry in survey.entries if entry.files in survey.old_places]
        reused = sum(survey.old.meta.shards[place].num_rows for place in places)
    num_rows, num_tracks = known + reused, 1
    if scanned:
        row_bytes, num_tracks = _row_bytes(layout, survey.shards[scanned[0]], options)
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
            index_bytes=round(num_rows * bytes_per_row(layout.spec, num_tracks)),
            changed=not up_to_date,
            measured_rows=num_rows - reused if layout.measured else 0,
            damaged=survey.damaged,
            evaluation=layout.leaf.evaluation,
        ),
        (),
    )


def bytes_per_row(spec: Spec, num_tracks: int) -> float:
    """What an index costs for each row, a selection included."""
    lengths = 4 * ((spec.length is not None) + (spec.output_length is not None) + len(spec.columns))
    return 8 * num_tracks + lengths + len(spec.matches) + (16 if spec.ids else 0) + _SELECTION_BYTES


def _row_bytes(layout: Layout, shard: Shard, options: PrepareOptions) -> tuple[float, int]:
    """Bytes of all files of a shard to a row, and the number of tracks, by the first chunk that has rows."""
    for chunk in layout.registered.format.scan(shard, layout.spec.scanned, options.limits):
        if chunk.num_rows:
            return max(1.0, sum(chunk.ends.values()) / chunk.num_rows), len(chunk.offsets)
    return 1.0, 1
