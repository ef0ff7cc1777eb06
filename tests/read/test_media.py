from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flights import Meeting
from playhead.errors import DataError, SampleError, StoreError
from playhead.formats.media import Media
from playhead.formats.rows import Sample
from playhead.read import media
from playhead.read.media_rules import MediaRules, media_rules
from playhead.read.stored import read_arrays
from playhead.store import CountingFiles, Files, LocalFiles, MemoryFiles
from playhead.testing import FaultyFiles
from read.wav_files import SUBTYPES, as_soundfile_reads, chunk, fmt, noise, riff, written

LOCAL = media_rules(["/data/rows.jsonl"])
IN_MEMORY = media_rules(["memory://data/rows.jsonl"])
TEN = np.arange(10, dtype="<i2").tobytes()


def decode_media(samples: list[Sample], files: Files, rules: MediaRules):
    """The samples as a map is given them."""
    found, problem = media.decode_media(samples, files, rules)
    return read_arrays(found), problem


def decoded(data: bytes, rules: MediaRules = LOCAL, **segment):
    """The audio in these bytes, and its rate; what is wrong with them is raised."""
    samples, problem = decode_media([{"audio": Media("audio", data, **segment)}], MemoryFiles(), rules)
    if problem is not None:
        raise problem
    return samples[0]["audio"], samples[0]["audio_rate"]


@pytest.mark.parametrize("container", ["WAV", "WAVEX", "RF64"])
@pytest.mark.parametrize("channels", [1, 2, 3])
@pytest.mark.parametrize("subtype", SUBTYPES)
def test_samples_are_those_that_soundfile_reads_bit_for_bit(subtype, channels, container):
    data = written(noise(1000, channels), 22_050, subtype, container)
    audio, rate = decoded(data)
    assert rate == 22_050
    assert audio.dtype == np.float32
    assert audio.flags.writeable
    expected = as_soundfile_reads(data)
    assert audio.shape == expected.shape
    np.testing.assert_array_equal(audio.view(np.uint32), expected.view(np.uint32))


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(SUBTYPES), st.integers(1, 3), st.sampled_from([8_000, 11_025, 48_000]), st.data())
def test_a_segment_is_that_part_of_the_recording(subtype, channels, rate, draw):
    num_frames = draw.draw(st.integers(1, 3000))
    first = draw.draw(st.integers(0, num_frames - 1))
    end = draw.draw(st.integers(first + 1, num_frames))
    data = written(noise(num_frames, channels), rate, subtype)
    expected = as_soundfile_reads(data, first, end)
    audio, _ = decoded(data, offset=first / rate, duration=(end - first) / rate)
    np.testing.assert_array_equal(audio, expected)
    rest, _ = decoded(data, offset=first / rate)
    np.testing.assert_array_equal(rest, as_soundfile_reads(data, first))


@pytest.mark.parametrize(("tolerance", "passing"), [(0.0, 0.001), (0.1, 0.1)])
def test_a_segment_may_end_past_the_end_by_the_tolerance_and_by_a_millisecond_at_least(tolerance, passing):
    data, rules = written(noise(16_000)), media_rules([], length_tolerance=tolerance)
    audio, _ = decoded(data, rules, offset=0.5, duration=0.5 + passing)
    assert len(audio) == 8000
    with pytest.raises(SampleError) as caught:
        decoded(data, rules, offset=0.5, duration=0.501 + passing)
    assert caught.value.found == f"a segment of {0.501 + passing} s, starting at 0.5 s"
    assert caught.value.expected == f"times up to 1 s, which may be passed by {passing} s"


@pytest.mark.parametrize(
    "segment",
    [
        {"offset": 1.0, "duration": 0.5},
        {"offset": 2.0},
        {"offset": -0.1, "duration": 0.2},
        {"offset": 0.1, "duration": 0.0},
        {"offset": 0.1, "duration": -0.05},
        {"offset": float("nan")},
        {"offset": 0.0, "duration": float("inf")},
        {"offset": 10**400},
        {"offset": "0.5", "duration": 1.0},
        {"offset": None},
    ],
)
def test_a_segment_outside_the_recording_is_refused_with_numbers(segment):
    with pytest.raises(SampleError, match="segment") as caught:
        decoded(written(noise(16_000)), **segment)
    assert caught.value.found
    assert caught.value.expected


