"""PH020 to PH026: a few rows of every source, read, decoded, mapped and put into a batch."""

from __future__ import annotations

import io
import json
import wave
from pathlib import Path
from typing import Any

import pytest
from checked_recipes import found, report_on, rows, sound, source, the_one, written

from small_data import write_tar

BUCKETS = {"type": "bucket", "num": 2, "budget": 200}


def maps(folder: Path, text: str, name: str) -> None:
    """A module of maps beside the recipe, under a name that no other test imports."""
    (folder / f"{name}.py").write_text(text)


def wav(seconds: float, rate: int) -> bytes:
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(bytes(2 * round(seconds * rate)))
    return out.getvalue()


def speech(folder: Path, name: str, found: list[tuple[float, float, int]], text: str = "hello") -> dict[str, Any]:
    """A tar of recordings: what the row says, how long they are, and their rate."""
    members = []
    for i, (said, seconds, rate) in enumerate(found):
        about = json.dumps({"duration": said, "text": text}).encode()
        members += [(f"{name}-{i:03}.wav", wav(seconds, rate)), (f"{name}-{i:03}.json", about)]
    write_tar(folder / f"{name}.tar", members)
    return {"name": name, "path": f"{name}.tar", "length": {"field": "json.duration", "unit": "seconds"}}


SPOKEN = {"batching": {"type": "bucket", "num": 2, "budget": 20}, "fields": ["wav"], "sequence": "wav"}


def test_a_row_that_cannot_be_decoded_is_found(tmp_path: Path) -> None:
    assert found("PH020", sound(tmp_path)) == []
    broken = speech(tmp_path, "calls", [(1.0, 1.0, 8000)])
    members = [("x.wav", b"RIFF no wave"), ("x.json", json.dumps({"duration": 1.0}).encode())]
    write_tar(tmp_path / "calls.tar", members)
    finding = the_one("PH020", written(tmp_path, broken, **SPOKEN))
    assert (finding.severity, finding.place) == ("error", "sources[0]")
    assert 'rows of "calls" cannot be made into samples: 1 of the 1 that were read' in finding.problem
    assert str(tmp_path / "calls.tar") in finding.found


def test_a_map_that_raises_is_found_with_its_line(tmp_path: Path) -> None:
    maps(tmp_path, "def fails(sample):\n    return {'x': sample['no such field']}\n", "maps_that_fail")
    findings = found("PH020", sound(tmp_path, map="maps_that_fail:fails"))
    assert [each.place for each in findings] == ["sources[0]", "sources[1]"]
    assert "raised KeyError" in findings[0].found
    assert "maps_that_fail.py, line 2" in findings[0].found


def test_bad_rows_that_are_replaced_are_warnings(tmp_path: Path) -> None:
    maps(tmp_path, "def fails(sample):\n    raise ValueError\n", "maps_that_always_fail")
    path = sound(tmp_path, map="maps_that_always_fail:fails", on_error="substitute")
    assert {each.severity for each in found("PH020", path)} == {"warning"}


def test_a_sample_of_another_length_than_in_the_index_is_found(tmp_path: Path) -> None:
    wrong = [{**row, "n": row["n"] + 1} for row in rows("a", 30)]
    finding = the_one("PH021", written(tmp_path, source(tmp_path, "a", wrong)))
    assert finding.severity == "error"
    assert "its length in the index" in finding.expected
    assert found("PH021", sound(tmp_path)) == []


def test_seconds_that_nothing_compares_are_compared_with_the_audio(tmp_path: Path) -> None:
    wrong = speech(tmp_path, "calls", [(5.0, 1.0, 8000)] * 9)
    finding = the_one("PH021", written(tmp_path, wrong, **SPOKEN))
    assert finding.severity == "warning"
    assert '1.00 s in field "wav"' in finding.found
    assert finding.expected == "5.00 s"
    right = speech(tmp_path, "calls", [(1.0, 1.0, 8000)] * 9)
    assert found("PH021", written(tmp_path, right, **SPOKEN)) == []


@pytest.mark.parametrize(
    ("length", "unit", "words"),
    [
        (0, "tokens", "no row is longer than 0"),
        (1, "tokens", "no row is longer than 1"),
        (9_000, "seconds", "are these milliseconds, or samples?"),
        (0.02, "seconds", "no row is longer than 0.02 s"),
    ],
)
def test_implausible_lengths_are_found(tmp_path: Path, length: float, unit: str, words: str) -> None:
    fixed = {"batching": {"type": "fixed", "size": 2}, "sequence": None}
    odd = source(tmp_path, "a", [{"id": str(i), "n": length} for i in range(9)], length={"field": "n", "unit": unit})
    finding = the_one("PH022", written(tmp_path, odd, **fixed))
    assert finding.place == "sources[0].length"
    assert words in finding.problem
    assert found("PH022", sound(tmp_path)) == []


def test_many_rows_without_a_length_are_found(tmp_path: Path) -> None:
    some = [{**row, "n": 0, "tokens": []} if i % 5 == 0 else row for i, row in enumerate(rows("a", 50))]
    assert "20.0% of the rows have length 0" in the_one("PH022", written(tmp_path, source(tmp_path, "a", some))).problem


