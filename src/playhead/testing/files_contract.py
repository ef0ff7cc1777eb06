"""The laws of `playhead.store.Files`, for every implementation and wrapper of it."""

from __future__ import annotations

import gc
import pickle
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import count
from threading import Event, Thread
from uuid import uuid4

from playhead.errors import DataError, StoreError
from playhead.store import Files, Ranges, Stamp
from playhead.testing.laws import try_laws
from playhead.testing.trial import Trial, Wanted, expect, expect_error, num_open, ranges_of

_SIZE = 50_000
_NUM_FILES = 24  # read by threads
_GUARD = b"\xaa" * 16  # around a buffer


def check_files(
    files: Files,
    write: Callable[[str, bytes], str],
    remove: Callable[[str], None] | None = None,
    *,
    mark_seconds: float = 0.02,
    can_list: bool = True,
    copy_reads: bool = True,
) -> None:
    """Try every law of `Files` on an implementation; an AssertionError says which one it breaks, and on what.

    `write(name, data)` puts a file in place, whole (as by a rename), also in place of an older one, and returns its
    path, which ends in the name; names have parts (`a/b`). `remove(path)` removes a file. `mark_seconds` is how far
    apart two writes must be for the modification marks to differ. `can_list=False` is for storage that lists by no
    wildcard, `copy_reads=False` for storage whose pickled copy does not have its files. It takes about a second where
    requests are quick.

        def test_our_store(tmp_path):
            store = OurStore(tmp_path)
            check_files(store, store.put, store.delete)
    """
    trial = Trial(files, write, remove, mark_seconds, can_list, copy_reads, f"contract-{uuid4().hex[:8]}")
    try_laws(_LAWS, trial)


def _ranges_are_read_in_the_order_given(trial: Trial) -> None:
    data = _noise(_SIZE)
    path = trial.put("order", data)
    for stamp in (trial.files.stamp(path), None):
        for wanted in _several_ranges():
            trial.expect_bytes("ranges are read in the order given", path, stamp, data, wanted)


def _empty_files_and_ranges_are_read(trial: Trial) -> None:
    law = "empty files and empty ranges are read"
    path = trial.put("empty", b"")
    for wanted in ([], [(0, 0)], [(0, 0), (0, 0)], [(7, 7)]):
        trial.expect_bytes(law, path, trial.files.stamp(path), b"", wanted)


def _what_was_read_stays_as_it_is(trial: Trial) -> None:
    data = _noise(_SIZE)
    path = trial.put("stays", data)
    stamp = trial.files.stamp(path)
    first = trial.files.read(path, stamp, Ranges([10, 4_000], [2_000, 6_000]))
    trial.files.read(path, stamp, Ranges([20_000, 30_000], [22_000, 32_000]))
    same = [bytes(part) for part in first] == [data[10:2_000], data[4_000:6_000]]
    expect(same, "what was read stays as it is", f"{path}: its parts changed with the next read")


def _past_the_end_is_an_error(trial: Trial) -> None:
    law = "a range past the end is a StoreError"
    path = trial.put("end", b"0123456789")
    stamp = trial.files.stamp(path)
    for wanted in ([(5, 11)], [(0, 2), (10, 11)], [(100, 101)], [(3, 4), (2, 1 << 50)], [(0, 1 << 40)]):
        trial.expect_refused(StoreError, law, path, stamp, wanted)
        trial.expect_refused(StoreError, law, path, None, wanted)
    into = [memoryview(bytearray(6))]
    expect_error(StoreError, law, path, lambda: trial.files.read(path, stamp, Ranges([5], [11]), into))


def _buffers_are_filled_and_nothing_beside_them(trial: Trial) -> None:
    law = "the buffers are filled, and nothing beside them"
    data = _noise(_SIZE)
    path = trial.put("buffers", data)
    stamp = trial.files.stamp(path)
    for wanted in _several_ranges():
        whole = [bytearray(_GUARD + bytes(end - first) + _GUARD) for first, end in wanted]
        into = [memoryview(buffer)[len(_GUARD) : -len(_GUARD)] for buffer in whole]
        found = trial.files.read(path, stamp, ranges_of(wanted), into)
        expect(len(found) == len(into), law, f"{path}: {len(into)} buffers, {len(found)} parts")
        for buffer, part, (first, end) in zip(whole, found, wanted, strict=True):
            expect(bytes(buffer) == _GUARD + data[first:end] + _GUARD, law, f"{path}, bytes {first} to {end}")
            expect(bytes(part) == data[first:end], law, f"{path}, what is returned for bytes {first} to {end}")


