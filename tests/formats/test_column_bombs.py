"""Small files of columns that are large in memory: read without that, or refused by name before it happens."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from columnar_data import ipc_file, parquet, read_rows, recipe_of, stream
from playhead.errors import DataError, PrepareError
from playhead.index.table import open_table
from playhead.prepare import prepare
from playhead.recipe.tree import leaves

ROWS, VALUE_BYTES = 3000, 1 << 20  # 3 GB if every row had a value of its own


def repeated(value_type: Any = None) -> pa.Table:
    """A value of 1 MB that all rows have."""
    values = pa.array([b"x" * VALUE_BYTES] if value_type is None else ["x" * VALUE_BYTES], value_type)
    return pa.table(
        {"blob": pa.DictionaryArray.from_arrays(pa.array(np.zeros(ROWS, np.int32)), values), "n": range(ROWS)}
    )


MEASURED = """
import re, sys
from columnar_data import read_rows, recipe_of
from pathlib import Path
from playhead.prepare import prepare
length = {"length": {"field": "blob", "unit": "bytes"}, "keep": {"kind": "re:."}} if len(sys.argv) > 3 else {}
recipe = recipe_of(Path(sys.argv[1]), {"path": sys.argv[2], **length})
def peak():  # ru_maxrss would be that of the process which started this one
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
before = peak()
prepare(recipe, processes=False)
for row in (0, 1500, 2999):
    (sample,) = read_rows(recipe, [row])
    assert sample["n"] == row and len(sample["blob"]) == 1 << 20
print(peak() - before)
"""


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
@pytest.mark.parametrize("scanned", [False, True])
def test_values_that_are_stored_once_take_their_memory_once(tmp_path: Path, name: str, scanned: bool) -> None:
    table = repeated().append_column("kind", pa.array(["a"] * ROWS))
    if name.endswith("parquet"):
        (tmp_path / name).write_bytes(parquet(table, ROWS, compression="zstd", store_schema=False))
        assert (tmp_path / name).stat().st_size < 40_000
    else:
        (tmp_path / name).write_bytes(stream(table, ROWS))
    tests = Path(__file__).parent.parent
    code = f"import sys; sys.path.insert(0, {str(tests)!r})\n{MEASURED}"
    command = [sys.executable, "-c", code, str(tmp_path), name, *(["scanned"] if scanned else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 400_000  # of the 3,000,000 kB that they would take


@pytest.mark.parametrize("value_type", [None, pa.string()])
def test_lengths_of_values_that_are_stored_once_are_right(tmp_path: Path, value_type: Any) -> None:
    (tmp_path / "a.parquet").write_bytes(parquet(repeated(value_type), ROWS, compression="zstd"))
    recipe = recipe_of(tmp_path, {"path": "a.parquet", "length": {"field": "blob", "unit": "bytes"}, "ids": "n"})
    prepare(recipe, processes=False)
    found = open_table(leaves(recipe)[0], recipe)
    assert found.lengths_of(np.arange(ROWS)).tolist() == [VALUE_BYTES] * ROWS
    assert found.find("2999").tolist() == [2999]


def test_a_row_group_of_repeated_numbers_is_refused_by_its_footer(tmp_path: Path) -> None:
    table = pa.table({"n": np.zeros(1_000_000, np.int64), "m": np.zeros(1_000_000, np.int8)})
    (tmp_path / "a.parquet").write_bytes(parquet(table, 1_000_000))
    assert (tmp_path / "a.parquet").stat().st_size < 10_000
    options: dict[str, Any] = {"max_group_bytes": 10_000_000}
    with pytest.raises(PrepareError, match=r"a\.parquet, row group 0: is too large to decode") as caught:
        prepare(recipe_of(tmp_path, {"path": "a.parquet", "options": options}))
    assert "12,000,000 bytes" in str(caught.value)
    assert "raise `max_group_bytes`" in str(caught.value)
    recipe = recipe_of(tmp_path, {"path": "a.parquet", "options": options | {"columns": ["n"]}})
    assert read_rows(recipe, [999_999]) == [{"n": 0}]


def test_texts_that_grow_from_the_one_before_are_refused_when_they_pass_the_limit(tmp_path: Path) -> None:
    """Such texts are stored by what they share with the one before: their size is known only when they are decoded."""
    table = pa.table({"text": [f"{'x' * 10_000}{i}" for i in range(2000)], "n": range(2000)})
    how = {"use_dictionary": False, "column_encoding": {"text": "DELTA_BYTE_ARRAY", "n": "PLAIN"}}
    (tmp_path / "a.parquet").write_bytes(parquet(table, 2000, **how))
    assert (tmp_path / "a.parquet").stat().st_size < 100_000
    recipe = recipe_of(tmp_path, {"path": "a.parquet", "options": {"max_group_bytes": 1_000_000}})
    with pytest.raises(DataError, match=r"a\.parquet, row group 0: is too large to decode"):
        read_rows(recipe, [1999])
    whole = recipe_of(tmp_path, {"path": "a.parquet"})
    assert read_rows(whole, [1999, 7]) == [table.slice(i, 1).to_pylist()[0] for i in (1999, 7)]
    lengths = {"length": {"field": "text", "unit": "bytes"}, "options": {"max_group_bytes": 1_000_000}}
    recipe = recipe_of(tmp_path, {"path": "a.parquet", **lengths})
    prepare(recipe, processes=False)
    assert open_table(leaves(recipe)[0], recipe).lengths_of(np.array([1999])).tolist() == [10_004]


@pytest.mark.parametrize("write", [stream, ipc_file])
@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_a_compressed_batch_is_refused_by_the_sizes_that_it_says(tmp_path: Path, write: Any, codec: str) -> None:
    zeros = np.zeros(2_000_000, np.int64)
    kinds = pa.DictionaryArray.from_arrays(pa.array(zeros.astype(np.int32)), pa.array(["x" * 20_000_000]))
    for table in (pa.table({"n": zeros}), pa.table({"kind": kinds})):
        (tmp_path / "a.arrow").write_bytes(write(table, len(table), compression=codec))
        assert (tmp_path / "a.arrow").stat().st_size < 200_000
        recipe = recipe_of(tmp_path, {"path": "a.arrow", "options": {"max_batch_bytes": 10_000_000}})
        with pytest.raises(DataError, match=r"a\.arrow, byte .*: is too large to decompress"):
            read_rows(recipe, [0])
        assert len(read_rows(recipe_of(tmp_path, {"path": "a.arrow"}), [1_999_999])) == 1