def test_lengths_that_nothing_compares_are_a_note(tmp_path: Path) -> None:
    calls = speech(tmp_path, "calls", [(1.0, 1.0, 8000)] * 9)
    finding = the_one("PH023", written(tmp_path, calls, **SPOKEN))
    assert (finding.severity, finding.place) == ("note", "sources[0].length")
    assert "sequence_rate" in finding.fix
    assert found("PH023", written(tmp_path, calls, **SPOKEN, sequence_rate=8000)) == []
    assert found("PH023", sound(tmp_path, batching=BUCKETS)) == []


@pytest.mark.parametrize("empty", ["", "  ", None])
def test_rows_without_text_are_found(tmp_path: Path, empty: str | None) -> None:
    some = [{**row, "text": empty} if i == 0 else row for i, row in enumerate(rows("a", 20))]
    finding = the_one("PH024", written(tmp_path, source(tmp_path, "a", some)))
    assert finding.severity == "warning"
    assert finding.found.startswith("1 of the 8 that were read, for one row 0 ")
    assert found("PH024", sound(tmp_path)) == []


def test_a_row_that_lacks_the_field_of_text_is_found(tmp_path: Path) -> None:
    some = rows("a", 20)
    del some[-1]["text"]
    assert "row 19" in the_one("PH024", written(tmp_path, source(tmp_path, "a", some))).found


def test_mixed_sample_rates_are_found_within_a_sub_stream(tmp_path: Path) -> None:
    calls = speech(tmp_path, "calls", [(1.0, 1.0, 8000)] * 9)
    talks = speech(tmp_path, "talks", [(1.0, 1.0, 16000)] * 9)
    finding = the_one("PH025", written(tmp_path, calls, talks, **SPOKEN))
    assert finding.found == "8,000 Hz in calls, row 0; 16,000 Hz in talks, row 0"
    assert "sample_rate: 16000" in finding.fix
    assert found("PH025", written(tmp_path, calls, talks, **SPOKEN, audio={"sample_rate": 16000})) == []
    assert found("PH025", written(tmp_path, calls, **SPOKEN)) == []


def test_a_rate_that_lengths_are_not_compared_by_is_found(tmp_path: Path) -> None:
    calls = speech(tmp_path, "calls", [(1.0, 1.0, 8000)] * 9)
    finding = the_one("PH025", written(tmp_path, calls, **SPOKEN, sequence_rate=16000))
    assert "16000 Hz, by which lengths are compared" in finding.expected
    assert found("PH025", written(tmp_path, calls, **SPOKEN, sequence_rate=8000)) == []


def test_samples_that_cannot_be_put_into_a_batch_are_found(tmp_path: Path) -> None:
    text = "import numpy as np\ndef ragged(sample):\n    return {**sample, 'x': np.ones((2, 2 + sample['n'] % 2))}\n"
    maps(tmp_path, text, "maps_of_many_kinds")
    finding = found("PH026", sound(tmp_path, map="maps_of_many_kinds:ragged"))[0]
    assert finding.severity == "error"
    assert '"x"' in finding.problem
    assert found("PH026", sound(tmp_path)) == []


def test_the_first_batch_of_an_evaluation_set_is_made_too(tmp_path: Path) -> None:
    maps(tmp_path, "def nothing(samples):\n    return None if len(samples) == 3 else {}\n", "collates_that_fail")
    dev = source(tmp_path, "dev", rows("dev", 3))
    evaluation = {"dev": {"sources": [dev], "batching": {"type": "fixed", "size": 3}}}
    finding = the_one("PH026", sound(tmp_path, evaluation=evaluation, collate="collates_that_fail:nothing"))
    assert finding.place == "collate"
    assert "returned None" in finding.problem


def test_a_collate_function_that_gives_another_batch_is_found(tmp_path: Path) -> None:
    text = "import random\ndef lucky(samples):\n    return {'x': random.random()}\n"
    text += "def plain(samples):\n    return {'x': len(samples)}\n"
    maps(tmp_path, text, "collates_by_chance")
    finding = the_one("PH026", sound(tmp_path, collate="collates_by_chance:lucky"))
    assert "another batch when it is run on the same samples again" in finding.problem
    assert found("PH026", sound(tmp_path, collate="collates_by_chance:plain")) == []


def test_noises_are_read_too(tmp_path: Path) -> None:
    calls = speech(tmp_path, "calls", [(1.0, 1.0, 8000)] * 9)
    noise = speech(tmp_path, "noise", [(1.0, 1.0, 8000)] * 3)
    del noise["length"]
    augment = [{"type": "noise", "source": "noise", "snr": [0, 10], "field": "wav"}]
    path = written(tmp_path, calls, **SPOKEN, noises=[noise], augment=augment)
    assert [each for each in report_on(path).findings if each.severity == "error"] == []
    write_tar(tmp_path / "noise.tar", [("x.wav", b"RIFF no wave")])
    findings = found("PH020", written(tmp_path, calls, **SPOKEN, noises=[noise], augment=augment))
    assert {each.place for each in findings} == {"sources[0]", "noises[0]"}