def test_chunks_before_the_samples_are_passed_over():
    data = riff(
        chunk(b"LIST", b"odd"), chunk(b"junk", bytes(70_001)), fmt(), chunk(b"fact", bytes(4)), chunk(b"data", TEN)
    )
    audio, _ = decoded(data)
    np.testing.assert_array_equal(audio, np.arange(10) / 32768)
    np.testing.assert_array_equal(audio, as_soundfile_reads(data))


def test_chunks_after_the_samples_are_not_samples():
    audio, _ = decoded(riff(fmt(), chunk(b"data", TEN), chunk(b"LIST", b"INFOsome text")))
    assert len(audio) == 10


@pytest.mark.parametrize(
    ("riff_size", "data_size"),
    [(0xFFFFFFFF, 0xFFFFFFFF), (0, 0), (36, 0), (0xFFFFFFFF, 0), (0x7FFFF024, 0x7FFFF000)],
)
def test_samples_of_a_streamed_file_go_to_its_end(riff_size, data_size):
    audio, _ = decoded(riff(fmt(), chunk(b"data", TEN, data_size), size=riff_size) + b"x")
    np.testing.assert_array_equal(audio, np.arange(10) / 32768)


def test_an_empty_recording_has_no_samples():
    assert decoded(written(noise(0)))[0].shape == (0,)
    assert decoded(riff(fmt(), chunk(b"data", b""), chunk(b"LIST", TEN)))[0].shape == (0,)


def test_a_truncated_recording_is_an_error_with_both_sizes():
    data = written(noise(1000))
    with pytest.raises(SampleError) as caught:
        decoded(data[:-101])
    assert caught.value.problem == 'the bytes in "audio": is truncated'
    assert (caught.value.found, caught.value.expected) == ("1,899 bytes of samples", "2,000, by its header")


HOSTILE = {
    "nothing": (b"", "unsupported audio format"),
    "a magic alone": (b"RIFF", "is not a WAV file"),
    "another RIFF": (b"RIFF\x10\x00\x00\x00AVI LIST", "is not a WAV file"),
    "a header alone": (riff(), "holds no samples"),
    "no samples": (riff(fmt()), "holds no samples"),
    "no format": (riff(chunk(b"data", TEN)), "its samples come before their format"),
    "half a format": (riff(chunk(b"fmt ", bytes(8)), chunk(b"data", TEN)), "its fmt chunk is truncated"),
    "no channels": (riff(fmt(channels=0, frame_bytes=2), chunk(b"data", TEN)), "header is inconsistent"),
    "no rate": (riff(fmt(rate=0), chunk(b"data", TEN)), "header is inconsistent"),
    "frames of no bytes": (riff(fmt(frame_bytes=0), chunk(b"data", TEN)), "header is inconsistent"),
    "frames of three bytes": (riff(fmt(frame_bytes=3), chunk(b"data", TEN)), "header is inconsistent"),
    "twelve bits": (riff(fmt(bits=12), chunk(b"data", TEN)), "unsupported WAV encoding"),
    "GSM": (riff(fmt(code=0x31, bits=8), chunk(b"data", TEN)), "unsupported WAV encoding"),
    "an extensible format cut off": (riff(fmt(code=0xFFFE), chunk(b"data", TEN)), "unsupported WAV encoding"),
    "a chunk longer than the file": (riff(fmt(), chunk(b"LIST", b"abcd", 1 << 31)), "holds no samples"),
    "a chunk that never ends": (riff(*[chunk(b"LIST", b"")] * 1000, fmt(), chunk(b"data", TEN)), "holds no samples"),
    "more than there is": (riff(fmt(), chunk(b"data", TEN, 1 << 31)), "is truncated"),
    "more than there is in RF64": (
        riff(chunk(b"ds64", struct.pack("<QQQ", 0, 1 << 60, 0)), fmt(), chunk(b"data", TEN, 0xFFFFFFFF), magic=b"RF64"),
        "is truncated",
    ),
    "FLAC of no length": (b"fLaC" + bytes(100), "does not contain its length"),
    "FLAC that begins with pictures": (b"fLaC\x06" + bytes(100), "is not a FLAC file"),
    "FLAC without frames": (written(noise(1000), container="FLAC")[:60], "is truncated|cannot be decoded"),
    "MP3 of noise": (b"\xff\xfb" + TEN * 50, "audio file that can be decoded|is truncated|cannot be decoded"),
    "Ogg of noise": (b"OggS" + TEN * 50, "is not an audio file that can be decoded"),
}


