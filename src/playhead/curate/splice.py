"""The fast way: each segment is written once, and a window's text is a stretch of the text of all segments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from playhead.curate.build import LEAST_SEGMENTS, NO_SPEAKER, add_up, strip
from playhead.curate.config import WindowConfig
from playhead.curate.exact_json import Writer
from playhead.curate.faults import Row
from playhead.curate.measures import Measures
from playhead.curate.overlap import Times, among
from playhead.curate.parts import Parts, cut_parts
from playhead.curate.search import (
    LOW_BANDWIDTH,
    NO_WINDOW,
    OTHER_SPEAKERS,
    WINDOW,
    closest_overlaps,
    grow_windows,
    has_near_twins,
    judge_windows,
    stay_apart,
)
from playhead.curate.tally import RowFacts


@dataclass(frozen=True)
class Spliced:
    line: bytes
    kept: Sequence[list[Row]]
    facts: RowFacts


@dataclass(frozen=True)
class _Built:
    """What kernels found: for each segment, what becomes of it as a start."""

    kinds: list[int]
    stops: list[int]
    taken: list[int]
    parts: Parts
    firsts: list[int]
    heard: list[int]
    speaker_seconds: list[list[float]]
    events: int


@dataclass(frozen=True)
class _Filtered:
    """Windows as (end, start), the times that stay in their order, and the numbers of the windows that do."""

    times: list[Times]
    stay: list[Times]
    kept: list[int]
    overlaps: Any
    kept_overlaps: Any


def splice(
    row: Row, found: Measures, config: WindowConfig, writer: Writer, loss_details: bool, began: float
) -> Spliced | None:
    """Both stages at once, for a row with measures; None where words are unusual."""
    built = _build(found, config)
    if built is None:
        return None
    stats = _stats(row, found, built, config)
    between = perf_counter()
    times = _times(found, built)
    filtered = _filter(times, config)
    durations = [end - start for end, start in times]
    stay_durations = [end - start for end, start in filtered.stay]
    total, stay_total = add_up(durations), add_up(stay_durations)
    ended = perf_counter()
    dropped, segments = config.dropped, found.segments
    stripped = [segment if dropped.isdisjoint(segment) else strip(segment, config) for segment in segments]
    others = {key: value for key, value in row.items() if key not in config.dropped_top_level}
    numbers = [others, stats, total, durations, times, filtered.stay, stay_total, stay_durations, stats["swift_path"]]
    text, bounds = writer.dumps_items([*stripped, *built.parts.cut, *numbers, *built.speaker_seconds])
    at = len(stripped) + len(built.parts.cut)
    texts = [text[low:high] for low, high in bounds[at:]]
    line = _line(_Texts(text, bounds, built, len(stripped)), texts, filtered.kept, found, loss_details)
    facts = RowFacts(
        num_segments=len(segments),
        total_dur=stats["total_dur"],
        losses={reason: (stats[f"lost_{reason}"], stats[f"dur_lost_{reason}"]) for reason in _REASONS},
        truncation_events=built.events,
        low_rate=False,
        durations=durations,
        speakers=built.heard,
        overlaps=filtered.overlaps,
        kept=filtered.kept,
        kept_overlaps=filtered.kept_overlaps,
        total_dur_window=total,
        filtered_dur=stay_total,
        build_seconds=between - began,
        filter_seconds=ended - between,
    )
    kept = [_segments_of(stripped, built, built.firsts[i]) for i in filtered.kept]
    return Spliced(line, kept, facts)


_REASONS = ("bw", "sr", "spk", "win", "no_spkr", "next_seg_bm")


def _build(found: Measures, config: WindowConfig) -> _Built | None:
    size = found.num_speakers
    stops, taken, events, with_part = grow_windows(
        found.start, found.end, found.low, found.speakers, size, config.max_duration, config.max_speakers, config.truncation
    )
    parts = cut_parts(found, stops, events, with_part, config)
    if parts is None:
        return None
    kinds, heard, seconds, seconds_whole = judge_windows(
        found.start,
        found.end,
        found.whole,
        found.low,
        found.speakers,
        size,
        taken,
        with_part,
        parts.ends,
        parts.whole,
        config.min_duration,
        config.max_duration,
        LEAST_SEGMENTS,
        config.min_speakers,
        config.max_speakers,
    )
    firsts = np.flatnonzero(kinds == WINDOW)
    speaker_seconds = seconds[firsts].tolist()
    if found.any_whole:
        flags = seconds_whole[firsts].tolist()
        speaker_seconds = [
            [int(value) if whole else value for value, whole in zip(values, wholes, strict=True)]
            for values, wholes in zip(speaker_seconds, flags, strict=True)
        ]
    return _Built(
        kinds.tolist(),
        stops.tolist(),
        taken.tolist(),
        parts,
        firsts.tolist(),
        heard[firsts].tolist(),
        speaker_seconds,
        int(events.sum()),
    )


def _stats(row: Row, found: Measures, built: _Built, config: WindowConfig) -> Row:
    """The row's stats, the records of lost windows aside."""
    lost = dict.fromkeys(_REASONS, 0)
    seconds = dict.fromkeys(_REASONS, 0.0)
    starts, ends, segments, stops = found.starts, found.ends, found.segments, built.stops
    for first, kind in enumerate(built.kinds):
        if kind == WINDOW:
            continue
        duration = ends[first] - starts[first]
        reason = _REASON_OF[kind]
        lost[reason] += 1
        seconds[reason] += duration
        if kind == NO_WINDOW:
            stop = stops[first]
            if segments[stop].get("speaker", NO_SPEAKER) == NO_SPEAKER:
                lost["no_spkr"] += 1
                seconds["no_spkr"] += duration
            elif found.low[stop]:
                lost["next_seg_bm"] += 1
                seconds["next_seg_bm"] += duration
    stats: Row = {
        "total_segments": len(segments),
        "total_dur": add_up([end - start for start, end in zip(starts, ends, strict=True)]),
        "swift_path": row.get("swift_audio_filepath", ""),
        "audio_sample_rate": row["audio_sample_rate"],
    }
    for reason in _REASONS:
        stats[f"lost_{reason}"] = lost[reason]
        stats[f"dur_lost_{reason}"] = seconds[reason]
    return stats


