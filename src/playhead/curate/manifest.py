"""`windows.jsonl`: a line for each kept window, which a recipe can read directly."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from playhead.curate.rows import CurateRow
from playhead.fingerprint import digest_bytes

_python_encode = json.JSONEncoder(ensure_ascii=False).encode
_encode_lines = msgspec.json.Encoder().encode_lines


class Turn(msgspec.Struct, gc=False):
    """A turn of one speaker; times are seconds in the recording."""

    speaker: Any
    start: float
    end: float
    text: str


class WindowSource(msgspec.Struct, frozen=True):
    """The row of the input, from 0, that a window was cut from."""

    file: str
    row: int


class WindowLine(msgspec.Struct, frozen=True):
    """One window. `id` is a digest of audio path, start and end; a second one of the same times in a row has `-2`."""

    id: str
    audio_filepath: str
    offset: float
    duration: float
    sample_rate: Any
    speakers: tuple[Any, ...]
    text: str
    turns: tuple[Turn, ...]
    source: WindowSource


def window_lines(
    row: CurateRow,
    windows: Sequence[list[CurateRow]],
    source: WindowSource,
    times: Sequence[tuple[float, float]] | None = None,
) -> bytes:
    """The lines of a row's kept windows, each given as its segments, in order; `times` default to the segments'."""
    audio = _python_encode(row["audio_filepath"]).encode()
    times = times or [(segments[0]["start"], segments[-1]["end"]) for segments in windows]
    names = number_twins([window_id(audio, start, end) for start, end in times])
    found = zip(names, windows, times, strict=True)
    return _encode_lines([_window_line(name, row, segments, source, *bounds) for name, segments, bounds in found])


def _window_line(
    name: str, row: CurateRow, segments: list[CurateRow], source: WindowSource, start: float, end: float
) -> WindowLine:
    turns = turns_of(segments)
    return WindowLine(
        id=name,
        audio_filepath=row["audio_filepath"],
        offset=start,
        duration=end - start,
        sample_rate=row.get("audio_sample_rate", row.get("sampling_rate")),
        speakers=speakers_of(segments),
        text=" ".join([turn.text for turn in turns if turn.text]),
        turns=tuple(turns),
        source=source,
    )


def speakers_of(segments: list[CurateRow]) -> tuple[Any, ...]:
    """The speakers, in the order of their first words."""
    return tuple({segment["speaker"]: None for segment in segments if segment.get("speaker")})


def window_id(audio: bytes, start: float, end: float) -> str:
    """A digest of an audio path, as JSON, and times; 1 and 1.0 are one time."""
    return digest_bytes(b"%b %r %r" % (audio, float(start), float(end)))


def number_twins(names: list[str]) -> list[str]:
    """Unique names: the second of equals gets `-2`, and so on."""
    if len(set(names)) == len(names):
        return names
    seen: dict[str, int] = {}
    found = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        found.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
    return found


def turns_of(segments: list[CurateRow]) -> list[Turn]:
    """Consecutive segments of one speaker as one turn. A segment without length and text is not a turn."""
    turns: list[Turn] = []
    for segment in segments:
        start, end, text = segment["start"], segment["end"], segment.get("text") or ""
        if start == end and not text:
            continue
        speaker = segment.get("speaker")
        if turns and turns[-1].speaker == speaker:
            turn = turns[-1]
            turn.end = max(turn.end, end)
            turn.text = f"{turn.text} {text}" if turn.text and text else turn.text or text
        else:
            turns.append(Turn(speaker, start, end, text))
    return turns
