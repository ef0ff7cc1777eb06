"""Segments cut at the end of a window, each different one made once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from playhead.curate.build import strip
from playhead.curate.config import WindowConfig
from playhead.curate.faults import Row
from playhead.curate.measures import Measures
from playhead.curate.search import FloatArray, count_words
from playhead.types import BoolArray, IntArray

_NUMBERS = frozenset((float, int))
_TEXTS = frozenset((str, type(None)))
_LARGEST = float(1 << 40)


@dataclass(frozen=True)
class Parts:
    """For each start that takes a part: its number among `cut`, its end, and whether its duration is whole."""

    cut: list[Row]
    cut_ends: list[float]
    numbers: dict[int, int]
    ends: FloatArray
    whole: BoolArray


def cut_parts(found: Measures, stops: IntArray, events: IntArray, taken: IntArray, config: WindowConfig) -> Parts | None:
    """The parts that windows end with; None where words are at fault or unusual."""
    ends, whole = np.zeros(stops.size), np.zeros(stops.size, dtype=np.bool_)
    firsts = np.flatnonzero(events)
    if not firsts.size:
        return Parts([], [], {}, ends, whole)
    stopped = stops[firsts]
    kept = _kept_words(found, stopped, found.start[firsts] + config.max_duration)
    if kept is None:
        return None
    cut: list[Row] = []
    numbers: dict[int, int] = {}
    known: dict[tuple[int, int], int] = {}
    wanted = taken[firsts].tolist()
    for first, at, count, is_taken in zip(firsts.tolist(), stopped.tolist(), kept, wanted, strict=True):
        if not is_taken:
            continue
        number = known.setdefault((at, count), len(cut))
        if number == len(cut):
            cut.append(_part(found.segments[at], count))
        end, start = cut[number]["end"], found.starts[at]
        numbers[first], ends[first] = number, end
        whole[first] = type(end) is int and type(start) is int
    return Parts([strip(part, config) for part in cut], [part["end"] for part in cut], numbers, ends, whole)


def _part(segment: Row, num_words: int) -> Row:
    words = segment["words"][:num_words] if num_words else []
    part = dict(segment)
    part["words"] = words
    part["text"] = " ".join([word["word"] for word in words if word.get("word")])
    part["end"] = words[-1]["end"] if words else segment["start"]
    return part


def _kept_words(found: Measures, stopped: IntArray, limits: FloatArray) -> list[int] | None:
    """How many words of the stopped segments end by the limits, where these are the first words."""
    at, which = np.unique(stopped, return_inverse=True)
    ends: list[float] = []
    bounds = [0]
    for number in at.tolist():
        words = found.segments[number].get("words", [])
        if type(words) is not list:
            return None
        try:
            ends += [word["end"] for word in words]
            texts = {type(word.get("word")) for word in words}
        except (KeyError, TypeError, AttributeError):
            return None
        if not _TEXTS.issuperset(texts):
            return None
        bounds.append(len(ends))
    if not ends:
        return [0] * stopped.size
    values = np.array(ends, dtype=np.float64) if _NUMBERS.issuperset(map(type, ends)) else None
    if values is None or not (np.abs(values) < _LARGEST).all():
        return None
    kept, first_ones = count_words(limits, values, np.array(bounds, dtype=np.int64), which.astype(np.int64))
    return kept.tolist() if first_ones else None
