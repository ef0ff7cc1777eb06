"""The fast path through both stages: kernels over a row's numbers, and each segment encoded once.

msgspec checks that a row has the usual types. The texts of segments are then put into windows as `msgspec.Raw`.
"""

from __future__ import annotations

from bisect import bisect_right
from time import perf_counter
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
import numpy as np
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from playhead.curate.build import LEAST_SEGMENTS, LOSS_NAMES, cut_segment, fresh_stats, without
from playhead.curate.build import NO_SPEAKER as NO_SPEAKER_NAME
from playhead.curate.config import WindowConfig
from playhead.curate.kernels import (
    EMPTY,
    MISSING,
    NO_SPEAKER,
    NOT_CUT,
    NULL,
    PART_TAKEN,
    FloatArray,
    filter_windows,
    grow_windows,
    judge_windows,
    overlaps_of,
)
from playhead.curate.overlap import Times, add_kept, among
from playhead.curate.rows import CurateRow
from playhead.types import BoolArray, IntArray

_LARGEST = 1 << 40  # sums of whole numbers up to it are exact in a float
_Number = Annotated[int, Meta(ge=0, lt=_LARGEST)] | Annotated[float, Meta(ge=0.0, lt=float(_LARGEST))]
_CODES: dict[Any, int] = {UNSET: MISSING, None: NULL, "": EMPTY, NO_SPEAKER_NAME: NO_SPEAKER}
_Item = TypeVar("_Item")
_encode_lines = msgspec.json.Encoder().encode_lines


class _Metrics(Struct, frozen=True, gc=False):
    bandwidth: _Number = 0


class _Segment(Struct, frozen=True, gc=False):
    start: _Number
    end: _Number
    speaker: str | UnsetType | None = UNSET
    metrics: _Metrics = _Metrics()
    text: str | None = None


class _Word(Struct, frozen=True, gc=False):
    end: _Number
    word: str | None = None


class _CutSegment(Struct, frozen=True):
    words: list[_Word]


class _Row(Struct, frozen=True):
    segments: Annotated[list[_Segment], Meta(min_length=1)]
    audio_sample_rate: _Number
    audio_filepath: Annotated[str, Meta(min_length=1)]


class WindowedRow(Struct, frozen=True):
    """The result of `filter_overlaps`, with segments as texts; the speakers and overlaps of windows; the numbers of the
    kept windows, with their overlaps and segments; and the seconds that each stage took.
    """

    row: CurateRow
    num_speakers: IntArray
    overlaps: FloatArray
    kept: list[int]
    kept_overlaps: FloatArray
    kept_segments: list[list[CurateRow]]
    build_seconds: float
    filter_seconds: float


def suits(config: WindowConfig) -> bool:
    """Whether windows keep the fields of segments that are read again."""
    return config.dropped.isdisjoint({"speaker", "metrics"})


def curate_fast(row: Any, config: WindowConfig, *, loss_details: bool = True) -> WindowedRow | None:
    """Both stages; None for a row that is bad, is unusual, or has too low a sample rate.

    Law: if it is not None, the row's JSON has the values and the order of keys that the plain stages return.
    """
    began = perf_counter()
    try:
        usual = msgspec.convert(row, _Row)
        if usual.audio_sample_rate < config.min_sample_rate:
            return None
        speech = _speech(usual.segments, config)
        grown = _grow(speech, config)
        parts = _cut_parts(row["segments"], speech, grown, config) if grown.size else None
    except msgspec.ValidationError:
        return None
    if parts is None:
        return None
    judged = _judge(speech, grown, parts, config)
    dropped = config.dropped
    segments = [segment if dropped.isdisjoint(segment) else without(segment, dropped) for segment in row["segments"]]
    segments += parts.segments
    built = _build(row, segments, judged, config, loss_details)
    built["truncation_events"] = int(np.count_nonzero(grown[2]))
    between = perf_counter()
    times = [
        (segments[after - 1 if part < 0 else part]["end"], speech.starts[first])
        for first, after, part, _ in judged.windows
    ]
    found = _filter(times, judged, config)
    filtered = add_kept(built, times, found.times, found.kept)
    ended = perf_counter()
    kept_segments = [_take(segments, judged.windows[i]) for i in found.kept]
    return WindowedRow(
        filtered,
        judged.num_speakers,
        found.overlaps,
        found.kept,
        found.kept_overlaps,
        kept_segments,
        between - began,
        ended - between,
    )


class _Speech(NamedTuple):
    """The segments of a row as arrays, and their starts as they were read; `whole` says which durations are."""

    starts: list[float]
    start: FloatArray
    end: FloatArray
    whole: BoolArray
    any_whole: bool
    low: BoolArray
    speakers: IntArray
    num_codes: int


def _speech(segments: list[_Segment], config: WindowConfig) -> _Speech:
    starts, ends = [segment.start for segment in segments], [segment.end for segment in segments]
    codes, least, count = _CODES.copy(), config.min_bandwidth, len(segments)
    speakers = [codes.setdefault(segment.speaker, len(codes)) for segment in segments]
    whole = np.zeros(count, dtype=np.bool_)
    any_whole = int in {*map(type, starts), *map(type, ends)}
    if any_whole:
        whole[:] = list(map(_is_whole, starts, ends))
    times = np.array(starts + ends, dtype=np.float64)
    low = np.array([segment.metrics.bandwidth < least for segment in segments], dtype=np.bool_)
    speaker_codes = np.array(speakers, dtype=np.int64)
    return _Speech(starts, times[:count], times[count:], whole, any_whole, low, speaker_codes, len(codes))


