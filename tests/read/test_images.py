"""Images decoded, against Pillow's own way of opening them."""

from __future__ import annotations

import io
import subprocess
import sys
import textwrap
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps, PngImagePlugin

from playhead.errors import DataError, SampleError
from playhead.formats.media import Media
from playhead.read.headers import UndecodedRow
from playhead.read.images import delivered_size
from playhead.read.media import decode_media
from playhead.read.media_rules import MediaRules, media_rules
from playhead.read.stored import read_arrays
from playhead.recipe.values import ImageOptions
from playhead.store import CountingFiles, Extent, LocalFiles, MemoryFiles, open_file
from playhead.testing import FaultyFiles
from read.image_files import CONTAINERS, chunk, deep_png, encoded, gif_of, picture, png_of, tiff_of, turned, webp_of
from read.wav_files import noise, written

LOCAL = media_rules(["/data/rows.jsonl"])
IN_MEMORY = media_rules(["memory://data/rows.jsonl"])
TURNED = ["JPEG", "TIFF", "PNG", "WebP"]


def decoded(data: bytes, rules: MediaRules = LOCAL, **how: Any) -> np.ndarray[Any, Any]:
    """The image as a map is given it; what is wrong with it is raised."""
    rows = [{"picture": Media("image", data)}]
    samples, problem = decode_media(rows, MemoryFiles(), rules, image=ImageOptions(**how))
    if problem is not None:
        raise problem
    (sample,) = read_arrays(samples)
    assert list(sample) == ["picture"]
    assert sample["picture"].dtype == np.uint8
    assert sample["picture"].flags.writeable
    return sample["picture"]


def by_pillow(data: bytes, mode: str | None = None) -> Image.Image:
    image = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    return image if mode is None else image.convert(mode)


def pixels(image: Image.Image) -> list[Any]:
    return np.asarray(image).tolist()


@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA"])
@pytest.mark.parametrize("container", CONTAINERS)
def test_pixels_are_those_that_pillow_has(container: str, mode: str) -> None:
    if container == "JPEG" and mode == "RGBA":
        pytest.skip("JPEG has no transparency")
    data = encoded(picture(mode=mode), container)
    stored = by_pillow(data)
    if stored.mode in ("RGB", "L", "RGBA"):
        assert decoded(data).tolist() == pixels(stored)
    for wanted in ("RGB", "L", "RGBA"):
        found = decoded(data, mode=wanted)
        assert found.shape == (23, 37, *([] if wanted == "L" else [len(wanted)]))
        assert found.tolist() == pixels(by_pillow(data).convert(wanted))


def with_transparency(colour: int | bytes, container: str = "PNG") -> bytes:
    return encoded(picture().quantize(16), container, transparency=colour)


def animated(container: str) -> bytes:
    others = [picture(seed=seed) for seed in (1, 2)]
    return encoded(
        picture(), container, save_all=True, append_images=others, **({} if container == "GIF" else LOSSLESS)
    )


LOSSLESS = {"lossless": True}

# What is stored in other modes: the mode that it is delivered in, unless the recipe names another.
STORED = {
    "a palette": (encoded(picture().quantize(16), "PNG"), "RGB"),
    "a palette with a transparent colour": (with_transparency(3), "RGBA"),
    "a palette with transparencies": (with_transparency(bytes(range(16))), "RGBA"),
    "a GIF with a transparent colour": (with_transparency(3, "GIF"), "RGBA"),
    "a GIF of grey, by a palette": (encoded(picture(mode="L"), "GIF"), "RGB"),
    "an animated GIF": (animated("GIF"), "RGB"),
    "an animated WebP": (animated("WebP"), "RGB"),
    "an animated PNG": (encoded(picture(), "PNG", save_all=True, append_images=[picture(seed=1)]), "RGB"),
    "black and white": (encoded(picture(mode="1"), "PNG"), "L"),
    "grey with transparency": (encoded(picture(mode="LA"), "PNG"), "RGBA"),
    "a transparent colour in RGB": (encoded(picture(), "PNG", transparency=(1, 2, 3)), "RGB"),
    "a JPEG of CMYK": (encoded(picture(mode="CMYK"), "JPEG"), "RGB"),
    "a TIFF of CMYK": (encoded(picture(mode="CMYK"), "TIFF"), "RGB"),
    "a TIFF of YCbCr": (encoded(picture(mode="YCbCr"), "TIFF", compression="jpeg"), "RGB"),
    "a TIFF of LAB": (encoded(picture(mode="LAB"), "TIFF"), "RGB"),
    "a TIFF by LZW": (encoded(picture(), "TIFF", compression="tiff_lzw"), "RGB"),
    "a BMP of black and white": (encoded(picture(mode="1"), "BMP"), "L"),
}


