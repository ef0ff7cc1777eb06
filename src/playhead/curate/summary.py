"""The summary of a run: one value, summed over shards, for the terminal, `summary.json` and reports."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from playhead.curate.config import MEANINGS

NUM_DURATION_BINS = 24
NUM_OVERLAP_BINS = 20
NUM_SHOWN = 10


class SpeechLoss(Struct, frozen=True):
    """Segments that begin no window, or stretches of speech in no window, for one reason, and their seconds."""

    count: int = 0
    seconds: float = 0.0


class WindowHistogram(Struct, frozen=True):
    """Counts between edges, one fewer than these; a bin has its lower edge and the last also its upper."""

    edges: tuple[float, ...]
    counts: tuple[int, ...]


class Notable(Struct, frozen=True):
    """A row that is among the slowest, by seconds, or the largest, by bytes written."""

    file: str
    line: int
    seconds: float
    bytes: int


class Metrics(Struct, frozen=True):
    """Sums under the names that NeMo Curator's stages log, and the seconds that processes were busy with shards."""

    process_entry_time: float = 0.0
    segments_processed: int = 0
    windows_created: int = 0
    filter_time: float = 0.0
    input_windows: int = 0
    output_windows: int = 0
    filtered_dur: float = 0.0
    process_time: float = 0.0


class CurateSummary(Struct, frozen=True):
    """Law: everything except times depends only on the input and the parameters, not on workers, kills or shard order.

    `seconds_recorded` sums the ends of recordings, assumed to be those of their last segments; `seconds_in` is the
    total of all segments, `seconds_windows` of all windows, `seconds_kept` of those kept.
    Histograms come before and after the overlap filter; an overlap is the largest ratio with any other window of the
    row. `wall_seconds` and what is per second are of the run that ended the work.
    """

    stage: str
    parameters: dict[str, Any]
    num_rows: int = 0
    num_rejected: int = 0
    num_low_rate: int = 0
    num_without_windows: int = 0
    num_segments: int = 0
    num_windows: int = 0
    num_kept: int = 0
    num_truncations: int = 0
    seconds_recorded: float = 0.0
    seconds_in: float = 0.0
    seconds_windows: float = 0.0
    seconds_kept: float = 0.0
    bytes_in: int = 0
    bytes_out: int = 0
    losses: dict[str, SpeechLoss] = msgspec.field(default_factory=dict)
    rejected: dict[str, int] = msgspec.field(default_factory=dict)
    histograms: dict[str, WindowHistogram] = msgspec.field(default_factory=dict)
    slowest: tuple[Notable, ...] = ()
    largest: tuple[Notable, ...] = ()
    metrics: Metrics = Metrics()
    num_shards: int = 0
    wall_seconds: float = 0.0


def merge(summaries: Sequence[CurateSummary]) -> CurateSummary:
    """The sum of the summaries of shards, given in the order of the shards, at least one."""
    first = summaries[0]
    added: dict[str, Any] = {}
    for field in msgspec.structs.fields(CurateSummary):
        values = [getattr(summary, field.name) for summary in summaries]
        if isinstance(values[0], (int, float)):
            added[field.name] = sum(values[1:], values[0])
    return msgspec.structs.replace(
        first,
        **added,
        losses={reason: _add_losses(summary.losses[reason] for summary in summaries) for reason in first.losses},
        rejected=_add_counts(summary.rejected for summary in summaries),
        histograms={name: _add_histograms(name, summaries) for name in first.histograms},
        slowest=most((row for summary in summaries for row in summary.slowest), by="seconds"),
        largest=most((row for summary in summaries for row in summary.largest), by="bytes"),
        metrics=_add_metrics([summary.metrics for summary in summaries]),
    )


def most(rows: Iterable[Notable], by: str) -> tuple[Notable, ...]:
    """The first few by seconds or bytes; of equals, those that come first."""
    return tuple(sorted(rows, key=lambda row: -getattr(row, by))[:NUM_SHOWN])


def percentages(summary: CurateSummary) -> dict[str, tuple[float, float]]:
    """Each loss as a percentage of all segments and of all seconds."""
    segments, seconds = summary.num_segments or 1, summary.seconds_in or 1
    return {name: (100 * loss.count / segments, 100 * loss.seconds / seconds) for name, loss in summary.losses.items()}


def rates(summary: CurateSummary) -> dict[str, float]:
    """Work per second of the run; 0 if nothing was done."""
    amounts = {
        "rows": summary.num_rows,
        "audio_seconds": summary.seconds_in,
        "windows": summary.num_windows,
        "bytes_written": summary.bytes_out,
    }
    wall = summary.wall_seconds
    return {f"{name}_per_second": amount / wall if wall else 0.0 for name, amount in amounts.items()}


def plain(summary: CurateSummary) -> dict[str, Any]:
    """The summary as JSON values, with the percentages and rates that follow from it."""
    found: dict[str, Any] = msgspec.to_builtins(summary)
    for name, (of_segments, of_seconds) in percentages(summary).items():
        found["losses"][name] |= {
            "meaning": MEANINGS[name],
            "percent_of_segments": of_segments,
            "percent_of_seconds": of_seconds,
        }
    for name in ("recorded", "in", "kept"):
        found[f"hours_{name}"] = found[f"seconds_{name}"] / 3600
    return {**found, **rates(summary)}


def _add_losses(losses: Iterable[SpeechLoss]) -> SpeechLoss:
    count, seconds = 0, 0.0
    for loss in losses:
        count, seconds = count + loss.count, seconds + loss.seconds
    return SpeechLoss(count, seconds)


def _add_counts(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    added: dict[str, int] = {}
    for each in counts:
        for reason, number in each.items():
            added[reason] = added.get(reason, 0) + number
    return dict(sorted(added.items()))


def _add_histograms(name: str, summaries: Sequence[CurateSummary]) -> WindowHistogram:
    columns = zip(*(summary.histograms[name].counts for summary in summaries), strict=True)
    return WindowHistogram(summaries[0].histograms[name].edges, tuple(sum(column) for column in columns))


def _add_metrics(metrics: Sequence[Metrics]) -> Metrics:
    names = [field.name for field in msgspec.structs.fields(Metrics)]
    return Metrics(
        **{name: sum((getattr(each, name) for each in metrics[1:]), getattr(metrics[0], name)) for name in names}
    )
