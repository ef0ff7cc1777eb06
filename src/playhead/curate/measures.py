"""The numbers of a row as arrays, for rows that kernels can treat exactly."""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct

from playhead.curate.build import NO_SPEAKER
from playhead.curate.config import WindowConfig
from playhead.curate.faults import Row
from playhead.curate.search import MISSING_ID, NO_SPEAKER_ID, NOBODY_ID, FloatArray
from playhead.types import BoolArray, IntArray, kernel

LARGEST = float(1 << 40)  # sums of whole numbers up to it are exact in a float
_MOST_SEGMENTS = 1 << 12
NUMBERS = frozenset((float, int))
TEXTS = frozenset((str, type(None)))
_MISSING = object()
_NAMES = frozenset((str, type(None), object))
_ADDED = frozenset(
    """windows stats truncation_events total_dur_window total_dur_list_window total_dur_list_window_timestamps
    filtered filtered_windows filtered_dur filtered_dur_list manifest_filepath swift_filepath""".split()
)
_LOOKED_AT = frozenset(("speaker", "metrics"))


class Measures(Struct, frozen=True):
    """A row's segments in arrays. `starts` and `ends` are also as they were read: whole or not."""

    segments: list[Row]
    starts: list[float]
    ends: list[float]
    start: FloatArray
    end: FloatArray
    whole: BoolArray
    any_whole: bool
    low: BoolArray
    speakers: IntArray
    num_speakers: int


def suits(config: WindowConfig) -> bool:
    """Whether the parameters leave in segments what is looked at again in a window."""
    return config.dropped.isdisjoint(_LOOKED_AT) and max(config.min_bandwidth, config.target_window_duration) < LARGEST


def measure(row: Any, config: WindowConfig) -> Measures | None:
    """None for a row that has a fault, or is unusual in a way that kernels do not know.

    Law: a row that gives Measures has no fault, words aside.
    """
    if type(row) is not dict or not _ADDED.isdisjoint(row):
        return None
    segments, rate = row.get("segments"), row.get("audio_sample_rate")
    if type(segments) is not list or not 0 < len(segments) < _MOST_SEGMENTS:
        return None
    if type(rate) not in NUMBERS or not config.min_sample_rate <= rate < LARGEST:
        return None
    try:
        starts = [segment["start"] for segment in segments]
        ends = [segment["end"] for segment in segments]
        bandwidths = _bandwidths(segments)
        names = [segment.get("speaker", _MISSING) for segment in segments]
        texts = [segment.get("text") for segment in segments]
    except (KeyError, TypeError, AttributeError):
        return None
    kinds = {*map(type, starts), *map(type, ends)}
    if not (NUMBERS.issuperset(kinds) and NUMBERS.issuperset(map(type, bandwidths))):
        return None
    if not (_NAMES.issuperset(map(type, names)) and TEXTS.issuperset(map(type, texts))):
        return None
    numbers = np.array((starts, ends, bandwidths), dtype=np.float64)
    low = np.empty(len(segments), dtype=np.bool_)
    if not _is_regular(numbers, float(config.min_bandwidth), LARGEST, low):
        return None
    whole = np.zeros(len(segments), dtype=np.bool_)
    if int in kinds:
        whole[:] = [type(start) is int and type(end) is int for start, end in zip(starts, ends, strict=True)]
    ids: dict[Any, int] = {_MISSING: MISSING_ID, None: NOBODY_ID, "": NOBODY_ID, NO_SPEAKER: NO_SPEAKER_ID}
    speakers = np.array([ids.setdefault(name, len(ids) - 3) for name in names], dtype=np.int64)
    return Measures(
        segments, starts, ends, numbers[0], numbers[1], whole, int in kinds, low, speakers, len(ids) - 4
    )


def _bandwidths(segments: list[Row]) -> list[Any]:
    try:
        return [segment["metrics"]["bandwidth"] for segment in segments]
    except KeyError:
        return [segment.get("metrics", {}).get("bandwidth", 0) for segment in segments]


@kernel
def _is_regular(numbers: FloatArray, min_bandwidth: float, largest: float, low: BoolArray) -> bool:
    """Whether segments are sorted, end after they start, and have numbers of a usual size; says whose band is low."""
    for i in range(numbers.shape[1]):
        for j in range(3):
            if not abs(numbers[j, i]) < largest:
                return False
        if numbers[1, i] < numbers[0, i] or (i > 0 and numbers[0, i] < numbers[0, i - 1]):
            return False
        low[i] = numbers[2, i] < min_bandwidth
    return True