@pytest.mark.parametrize(("data", "mode"), STORED.values(), ids=STORED)
def test_other_modes_are_delivered_in_the_nearest_of_three(data: bytes, mode: str) -> None:
    assert decoded(data).tolist() == pixels(by_pillow(data, mode))


@pytest.mark.filterwarnings("ignore:Palette images with Transparency")  # of Pillow's own conversion
@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA"])
@pytest.mark.parametrize("name", [name for name in STORED if name != "a TIFF of LAB"])
def test_a_mode_that_is_named_is_pillow_s_conversion(name: str, mode: str) -> None:
    data, _ = STORED[name]
    assert decoded(data, mode=mode).tolist() == pixels(by_pillow(data, mode))


def test_conversions_warn_of_nothing() -> None:
    for data, _ in STORED.values():
        decoded(data, mode="RGB")


@pytest.mark.parametrize("mode", [None, "RGB", "L"])
def test_of_16_bits_the_higher_8_are_kept_in_grey_as_in_colours(mode: str | None) -> None:
    grey = np.random.default_rng(0).integers(0, 1 << 16, (23, 37)).astype(np.uint16)
    colours = np.random.default_rng(1).integers(0, 1 << 16, (23, 37, 3)).astype(np.uint16)
    assert decoded(deep_png(colours)).tolist() == (colours >> 8).tolist() == pixels(by_pillow(deep_png(colours)))
    in_grey = Image.fromarray((grey >> 8).astype(np.uint8))
    expected = pixels(in_grey if mode is None else in_grey.convert(mode))
    big_endian = Image.frombytes("I;16B", (37, 23), grey.astype(">u2").tobytes())
    for data in (deep_png(grey), encoded(Image.fromarray(grey), "TIFF"), encoded(big_endian, "TIFF")):
        assert decoded(data, mode=mode).tolist() == expected


@pytest.mark.parametrize("values", [np.ones((4, 4), np.float32), np.ones((4, 4), np.int32)])
def test_numbers_without_a_range_are_refused(values: Any) -> None:
    with pytest.raises(SampleError, match='the bytes in "picture": its pixels are numbers without a range') as caught:
        decoded(encoded(Image.fromarray(values), "TIFF"))
    assert "`media: false`" in str(caught.value.fix)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("container", TURNED)
def test_images_are_turned_upright(container: str, orientation: int) -> None:
    data = turned(orientation, container)
    found = decoded(data)
    assert found.tolist() == pixels(by_pillow(data))
    assert found.shape[:2] == ((37, 23) if orientation >= 5 else (23, 37))


def test_an_orientation_in_xmp_counts_where_exif_has_none() -> None:
    xmp = '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:Description tiff:Orientation="6"/></x:xmpmeta>'
    text = PngImagePlugin.PngInfo()
    text.add_itxt("XML:com.adobe.xmp", xmp)
    ways: dict[str, dict[str, Any]] = {
        "JPEG": {"xmp": xmp.encode()},
        "WebP": {"xmp": xmp.encode()},
        "TIFF": {"tiffinfo": {700: xmp.encode()}},
        "PNG": {"pnginfo": text},
    }
    for container, how in ways.items():
        data = encoded(picture(), container, **how)
        assert planned_size(data) == (23, 37)
        assert decoded(data).tolist() == pixels(by_pillow(data))


@pytest.mark.filterwarnings("ignore:Corrupt EXIF")
@pytest.mark.parametrize("exif", [b"Exif\0\0no EXIF", b"Exif\0\0II*\0\xff\xff\xff\xff", b"Exif\0\0"])
def test_an_orientation_that_cannot_be_read_turns_nothing(exif: bytes) -> None:
    plain, odd = encoded(picture(), "JPEG"), encoded(picture(), "JPEG", exif=exif)
    assert decoded(odd).tolist() == decoded(plain).tolist()


