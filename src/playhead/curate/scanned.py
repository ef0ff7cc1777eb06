"""A line -> its segments as text and as arrays, if it is one that kernels can treat exactly."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from playhead.curate.config import WindowConfig
from playhead.curate.exact_json import ByteArray, dumps
from playhead.curate.scan_row import (
    END,
    KINDS,
    NUM_PLACES,
    ROW_FIELDS,
    SEGMENT_FIELDS,
    START,
    scan_row,
)
from playhead.curate.scan_values import MOST_DEPTH, MOST_KEYS
from playhead.curate.search import FloatArray
from playhead.curate.voices import number_speakers
from playhead.types import BoolArray, IntArray, kernel

LARGEST = float(1 << 40)  # sums of whole numbers up to it are exact in a float
ADDED_FIELDS = (
    "windows",
    "stats",
    "truncation_events",
    "total_dur_window",
    "total_dur_list_window",
    "total_dur_list_window_timestamps",
    "filtered",
    "filtered_windows",
    "filtered_dur",
    "filtered_dur_list",
    "manifest_filepath",
    "swift_filepath",
)
_AUDIO = 2 * ROW_FIELDS.index("audio_filepath")
_QUOTE = ord('"')
_MOST_SEGMENTS = 1 << 14
_BAND = np.frombuffer(b"bandwidth", dtype=np.uint8)


class Scanned(Struct, frozen=True):
    """A row's segments. `text` holds them as they are written, `top` the rest of the row; both good until the next.

    `places` says where values are (see `scan_row`); times are floats, `whole` says which durations are whole numbers.
    """

    line: bytes
    text: ByteArray
    size: int
    top: ByteArray
    places: IntArray
    row_places: IntArray
    start: FloatArray
    end: FloatArray
    starts: list[float]
    ends: list[float]
    whole: BoolArray
    any_whole: bool
    low: BoolArray
    speakers: IntArray
    num_speakers: int
    voices: IntArray
    rate: float


def suits(config: WindowConfig) -> bool:
    """Whether the parameters keep of a segment what is looked at again, and drop what a cut would change."""
    inside, outside = config.dropped, config.dropped_top_level
    bounded = max(config.min_bandwidth, config.target_window_duration, config.target_duration) < LARGEST
    fields = "words" in inside and inside.isdisjoint(SEGMENT_FIELDS[:5])
    return bounded and fields and "segments" in outside and outside.isdisjoint(ROW_FIELDS[1:])


class Scanner:
    """Room to read rows in, kept from row to row."""

    def __init__(self, config: WindowConfig) -> None:
        self._config = config
        self._names, self._bounds = _table([*SEGMENT_FIELDS, *sorted(config.dropped - {"words"})])
        outside = sorted(config.dropped_top_level - {"segments"} - set(ADDED_FIELDS))
        self._row_names, self._row_bounds = _table([*ROW_FIELDS, *ADDED_FIELDS, *outside])
        self._stack = np.zeros((MOST_DEPTH + 1, 2), dtype=np.int64)
        self._keys = np.zeros((MOST_DEPTH + 3, MOST_KEYS, 2), dtype=np.int64)
        self._row_places = np.zeros(2 * len(ROW_FIELDS), dtype=np.int64)
        self._text = self._top = np.empty(0, dtype=np.uint8)
        self._segments_room(64)

    def _segments_room(self, count: int) -> None:
        self._places = np.zeros((count, NUM_PLACES), dtype=np.int64)
        self._numbers = np.zeros((count, 3))

    def scan(self, line: bytes, trusted: bool) -> Scanned | None:
        """None for a line that has a fault, or is unusual. Law: a line that is scanned has no fault, words aside."""
        if 2 * len(line) + 64 > self._text.size:
            self._text, self._top = (np.empty(16 * len(line) + (1 << 17), dtype=np.uint8) for _ in range(2))
        source = np.frombuffer(line, dtype=np.uint8)
        count, size, top_size, rate = self._scan(source, trusted)
        while count == -2 and self._places.shape[0] < _MOST_SEGMENTS:
            self._segments_room(4 * self._places.shape[0])
            count, size, top_size, rate = self._scan(source, trusted)
        if count < 1 or not self._config.min_sample_rate <= rate < LARGEST or not self._has_path():
            return None
        return self._checked(line, size, self._top[:top_size], self._places[:count], self._numbers[:count], rate)

    def _has_path(self) -> bool:
        """Whether the row names its recording by a text that is not empty."""
        low, high = self._row_places[_AUDIO : _AUDIO + 2].tolist()
        return bool(low >= 0 and self._top[low] == _QUOTE and high - low > len('""'))

    def _scan(self, source: ByteArray, trusted: bool) -> tuple[int, int, int, float]:
        return scan_row(
            source,
            trusted,
            self._text,
            self._top,
            self._row_names,
            self._row_bounds,
            self._names,
            self._bounds,
            _BAND,
            len(ROW_FIELDS) + len(ADDED_FIELDS),
            self._stack,
            self._keys,
            self._places,
            self._numbers,
            self._row_places,
        )

    def _checked(
        self, line: bytes, size: int, top: ByteArray, places: IntArray, numbers: FloatArray, rate: float
    ) -> Scanned | None:
        count = places.shape[0]
        start, end = np.empty(count), np.empty(count)
        flags, ids = np.empty((4, count), dtype=np.bool_), np.empty((2, count), dtype=np.int64)
        given = (self._text, places, numbers, start, end, self._config.min_bandwidth, flags, ids)
        state, num_speakers = _check_segments(*given)
        if state & 2 and self._know_better(places, numbers):
            state, num_speakers = _check_segments(*given)
        if state & 3 or num_speakers < 0:
            return None
        starts, ends = start.tolist(), end.tolist()
        any_whole = bool(state & 4)
        if any_whole:
            starts = [int(value) if whole else value for value, whole in zip(starts, flags[2].tolist(), strict=True)]
            ends = [int(value) if whole else value for value, whole in zip(ends, flags[3].tolist(), strict=True)]
        return Scanned(
            line,
            self._text,
            size,
            top,
            places,
            self._row_places,
            start,
            end,
            starts,
            ends,
            flags[0],
            any_whole,
            flags[1],
            ids[0],
            num_speakers,
            ids[1],
            rate,
        )

    def _know_better(self, places: IntArray, numbers: FloatArray) -> bool:
        """Fill in times that are floats of many digits; false where there are others."""
        for i in np.flatnonzero(places[:, KINDS] & 42).tolist():
            kinds = int(places[i, KINDS])
            for shift, which in ((0, START), (2, END)):
                if kinds >> shift & 3 == 2:
                    word = self._text[places[i, which] : places[i, which + 1]].tobytes()
                    if b"." not in word or b"e" in word:
                        return False
                    numbers[i, shift // 2] = float(word)
                    kinds -= 1 << shift  # from unknown to a float
            if kinds >> 4 & 3 == 2:
                return False
            places[i, KINDS] = kinds
        return True


def _table(names: list[str]) -> tuple[ByteArray, IntArray]:
    texts = [dumps(name)[1:-1] for name in names]
    bounds = np.cumsum([0, *map(len, texts)]).astype(np.int64)
    return np.frombuffer(b"".join(texts), dtype=np.uint8), bounds


@kernel
def _check_numbers(
    places: IntArray,
    numbers: FloatArray,
    start: FloatArray,
    end: FloatArray,
    min_bandwidth: float,
    largest: float,
    flags: BoolArray,
) -> int:
    """Fill in times and flags: a whole duration, a low bandwidth, a whole start, a whole end.

    The answer is a sum of: 1 for a row that is at fault or too large, 2 if a value is not known yet, 4 if a time is
    whole.
    """
    state = 0
    for i in range(places.shape[0]):
        kinds = places[i, KINDS]
        first, last, band = kinds & 3, kinds >> 2 & 3, kinds >> 4 & 3
        if first == 2 or last == 2 or band == 2:
            return 2
        start[i], end[i] = numbers[i, 0], numbers[i, 1]
        for j in range(3):
            if not abs(numbers[i, j]) < largest:
                return 1
        if start[i] < 0 or end[i] < start[i] or (i > 0 and start[i] < start[i - 1]):
            return 1
        flags[2, i], flags[3, i] = first == 0, last == 0
        flags[0, i] = first == 0 and last == 0
        flags[1, i] = numbers[i, 2] < min_bandwidth
        if first == 0 or last == 0:
            state = 4
    return state


@kernel
def _check_segments(
    text: ByteArray,
    places: IntArray,
    numbers: FloatArray,
    start: FloatArray,
    end: FloatArray,
    min_bandwidth: float,
    flags: BoolArray,
    ids: IntArray,
) -> tuple[int, int]:
    """What `_check_numbers` and `number_speakers` tell, in one call."""
    state = _check_numbers(places, numbers, start, end, min_bandwidth, LARGEST, flags)
    return state, number_speakers(text, places, ids[0], ids[1])
