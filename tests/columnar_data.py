"""Tables of every type that columns may have, and what is expected of their rows."""

from __future__ import annotations

import datetime as dt
import decimal
import io
import json
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from deliveries import numpy_loader, rounds
from playhead.formats.registry import format_of
from playhead.formats.rows import Fetch
from playhead.index.table import open_table
from playhead.prepare import prepare
from playhead.recipe.tree import leaves
from playhead.recipe.values import Recipe
from playhead.store import Files, all_files

AUDIO_FEATURES = {b"huggingface": json.dumps({"info": {"features": {"audio": {"_type": "Audio"}}}}).encode()}


def every_type(num_rows: int = 23) -> pa.Table:
    """A column of each type, nulls in most of them."""
    some = [None if i % 5 == 3 else i for i in range(num_rows)]
    day = dt.datetime(2026, 11, 3, tzinfo=dt.UTC)

    deep, turn = pa.struct({"deep": pa.int8()}), pa.struct({"from": pa.string(), "n": pa.int64()})

    def column(make: Any, kind: pa.DataType) -> pa.Array:
        return pa.array([None if i is None else make(i) for i in some], kind)

    return pa.table(
        {
            "n": pa.array(range(num_rows), pa.int32()),
            "float": pa.array([i / 3 for i in range(num_rows)], pa.float32()),
            "maybe": column(lambda i: 2**60 + i, pa.int64()),
            "truth": column(lambda i: i % 2 == 0, pa.bool_()),
            "text": pa.array([f"täxt {i}" * i for i in range(num_rows)]),
            "words": column(lambda i: f"w{i}", pa.large_string()),
            "raw": column(bytes, pa.binary()),
            "large": column(lambda i: b"\xff" * i, pa.large_binary()),
            "fixed": column(lambda i: bytes([i] * 4), pa.binary(4)),
            "tokens": pa.array([list(range(i)) for i in range(num_rows)], pa.list_(pa.int16())),
            "scores": column(lambda i: [i / 7] * (i % 3), pa.large_list(pa.float64())),
            "gaps": column(lambda i: [i, None, 1] if i % 2 else [i], pa.list_(pa.int32())),
            "pair": column(lambda i: [i, -i], pa.list_(pa.float32(), 2)),
            "names": column(lambda i: [f"a{j}" for j in range(i % 4)], pa.list_(pa.string())),
            "matrix": column(lambda i: [[1, i], []], pa.list_(pa.list_(pa.int64()))),
            "meta": column(
                lambda i: {"lang": "en" if i % 2 else "pl", "n": i, "ids": [i] * 2, "in": {"deep": None}},
                pa.struct({"lang": pa.string(), "n": pa.int64(), "ids": pa.list_(pa.int64()), "in": deep}),
            ),
            "turns": column(lambda i: [{"from": "me", "n": i}], pa.list_(turn)),
            "map": column(lambda i: [("a", i)], pa.map_(pa.string(), pa.int64())),
            "kind": column(lambda i: ("red", "green")[i % 2], pa.string()).dictionary_encode(),
            "day": column(lambda i: day.date() + dt.timedelta(i), pa.date32()),
            "time": column(lambda i: day + dt.timedelta(seconds=i), pa.timestamp("ms", "UTC")),
            "nano": column(lambda i: i, pa.timestamp("ns")),
            "money": column(lambda i: decimal.Decimal(i) / 4, pa.decimal128(10, 2)),
            "none": pa.nulls(num_rows),
        }
    )


def expected_rows(table: pa.Table) -> list[dict[str, Any]]:
    """The rows as Arrow itself gives them, but for nanoseconds."""
    rows = table.to_pylist()
    if "nano" in table.column_names:
        for row, value in zip(rows, table["nano"].cast(pa.int64()).to_pylist(), strict=True):
            row["nano"] = None if value is None else np.datetime64(value, "ns")
    return rows


def plain(value: Any) -> Any:
    """A value with its arrays as lists."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value


def parquet(table: pa.Table, rows_at_once: int, **how: Any) -> bytes:
    file = io.BytesIO()
    pq.write_table(table, file, row_group_size=rows_at_once, **how)
    return file.getvalue()


def stream(table: pa.Table, rows_at_once: int, **how: Any) -> bytes:
    return _ipc(pa.ipc.new_stream, table, rows_at_once, **how)


def ipc_file(table: pa.Table, rows_at_once: int, **how: Any) -> bytes:
    return _ipc(pa.ipc.new_file, table, rows_at_once, **how)


def _ipc(opens: Any, table: pa.Table, rows_at_once: int, **how: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with opens(sink, table.schema, options=pa.ipc.IpcWriteOptions(**how)) as writer:
        writer.write_table(table, max_chunksize=rows_at_once)
    found: bytes = sink.getvalue().to_pybytes()
    return found


def recipe_of(folder: Path, source: dict[str, Any] | None = None, **fields: Any) -> Recipe:
    """A recipe of one source, whose samples come as they are."""
    values: dict[str, Any] = {"batching": {"type": "fixed", "size": 2}, "sequence": None, "collate": "list"}
    return Recipe.parse({"sources": [{"name": "s", **(source or {})}], **values, **fields}, base_dir=folder)


def read_rows(recipe: Recipe, order: Any = None, files: Files | None = None) -> list[dict[str, Any]]:
    """Rows of the source read by a reader of their own, before media are decoded."""
    prepare(recipe, workers=1)
    leaf = leaves(recipe)[0]
    table = open_table(leaf, recipe)
    rows = np.arange(table.num_rows) if order is None else np.array(order)
    files = all_files() if files is None else files
    reader = format_of(leaf.source, leaf.path).format.open(leaf.source, files)
    return list(reader.read(table.locate(rows, Fetch(files, table.index.stamps))))


def wav(num_frames: int) -> bytes:
    return wav_of(np.arange(num_frames, dtype="<i2").reshape(-1, 1))


def wav_of(frames: Any) -> bytes:
    """Frames of 16 bits at 16 kHz, of shape (frames, channels)."""
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(frames.shape[1])
        out.setsampwidth(2)
        out.setframerate(16000)
        out.writeframes(frames.astype("<i2").tobytes())
    return file.getvalue()


def check_ranks(recipe: Recipe, num_rows: int, workers: int = 0) -> None:
    """One pass of 20 lanes: its rows once each, the same on any number of ranks, and after a resume in the middle."""
    whole = [batch for batches in rounds(numpy_loader(recipe), 1) for batch, _, _ in batches]
    picks = sorted(pick for batch in whole for pick in batch.picks if not batch.idle)
    assert [row for _, _, row in picks] == list(range(num_rows))
    payloads = {(batch.step, batch.lane): batch.payload for batch in whole}
    for world in (2, 4, 5):
        dealt = [[batch for batch, _, _ in batches] for batches in rounds(numpy_loader(recipe), world)]
        assert sorted(pick for batches in dealt for batch in batches for pick in batch.picks if not batch.idle) == picks
        assert {(batch.step, batch.lane): batch.payload for batches in dealt for batch in batches} == payloads
    begun = rounds(numpy_loader(recipe), 4, num_batches=7)
    first = {(batch.step, batch.lane) for batches in begun for batch, _, _ in batches}
    rest = rounds(numpy_loader(recipe, workers=workers), 2, state=begun[0][-1][1])
    resumed = {(batch.step, batch.lane): batch.payload for batches in rest for batch, _, _ in batches}
    assert resumed == {place: payload for place, payload in payloads.items() if place not in first}
