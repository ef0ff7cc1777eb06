"""The windows of a scanned row, by kernels: found, then thinned out."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from playhead.curate.apart import closest_overlaps, filter_windows
from playhead.curate.build import LEAST_SEGMENTS
from playhead.curate.config import WindowConfig
from playhead.curate.overlap import Times, among
from playhead.curate.parts import Parts, cut_parts, grow_and_cut
from playhead.curate.scanned import Scanned
from playhead.curate.search import REASONS, FloatArray, judge_windows
from playhead.types import IntArray


class Built(Struct, frozen=True):
    """What the builder's kernels found. Of each segment as a start: kind, stop, segments taken; then of windows."""

    kinds: IntArray
    stops: IntArray
    taken: IntArray
    parts: Parts
    num_events: int
    firsts: IntArray
    heard: IntArray
    speaker_seconds: list[list[float]]
    lost: list[int]
    lost_seconds: list[float]
    all_seconds: float


class Filtered(Struct, frozen=True):
    """Times and durations of all; which windows stay, in their order, and are kept; overlaps of all and of those."""

    times: list[Times]
    durations: list[float]
    duration: FloatArray
    staying: IntArray
    kept: list[int]
    overlaps: FloatArray
    kept_overlaps: FloatArray


def judge(found: Scanned, config: WindowConfig) -> Built | None:
    """The windows of a row, and what was lost; None where words are unusual."""
    stops, taken, events, of, segments, kinds, firsts, heard = np.empty((8, found.start.size), dtype=np.int64)
    num_events, num_parts, has_words = grow_and_cut(
        found.start,
        found.end,
        found.low,
        found.speakers,
        found.num_speakers,
        found.places,
        config.max_duration,
        config.max_speakers,
        config.truncation,
        stops,
        taken,
        events,
        of,
        segments,
    )
    parts = cut_parts(found, events[:num_events], stops, of, segments[:num_parts], has_words, config)
    if parts is None:
        return None
    seconds, whole = np.empty((found.start.size, 5)), np.empty((found.start.size, 5), dtype=np.bool_)
    lost, lost_seconds = np.empty(len(REASONS), dtype=np.int64), np.empty(len(REASONS))
    num_windows, all_seconds = judge_windows(
        found.start,
        found.end,
        found.whole,
        found.low,
        found.speakers,
        found.num_speakers,
        stops,
        taken,
        parts.of,
        parts.end,
        parts.whole,
        (config.min_duration, config.max_duration),
        (LEAST_SEGMENTS, config.min_speakers, config.max_speakers),
        kinds,
        firsts,
        heard,
        seconds,
        whole,
        lost,
        lost_seconds,
    )
    shown = seconds[:num_windows].tolist()
    if found.any_whole:
        flags = whole[:num_windows].tolist()
        shown = [
            [int(value) if is_whole else value for value, is_whole in zip(values, wholes, strict=True)]
            for values, wholes in zip(shown, flags, strict=True)
        ]
    return Built(
        kinds,
        stops,
        taken,
        parts,
        num_events,
        firsts[:num_windows],
        heard[:num_windows],
        shown,
        lost.tolist(),
        lost_seconds.tolist(),
        all_seconds,
    )


def thin_out(found: Scanned, built: Built, config: WindowConfig) -> Filtered:
    """Which windows stay beside one another."""
    parts, firsts = built.parts, built.firsts
    found_times, orders = np.empty((5, firsts.size)), np.empty((3, firsts.size), dtype=np.int64)
    num_kept, near = filter_windows(
        found.start,
        found.end,
        firsts,
        built.taken,
        parts.of,
        parts.end,
        config.overlap_percentage / 100,
        config.target_duration,
        found_times,
        orders,
    )
    starts, ends, durations = found_times[:3].tolist()
    times = list(zip(ends, starts, strict=True))
    if found.any_whole or parts.texts:
        trios = zip(firsts.tolist(), built.taken[firsts].tolist(), parts.of[firsts].tolist(), strict=True)
        times = [
            (parts.ends[part] if part >= 0 else found.ends[first + taken - 1], found.starts[first])
            for first, taken, part in trios
        ]
        durations = [end - start for end, start in times]
    staying, kept = orders[1, :num_kept], orders[2, :num_kept].tolist()
    kept_overlaps = found_times[4, :num_kept]
    if near:
        kept = among(times, [times[i] for i in staying.tolist()])
        kept_overlaps = closest_overlaps(found_times[0], found_times[1], orders[0][np.isin(orders[0], kept)])
    return Filtered(times, durations, found_times[2], staying, kept, found_times[3], kept_overlaps)
