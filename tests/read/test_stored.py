"""Arrays that are not read yet: what becomes of them is what numpy loads, bit for bit, or what it refuses."""

from __future__ import annotations

import io
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as stn

from deliveries import npy
from playhead.errors import SampleError, StoreError
from playhead.formats.media import Media
from playhead.read.decode import decoded, stored_array
from playhead.read.media import decode_media
from playhead.read.media_rules import media_rules
from playhead.read.stored import StoredArray, read_arrays, read_into
from playhead.store import CountingFiles, Extent, JoiningFiles, LocalFiles, MemoryFiles, open_file
from read.wav_files import as_soundfile_reads, noise, written

PLAIN = ("<f4", ">f4", "<f8", "<f2", "|b1", "|i1", "<u2", ">i4", "<i8", "<u8", "<c8")
ODD = ("<M8[s]", "<U3", "|S2", "<f4,<i2")
AFTER = b"bytes of the next member"


def in_a_file(content: bytes, head_bytes: int = 0) -> Extent:
    """The content in the middle of a file, with some of it read."""
    files = MemoryFiles()
    path = files.write("memory://stored/a.tar", b"before" + content + AFTER)
    return Extent(open_file(files, path), 6, 6 + len(content), memoryview(content)[:head_bytes])


def loaded(content: bytes) -> Any:
    return np.load(io.BytesIO(content), allow_pickle=False)


def assert_same(found: Any, expected: Any) -> None:
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert found.tobytes() == expected.tobytes()


def headed(shape: Any, descr: Any = "<f4", fortran: Any = False, version: tuple[int, int] = (1, 0)) -> bytes:
    header = repr({"descr": descr, "fortran_order": fortran, "shape": shape}).encode() + b"\n"
    return b"\x93NUMPY" + bytes(version) + struct.pack("<H" if version == (1, 0) else "<I", len(header)) + header


arrays = st.sampled_from(PLAIN + ODD).flatmap(
    lambda kind: stn.arrays(np.dtype(kind), stn.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5))
)


@given(array=arrays, fortran=st.booleans(), head_bytes=st.sampled_from([0, 5, 64, 10_000]))
def test_a_member_is_what_numpy_loads_wherever_its_bytes_are(array: Any, fortran: bool, head_bytes: int) -> None:
    content = npy(np.asfortranarray(array) if fortran else array)
    expected = loaded(content)
    for data in (content, in_a_file(content, head_bytes)):
        found = read_arrays([decoded({"npy": data})])[0]["npy"]
        assert_same(found, expected)
        assert found.flags.writeable
        assert found.flags.f_contiguous == expected.flags.f_contiguous


@given(array=stn.arrays(np.dtype("<i4"), stn.array_shapes(min_dims=1, max_dims=3, max_side=6)), data=st.data())
def test_a_stretch_of_it_is_the_stretch_of_the_array(array: Any, data: st.DataObject) -> None:
    chosen = slice(data.draw(st.none() | st.integers(-9, 9)), data.draw(st.none() | st.integers(-9, 9)))
    for content in (npy(array), in_a_file(npy(array), 200)):
        stored = stored_array(content)
        assert stored is not None
        assert_same(np.asarray(stored[chosen]), array[chosen])
        assert_same(np.asarray(stored[chosen][1:3]), array[chosen][1:3])
        assert (len(stored), stored.ndim) == (len(array), array.ndim)
        assert np.asarray(stored, dtype=np.float64).dtype == np.float64


@pytest.mark.parametrize(
    "content",
    [
        headed((10**12,)) + bytes(400),
        headed((10**30,)) + bytes(400),
        headed((2**62, 4)) + bytes(400),
        headed((-5,)) + bytes(400),
        headed((-5, -20)) + bytes(400),
        headed((True, 100)) + bytes(400),
        headed([100]) + bytes(400),
        headed((1,) * 40 + (100,)) + bytes(400),
        headed((1,) * 80 + (100,)) + bytes(400),
        headed((100,), version=(2, 0)) + bytes(400),
        headed((100,), version=(3, 0)) + bytes(400),
        headed((100,), version=(4, 0)) + bytes(400),
        headed((100,)) + bytes(399),
        headed((100,)) + bytes(500),
        headed((100,), "|O") + bytes(800),
        headed((100,), ("<f4", (2,))) + bytes(800),
        headed((100,), "no dtype") + bytes(800),
        headed((0, 10**9)) + bytes(10),
        headed((100,), fortran=True) + bytes(400),
        headed((100,), fortran=1) + bytes(400),
        headed(())[:9],
        b"\x93NUMPY\x01\x00\xff\xff" + bytes(70_000),
        b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + bytes(400),
        b"\x93NUMPY\x01\x00\x10\x00" + b"(" * 16 + bytes(400),
        b"PK\x03\x04" + bytes(100),
        b"",
    ],
)
def test_a_hostile_header_is_loaded_or_refused_as_numpy_does(content: bytes) -> None:
    refusal = None
    try:
        expected = loaded(content)
    except Exception as error:  # noqa: BLE001  # numpy raises nearly anything
        refusal = f"{type(error).__name__}: {error}"
    for data in (content, in_a_file(content, 16)):
        if refusal is None:
            assert_same(read_arrays([decoded({"npy": data})])[0]["npy"], expected)
            continue
        with pytest.raises(SampleError, match='member "npy" cannot be decoded') as caught:
            decoded({"npy": data})
        assert caught.value.found == refusal


