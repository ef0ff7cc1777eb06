"""Segments cut at the end of a window, each different one made once, as text."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from playhead.curate.config import WindowConfig
from playhead.curate.exact_json import ByteArray, dumps
from playhead.curate.scan_row import END as END_PLACE
from playhead.curate.scan_row import ITEM, START, TEXT, WORDS
from playhead.curate.scanned import LARGEST, Scanned
from playhead.curate.search import FloatArray, count_words, grow_windows
from playhead.types import BoolArray, IntArray, kernel

_NUMBERS = frozenset((float, int))
_TEXTS = frozenset((str, type(None)))
_NO_TEXT = np.frombuffer(b'""', dtype=np.uint8)
_NO_BOUNDS = np.zeros(1, dtype=np.int64)
_TEXT_KEY = np.frombuffer(b', "text": ', dtype=np.uint8)
_decode = msgspec.json.Decoder().decode


class Parts(Struct, frozen=True):
    """Different parts: the segment that each is of, its end as number and as it was read, whether its duration is
    whole, and the texts that differ from the segment's: its end and its text, empty where no word is left.

    `of` gives each start's part, or -1.
    """

    of: IntArray
    segments: IntArray
    end: FloatArray
    ends: list[float]
    whole: BoolArray
    texts: list[bytes]
    end_texts: list[bytes]


def cut_parts(
    found: Scanned,
    events: IntArray,
    stops: IntArray,
    of: IntArray,
    segments: IntArray,
    has_words: bool,
    config: WindowConfig,
) -> Parts | None:
    """The parts that windows end with; None where words are at fault or unusual.

    `events` are the starts at which a segment is cut, `stops` says where starts stop. `of` and `segments` are of parts
    without words, which is what they are unless `has_words`.
    """
    if not has_words:
        ends = [found.starts[i] for i in segments.tolist()]
        return Parts(of, segments, found.start[segments], ends, _whole(found, segments, ends), [], [])
    at = stops[events]
    taken = of >= 0
    words = {i: _words(found, i) for i in dict.fromkeys(at.tolist())}
    if None in words.values():
        return None
    kept = _kept_words(words, at.tolist(), found.start[events] + config.max_duration)
    if kept is None:
        return None
    known: dict[tuple[int, int], int] = {}
    of = np.full(stops.size, -1, dtype=np.int64)
    wanted = zip(zip(at.tolist(), kept, strict=True), taken[events].tolist(), strict=True)
    of[events] = [known.setdefault(key, len(known)) if is_taken else -1 for key, is_taken in wanted]
    left: list[list[Any]] = [(words[i] or [])[:count] for i, count in known]
    ends = [spoken[-1]["end"] if spoken else found.starts[i] for spoken, (i, _) in zip(left, known, strict=True)]
    segments = np.array([i for i, _ in known], dtype=np.int64)
    texts = [dumps(" ".join([word["word"] for word in spoken if word.get("word")])) for spoken in left]
    end = np.array(ends, dtype=np.float64)
    return Parts(of, segments, end, ends, _whole(found, segments, ends), texts, [dumps(value) for value in ends])


def _whole(found: Scanned, segments: IntArray, ends: list[float]) -> BoolArray:
    whole = np.zeros(segments.size, dtype=np.bool_)
    if found.any_whole:  # a duration is whole if both times are
        pairs = zip(segments.tolist(), ends, strict=True)
        whole[:] = [type(found.starts[i]) is int and type(end) is int for i, end in pairs]
    return whole


def _words(found: Scanned, i: int) -> list[Any] | None:
    """The words of a segment; None where they are at fault or unusual."""
    low, high = found.places[i, WORDS], found.places[i, WORDS + 1]
    if low < 0:
        return []
    try:
        words = _decode(found.line[low:high])
        texts = {type(word.get("word")) for word in words}
        ends = [word["end"] for word in words]
    except (msgspec.DecodeError, ValueError, KeyError, TypeError, AttributeError):
        return None
    good = type(words) is list and _TEXTS.issuperset(texts) and _NUMBERS.issuperset(map(type, ends))
    return words if good and all(-LARGEST < end < LARGEST for end in ends) else None


def _kept_words(words: dict[int, Any], at: list[int], limits: FloatArray) -> list[int] | None:
    """How many words of the segments end by the limits, where these are the first words."""
    places = {number: place for place, number in enumerate(words)}
    ends = [word["end"] for number in words for word in words[number]]
    bounds = np.cumsum([0, *(len(words[number]) for number in words)]).astype(np.int64)
    which = np.array([places[number] for number in at], dtype=np.int64)
    kept, first_ones = count_words(limits, np.array(ends, dtype=np.float64), bounds, which)
    return kept.tolist() if first_ones else None


@kernel
def grow_and_cut(
    starts: FloatArray,
    ends: FloatArray,
    low: BoolArray,
    speakers: IntArray,
    num_speakers: int,
    places: IntArray,
    max_duration: float,
    max_speakers: int,
    truncation: bool,
    stops: IntArray,
    taken: IntArray,
    events: IntArray,
    of: IntArray,
    segments: IntArray,
) -> tuple[int, int, bool]:
    """Fill in what `grow_windows` does; each start's part and each part's segment, as if no segment had words: then
    there is one part of a segment. Tells the number of events and of parts, and whether one that is cut has words.
    """
    with_part, num_events = grow_windows(
        starts, ends, low, speakers, num_speakers, max_duration, max_speakers, truncation, stops, taken, events
    )
    of[:] = -1
    count, has_words = 0, False
    for first in events[:num_events]:
        has_words = has_words or places[stops[first], WORDS] >= 0
        if not with_part[first]:
            continue
        number = count
        for known in range(count):
            if segments[known] == stops[first]:
                number = known
        if number == count:
            segments[count] = stops[first]
            count += 1
        of[first] = number
    return num_events, count, has_words


def room_of(found: Scanned, parts: Parts) -> int:
    """How many bytes the texts of parts need at most."""
    if not parts.texts:
        return found.size + 64 * parts.segments.size  # each is of another segment
    sizes = found.places[parts.segments, ITEM + 1] - found.places[parts.segments, ITEM] + 64
    return int(sizes.sum()) + sum(map(len, parts.texts)) + sum(map(len, parts.end_texts))


def write_parts(
    found: Scanned, parts: Parts, room: ByteArray, at: int, starts: IntArray, ends: IntArray, values: IntArray
) -> int:
    """Put the texts of parts after those of the segments; tells where it ended.

    `starts` and `ends` are their bounds, `values` those of their `text` and `end`.
    """
    texts, bounds = _NO_TEXT, _NO_BOUNDS
    if parts.texts:
        both = [*parts.texts, *parts.end_texts]
        texts = np.frombuffer(b"".join(both), dtype=np.uint8)
        bounds = np.cumsum([0, *map(len, both)]).astype(np.int64)
    return int(_write_parts(room, at, found.places, parts.segments, texts, bounds, _TEXT_KEY, starts, ends, values))


@kernel
def _copy(out: ByteArray, at: int, source: ByteArray, low: int, high: int) -> int:
    target, given = out[at : at + high - low], source[low:high]  # so written, the loop is compiled to vector moves
    for i in range(target.size):
        target[i] = given[i]
    return at + high - low


@kernel
def _write_parts(
    room: ByteArray,
    at: int,
    places: IntArray,
    segments: IntArray,
    texts: ByteArray,
    bounds: IntArray,
    text_key: ByteArray,
    starts: IntArray,
    ends: IntArray,
    values: IntArray,
) -> int:
    """A segment's text with another `end` and another `text`, which is added if it had none."""
    count = segments.size
    given = bounds.size > 1
    for k in range(count):
        place = places[segments[k]]
        text_low, text_high = (bounds[k], bounds[k + 1]) if given else (0, 2)
        starts[k] = at
        done = place[ITEM]
        end_first = place[END_PLACE] < place[TEXT]
        for step in range(2):
            is_end = (step == 0) == end_first
            if is_end:
                at = _copy(room, at, room, done, place[END_PLACE])
                values[k, 2] = at
                if given:
                    at = _copy(room, at, texts, bounds[count + k], bounds[count + k + 1])
                else:
                    at = _copy(room, at, room, place[START], place[START + 1])
                values[k, 3] = at
                done = place[END_PLACE + 1]
            elif place[TEXT] >= 0:
                at = _copy(room, at, room, done, place[TEXT])
                values[k, 0] = at
                at = _copy(room, at, texts, text_low, text_high)
                values[k, 1] = at
                done = place[TEXT + 1]
        if place[TEXT] >= 0:
            at = _copy(room, at, room, done, place[ITEM + 1])
        else:
            at = _copy(room, at, room, done, place[ITEM + 1] - 1)
            at = _copy(room, at, text_key, 0, text_key.size)
            values[k, 0] = at
            at = _copy(room, at, texts, text_low, text_high)
            values[k, 1] = at
            room[at] = 125
            at += 1
        ends[k] = at
    return at