def test_an_orientation_after_the_pixels_of_a_png_turns_neither_the_image_nor_its_planned_size() -> None:
    plain, before = encoded(picture()), turned(6, "PNG")
    place = before.index(b"eXIf") - 4
    size = int.from_bytes(before[place : place + 4], "big") + 12
    after = before[:place] + before[place + size : -12] + before[place : place + size] + before[-12:]
    assert planned_size(before) == (23, 37)
    assert planned_size(after) == (37, 23)
    assert decoded(after).tolist() == decoded(plain).tolist()


def test_images_are_resized_by_pillow_s_bicubic_filter() -> None:
    data = turned(6)
    for size in ((50, 10), (5, 90), (23, 37)):
        assert decoded(data, size=size).tolist() == pixels(by_pillow(data).resize(size, Image.Resampling.BICUBIC))
    clear = encoded(picture(mode="RGBA"))
    small = by_pillow(clear).resize((8, 4), Image.Resampling.BICUBIC)
    assert decoded(clear, size=(8, 4)).tolist() == pixels(small)
    grey = by_pillow(data, "L").resize((9, 9), Image.Resampling.BICUBIC)
    assert decoded(data, size=(9, 9), mode="L").tolist() == pixels(grey)


@given(width=st.integers(1, 5000), height=st.integers(1, 5000), length=st.integers(1, 600))
def test_one_side_is_as_long_as_was_said_and_the_other_keeps_the_aspect_ratio(
    width: int, height: int, length: int
) -> None:
    size = width, height
    shortest = delivered_size(size, ImageOptions(shortest=length))
    assert min(shortest) == length
    assert max(shortest) == int(length * max(size) / min(size))  # as torchvision's Resize has it
    longest = delivered_size(size, ImageOptions(longest=length))
    assert max(longest) == length
    assert min(longest) == max(1, int(length * min(size) / max(size)))
    for found in (shortest, longest):
        assert (found[0] - found[1]) * (width - height) >= 0
    assert delivered_size(size, ImageOptions(size=(3, 9))) == (3, 9)
    assert delivered_size(size, ImageOptions(mode="L")) == size


def planned_size(data: bytes, **how: Any) -> tuple[int, int]:
    return UndecodedRow({"a": Media("image", data)}, MemoryFiles(), LOCAL, ImageOptions(**how)).image_size("a")


OPTIONS = st.one_of(
    st.just({}),
    st.just({"mode": "L"}),
    st.tuples(st.integers(1, 80), st.integers(1, 80)).map(lambda size: {"size": size}),
    st.integers(1, 80).map(lambda length: {"shortest": length}),
    st.integers(1, 80).map(lambda length: {"longest": length}),
)


@settings(max_examples=300, deadline=None)
@given(
    container=st.sampled_from(CONTAINERS),
    width=st.integers(1, 120),
    height=st.integers(1, 120),
    orientation=st.integers(1, 8),
    how=OPTIONS,
)
def test_an_image_has_the_size_that_was_planned_from_its_header(
    container: str, width: int, height: int, orientation: int, how: dict[str, Any]
) -> None:
    image = Image.new("RGB", (width, height), (9, 99, 200))
    data = turned(orientation, container, image) if container in TURNED else encoded(image, container)
    height, width = decoded(data, **how).shape[:2]
    assert planned_size(data, **how) == (width, height)


BOMBS = {
    "a PNG": png_of(50_000, 50_000, b""),
    "a long PNG": png_of(1, 1 << 30, b""),
    "a GIF": gif_of((60_000, 60_000), (10, 10)),
    "a GIF by its frame": gif_of((10, 10), (60_000, 50_000), dispose=2),
    "a WebP": webp_of(16_000, 16_000),
    "a TIFF": tiff_of((60_000, 60_000), bytes(100)),
    "a TIFF by its tiles": tiff_of((16, 16), bytes(100), tile=(40_000, 40_000)),
    "a BMP": encoded(picture(mode="1"), "BMP").replace(b"\x25\0\0\0\x17\0\0\0", b"\0\0\1\0\0\0\1\0"),
}


