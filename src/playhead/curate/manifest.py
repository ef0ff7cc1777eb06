"""`windows.jsonl`: a line for each kept window, which a recipe reads as it is."""

from __future__ import annotations

from collections.abc import Sequence
from operator import ne
from typing import Any

import msgspec

from playhead.curate.faults import Row
from playhead.fingerprint import digest_bytes

_encode = msgspec.json.Encoder().encode


class Turn(msgspec.Struct, frozen=True):
    """What one speaker says before another does; seconds in the recording."""

    speaker: Any
    start: float
    end: float
    text: str


class Source(msgspec.Struct, frozen=True):
    """The row of the input, from 0, that a window was cut from."""

    file: str
    row: int


class WindowLine(msgspec.Struct, frozen=True):
    """One window. `id` is a digest of audio path, start and end; a second window of the same times in a row has `-2`."""

    id: str
    audio_filepath: Any
    offset: float
    duration: float
    sample_rate: Any
    speakers: tuple[Any, ...]
    text: str
    turns: tuple[Turn, ...]
    source: Source


def window_lines(row: Row, windows: Sequence[list[Row]], source: Source) -> list[bytes]:
    """The lines of a row's kept windows, each given as its segments, in order."""
    seen: dict[str, int] = {}
    made: dict[int, Turn] = {}
    return [_encode(_window_line(row, segments, source, seen, made)) + b"\n" for segments in windows]


def _window_line(
    row: Row, segments: list[Row], source: Source, seen: dict[str, int], made: dict[int, Turn]
) -> WindowLine:
    audio, start, end = row.get("audio_filepath"), segments[0]["start"], segments[-1]["end"]
    name = window_id(audio, start, end)
    seen[name] = seen.get(name, 0) + 1
    turns = turns_of(segments, made)
    return WindowLine(
        id=name if seen[name] == 1 else f"{name}-{seen[name]}",
        audio_filepath=audio,
        offset=start,
        duration=end - start,
        sample_rate=row.get("audio_sample_rate"),
        speakers=tuple({segment["speaker"]: None for segment in segments if segment.get("speaker")}),
        text=" ".join([turn.text for turn in turns if turn.text]),
        turns=tuple(turns),
        source=source,
    )


def window_id(audio: Any, start: float, end: float) -> str:
    return digest_bytes(_encode([audio, float(start), float(end)]))


def turns_of(segments: list[Row], made: dict[int, Turn]) -> list[Turn]:
    """Consecutive segments of one speaker as one turn. A segment cut down to nothing is no turn.

    Windows share segments: `made` holds the turns of those seen before, by identity.
    """
    turns = [made.get(id(segment)) or made.setdefault(id(segment), _turn(segment)) for segment in segments]
    if turns[-1].start == turns[-1].end:
        turns = [turn for turn in turns if turn.start != turn.end or turn.text]
    names = [turn.speaker for turn in turns]
    if all(map(ne, names, names[1:])):
        return turns
    merged = turns[:1]
    for turn in turns[1:]:
        before = merged[-1]
        if before.speaker != turn.speaker:
            merged.append(turn)
            continue
        text = f"{before.text} {turn.text}" if before.text and turn.text else before.text or turn.text
        merged[-1] = Turn(turn.speaker, before.start, max(before.end, turn.end), text)
    return merged


def _turn(segment: Row) -> Turn:
    return Turn(segment.get("speaker"), segment["start"], segment["end"], segment.get("text") or "")
