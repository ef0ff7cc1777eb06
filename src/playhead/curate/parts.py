"""Segments cut at the end of a window, each different one made once."""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct

from playhead.curate.config import WindowConfig
from playhead.curate.faults import Row
from playhead.curate.measures import LARGEST, NUMBERS, TEXTS, Measures
from playhead.curate.search import FloatArray, count_words
from playhead.types import BoolArray, IntArray


class Parts(Struct, frozen=True):
    """Different parts, without dropped fields, with their ends, and whether their durations are whole.

    `of` gives each start's part, or -1.
    """

    cut: list[Row]
    of: IntArray
    ends: FloatArray
    whole: BoolArray


def cut_parts(
    found: Measures, stripped: list[Row], events: IntArray, stops: IntArray, taken: BoolArray, config: WindowConfig
) -> Parts | None:
    """The parts that windows end with; None where words are at fault or unusual.

    `events` are the starts at which a segment is cut; `stops` says where starts stop, `taken` whether with a part.
    """
    of = np.full(stops.size, -1, dtype=np.int64)
    cut: list[Row] = []
    known: dict[tuple[int, int], int] = {}
    if events.size:
        at = stops[events].tolist()
        kept = _kept_words(found, at, found.start[events] + config.max_duration)
        if kept is None:
            return None
        is_taken = taken[events].tolist()
        of[events] = [
            known.setdefault(key, len(known)) if wanted else -1
            for key, wanted in zip(zip(at, kept, strict=True), is_taken, strict=True)
        ]
        cut = [_part(found.segments[number], stripped[number], count, config) for number, count in known]
    whole = np.zeros(len(cut), dtype=np.bool_)
    if found.any_whole:  # a duration is whole if both times are
        whole[:] = [type(part["end"]) is int and type(part["start"]) is int for part in cut]
    return Parts(cut, of, np.array([part["end"] for part in cut], dtype=np.float64), whole)


def _part(segment: Row, stripped: Row, num_words: int, config: WindowConfig) -> Row:
    words = segment["words"][:num_words] if num_words else []
    part = dict(stripped)
    if "words" not in config.dropped:
        part["words"] = words
    if "text" not in config.dropped:
        part["text"] = " ".join([word["word"] for word in words if word.get("word")])
    part["end"] = words[-1]["end"] if words else segment["start"]
    return part


def _kept_words(found: Measures, stopped: list[int], limits: FloatArray) -> list[int] | None:
    """How many words of the stopped segments end by the limits, where these are the first words."""
    which = {number: place for place, number in enumerate(dict.fromkeys(stopped))}
    if not any(["words" in found.segments[number] for number in which]):
        return [0] * len(stopped)
    ends: list[Any] = []
    bounds = [0]
    for number in which:
        words = found.segments[number].get("words", ())
        if words:
            try:
                ends += [word["end"] for word in words]
                texts = {type(word.get("word")) for word in words}
            except (KeyError, TypeError, AttributeError):
                return None
            if not TEXTS.issuperset(texts):
                return None
        if type(words) not in _LISTS:
            return None
        bounds.append(len(ends))
    if not ends:
        return [0] * len(stopped)
    if not NUMBERS.issuperset(map(type, ends)):
        return None
    values = np.array(ends, dtype=np.float64)
    if not (np.abs(values) < LARGEST).all():
        return None
    places = np.array([which[number] for number in stopped], dtype=np.int64)
    kept, first_ones = count_words(limits, values, np.array(bounds, dtype=np.int64), places)
    return kept.tolist() if first_ones else None


_LISTS = (list, tuple)