def _is_whole(start: float, end: float) -> bool:
    return type(start) is int and type(end) is int


def _grow(speech: _Speech, config: WindowConfig) -> IntArray:
    return grow_windows(
        speech.start,
        speech.end,
        speech.low,
        speech.speakers,
        speech.num_codes,
        config.max_duration,
        config.max_speakers,
        config.truncation,
    )


class _Parts(NamedTuple):
    """Different parts of cut segments, without dropped fields; of each start, the number of its part, or -1."""

    segments: list[CurateRow]
    numbers: list[int]


def _cut_parts(segments: list[CurateRow], speech: _Speech, grown: IntArray, config: WindowConfig) -> _Parts | None:
    """None if words are not in the order of their ends; raises a ValidationError if they are unusual."""
    stops, _, cuts = grown.tolist()
    word_ends: dict[int, list[float]] = {}
    for stop in {stop for stop, cut in zip(stops, cuts, strict=True) if cut != NOT_CUT}:
        if "words" in segments[stop]:
            word_ends[stop] = ends = [word.end for word in msgspec.convert(segments[stop], _CutSegment).words]
            if sorted(ends) != ends:
                return None
    known: dict[tuple[int, int], int] = {}
    numbers, longest = [-1] * len(cuts), config.max_duration
    for first, (start, stop, cut) in enumerate(zip(speech.starts, stops, cuts, strict=True)):
        if cut == PART_TAKEN:
            num_words = bisect_right(word_ends[stop], start + longest) if stop in word_ends else 0
            numbers[first] = known.setdefault((stop, num_words), len(known))
    dropped = config.dropped
    parts = [
        cut_segment(segments[stop], segments[stop]["words"][:num_words] if num_words else [], dropped)
        for stop, num_words in known
    ]
    return _Parts(parts, numbers)


class _Judged(NamedTuple):
    """Windows as runs, with their times and speakers; runs of starts that made none; and losses by reason."""

    windows: list[list[int]]
    starts: FloatArray
    ends: FloatArray
    num_speakers: IntArray
    seconds: list[list[float]]
    lost_runs: list[list[int]]
    losses: list[tuple[int, float]]


def _judge(speech: _Speech, grown: IntArray, parts: _Parts, config: WindowConfig) -> _Judged:
    part_ends = [part["end"] for part in parts.segments]
    part_whole = np.zeros(len(part_ends), dtype=np.bool_)
    if speech.any_whole:
        part_whole[:] = [_is_whole(part["start"], part["end"]) for part in parts.segments]
    windows, lost_runs, starts, ends, num_speakers, seconds, whole, lost, lost_seconds = judge_windows(
        speech.start,
        speech.end,
        speech.whole,
        speech.low,
        speech.speakers,
        speech.num_codes,
        grown,
        np.array(parts.numbers, dtype=np.int64),
        np.array(part_ends, dtype=np.float64),
        part_whole,
        (config.min_duration, config.max_duration),
        (LEAST_SEGMENTS, config.min_speakers, config.max_speakers),
    )
    shown = seconds.tolist()
    if speech.any_whole:
        for i, j in np.argwhere(whole).tolist():
            shown[i][j] = int(shown[i][j])
    losses = list(zip(lost.tolist(), lost_seconds.tolist(), strict=True))
    return _Judged(windows.tolist(), starts, ends, num_speakers, shown, lost_runs.tolist(), losses)


def _take(items: list[_Item], run: list[int]) -> list[_Item]:
    first, after, part, _ = run
    return items[first:after] if part < 0 else [*items[first:after], items[part]]


def _build(
    row: CurateRow, segments: list[CurateRow], judged: _Judged, config: WindowConfig, loss_details: bool
) -> CurateRow:
    """The result of `build_windows`, with segments as texts; each segment and each part is encoded once."""
    texts = list(map(Raw, _encode_lines(segments).split(b"\n")))
    windows = [
        {"segments": _take(texts, run), "speaker_durations": seconds}
        for run, seconds in zip(judged.windows, judged.seconds, strict=True)
    ]
    stats = fresh_stats(row)
    for (name, seconds_name), (count, seconds) in zip(LOSS_NAMES, judged.losses, strict=True):
        stats[name], stats[seconds_name] = count, seconds
    if loss_details:
        stats["lost_win_full_data"] = [
            {
                "index": run[0],
                "window_segs": _take(texts, run),
                "next_seg": texts[run[3]],
                "prev_seg": texts[max(run[0] - 1, 0)],
            }
            for run in judged.lost_runs
        ]
    else:
        del stats["lost_win_full_data"]
    return {**without(row, config.dropped_top_level), "windows": windows, "stats": stats}


class _Filtered(NamedTuple):
    """The times of windows that stay, in order; the numbers of the windows that are kept; overlaps of all, of those."""

    times: list[Times]
    kept: list[int]
    overlaps: FloatArray
    kept_overlaps: FloatArray


def _filter(times: list[Times], judged: _Judged, config: WindowConfig) -> _Filtered:
    staying, stays, overlaps, kept_overlaps, near = filter_windows(
        judged.starts, judged.ends, config.overlap_percentage / 100, config.target_duration
    )
    stay_times = [times[i] for i in staying.tolist()]
    if not near:
        return _Filtered(stay_times, np.flatnonzero(stays).tolist(), overlaps, kept_overlaps)
    kept = among(times, stay_times)
    return _Filtered(stay_times, kept, overlaps, overlaps_of([times[i] for i in kept]))
