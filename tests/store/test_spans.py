"""Byte ranges read many at a time: always what a plain read of each would give, or an error that names the file."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.errors import StoreError
from playhead.store import OpenFiles, Spans, read_spans, spans, stamp

SIZE = 300_000


def these(*ranges: tuple[int, int]) -> Spans:
    return Spans([first for first, _ in ranges], [end for _, end in ranges])


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("spans")
    noise = np.random.default_rng(0)
    for i in range(12):
        (folder / f"{i:02}").write_bytes(noise.bytes(SIZE))
    return sorted(str(path) for path in folder.iterdir())


def plain(path: str, first: int, end: int) -> bytes:
    return Path(path).read_bytes()[first:end]


@st.composite
def wanted(draw: st.DrawFn) -> list[tuple[int, int, int]]:
    """Ranges of a few files: near and far, overlapping, repeated, empty, up to the last byte."""
    far = st.integers(0, SIZE)
    near = st.integers(0, 200)
    start = st.one_of(far, near, near.map(lambda n: SIZE - n))
    ranges = st.tuples(st.integers(0, 2), start, st.one_of(near, st.integers(0, 40_000)))
    return [(file, first, min(first + size, SIZE)) for file, first, size in draw(st.lists(ranges, max_size=12))]


@given(found=wanted(), most_joined=st.sampled_from([1, 5_000, spans.MOST_JOINED_BYTES]))
def test_ranges_are_what_plain_reads_give_in_the_order_asked(
    files: list[str], found: list[tuple[int, int, int]], most_joined: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spans, "MOST_JOINED_BYTES", most_joined)
        paths, ranges = [files[file] for file, _, _ in found], [(first, end) for _, first, end in found]
        expected = [plain(path, *span) for path, span in zip(paths, ranges, strict=True)]
        assert OpenFiles(most_open=2)(paths, these(*ranges)) == expected
        assert read_spans(paths, these(*ranges)) == expected


def test_near_ranges_are_joined_and_far_ones_are_not(files: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    pread = os.pread

    def counted(descriptor: int, size: int, offset: int) -> bytes:
        asked.append((offset, size))
        return pread(descriptor, size, offset)

    monkeypatch.setattr(os, "pread", counted)
    read_spans([files[0]] * 4, these((400, 500), (0, 100), (100, 150), (90_000, 90_010)))
    assert asked == [(0, 500), (90_000, 10)]


def test_few_files_stay_open_and_all_are_closed_at_the_end(files: list[str]) -> None:
    def num_open() -> int:
        return sum(_target(link).startswith(str(Path(files[0]).parent)) for link in Path("/proc/self/fd").iterdir())

    reader = OpenFiles(most_open=3)
    for path in files:
        reader([path], these((0, 10)))
        assert num_open() <= 3
    kept = num_open()
    assert kept == 3
    reader(files[-3:], these(*[(0, 10)] * 3))
    del reader
    assert num_open() == 0


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:
        return ""


def test_threads_that_share_files_never_read_one_another_s(files: list[str]) -> None:
    """One file open at a time, eight threads: a descriptor closed too early would soon be another file's."""
    reader = OpenFiles(most_open=1)
    contents = {path: Path(path).read_bytes() for path in files}

    def read_many(seed: int) -> int:
        noise = np.random.default_rng(seed)
        wrong = 0
        for _ in range(1500):
            path = files[int(noise.integers(len(files)))]
            first = int(noise.integers(SIZE - 4_000))
            wrong += reader([path], these((first, first + 4_000))) != [contents[path][first : first + 4_000]]
        return wrong

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as threads:
            assert sum(threads.map(read_many, range(8))) == 0
    finally:
        sys.setswitchinterval(interval)


def grown(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


def written_over(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"other")
    os.utime(path, ns=(5, 5))


def cut_short(path: Path) -> None:
    os.truncate(path, 10)


@pytest.mark.parametrize("change", [grown, written_over, cut_short])
@pytest.mark.parametrize("is_open", [True, False])
def test_a_file_that_changed_is_refused_also_while_it_is_open(
    tmp_path: Path, change: Callable[[Path], None], is_open: bool
) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x" * 1000)
    before = stamp(str(path))
    reader = OpenFiles({str(path): before}.get)
    if is_open:
        assert reader([str(path)], these((0, 3))) == [b"xxx"]
    change(path)
    for _ in range(2):  # it is not forgotten either
        with pytest.raises(StoreError, match=f"{path}: changed since it was indexed") as caught:
            reader([str(path)], these((0, 900)))
        assert f"modification mark {before.mark}" in str(caught.value.expected)
    path.write_bytes(b"x" * 1000)
    os.utime(path, ns=(before.mark, before.mark))
    assert reader([str(path)], these((0, 3))) == [b"xxx"]  # restored


def test_a_file_that_vanished_is_named_unless_it_is_open(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"hello")
    reader = OpenFiles()
    assert reader([str(path)], these((0, 2))) == [b"he"]
    path.unlink()
    assert reader([str(path)], these((1, 5))) == [b"ello"]  # as the system has it
    with pytest.raises(StoreError, match=f"{path}: no such file"):
        OpenFiles()([str(path)], these((0, 2)))


def test_a_range_past_the_end_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"hello")
    for ranges in ([(2, 9)], [(0, 1), (2, 9)], these((0, 1), (200_000, 200_001))):
        with pytest.raises(StoreError, match=f"{path}: ends before the row does"):
            read_spans([str(path)] * len(ranges), these(*ranges))


def test_no_more_files_are_opened_than_the_system_allows(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert soft > spans.MOST_OPEN or hard == soft
    for i in range(spans.MOST_OPEN + 50):
        (tmp_path / str(i)).write_bytes(b"x")
    reader = OpenFiles()
    paths = [str(path) for path in tmp_path.iterdir()]
    assert reader(paths, these(*[(0, 1)] * len(paths))) == [b"x"] * len(paths)
    assert len(reader._files) == spans.MOST_OPEN