_REASON_OF = {LOW_BANDWIDTH: "bw", NO_WINDOW: "win", OTHER_SPEAKERS: "spk"}


def _times(found: Measures, built: _Built) -> list[Times]:
    starts, ends, taken, parts = found.starts, found.ends, built.taken, built.parts
    return [
        (
            parts.cut_ends[parts.numbers[first]] if first in parts.numbers else ends[first + taken[first] - 1],
            starts[first],
        )
        for first in built.firsts
    ]


def _filter(times: list[Times], config: WindowConfig) -> _Filtered:
    pairs = np.array(times, dtype=np.float64).reshape(-1, 2)
    order = np.lexsort((pairs[:, 0], pairs[:, 1]))
    ends, starts = pairs[order, 0], pairs[order, 1]
    stays = stay_apart(starts, ends, config.overlap_percentage / 100, config.target_duration)
    stay = order[stays].tolist()
    stay_times = [times[i] for i in stay]
    kept = among(times, stay_times) if has_near_twins(starts, ends) else sorted(stay)
    if len(kept) == len(stay):
        kept_overlaps = closest_overlaps(starts[stays], ends[stays])
    else:
        among_kept = np.isin(order, kept)
        kept_overlaps = closest_overlaps(starts[among_kept], ends[among_kept])
    return _Filtered(times, stay_times, kept, closest_overlaps(starts, ends), kept_overlaps)


@dataclass(frozen=True)
class _Texts:
    """The text of all segments, end to end, then of the parts; `bounds` says where each is."""

    text: bytes
    bounds: list[tuple[int, int]]
    built: _Built
    num_segments: int

    def segment(self, i: int) -> bytes:
        low, high = self.bounds[i]
        return self.text[low:high]

    def run(self, first: int) -> bytes:
        """The segments that a start took."""
        taken, part = self.built.taken[first], self.built.parts.numbers.get(first)
        whole = self.text[self.bounds[first][0] : self.bounds[first + taken - 1][1]] if taken else b""
        if part is None:
            return whole
        cut = self.segment(self.num_segments + part)
        return b"%b, %b" % (whole, cut) if taken else cut


def _line(texts: _Texts, others: list[bytes], kept: list[int], found: Measures, loss_details: bool) -> bytes:
    rest, stats, total, durations, times, stay, stay_total, stay_durations, swift, *seconds = others
    windows = [
        b'{"segments": [%b], "speaker_durations": %b}' % (texts.run(first), shown)
        for first, shown in zip(texts.built.firsts, seconds, strict=True)
    ]
    pieces = [rest[:-1], b', "windows": [' if len(rest) > 2 else b'"windows": [']
    pieces += [b", ".join(windows), b'], "stats": ', stats[:-1]]
    if loss_details:
        pieces += [b', "lost_win_full_data": [', b", ".join(_records(texts)), b"]"]
    pieces += [b'}, "truncation_events": %d, ' % texts.built.events]
    if windows:
        pieces += [b'"total_dur_window": ', total, b', "total_dur_list_window": ', durations]
        pieces += [b', "total_dur_list_window_timestamps": ', times, b', "filtered": ', stay]
        pieces += [b', "filtered_windows": [', b", ".join([windows[i] for i in kept]), b'], "filtered_dur": ']
        pieces += [stay_total, b', "filtered_dur_list": ', stay_durations]
        pieces += [b', "manifest_filepath": null, "swift_filepath": ', swift, b"}\n"]
    else:
        pieces.append(_WITHOUT_WINDOWS)
    return b"".join(pieces)


_WITHOUT_WINDOWS = (
    b'"filtered_windows": [], "filtered_dur": 0.0, "filtered_dur_list": [], "total_dur_window": 0.0, '
    b'"total_dur_list_window": [], "total_dur_list_window_timestamps": [], "filtered": [], '
    b'"manifest_filepath": null, "swift_filepath": null}\n'
)


def _records(texts: _Texts) -> list[bytes]:
    built = texts.built
    return [
        b'{"index": %d, "window_segs": [%b], "next_seg": %b, "prev_seg": %b}'
        % (first, texts.run(first), texts.segment(built.stops[first]), texts.segment(max(first - 1, 0)))
        for first, kind in enumerate(built.kinds)
        if kind == NO_WINDOW
    ]


def _segments_of(stripped: list[Row], built: _Built, first: int) -> list[Row]:
    whole = stripped[first : first + built.taken[first]]
    part = built.parts.numbers.get(first)
    return whole if part is None else [*whole, built.parts.cut[part]]