def _buffers_of_another_size_are_refused(trial: Trial) -> None:
    law = "a buffer of another size than its range is a ValueError, and nothing is written"
    path = trial.put("sizes", _noise(1_000))
    stamp = trial.files.stamp(path)
    ranges = Ranges([0, 20], [10, 30])
    for sizes in ([10, 9], [11, 10], [10], [10, 10, 10], [9, 11]):
        whole = [bytearray(size) for size in sizes]
        into = [memoryview(buffer) for buffer in whole]
        expect_error(ValueError, law, path, partial(trial.files.read, path, stamp, ranges, into))
        expect(not any(map(any, whole)), law, f"{path}: buffers of {sizes} bytes for two ranges of 10 were written to")


def _impossible_ranges_are_refused(trial: Trial) -> None:
    law = "a range that ends before it begins, or begins below 0, is a ValueError"
    path = trial.put("impossible", _noise(1_000))
    stamp = trial.files.stamp(path)
    for wanted in ([(20, 10)], [(0, 5), (20, 10), (30, 40)], [(-5, -2)], [(-5, 5), (7, 9)]):
        expect_error(ValueError, law, path, partial(trial.read, path, stamp, wanted))


def _stamps_change_with_the_file(trial: Trial) -> None:
    law = "a stamp has the size, and is another after every write"
    data = _noise(1_000)
    path = trial.put("stamps", data)
    first = trial.files.stamp(path)
    expect(first.size == 1_000, law, f"{path}: it has 1,000 bytes, the stamp says {first.size:,}")
    expect(trial.files.stamp(path) == first, law, f"{path}: it was not written to, and its stamp changed")
    trial.replace("stamps", data + b"x")
    expect(trial.files.stamp(path).size == 1_001, law, f"{path}: it has one byte more")
    trial.replace("stamps", data[::-1])
    expect(trial.files.stamp(path) != first, law, f"{path}: it was written over with as many bytes")


def _a_changed_file_is_never_read_as_the_old_one(trial: Trial) -> None:
    law = "no byte of a changed file is read under the old stamp"
    old = _noise(_SIZE)
    for name, new in {"longer": old + b"x", "other": old[::-1], "shorter": old[::-1][:-100], "cut": b"x"}.items():
        for is_open in (True, False):
            path = trial.put(f"{name}-{is_open}", old)
            stamp = trial.files.stamp(path)
            if is_open:
                trial.expect_bytes(law, path, stamp, old, [(0, 10)])
            trial.replace(f"{name}-{is_open}", new)
            trial.expect_old_or_refused(law, path, stamp, old)
            wanted = [(0, 1), (0, len(new))]
            trial.expect_bytes("without a stamp a file is read as it is now", path, None, new, wanted)
            now = trial.files.stamp(path)
            trial.expect_bytes("a changed file is read under its new stamp", path, now, new, wanted)
            trial.expect_old_or_refused(law, path, stamp, old)


def _old_and_new_bytes_are_never_mixed(trial: Trial) -> None:
    """Every version is new: a store may mark its files by what they contain."""
    path, stop = trial.put("mixed", _version(0)), Event()

    def replace_again_and_again() -> None:
        for number in count(1):
            if stop.is_set():
                return
            trial.put("mixed", _version(number))

    writer = Thread(target=replace_again_and_again)
    writer.start()
    try:
        for _ in range(60):
            stamp = trial.files.stamp(path)
            try:
                parts = trial.read(path, stamp, [(0, 1_000), (2_992, 3_000), (504, 2_504)])
            except StoreError:
                continue
            numbers = {part[i : i + 8] for part in map(bytes, parts) for i in range(0, len(part), 8)}
            expect(len(numbers) == 1, "old and new bytes are never mixed", f"{path}: replaced while read")
    finally:
        stop.set()
        writer.join()


def _version(number: int) -> bytes:
    return number.to_bytes(8, "little") * 375


def _missing_files_are_data_errors(trial: Trial) -> None:
    law = "a file that does not exist is a DataError, unless it was stamped"
    path = trial.put("missing", b"x") + "-not"
    expect_error(DataError, law, path, lambda: trial.files.stamp(path))
    expect_error(DataError, law, path, lambda: trial.files.list(path))
    trial.expect_refused(DataError, law, path, None, [(0, 1)])
    trial.expect_refused(StoreError, law, path, Stamp(1, 1), [(0, 1)])
    if trial.remove is None:
        return
    data = _noise(3_000)
    for is_open in (True, False):
        path = trial.put(f"removed-{is_open}", data)
        stamp = trial.files.stamp(path)
        if is_open:
            trial.expect_bytes(law, path, stamp, data, [(0, 10)])
        trial.remove(path)
        trial.expect_old_or_refused(law, path, stamp, data)
        expect_error(DataError, law, path, partial(trial.files.stamp, path))
        trial.expect_refused(DataError, law, path, None, [(0, 1)])


