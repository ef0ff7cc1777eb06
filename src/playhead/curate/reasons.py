"""Why speech is in no window: the reasons of each way to cut, and what they mean to people."""

from __future__ import annotations

# In the order of the rows' stats. `win` counts starts that made no window; of these, the last two tell of the segment
# at which it ended.
WINDOW_REASONS = {
    "bw": "the bandwidth is too low",
    "sr": "the sample rate is too low",
    "spk": "too few or too many speakers",
    "win": "no window of the asked duration starts here",
    "no_spkr": "no window: the next segment has no speaker",
    "next_seg_bm": "no window: the next segment has too low a bandwidth",
}
TOO_SHORT, BETWEEN_HOPS, PAST_END = "too_short", "between_hops", "past_end"
CUT_REASONS = {
    TOO_SHORT: "too short for a window, alone or with what is near",
    BETWEEN_HOPS: "between two windows, because the hop is longer",
    PAST_END: "after the end of the recording",
}
MEANINGS = {**WINDOW_REASONS, **CUT_REASONS}
