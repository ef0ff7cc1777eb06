"""Arrow shards for Grain: a shard is loaded whole when it is its turn, and its rows are given one after another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.request import urlopen

import grain
import pyarrow as pa


class ArrowShard(grain.IterDataset):
    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url

    def __iter__(self) -> ArrowRows:
        return ArrowRows(self._url)


class ArrowRows(grain.DatasetIterator):
    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self._rows: Iterator[dict[str, Any]] | None = None
        self._position = 0

    def _all(self) -> Iterator[dict[str, Any]]:
        with urlopen(self._url) as answer:  # noqa: S310 - a server on loopback
            table = pa.ipc.open_stream(pa.py_buffer(answer.read())).read_all()
        for batch in table.to_batches():
            tokens = batch.column("tokens")
            for i in range(batch.num_rows):
                row = {name: batch.column(name)[i].as_py() for name in ("shard", "row")}
                yield row | {"tokens": tokens[i].values.to_numpy()}

    def __next__(self) -> dict[str, Any]:
        if self._rows is None:
            self._rows = self._all()
        self._position += 1
        return next(self._rows)

    def get_state(self) -> dict[str, int]:
        return {"position": self._position}

    def set_state(self, state: dict[str, int]) -> None:
        self._rows = self._all()
        for _ in range(state["position"]):
            next(self._rows)
        self._position = state["position"]