def _patterns_list_what_they_name(trial: Trial) -> None:
    law = "a pattern lists the files it names, sorted"
    names = ["b1.txt", "a2.txt", "a1.txt", "a1.bin", "deep/a3.txt", "deep/er/a4.txt", ".a5.txt"]
    paths = {name: trial.put(f"list/{name}", b"x") for name in names}
    patterns = {"b1.txt": ["b1.txt"]}
    if trial.can_list:
        patterns |= {
            "*.txt": ["a1.txt", "a2.txt", "b1.txt"],
            "a?.*": ["a1.bin", "a1.txt", "a2.txt"],
            "[!a]*.txt": ["b1.txt"],
            "*/*.txt": ["deep/a3.txt"],
            "**/a[34].txt": ["deep/a3.txt", "deep/er/a4.txt"],
            "c*": [],
        }
    for pattern, expected in patterns.items():
        found = list(trial.files.list(paths["b1.txt"].removesuffix("b1.txt") + pattern))
        expect(found == [paths[name] for name in expected], law, f"{pattern}: {found}, expected {expected}")


def _threads_may_share_one(trial: Trial) -> None:
    contents = [_noise(4_000, seed) for seed in range(_NUM_FILES)]
    paths = [trial.put(f"threads/{i:02}", data) for i, data in enumerate(contents)]
    stamps = [trial.files.stamp(path) for path in paths]

    def read_many(seed: int) -> None:
        chosen = random.Random(seed)  # noqa: S311 - no secret
        for _ in range(40):
            i, first = chosen.randrange(_NUM_FILES), chosen.randrange(3_000)
            stamp = chosen.choice([stamps[i], stamps[i], None])
            trial.expect_bytes("threads may share one storage", paths[i], stamp, contents[i], [(first, first + 900)])

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(read_many, range(8)))


def _copies_hold_nothing_open(trial: Trial) -> None:
    law = "a pickled copy reads the same and holds nothing open, nor is anything open when it is gone"
    data = [_noise(100, seed) for seed in range(8)]
    paths = [trial.put(f"copies/{i}", part) for i, part in enumerate(data)]
    stamps = [trial.files.stamp(path) for path in paths]
    for path, stamp, part in zip(paths, stamps, data, strict=True):
        trial.expect_bytes(law, path, stamp, part, [(0, 100)])
    gc.collect()
    before = num_open()
    copy = replace(trial, files=pickle.loads(pickle.dumps(trial.files)))  # noqa: S301 - our own
    expect(num_open() <= before, law, "a copy that was not used")
    for path, stamp, part in zip(paths, stamps, data, strict=True):
        if trial.copy_reads:
            copy.expect_bytes(law, path, stamp, part, [(0, 100)])
    del copy
    gc.collect()
    expect(num_open() <= before, law, "a copy that is gone")


_LAWS = (
    _ranges_are_read_in_the_order_given,
    _empty_files_and_ranges_are_read,
    _what_was_read_stays_as_it_is,
    _past_the_end_is_an_error,
    _buffers_are_filled_and_nothing_beside_them,
    _buffers_of_another_size_are_refused,
    _impossible_ranges_are_refused,
    _stamps_change_with_the_file,
    _a_changed_file_is_never_read_as_the_old_one,
    _old_and_new_bytes_are_never_mixed,
    _missing_files_are_data_errors,
    _patterns_list_what_they_name,
    _threads_may_share_one,
    _copies_hold_nothing_open,
)


def _noise(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size)  # noqa: S311 - no secret


def _several_ranges() -> list[Wanted]:
    """None, one, the whole file, in order, backwards, far apart, overlapping, repeated, empty also past the end."""
    chosen = random.Random(0)  # noqa: S311 - no secret
    parts = [(first, first + 70) for first in range(0, 2_100, 70)]
    far = [(first, first + chosen.randrange(900)) for first in (chosen.randrange(_SIZE - 900) for _ in range(20))]
    return [
        [],
        [(0, _SIZE)],
        parts,
        parts[::-1],
        far,
        [(0, 500), (100, 200), (0, 500), (499, 501), (200, 300)],
        [(_SIZE, _SIZE), (_SIZE - 10, _SIZE), (_SIZE + 5, _SIZE + 5), (3, 3), (0, 0), (2, 4)],
    ]