@pytest.mark.parametrize("data", BOMBS.values(), ids=BOMBS)
def test_an_image_of_too_many_pixels_is_refused_by_its_header(data: bytes) -> None:
    with pytest.raises(SampleError, match='the bytes in "picture": is too large for one sample') as caught:
        decoded(data)
    assert caught.value.expected == "67,108,864 pixels at most"
    assert "`media: {max_pixels: ...}`" in str(caught.value.fix)


def test_limits_may_be_lowered_and_raised() -> None:
    data = encoded(picture(100, 100))
    assert decoded(data, MediaRules((), max_pixels=10_000)).shape == (100, 100, 3)
    with pytest.raises(SampleError, match="is too large") as caught:
        decoded(data, MediaRules((), max_pixels=9_999))
    assert caught.value.found == "100 x 100 pixels"
    with pytest.raises(SampleError, match="is too large") as caught:
        decoded(data, MediaRules((), max_bytes=len(data) - 1))
    assert caught.value.found == f"{len(data):,} bytes"
    flat = encoded(Image.new("L", (100, 100)))
    with pytest.raises(SampleError, match="is too large") as caught:
        decoded(flat, MediaRules((), max_bytes=39_999))
    assert caught.value.expected == "39,999 bytes at most, 4 for a pixel"


def test_what_an_image_is_resized_to_has_the_same_limits() -> None:
    thin = encoded(Image.new("L", (1, 60_000)), "PNG")
    for how in ({"shortest": 2000}, {"size": (2000, 10)}):  # all rows are resized before the columns
        with pytest.raises(SampleError, match="is too large") as caught:
            decoded(thin, **how)
        assert caught.value.found == "1 x 60,000 pixels, " + (
            "240,000,000,000 of them while it is decoded and resized"
            if "shortest" in how
            else "120,000,000 of them while it is decoded and resized"
        )
    assert decoded(thin, size=(10, 10)).shape == (10, 10)


def test_a_file_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(encoded(picture(900, 700)))
    files = CountingFiles(LocalFiles())
    rules = MediaRules((str(tmp_path),), max_bytes=100_000)
    samples, problem = decode_media([{"a": Media("image", path=str(path))}], files, rules)
    assert samples == []
    assert "is too large for one sample" in str(problem)
    assert files.counts["bytes"] <= 1 << 14


def test_data_that_unpacks_to_much_more_is_refused() -> None:
    text = chunk(b"zTXt", b"comment\0\0" + zlib.compress(bytes(80 << 20)))
    data = encoded(picture())
    with pytest.raises(SampleError, match="is not a PNG file that can be decoded"):
        decoded(data[:33] + text + data[33:])


BOUNDED = """
    import resource, sys
    from playhead.errors import SampleError
    from read.test_images import BOMBS, decoded, encoded, picture

    assert decoded(encoded(picture())).shape == (23, 37, 3)
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20),) * 2)
    for name, data in BOMBS.items():
        try:
            decoded(data)
        except SampleError as error:
            assert "is too large for one sample" in str(error), (name, error)
        else:
            raise AssertionError(name)
    print("refused")
"""


def test_no_memory_is_taken_for_what_is_refused() -> None:
    tests = str(Path(__file__).parent.parent)
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {tests!r})\n" + textwrap.dedent(BOUNDED)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "refused\n", done.stderr


@pytest.mark.parametrize("container", CONTAINERS)
def test_an_image_cut_short_anywhere_is_a_bad_sample_or_whole(container: str) -> None:
    data = encoded(picture(), container)
    whole = decoded(data).tolist()
    refused = 0
    for end in range(0, len(data), 7):
        try:
            assert decoded(data[:end]).tolist() == whole
        except SampleError as error:
            refused += str(error).startswith('the bytes in "picture": ')
    assert refused > 0.9 * len(data) / 7


