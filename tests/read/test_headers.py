"""Sizes of media by their headers, against the libraries that wrote them."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from playhead.errors import DataError, SampleError, StoreError
from playhead.formats.media import Media
from playhead.read.headers import audio_seconds_of, image_size_of
from playhead.read.media_rules import media_rules
from playhead.store import CountingFiles, Extent, LocalFiles, MemoryFiles, open_file
from read.image_files import CONTAINERS, encoded, gif_of, picture, png_of, turned
from read.wav_files import noise, written

LOCAL = media_rules(["/data/rows.jsonl"])
IN_MEMORY = media_rules(["memory://data/rows.jsonl"])


def size_of(data: bytes) -> tuple[int, int]:
    return image_size_of(Media("image", data), MemoryFiles(), LOCAL, "picture")


@pytest.mark.parametrize("container", CONTAINERS)
@settings(max_examples=25, deadline=None)
@given(width=st.integers(1, 700), height=st.integers(1, 700), mode=st.sampled_from(["RGB", "L"]))
def test_the_size_is_the_one_pillow_has(container, width, height, mode):
    data = encoded(Image.new(mode, (width, height)), container)
    assert size_of(data) == (width, height) == Image.open(io.BytesIO(data)).size


@pytest.mark.parametrize("how", [{"lossless": True}, {"save_all": True, "append_images": [picture(seed=1)]}])
def test_every_kind_of_webp_has_a_size(how):
    assert size_of(encoded(picture(), "WebP", **how)) == (37, 23)
    assert size_of(encoded(picture(mode="RGBA"), "WebP", **how)) == (37, 23)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("container", ["JPEG", "TIFF"])
def test_the_size_is_that_of_the_image_as_it_is_turned(container, orientation):
    assert size_of(turned(orientation, container)) == ((23, 37) if orientation >= 5 else (37, 23))


@pytest.mark.parametrize("container", CONTAINERS)
def test_only_the_header_of_a_large_file_is_read(container, tmp_path):
    path = tmp_path / "image"
    path.write_bytes(encoded(picture(900, 700), container) + bytes(1 << 20))
    files = CountingFiles(LocalFiles())
    assert image_size_of(Media("image", path=str(path)), files, LOCAL, "picture") == (900, 700)
    assert files.counts["bytes"] <= 1 << 16


def test_a_header_longer_than_the_first_read_is_read_on(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    data = encoded(picture(), "JPEG", exif=exif, comment=bytes(60_000), icc_profile=bytes(300_000))
    assert size_of(data) == (23, 37)
    path = tmp_path / "image.jpg"
    path.write_bytes(data)
    assert image_size_of(Media("image", path=str(path)), LocalFiles(), LOCAL, "picture") == (23, 37)


def test_a_header_that_does_not_end_is_refused():
    endless = b"\xff\xd8" + (b"\xff\xef\xff\xff" + bytes(65533)) * 1100
    with pytest.raises(SampleError, match="its header does not end"):
        size_of(endless)


def test_huge_sizes_are_only_numbers():
    assert size_of(png_of(50_000, 50_000, b"")) == (50_000, 50_000)
    assert size_of(gif_of((10, 10), (60_000, 50_000), dispose=2)) == (60_000, 50_000)
    assert size_of(gif_of((100, 10), (60, 50))) == (100, 50)


@pytest.mark.parametrize("container", CONTAINERS)
def test_a_header_cut_off_is_a_bad_sample(container):
    data = encoded(picture(), container)
    for end in (3, 8, 12, 15, 20):
        with pytest.raises(SampleError, match=r'the bytes in "picture": (is not a|unsupported image format)'):
            size_of(data[:end])


@pytest.mark.parametrize("data", [b"", b"%!PS-Adobe-3.0 EPSF-3.0", b"just some text", written(noise(10))])
def test_what_is_no_image_is_refused_with_what_is(data):
    with pytest.raises(SampleError, match="unsupported image format") as caught:
        size_of(data)
    assert caught.value.expected == "JPEG, PNG, GIF, WebP, BMP, TIFF"


def test_an_image_in_a_part_of_a_file_and_one_that_is_named(tmp_path):
    data = encoded(picture())
    path = tmp_path / "many"
    path.write_bytes(b"before" + data + b"after")
    part = Extent(open_file(LocalFiles(), str(path)), 6, 6 + len(data))
    assert image_size_of(Media("image", part, 'member "png"'), LocalFiles(), LOCAL, "png") == (37, 23)
    files = MemoryFiles()
    files.write("memory://data/a.png", data)
    named = Media("image", path="a.png", base="memory://data")
    assert image_size_of(named, files, IN_MEMORY, "picture") == (37, 23)
    with pytest.raises(DataError, match="no such file"):
        image_size_of(Media("image", path="memory://data/b.png"), files, IN_MEMORY, "picture")
    for path in ("/etc/a.png", "s3://other/a.png"):
        with pytest.raises(SampleError, match=r"may not name|may name"):
            image_size_of(Media("image", path=path, base="memory://data"), files, IN_MEMORY, "picture")


def test_what_fails_in_the_storage_is_raised_as_it_is(tmp_path):
    path = tmp_path / "a.jpg"
    path.write_bytes(encoded(picture(), "JPEG", icc_profile=bytes(300_000)))

    class Failing:
        def __init__(self) -> None:
            self.inner = LocalFiles()

        def list(self, pattern):
            return self.inner.list(pattern)

        def stamp(self, path):
            return self.inner.stamp(path)

        def read(self, path, stamp, ranges, into=None):
            if ranges.firsts[0] > 0:
                raise StoreError(f"{path}: the disk does not answer")
            return self.inner.read(path, stamp, ranges, into)

    with pytest.raises(StoreError, match="does not answer"):
        image_size_of(Media("image", path=str(path)), Failing(), LOCAL, "picture")


@pytest.mark.parametrize("container", ["WAV", "FLAC", "MP3", "OGG", "AIFF"])
def test_seconds_of_a_recording_are_those_soundfile_has(container, tmp_path: Path):
    path = tmp_path / "sound"
    soundfile.write(path, noise(40_000) / 2.0**31, 16_000, format=container)
    whole = soundfile.info(path).frames / 16_000

    def seconds(**segment: float) -> float:
        return audio_seconds_of(Media("audio", path=str(path), **segment), LocalFiles(), LOCAL, "audio")

    assert seconds() == whole == audio_seconds_of(Media("audio", path.read_bytes()), LocalFiles(), LOCAL, "audio")
    assert seconds(offset=0.5) == pytest.approx(whole - 0.5)
    assert seconds(offset=0.5, duration=0.25) == 0.25
    with pytest.raises(SampleError, match="the segment is not within the recording"):
        seconds(offset=5.0)
