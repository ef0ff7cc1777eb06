"""Rows to cut: a conversation like those of real manifests, and strategies for odd ones."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from hypothesis import strategies as st


def conversation(number: int = 0, num_segments: int = 40, *, words: bool = False) -> dict[str, Any]:
    """A recording of short turns by up to four people; the same for the same number."""
    draw = random.Random(number)  # noqa: S311 - the same on every platform is what is wanted
    segments, now = [], 0.0
    for i in range(num_segments):
        now = round(now + draw.choice([0.2, 0.5, 0.8, 1.5]) + (60.0 if i % 13 == 12 else 0.0), 2)
        end = round(now + draw.choice([2.1, 3.3, 4.2, 4.8, 6.4]), 2)
        spoken = [draw.choice(["yes", "the budget", "quarter", "über", "plans", "we agree", "日本"]) for _ in range(6)]
        segment: dict[str, Any] = {"text": " ".join(spoken), "start": now, "end": end}
        segment["speaker"] = f"speaker_{draw.randrange(4)}"
        segment["metrics"] = {"bandwidth": draw.choice([8100, 8400, 8700, 8900])}
        if words:
            step = (end - now) / len(spoken)
            segment["words"] = [
                {"word": word, "start": round(now + step * j, 3), "end": round(now + step * (j + 1), 3)}
                for j, word in enumerate(spoken)
            ]
        segments.append(segment)
        now = end
    path = f"/data/audio/conversation_{number:03d}.wav"
    return {"audio_filepath": path, "audio_sample_rate": 16000, "duration": now, "segments": segments}


def write_manifest(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


_steps = st.sampled_from([0, 0.0, 0.1, 0.5, 1, 2, 3.3, 5, 10.25, 1e-7])
_times = st.one_of(_steps, st.floats(0, 30), st.integers(0, 20))
_names = st.sampled_from(["a", "b", "c", "d", "e", "ünï"]) | st.sampled_from(["a", "b", "no-speaker", "", None, 7])
_few_names = st.sampled_from(["a", "b", "c"])
_bands = st.sampled_from([8000, 8000.0, 9000, 9001, 9002, 7999, 20000.5, 8000.125]) | st.sampled_from(
    [8000, 9000, 0, 2**60]
)
_extras = st.dictionaries(
    st.sampled_from(["note", "é", "confidence", "id", "x y"]),
    st.recursive(
        st.one_of(
            st.none(),
            st.booleans(),
            st.integers(),
            st.floats(allow_nan=False, allow_infinity=False),
            st.text(max_size=6),
        ),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
        max_leaves=4,
    ),
    max_size=2,
)


@st.composite
def segment_lists(draw: Any, usual: bool) -> list[dict[str, Any]]:
    segments: list[dict[str, Any]] = []
    now: Any = draw(st.sampled_from([0, 0.0, 3.5, 4]))
    for _ in range(draw(st.integers(3, 16) if usual else st.integers(0, 12))):
        start = now + draw(_steps)
        end = start + draw(_times)
        fields: dict[str, Any] = {"start": start, "end": end}
        if usual or draw(st.integers(0, 9)) < 9:
            fields["speaker"] = draw(_few_names if usual else _names)
        if usual or draw(st.integers(0, 9)) < 9:
            fields["metrics"] = {"bandwidth": 8000 if usual else draw(_bands)} if draw(st.integers(0, 9)) < 9 else {}
        if draw(st.booleans()):
            fields["text"] = draw(st.text(max_size=8))
        if draw(st.booleans()):
            fields["words"] = draw(_word_lists(start, end))
        if not usual:
            fields |= draw(_extras)
        keys = draw(st.permutations(list(fields)))
        segments.append({key: fields[key] for key in keys})
        now = draw(st.sampled_from([start, end]))
    return segments


@st.composite
def _word_lists(draw: Any, start: Any, end: Any) -> list[dict[str, Any]]:
    words = []
    for i in range(draw(st.integers(0, 4))):
        at = start + (end - start) * draw(st.sampled_from([0.1, 0.25, 0.5, 1])) * (i + 1) / 4
        word: dict[str, Any] = {"end": draw(st.sampled_from([at, int(at), start, end]))}
        if draw(st.integers(0, 5)):
            word["word"] = draw(st.sampled_from(["yes", "", None, "né", "two words", '"']))
        words.append(word | ({"start": at} if draw(st.booleans()) else {}))
    return words


@st.composite
def talks(draw: Any) -> dict[str, Any]:
    """Rows of which most have windows, and most go the fast way: short turns, close together, and few odd things."""
    segments: list[dict[str, Any]] = []
    now: Any = draw(st.sampled_from([0, 0.0, 3.5]))
    for _ in range(draw(st.integers(6, 24))):
        start = now + draw(st.sampled_from([0, 0.0, 0.1, 0.5, 0.25, 1]))
        end = start + draw(st.sampled_from([0, 0.5, 1, 1.5, 2, 2.25, 3, 3.3, 6]))
        fields: dict[str, Any] = {"start": start, "end": end, "metrics": {"bandwidth": 8000}}
        odd = draw(st.integers(0, 40))
        fields["speaker"] = {0: "", 1: None, 2: "no-speaker"}.get(odd) if odd < 3 else draw(_few_names)
        if odd == 3:
            del fields["speaker"]
        if odd == 4:
            fields["metrics"]["bandwidth"] = 100
        if odd > 8:
            fields["text"] = draw(st.sampled_from(["yes", "né", "", 'a "b" \\ c', "two words"]))
        if draw(st.booleans()):
            fields["words"] = draw(_word_lists(start, end))
        segments.append({key: fields[key] for key in draw(st.permutations(list(fields)))})
        now = draw(st.sampled_from([start, end, end]))
    row = {"audio_filepath": "a.wav", "audio_sample_rate": 16000, "segments": segments}
    return row if draw(st.booleans()) else {"note": [1.5, None, {"é": True}], "swift_audio_filepath": "s", **row}


@st.composite
def rows(draw: Any) -> dict[str, Any]:
    usual = draw(st.integers(0, 2)) > 0
    row: dict[str, Any] = {"audio_filepath": draw(st.sampled_from(["a.wav", "ä b.wav"]))}
    row["audio_sample_rate"] = draw(st.sampled_from([16000, 16000.0, 48000, 16000, 22050, 15999]))
    row["segments"] = draw(segment_lists(usual))
    if draw(st.booleans()):
        row["swift_audio_filepath"] = draw(st.sampled_from(["s3://b/a.wav", None, ""]))
    if not usual:
        row |= draw(_extras)
    if draw(st.integers(0, 9)) == 9:
        row |= {"stats": 1, "filtered": "x", "swift_filepath": 3}
    return {key: row[key] for key in draw(st.permutations(list(row)))}


any_rows = talks() | rows()
parameters = st.fixed_dictionaries(
    {
        "target_window_duration": st.sampled_from([10.0, 8, 5.5, 20]),
        "tolerance": st.sampled_from([0.1, 0.2, 0.5, 0.9, 0]),
        "min_bandwidth": st.sampled_from([8000, 0, 8000.5]),
        "min_sample_rate": st.just(16000),
        "min_speakers": st.sampled_from([0, 1, 2]),
        "max_speakers": st.sampled_from([2, 3, 5]),
        "truncation": st.booleans(),
        # Twice as often what goes the fast way.
        "drop_fields": st.sampled_from(["words", " words , note", "é,words,id"])
        | st.sampled_from(["words", "", "text,words", "speaker", "metrics,words"]),
        "drop_fields_top_level": st.sampled_from(["words,segments", "segments", "segments,note"])
        | st.sampled_from(["words,segments", "", "audio_filepath, segments"]),
        "overlap_percentage": st.sampled_from([0, 50, 100, 33.3]),
        "target_duration": st.sampled_from([10.0, 20, 120]),
    }
)