def test_other_members_in_a_file_are_read_and_decoded_as_bytes_are() -> None:
    assert decoded({"txt": in_a_file(b"text"), "json": in_a_file(b"[1]", 2), "wav": in_a_file(b"RIFF", 4)}) == {
        "txt": "text",
        "json": [1],
        "wav": b"RIFF",
    }


def test_arrays_of_a_file_are_read_together_straight_into_their_places() -> None:
    class Seeing(MemoryFiles):
        """Keeps what was asked for."""

        asked: list[Any]

        def read(self, path: Any, stamp: Any, ranges: Any, into: Any = None) -> Any:
            self.asked.append((path, ranges, into))
            return super().read(path, stamp, ranges, into)

    files = Seeing()
    paths = [files.write(f"memory://stored/{name}", np.arange(1000, dtype="<i4").tobytes()) for name in "ab"]
    opened = [open_file(files, path) for path in paths]
    starts = [(1, 300), (0, 8), (0, 100), (1, 4), (0, 2000)]
    stored = [StoredArray(Extent(opened[file], first, first + 400), np.dtype("<i4"), (50, 2)) for file, first in starts]
    out = np.zeros((5, 60, 2), "<i4")
    files.asked = []
    read_into([(array, row[:50]) for array, row in zip(stored, out, strict=True)])
    for row, (_, first) in zip(out, starts, strict=True):
        assert row[:50].ravel().tolist() == list(range(first // 4, first // 4 + 100))
        assert not row[50:].any()
    assert [(path, ranges.firsts) for path, ranges, _ in files.asked] == [
        (paths[1], [4, 300]),
        (paths[0], [8, 100, 2000]),
    ]
    assert all(np.shares_memory(np.frombuffer(buffer, np.uint8), out) for *_, into in files.asked for buffer in into)


@pytest.mark.parametrize("subtype", ["PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE"])
@pytest.mark.parametrize("channels", [1, 2])
def test_audio_in_a_local_file_is_what_soundfile_reads(tmp_path: Any, subtype: str, channels: int) -> None:
    path = tmp_path / "a.wav"
    data = written(noise(70_000, channels), subtype=subtype)
    path.write_bytes(data)
    files = CountingFiles(JoiningFiles(LocalFiles()))
    segments = [(0.0, None), (0.5, 2.0), (1.0, 0.001)]
    rows = [{"audio": Media("audio", path=str(path), offset=at, duration=seconds)} for at, seconds in segments]
    samples, problem = decode_media(rows, files, media_rules([str(tmp_path / "rows.jsonl")]))
    assert problem is None
    waits = subtype in {"PCM_16", "PCM_32", "FLOAT"}
    assert all((type(sample["audio"]) is StoredArray) == waits for sample in samples)
    assert files.counts["read"] == (1 if waits else 2)
    for sample, (at, seconds) in zip(read_arrays(samples), segments, strict=True):
        first = round(at * 16_000)
        end = 70_000 if seconds is None else first + round(seconds * 16_000)
        assert_same(sample["audio"], as_soundfile_reads(data, first, end))
        assert sample["audio"].flags.writeable
        sample["audio"][:] = 0
    assert files.counts["read"] == 2


def test_many_numbers_to_convert_are_read_in_several_requests(tmp_path: Any) -> None:
    path = tmp_path / "a.wav"
    data = written(noise(800_000))
    path.write_bytes(data)
    rows = [{"audio": Media("audio", path=str(path), offset=i, duration=20.0)} for i in range(5)]
    files = CountingFiles(LocalFiles())
    samples, _ = decode_media(rows, files, media_rules([str(path)]))
    for i, sample in enumerate(read_arrays(samples)):
        assert_same(sample["audio"], as_soundfile_reads(data, i * 16_000, (i + 20) * 16_000))
    assert files.counts["read"] == 1 + 5  # 640,000 bytes each, and a megabyte at most together


def test_a_file_that_changes_before_its_arrays_are_read_is_an_error_of_the_storage(tmp_path: Any) -> None:
    path = tmp_path / "a.npy"
    path.write_bytes(npy(np.arange(10)))
    file = open_file(LocalFiles(), str(path))
    stored = stored_array(Extent(file, 0, file.size))
    assert stored is not None
    path.write_bytes(npy(np.arange(11)))
    with pytest.raises(StoreError, match="changed since it was indexed"):
        np.asarray(stored)
