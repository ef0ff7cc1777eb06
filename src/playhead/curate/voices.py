"""Who speaks: the names of a row's segments as small numbers."""

from __future__ import annotations

import numpy as np

from playhead.curate.exact_json import ByteArray
from playhead.curate.scan_row import SPEAKER
from playhead.curate.scan_values import same_bytes
from playhead.curate.search import MISSING_ID, NO_SPEAKER_ID, NOBODY_ID
from playhead.types import IntArray, kernel

MOST_SPEAKERS = 64
FIRST_SPEAKERS = 3  # ids of turns: missing or null is 0, the empty name 1, "no-speaker" 2


@kernel
def number_speakers(out: ByteArray, places: IntArray, speakers: IntArray, voices: IntArray) -> int:
    """Ids of speakers, for windows and for turns; returns the largest for windows, or -1 if there are too many."""
    known = np.empty((MOST_SPEAKERS, 2), dtype=np.int64)
    count = 0
    nobody = np.array([110, 111, 45, 115, 112, 101, 97, 107, 101, 114], dtype=np.uint8)  # no-speaker
    for i in range(places.shape[0]):
        low, high = places[i, SPEAKER], places[i, SPEAKER + 1]
        if low < 0 or out[low] == 110:
            speakers[i], voices[i] = MISSING_ID if low < 0 else NOBODY_ID, 0
            continue
        if high - low == 2:
            speakers[i], voices[i] = NOBODY_ID, 1
            continue
        if same_bytes(out, low + 1, high - 1, nobody, 0, nobody.size):
            speakers[i], voices[i] = NO_SPEAKER_ID, 2
            continue
        found = -1
        for k in range(count):
            if same_bytes(out, low, high, out, known[k, 0], known[k, 1]):
                found = k
                break
        if found < 0:
            if count == MOST_SPEAKERS:
                return -1
            found = count
            known[count, 0], known[count, 1] = low, high
            count += 1
        speakers[i], voices[i] = found + 1, FIRST_SPEAKERS + found
    return count
