"""Recordings without speakers, cut into windows by silence or by a fixed hop.

Times are counted in whole microseconds, so that lengths and losses are exact.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from playhead.curate.config import BETWEEN_HOPS, PAST_END, TOO_SHORT, CutConfig, is_finite
from playhead.curate.rows import RowError
from playhead.curate.summary import SpeechLoss
from playhead.recipe.words import describe


class TimeSpan(NamedTuple):
    start: int
    end: int

    @property
    def length(self) -> int:
        return self.end - self.start


def union(spans: Iterable[TimeSpan], nearer_than: int = 0) -> list[TimeSpan]:
    """The union of the spans; gaps shorter than `nearer_than` are filled. Spans that only touch stay separate."""
    found: list[TimeSpan] = []
    for span in sorted(spans):
        if found and span.start - found[-1].end < nearer_than:
            found[-1] = TimeSpan(found[-1].start, max(found[-1].end, span.end))
        else:
            found.append(span)
    return found


def minus(spans: Sequence[TimeSpan], others: Sequence[TimeSpan]) -> list[TimeSpan]:
    """`spans` minus `others`. Both are sorted; `others` may overlap."""
    found = []
    first = 0
    for span in spans:
        position = span.start
        while first < len(others) and others[first].end <= span.start:
            first += 1
        for other in others[first:]:
            if other.start >= span.end:
                break
            if other.start > position:
                found.append(TimeSpan(position, other.start))
            position = max(position, other.end)
        if position < span.end:
            found.append(TimeSpan(position, span.end))
    return found


_TICKS = 1_000_000
_MOST_WINDOWS = 1_000_000  # of a recording; more means times in another unit, and would exhaust the memory


class Cut(NamedTuple):
    """A window in seconds, and its first and last segment; without segments, the last is before the first."""

    start: float
    end: float
    first_segment: int
    last_segment: int


@dataclass(frozen=True)
class Cuts:
    """The windows and losses of a recording. Law: every moment of speech is in a window, or in exactly one loss."""

    windows: list[Cut]
    losses: dict[str, SpeechLoss]
    speech_seconds: float


def cut(segments: Sequence[Mapping[str, Any]], duration: float | None, config: CutConfig) -> Cuts:
    """Cut a recording. Laws: windows are in order, have lengths within `config` and, by silence, are disjoint.

    Segments have a `start` and an `end`, and are sorted by their start. Without a duration the recording ends with
    the last of them.
    """
    spans = _spans(segments)
    _check_number(spans, duration, config)
    ends = [span.end for span in spans]
    end = max(ends, default=0) if duration is None else ticks(duration)
    whole = union(span for span in spans if span.length)
    past = minus(whole, [TimeSpan(0, end)])
    speech = [TimeSpan(span.start, min(span.end, end)) for span in whole if span.start < end]
    if config.by == "silence":
        windows = _by_silence(union(speech, ticks(config.min_silence)), config)
        hopped_over: list[TimeSpan] = []
    else:
        windows, rest = _by_hop(end, config)
        hopped_over = minus(minus(speech, windows), rest)
    too_short = minus(minus(speech, windows), hopped_over)
    losses = {BETWEEN_HOPS: hopped_over, PAST_END: past, TOO_SHORT: too_short}
    return Cuts(
        _with_segments(windows, spans),
        {reason: SpeechLoss(len(lost), _seconds(lost)) for reason, lost in losses.items() if lost},
        _seconds(whole),
    )


def _check_number(spans: Sequence[TimeSpan], duration: float | None, config: CutConfig) -> None:
    """Refuse a recording with too many windows."""
    end = max((span.end for span in spans), default=0) if duration is None else ticks(duration)
    if config.by == "hop":
        length, each = end, config.max_seconds if config.hop_seconds is None else config.hop_seconds
    else:  # split speech; windows that end at silences are no more than the segments
        length, each = sum(span.length for span in spans), config.max_seconds
    if length // ticks(each) > _MOST_WINDOWS:
        raise RowError(
            "segments" if duration is None else "duration",
            "too many windows",
            found=f"{length / _TICKS:,.0f} s to be cut every {each:g} s",
            expected=f"{_MOST_WINDOWS:,} windows of a recording at most; times in seconds, from its beginning",
        )


def _by_silence(speech: Sequence[TimeSpan], config: CutConfig) -> list[TimeSpan]:
    """Windows from where speech begins to where it ends. Speech longer than the maximum is split at the maximum.

    Speech shorter than the minimum, even together with what follows, is left out.
    """
    least, most = ticks(config.min_seconds), ticks(config.max_seconds)
    windows: list[TimeSpan] = []
    i, start = 0, speech[0].start if speech else 0
    while i < len(speech):
        beyond = i  # the first that ends too late for this window
        while beyond < len(speech) and speech[beyond].end - start <= most:
            beyond += 1
        last = _last_before_the_longest_silence(speech, range(i, beyond), start + least)
        if last is None and beyond < len(speech) and _has_to_be_parted(speech[beyond], start, most):
            windows.append(TimeSpan(start, start + most))
            i, start = beyond, start + most
            continue
        if last is not None:
            windows.append(TimeSpan(start, speech[last].end))
        i = i + 1 if last is None else last + 1
        start = speech[i].start if i < len(speech) else 0
    return windows


def _last_before_the_longest_silence(speech: Sequence[TimeSpan], choice: range, earliest: int) -> int | None:
    """The speech after which to cut: the last of all, or before the longest silence; of equal silences, the later."""
    best, longest = None, -1
    for i in choice:
        if speech[i].end < earliest:
            continue
        if i + 1 == len(speech):
            return i
        if (gap := speech[i + 1].start - speech[i].end) >= longest:
            best, longest = i, gap
    return best


def _has_to_be_parted(span: TimeSpan, start: int, most: int) -> bool:
    """Whether speech that begins within a window, at or after its start, is too long for any window."""
    begins = max(span.start, start)
    return begins < start + most and span.end - begins > most


def _by_hop(end: int, config: CutConfig) -> tuple[list[TimeSpan], list[TimeSpan]]:
    """A window every hop, up to the first that reaches the end; that one is separate if it is too short."""
    least, most = ticks(config.min_seconds), ticks(config.max_seconds)
    hop = most if config.hop_seconds is None else ticks(config.hop_seconds)
    windows: list[TimeSpan] = []
    for start in range(0, end, hop):
        window = TimeSpan(start, min(start + most, end))
        if window.length < least:
            return windows, [window]
        windows.append(window)
        if window.end == end:
            break
    return windows, []


def _with_segments(windows: Sequence[TimeSpan], segments: Sequence[TimeSpan]) -> list[Cut]:
    starts = [segment.start for segment in segments]
    latest: list[int] = []  # the latest end so far, which is sorted even if the ends are not
    for segment in segments:
        latest.append(max(segment.end, latest[-1] if latest else 0))
    found = []
    for window in windows:
        first = min(bisect_left(latest, window.start + 1), bisect_left(starts, window.start))
        last = bisect_left(starts, window.end) - 1
        found.append(Cut(window.start / _TICKS, window.end / _TICKS, first, max(last, first - 1)))
    return found


def _spans(segments: Sequence[Mapping[str, Any]]) -> list[TimeSpan]:
    spans: list[TimeSpan] = []
    for i, segment in enumerate(segments):
        start, end = (_time(segment, name, i) for name in ("start", "end"))
        if end < start:
            raise RowError(f"segments[{i}]", "ends before it starts", found=f"start {start:g}, end {end:g}")
        spans.append(TimeSpan(ticks(start), ticks(end)))
        if i and spans[i].start < spans[i - 1].start:
            raise RowError(
                f"segments[{i}]",
                "starts before the previous segment",
                found=f"start {start:g} after start {spans[i - 1].start / _TICKS:g}",
                expected="segments sorted by start",
            )
    return spans


def _time(segment: Mapping[str, Any], name: str, i: int) -> float:
    value: Any = segment.get(name)
    if not is_finite(value) or value < 0:
        found = "none" if value is None else repr(value)
        raise RowError(f"segments[{i}].{name}", "is not a time", found=found, expected="seconds, 0 or more")
    return float(value)


def ticks(seconds: float) -> int:
    """Whole microseconds."""
    return round(seconds * _TICKS)


def _seconds(spans: Sequence[TimeSpan]) -> float:
    return sum(span.length for span in spans) / _TICKS


_OF_THE_WHOLE = ("text", "words")


def cut_row(row: Mapping[str, Any], config: CutConfig) -> dict[str, Any]:
    """The row without its `segments`, with `windows` (each `segments`, `start`, `end`) and `stats`.

    A segment that a window splits has the window's bounds there, and neither `text` nor `words`: which of them fall
    into the part is unknown. `stats` are counts and seconds: `total_segments`, `total_dur` of speech, and
    `lost_*`, `dur_lost_*` for every reason.
    """
    segments = row.get("segments", [] if config.by == "hop" else None)
    if not isinstance(segments, list) or not all(isinstance(segment, dict) for segment in segments):
        raise RowError("segments", "is not a list of segments", found=describe(segments), expected="a list of objects")
    duration = _duration(row)
    found = cut(segments, duration, config)
    windows = [
        {"segments": _parts(segments, window, duration), "start": window.start, "end": window.end}
        for window in found.windows
    ]
    kept = {name: value for name, value in row.items() if name != "segments"}
    return {**kept, "windows": windows, "stats": _stats(len(segments), found)}


def _parts(segments: list[dict[str, Any]], window: Cut, duration: float | None) -> list[dict[str, Any]]:
    parts = []
    for whole in segments[window.first_segment : window.last_segment + 1]:
        segment = whole if duration is None or whole["end"] <= duration else {**whole, "end": duration}
        early, late = ticks(segment["start"]) < ticks(window.start), ticks(segment["end"]) > ticks(window.end)
        if early and ticks(segment["end"]) <= ticks(window.start):
            continue  # it ended before, inside a longer one that did not
        times = {**({"start": window.start} if early else {}), **({"end": window.end} if late else {})}
        left_out = _OF_THE_WHOLE if times else ()
        parts.append({name: times.get(name, value) for name, value in segment.items() if name not in left_out})
    return parts


def _stats(num_segments: int, found: Cuts) -> dict[str, Any]:
    stats: dict[str, Any] = {"total_segments": num_segments, "total_dur": found.speech_seconds}
    for reason in CutConfig.reasons:
        loss = found.losses.get(reason)
        stats[f"lost_{reason}"] = 0 if loss is None else loss.count
        stats[f"dur_lost_{reason}"] = 0.0 if loss is None else loss.seconds
    return stats


def _duration(row: Mapping[str, Any]) -> float | None:
    value = row.get("duration")
    if value is None:
        return None
    if not is_finite(value) or value < 0:
        found = "a number above 1e300" if isinstance(value, int) and value > 0 else repr(value)
        raise RowError("duration", "is not a length", found=found, expected="seconds, 0 or more")
    return float(value)