@pytest.mark.parametrize(("data", "problem"), HOSTILE.values(), ids=HOSTILE)
def test_broken_headers_are_bad_samples(data, problem):
    with pytest.raises(SampleError, match=problem):
        decoded(data)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60), st.integers(0, 60))
def test_whatever_the_bytes_are_they_are_audio_or_a_bad_sample(junk, at):
    whole = riff(fmt(), chunk(b"data", TEN))
    try:
        audio, rate = decoded(whole[:at] + junk)
    except SampleError:
        return
    assert audio.dtype == np.float32
    assert rate > 0


def test_a_container_without_a_decoder_is_named_by_its_magic_whatever_its_name_says():
    media = Media("audio", b"\0\0\0\x1cftypM4A " + bytes(100), "speech.wav")
    _, problem = decode_media([{"audio": media}], MemoryFiles(), LOCAL)
    assert isinstance(problem, SampleError)
    assert problem.problem == "speech.wav: unsupported audio format"
    assert problem.found == "MP4 or M4A (it begins with b'\\x00\\x00\\x00\\x1cftyp')"


def test_limits_are_checked_before_samples_are_read(tmp_path):
    path = tmp_path / "long.wav"
    with path.open("wb") as file:  # a sparse file of four gigabytes
        file.write(riff(fmt(), chunk(b"data", b"", 0xFFFFFFFF)))
        file.truncate(1 << 32)
    files = CountingFiles(LocalFiles())
    media = Media("audio", path=str(path))
    for rules, problem in [(MediaRules((), max_seconds=1e9), "4,294,967"), (MediaRules(()), "268,435.453 s")]:
        samples, error = decode_media([{"audio": media}], files, rules)
        assert samples == []
        assert isinstance(error, SampleError)
        assert error.found.startswith(problem)
    assert files.counts["bytes"] < 100_000
    short, error = decode_media(
        [{"audio": Media("audio", path=str(path), offset=9, duration=2)}], files, MediaRules(())
    )
    assert error is None
    assert short[0]["audio"].shape == (16_000,)


def test_all_segments_of_a_file_cost_one_stamp_and_two_reads():
    memory = MemoryFiles()
    data = written(noise(160_000, 2))
    memory.write("memory://data/long.wav", data)
    files = CountingFiles(memory)
    rows = [
        {"id": i, "audio": Media("audio", path="long.wav", base="memory://data", offset=i / 20, duration=0.05)}
        for i in np.random.default_rng(0).permutation(200).tolist()
    ]
    samples, problem = decode_media(rows, files, IN_MEMORY)
    assert problem is None
    assert [sample["id"] for sample in samples] == [row["id"] for row in rows]
    for sample in samples:
        first = sample["id"] * 800
        np.testing.assert_array_equal(sample["audio"], as_soundfile_reads(data, first, first + 800))
    assert files.counts["stamp"] == 1
    assert files.counts["read"] == 2
    assert files.counts["ranges"] == 201


def test_a_small_file_that_is_wanted_whole_is_read_once():
    memory = MemoryFiles()
    memory.write("memory://data/a.wav", written(noise(100_000)))
    for latency_seconds, num_reads in ((1e-6, 1), (0, 2)):
        files = CountingFiles(FaultyFiles(memory, latency_seconds))
        samples, _ = decode_media([{"audio": Media("audio", path="memory://data/a.wav")}] * 2, files, IN_MEMORY)
        assert len(samples[1]["audio"]) == 100_000
        assert (files.counts["stamp"], files.counts["read"]) == (1, num_reads)


