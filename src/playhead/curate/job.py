"""One shard: rows in, rows with windows out, and its parts of the shared outputs."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from time import perf_counter
from typing import BinaryIO, Literal

import msgspec

from playhead.curate.config import CutConfig, WindowConfig
from playhead.curate.curated import Curated, Curator, Cutter
from playhead.curate.inputs import RowSpan, SpanReader
from playhead.curate.outputs import CurateLayout
from playhead.curate.rows import RowError
from playhead.curate.summary import CurateSummary, Notable
from playhead.curate.tally import CurateTally
from playhead.store import Files, replacing

OnError = Literal["stop", "reject"]

_START_WRITING_BYTES = 1 << 23
_BUFFER_BYTES = 1 << 20  # fewer and larger writes take half the time


class RejectedRow(msgspec.Struct, frozen=True):
    """A line of `rejected.jsonl`: where a bad row is, what is wrong with it, and its text."""

    file: str
    line: int
    field: str
    reason: str
    found: str | None
    row: str


@dataclass(frozen=True)
class CurateJob:
    """Makes one shard. Law: its output depends only on the spans and the parameters."""

    files: Files
    number: int
    spans: tuple[RowSpan, ...]
    config: WindowConfig | CutConfig
    loss_details: bool
    on_error: OnError
    out: Path

    @property
    def name(self) -> str:
        return CurateLayout.shard_name(self.number)

    def run(self) -> CurateSummary:
        """Process the rows; the marker of a finished shard is written last."""
        began = perf_counter()
        layout = CurateLayout(self.out)
        with ExitStack() as files, _without_collecting():
            rows = files.enter_context(replacing(layout.shard(self.number), _BUFFER_BYTES))
            windows = files.enter_context(replacing(layout.windows_part(self.number), _BUFFER_BYTES))
            tally, bytes_in = self._write(rows, windows, _Rejects(layout.rejected_part(self.number), files))
            bytes_out = rows.tell()
        summary = tally.summary(bytes_in, bytes_out, perf_counter() - began)
        with replacing(layout.mark(self.number)) as file:
            file.write(msgspec.json.encode(summary))
        return summary

    def _write(self, rows: BinaryIO, windows: BinaryIO, rejects: _Rejects) -> tuple[CurateTally, int]:
        curator = _curator(self.config, self.loss_details)
        tally, bytes_in, waiting = CurateTally(self.config), 0, 0
        for path, number, line, raw in self._rows():
            bytes_in += len(raw)
            began = perf_counter()
            try:
                done = _curated(curator, raw, path, number)
            except RowError as error:
                if raw and not raw.decode("utf-8", "replace").strip():
                    continue
                self._refuse(error, path, line, raw, rejects)
                tally.reject(error.reason)
                continue
            rows.write(done.line)
            waiting += len(done.line)
            if waiting >= _START_WRITING_BYTES:
                _start_writing(rows, waiting)
                waiting = 0
            windows.write(done.windows)
            tally.add(done.facts)
            seconds, size = perf_counter() - began, len(done.line)
            if tally.notable(seconds, size):
                tally.note(Notable(path, line, seconds, size))
        return tally, bytes_in

    def _rows(self) -> Iterator[tuple[str, int, int, bytes]]:
        """Path, row number, line number and bytes of every row. A file without rows is one that has no bytes."""
        reader = SpanReader(self.files)
        for span in self.spans:
            path = span.input.path
            if span.num_rows == 0:
                yield path, 0, 1, b""
            for number, (line, raw) in enumerate(reader.rows(span), span.first_row) if span.num_rows else ():
                yield path, number, line, raw

    def _refuse(self, error: RowError, path: str, line: int, raw: bytes, rejects: _Rejects) -> None:
        """Record the rejected row, or raise its error."""
        if self.on_error == "stop":
            error.fix = "correct or remove it; or leave out rows like it with --on-error reject"
            raise error.at(f"{path}, line {line:,}")
        text = raw.decode("utf-8", "replace")
        rejects.write(RejectedRow(path, line, error.field, error.reason, error.found, text))


class _Rejects:
    """A file of rejected rows, created only if there are any."""

    def __init__(self, path: Path, files: ExitStack) -> None:
        self._path, self._files = path, files
        self._file: BinaryIO | None = None

    def write(self, entry: RejectedRow) -> None:
        if self._file is None:
            self._file = self._files.enter_context(replacing(self._path))
        self._file.write(msgspec.json.encode(entry) + b"\n")


def _curated(curator: Curator | Cutter, raw: bytes, path: str, number: int) -> Curated:
    if not raw:
        raise RowError("", "no rows in the file", expected="a JSON object on each line")
    return curator.curate(raw, path, number)


@lru_cache(1)
def _curator(config: WindowConfig | CutConfig, loss_details: bool) -> Curator | Cutter:
    return Cutter(config) if isinstance(config, CutConfig) else Curator(config, loss_details=loss_details)


@contextmanager
def _without_collecting() -> Iterator[None]:
    """No garbage collection: rows create no cycles, and searching for them takes a tenth of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _start_writing(file: BinaryIO, num_bytes: int) -> None:
    """Ask the system to start writing the last bytes to disk, so that fsync has little left to do."""
    if hasattr(os, "posix_fadvise"):
        file.flush()
        os.posix_fadvise(file.fileno(), file.tell() - num_bytes, num_bytes, os.POSIX_FADV_DONTNEED)
