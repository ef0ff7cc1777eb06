"""The laws of a format, run on small files of it; see `check_format`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from playhead.errors import PlayheadError, StoreError
from playhead.formats.rows import Fetch, Sample
from playhead.index.layout import Layout, layout_of
from playhead.index.opened import Index, open_index
from playhead.prepare import prepare
from playhead.read.row_decoder import read_rows
from playhead.recipe.tree import leaves
from playhead.recipe.values import Recipe
from playhead.store import all_files

_NUM_CUTS = 12


def check_format(source: Mapping[str, Any], files: Mapping[str, bytes], samples: Sequence[Sample]) -> None:
    """Check that a format reads small files right, and refuses broken ones.

    `source` is a source of a recipe (`format`, `path`, `options`, `length`, ...) whose paths are relative; `files` are
    the contents of its files by name; `samples` are what they hold, in order, before decoding. In a test:

        check_format({"format": "mine", "path": "*.mine"}, {"a.mine": b"..."}, samples=[{"id": "x"}])

    Laws: as many rows are scanned as are read, in any order and number at a time; the bytes of the index are the same
    for one and several workers; a file that changed is refused; of a file that is empty or cut short no wrong sample
    comes, and what goes wrong names the file.
    """
    with TemporaryDirectory() as folder:
        whole = _Written(Path(folder) / "whole", source, files)
        _check_rows(whole, samples)
        _check_workers(whole)
        for number, name in enumerate(files):
            _check_changed(_Written(Path(folder) / f"changed{number}", source, files), name)
            cuts = sorted({len(files[name]) * part // _NUM_CUTS for part in range(_NUM_CUTS)})
            for size in cuts:
                cut = {**files, name: files[name][:size]}
                _check_cut(_Written(Path(folder) / f"cut{number}to{size}", source, cut), name, samples)


class _Written:
    """The files of a case in a directory, and what can be asked of them."""

    def __init__(self, directory: Path, source: Mapping[str, Any], files: Mapping[str, bytes]) -> None:
        self.directory, self.names = directory, tuple(files)
        for name, data in files.items():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_bytes(data)
        values = {"sources": [{"name": "contract", **source}], "batching": {"type": "fixed", "size": 1}}
        self._recipe = Recipe.parse({**values, "sequence": None, "cache_dir": "cache"}, base_dir=directory)

    @property
    def layout(self) -> Layout:
        return layout_of(leaves(self._recipe)[0], self._recipe)

    def index(self, **how: Any) -> Index:
        prepare(self._recipe, **how)
        index = open_index(self.layout.directory)
        assert index is not None
        return index

    def samples(self, index: Index, rows: Sequence[int]) -> list[Sample]:
        """Some raw rows, read by a reader of their own."""
        layout, files = self.layout, all_files(self._recipe.cache_dir, "refuse")
        reader = layout.registered.format.open(layout.leaf.source, files)
        return read_rows(reader.read, index.locate(np.array(rows, dtype=np.int64), Fetch(files, index.stamps)))


def _check_rows(whole: _Written, samples: Sequence[Sample]) -> None:
    index = whole.index()
    count = index.meta.num_rows
    assert count == len(samples), f"the scan finds {count:,} rows, and there are {len(samples):,} samples"
    forward = list(range(count))
    orders = {
        "in order": forward,
        "backwards": forward[::-1],
        "every other, then the rest": forward[::2] + forward[1::2],
        "the first and the last, twice each": [0, 0, count - 1, count - 1],
    }
    for name, rows in orders.items():
        found = whole.samples(index, rows)
        for row, sample in zip(rows, found, strict=True):
            assert _same(sample, samples[row]), f"read {name}, row {row:,} is {sample!r}, not {samples[row]!r}"
    for row in forward:
        (sample,) = whole.samples(index, [row])
        assert _same(sample, samples[row]), f"read alone, row {row:,} is {sample!r}, not {samples[row]!r}"


def _check_workers(whole: _Written) -> None:
    written = []
    for how in ({"workers": 1, "processes": False}, {"workers": 3, "processes": True}, {"memory_mb": 8}):
        directory = whole.index(force=True, **how).directory
        written.append({path.relative_to(directory): path.read_bytes() for path in directory.rglob("*.npy")})
    for other in written[1:]:
        differing = [str(name) for name in written[0] | other if written[0].get(name) != other.get(name)]
        assert not differing, f"the bytes of {', '.join(differing)} depend on workers or memory"


def _check_changed(whole: _Written, name: str) -> None:
    index = whole.index()
    with (whole.directory / name).open("ab") as file:
        file.write(b"\0")
    try:
        whole.samples(index, range(index.meta.num_rows))
    except StoreError as error:
        problem = error
    else:
        raise AssertionError(f"rows are read although {name} has changed since it was indexed")
    assert name in str(problem), f"the error about the changed file {name} does not name it: {problem}"


def _check_cut(written: _Written, name: str, samples: Sequence[Sample]) -> None:
    """A file cut short is refused by name, or gives right samples as far as it goes."""
    problems: list[PlayheadError] = []
    try:
        index = written.index()
    except PlayheadError as error:
        problems.append(error)
    else:
        for row in range(index.meta.num_rows):
            try:
                (sample,) = written.samples(index, [row])
            except PlayheadError as error:
                problems.append(error)
            else:
                right = any(_same(sample, known) for known in samples)
                assert right, f"{name} cut short gives a wrong sample: {sample!r}"
    for problem in problems:
        named = any(known in str(problem) for known in written.names)
        assert named, f"the error about {name} cut short names no file: {problem}"


def _same(found: Sample, expected: Sample) -> bool:
    return found.keys() == expected.keys() and all(_equal(found[name], expected[name]) for name in expected)


def _equal(found: Any, expected: Any) -> bool:
    if isinstance(found, np.ndarray) or isinstance(expected, np.ndarray):
        return np.array_equal(found, expected) and np.asarray(found).dtype == np.asarray(expected).dtype
    return bool(found == expected)