def test_files_in_a_store_are_fetched_for_a_whole_micro_batch_in_three_rounds():
    memory, rounds, count = MemoryFiles(), Meeting(32), 32
    contents = [written(noise(32_000, seed=i)) for i in range(count)]
    for i, data in enumerate(contents):
        memory.write(f"memory://data/{i}.wav", data)
    rows = [
        {"audio": Media("audio", path=f"memory://data/{i}.wav", offset=0.5, duration=0.1 * (1 + i % 3))}
        for i in range(count)
    ]
    samples, problem = decode_media(rows, FaultyFiles(memory, latency_seconds=1e-6, fail=rounds), IN_MEMORY)
    assert problem is None
    for i, (sample, data) in enumerate(zip(samples, contents, strict=True)):
        expected = as_soundfile_reads(data, 8_000, 8_000 + 1_600 * (1 + i % 3))
        np.testing.assert_array_equal(sample["audio"], expected)
    assert rounds.num_requests == 3 * count  # stamps, headers, segments: 32 together each time


def test_errors_of_files_in_a_store_stay_with_their_samples_and_storage_that_fails_is_raised():
    memory = MemoryFiles()
    for i in range(8):
        memory.write(f"memory://data/{i}.wav", written(noise(1000)) if i != 5 else b"no audio")
    memory.remove("memory://data/3.wav")
    rows = [{"audio": Media("audio", path=f"memory://data/{i}.wav")} for i in range(8)]
    samples, problem = decode_media(rows, FaultyFiles(memory, latency_seconds=1e-6), IN_MEMORY)
    assert (len(samples), isinstance(problem, DataError)) == (3, True)
    assert "3.wav" in str(problem)
    samples, problem = decode_media(rows[4:], FaultyFiles(memory, latency_seconds=1e-6), IN_MEMORY)
    assert (len(samples), isinstance(problem, SampleError)) == (1, True)
    assert "5.wav" in str(problem)
    faulty = FaultyFiles(memory, 1e-6, lambda _number, _method, path: "error" if "6.wav" in path else None)
    with pytest.raises(StoreError, match=r"6\.wav"):
        decode_media(rows, faulty, IN_MEMORY)


def test_samples_without_media_are_given_back_as_they_are():
    rows = [{"text": "a"}, {"tokens": [1]}]
    assert decode_media(rows, MemoryFiles(), LOCAL) == (rows, None)


def test_other_fields_keep_their_place_and_the_rate_stands_beside_the_audio():
    row = {
        "audio_rate": 0,
        "audio": Media("audio", written(noise(10))),
        "text": "a",
        "other": Media("audio", written(noise(5), 8000)),
    }
    (sample,), _ = decode_media([row], MemoryFiles(), LOCAL)
    assert list(sample) == ["audio_rate", "audio", "text", "other", "other_rate"]
    assert (sample["audio_rate"], sample["other_rate"], len(sample["other"])) == (16_000, 8_000, 5)


def test_samples_up_to_the_first_bad_one_are_given():
    good, bad = Media("audio", written(noise(10))), Media("audio", path="memory://data/none.wav")
    samples, problem = decode_media([{"audio": good}, {"audio": bad}, {"audio": good}], MemoryFiles(), IN_MEMORY)
    assert len(samples) == 1
    assert isinstance(problem, DataError)
    assert problem.problem.startswith("memory://data/none.wav: no such file")


def test_a_local_file_that_is_missing_or_no_file_is_a_bad_sample(tmp_path):
    for path in (tmp_path / "none.wav", tmp_path, "/dev/zero"):
        samples, problem = decode_media([{"audio": Media("audio", path=str(path))}], LocalFiles(), LOCAL)
        assert samples == []
        assert isinstance(problem, SampleError | DataError)


def test_what_fails_in_the_storage_is_raised():
    class Broken(MemoryFiles):
        def read(self, path, stamp, ranges, into=None):  # noqa: ARG002 - as the protocol has it
            raise StoreError(f"{path}: timed out")

    files = Broken()
    files.write("memory://data/a.wav", written(noise(10)))
    with pytest.raises(StoreError, match="timed out"):
        decode_media([{"audio": Media("audio", path="memory://data/a.wav")}], files, IN_MEMORY)