@pytest.mark.filterwarnings("ignore")  # Pillow warns of odd metadata
@pytest.mark.parametrize("container", CONTAINERS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_broken_bytes_give_an_image_of_the_planned_size_or_a_bad_sample(container: str, data: st.DataObject) -> None:
    image = bytearray(turned(6, container) if container in TURNED else encoded(picture(), container))
    for _ in range(data.draw(st.integers(1, 4))):
        image[data.draw(st.integers(0, min(len(image), 200) - 1))] = data.draw(st.integers(0, 255))
    rules = MediaRules((), max_pixels=1 << 20)
    try:
        found = decoded(bytes(image), rules, shortest=20)
    except SampleError:
        return
    assert planned_size(bytes(image), shortest=20) == found.shape[1::-1]


WITHOUT_PILLOW = """
    import sys
    sys.modules["PIL"] = None
    from playhead import RecipeError
    from playhead.formats.media import Media
    from playhead.read.media import decode_media
    from playhead.read.media_rules import media_rules
    from playhead.store import MemoryFiles

    data = bytes.fromhex(sys.argv[1])
    try:
        decode_media([{"a": Media("image", data)}], MemoryFiles(), media_rules(["/data/a.jsonl"]))
    except RecipeError as error:
        print(error)
"""


@pytest.mark.parametrize("container", CONTAINERS)
def test_without_pillow_the_error_names_the_extra(container: str) -> None:
    data = encoded(picture(4, 4), container).hex()
    command = [sys.executable, "-c", textwrap.dedent(WITHOUT_PILLOW), data]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "images need the package Pillow" in done.stdout
    assert "pip install 'playhead[image]'" in done.stdout


def test_images_are_found_by_path_url_and_place_in_a_file(tmp_path: Path) -> None:
    data = encoded(picture(600, 500), "JPEG", quality=95)
    expected = decoded(data)
    path = tmp_path / "no-image.txt"
    path.write_bytes(b"before" + data + b"after")
    part = Extent(open_file(LocalFiles(), str(path)), 6, 6 + len(data), data[:40])
    (tmp_path / "a.png").write_bytes(data)  # what it is, its bytes say
    rows: list[dict[str, Any]] = [{"a": Media("image", path="a.png", base=str(tmp_path))}, {"a": Media("image", part)}]
    samples, problem = decode_media(rows, LocalFiles(), LOCAL)
    assert problem is None
    assert all(np.array_equal(sample["a"], expected) for sample in read_arrays(samples))
    files = MemoryFiles()
    files.write("memory://data/a.jpg", data)
    counted = CountingFiles(FaultyFiles(files, latency_seconds=1e-6))  # where requests cost, a small file is read whole
    rows = [
        {"a": Media("image", path="a.jpg", base="memory://data")},
        {"a": Media("image", path="memory://data/a.jpg")},
    ]
    samples, problem = decode_media(rows, counted, IN_MEMORY)
    assert problem is None
    first, second = (sample["a"] for sample in read_arrays(samples))
    assert np.array_equal(first, expected)
    first[:] = 0
    assert np.array_equal(second, expected)
    assert (counted.counts["stamp"], counted.counts["read"]) == (1, 1)


@pytest.mark.parametrize("path", ["/etc/a.png", "s3://other/a.png", "../../a.png", "http://169.254.169.254/a.png"])
def test_images_elsewhere_are_not_fetched(path: str) -> None:
    files = CountingFiles(MemoryFiles())
    rows = [{"a": Media("image", path=path, base="memory://data/rows")}]
    samples, problem = decode_media(rows, files, IN_MEMORY)
    assert samples == []
    assert isinstance(problem, SampleError)
    assert not files.counts["read"]


def test_an_image_that_is_missing_is_named() -> None:
    _, problem = decode_media([{"a": Media("image", path="memory://data/b.png")}], MemoryFiles(), IN_MEMORY)
    assert isinstance(problem, DataError)
    assert "memory://data/b.png: no such file" in str(problem)


def test_media_of_both_kinds_may_be_in_one_sample() -> None:
    row = {"n": 1, "wav": Media("audio", written(noise(100), 8000)), "png": Media("image", encoded(picture()))}
    (sample,), problem = decode_media([row], MemoryFiles(), LOCAL)
    assert problem is None
    assert list(sample) == ["n", "wav", "wav_rate", "png"]
    assert sample["png"].shape == (23, 37, 3)
    assert sample["wav"].shape == (100,)


def test_audio_is_no_image_and_an_image_no_audio() -> None:
    for kind, data in (("image", written(noise(100), 8000)), ("audio", encoded(picture()))):
        samples, problem = decode_media([{"a": Media(kind, data)}], MemoryFiles(), LOCAL)
        assert samples == []
        assert f"unsupported {kind}" in str(problem)
