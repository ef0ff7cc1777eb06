"""`curate_windows`: manifests of recordings -> a directory of rows with windows, of windows, and of their audio."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import msgspec
from msgspec import Struct

from playhead.curate.config import CutConfig, WindowConfig
from playhead.curate.inputs import LIMITS, InputSurvey, find_inputs, spans_of_shards, survey, total_rows
from playhead.curate.job import CurateJob, OnError
from playhead.curate.outputs import TIMED, CurateLayout, CurateLedger, CurateRequest, read_ledger, refusal, write_ledger
from playhead.curate.publish import claim_place
from playhead.curate.report import report_html
from playhead.curate.shards import ShardConfig, ShardsProgress, ShardsReport, write_shards
from playhead.curate.summary import CurateSummary, merge, plain
from playhead.errors import DataError, PlayheadError, RecipeError
from playhead.formats.jsonl import TRACK, Jsonl
from playhead.formats.rows import Shard
from playhead.jobs import Engine, Local, default_workers
from playhead.jobs.lock import only_one
from playhead.jobs.shared_disk import expect_file
from playhead.prepare.sidecars import write_sidecars
from playhead.read.codecs import import_soundfile
from playhead.store import Files, all_files, any_in_process, is_url, replacing
from playhead.store.objects import check_writable

ROWS_PER_SHARD = 2000
_COPY_BYTES = 1 << 22


class CurateProgress(Struct, frozen=True):
    """Shards and rows that are done, and their totals."""

    done_shards: int
    total_shards: int
    done_rows: int
    total_rows: int


class CurateReport(Struct, frozen=True):
    """The summary, and whether anything was done: a second run changes nothing."""

    out: str
    changed: bool
    num_resumed: int
    summary: CurateSummary
    shards: ShardsReport | None = None


def curate_windows(
    inputs: Sequence[str],
    out: str | Path,
    config: WindowConfig | CutConfig | None = None,
    *,
    rows_per_shard: int = ROWS_PER_SHARD,
    workers: int | None = None,
    on_error: OnError = "stop",
    loss_details: bool = True,
    repeat: int = 1,
    force: bool = False,
    engine: Engine | None = None,
    shards: ShardConfig | None = None,
    work: str | Path | None = None,
    files: Files | None = None,
    progress: Callable[[CurateProgress | ShardsProgress], None] | None = None,
) -> CurateReport:
    """Cut every row of the inputs into windows: by speakers, keeping those that overlap little, or as a CutConfig says.

    An `engine` does the work in place of `workers` processes here; it is closed at the end. With `shards` the audio of
    the windows is cut too. `out` may be a place in a store, as in s3://bucket/windows: the run then takes place in the
    directory `work` (by default a temporary one), and its outputs are published from there, the ledger last.

    Law: the outputs, times in the summary aside, depend on the inputs and parameters only: not on which workers
    do the work, nor on how often the run was killed and begun again.
    """
    if min(rows_per_shard, repeat) < 1:
        raise RecipeError("rows per shard and repetitions are counts", expected="1 or more")
    if is_url(str(out)):
        check_writable(str(out))
    elif work is not None:
        raise RecipeError("work: is for outputs in a store", found=f"--out {out}", fix="leave out --work")
    if shards is not None and shards.kind == "flac":
        import_soundfile()  # a missing extra is reported before hours of work
    files = files or all_files()
    config = config or WindowConfig()
    found = tuple(find_inputs(files, inputs, out))
    if workers is None:
        workers = 1 if any_in_process(files, [each.path for each in found]) else default_workers()
    own = Local(max(1, workers))
    parameters = msgspec.to_builtins(config)
    request = CurateRequest(config.stage, parameters, loss_details, rows_per_shard, repeat, found)
    how = _Work(files, config, on_error, engine or own, force, progress)
    try:
        if is_url(str(out)):
            return _into_store(str(out), work, request, how, shards)
        return _into_directory(Path(out), request, how, shards)
    finally:
        if engine is not None:
            engine.close()


@dataclass(frozen=True)
class _Work:
    """Options that do not change the outputs."""

    files: Files
    config: WindowConfig | CutConfig
    on_error: OnError
    engine: Engine
    force: bool
    progress: Callable[[CurateProgress | ShardsProgress], None] | None


def _into_directory(out: Path, request: CurateRequest, work: _Work, shards: ShardConfig | None) -> CurateReport:
    layout = CurateLayout(out)
    with only_one(layout.out / ".curate", "written", "one `playhead curate` at a time for each --out"):
        report = _curate(layout, request, work)
    if shards is None:
        return report
    origins = [each.path for each in request.inputs]
    engine, progress = work.engine, work.progress
    written = write_shards(layout.windows, out, shards, engine, progress, files=work.files, origins=origins)
    return msgspec.structs.replace(report, shards=written)


def _into_store(
    out: str, folder: str | Path | None, request: CurateRequest, work: _Work, shards: ShardConfig | None
) -> CurateReport:
    """The same through a local directory: what is done is published from there."""
    if folder is None and not isinstance(work.engine, Local):
        raise RecipeError(
            "work: is missing", expected="a directory that all machines of the engine see", fix="give it with --work"
        )
    claim = claim_place(out, request, force=work.force)
    if shards is None and (summary := claim.finished_summary()) is not None:
        _refuse_left_out(out, summary, work)
        return CurateReport(out, False, 0, summary)
    with ExitStack() as left:
        place = left.enter_context(TemporaryDirectory(prefix="playhead-curate-")) if folder is None else folder
        report = _into_directory(Path(place), request, work, shards)
        changed = claim.publish(CurateLayout(Path(place)))
    return msgspec.structs.replace(report, out=out, changed=changed)


def _refuse_left_out(out: str | Path, summary: CurateSummary, work: _Work) -> None:
    """A run that must stop at bad rows does not accept outputs that lack them."""
    if summary.rejected and work.on_error == "stop":
        raise DataError(
            f"{out}: rows were left out by an earlier run with --on-error reject",
            found=f"{sum(summary.rejected.values()):,} in rejected.jsonl",
            fix="fix them and write it again with --force; or leave them out with --on-error reject",
        )


def _curate(layout: CurateLayout, request: CurateRequest, work: _Work) -> CurateReport:
    began = perf_counter()
    layout.remove_half_files()
    if work.force:
        layout.clear()
    ledger = read_ledger(layout, request)
    if ledger is not None and ledger.outputs is not None:
        layout.remove_work()
        summary = _read_summary(layout.summary)
        if summary is None:
            raise refusal(layout.out, [f"{layout.summary.name} has been changed since it was written"])
        _refuse_left_out(layout.out, summary, work)
        return CurateReport(str(layout.out), False, 0, summary)
    layout.make()
    if ledger is None:
        write_ledger(layout, CurateLedger(request))
    plan = _Plan(request, [survey(work.files, each) for each in request.inputs], work, layout)
    resumed = plan.run()
    summary = _finish(layout, plan, began)
    write_ledger(layout, CurateLedger(request, _sizes(layout)))
    layout.remove_half_files()  # of workers that were lost
    layout.remove_work()
    return CurateReport(str(layout.out), True, resumed, summary)


class _Plan:
    """The shards of a request, and the summaries of finished ones."""

    def __init__(self, request: CurateRequest, surveys: list[InputSurvey], work: _Work, layout: CurateLayout) -> None:
        self._request, self._surveys, self._work, self._layout = request, surveys, work, layout
        self.total_rows = total_rows(surveys) * request.repeat
        self.num_shards = max(1, -(-self.total_rows // request.rows_per_shard))
        self._failures: dict[int, PlayheadError] = {}

    def run(self) -> int:
        """Make the missing shards; returns how many existed. The first failure in row order is raised."""
        marked = {number for number in range(self.num_shards) if self._is_done(number)}
        done_shards = len(marked)

        def done(job: CurateJob, outcome: CurateSummary | PlayheadError) -> None:
            nonlocal done_shards
            if isinstance(outcome, PlayheadError):
                self._failures[job.number] = outcome
                return
            expect_file(self._layout.mark(job.number))
            done_shards += 1
            if self._work.progress is not None:
                rows = min(done_shards * self._request.rows_per_shard, self.total_rows)
                self._work.progress(CurateProgress(done_shards, self.num_shards, rows, self.total_rows))

        engine = self._work.engine
        if isinstance(engine, Local):  # do not start processes without work
            engine = Local(max(1, min(engine.workers, self.num_shards - len(marked))))
        engine.run(self._jobs(marked), done)
        if self._failures:
            raise self._failures[min(self._failures)]
        return len(marked)

    def _jobs(self, marked: set[int]) -> Iterator[CurateJob]:
        """Shards before a failing one have started when it fails, so that the first failure is always found."""
        request = self._request
        shards = spans_of_shards(self._surveys, request.repeat, request.rows_per_shard)
        for number, spans in enumerate(shards):
            if self._failures:
                return
            if number not in marked:
                work = self._work
                yield CurateJob(
                    work.files, number, spans, work.config, request.loss_details, work.on_error, self._layout.out
                )

    def _is_done(self, number: int) -> bool:
        """A shard with rejected rows is done again by a run that must stop at them."""
        mark, shard = self._layout.mark(number), self._layout.shard(number)
        summary = _read_summary(mark) if mark.exists() and shard.exists() else None
        if summary is None or (summary.rejected and self._work.on_error == "stop"):
            return False
        return summary.bytes_out == shard.stat().st_size

    def summary(self, number: int) -> CurateSummary:
        return msgspec.json.decode(self._layout.mark(number).read_bytes(), type=CurateSummary)


def _read_summary(path: Path) -> CurateSummary | None:
    """None if it has been damaged."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=CurateSummary)
    except msgspec.DecodeError:
        return None


def _finish(layout: CurateLayout, plan: _Plan, began: float) -> CurateSummary:
    """Put the parts together, in order; the summary comes last."""
    numbers = range(plan.num_shards)
    _join(layout.windows, [layout.windows_part(number) for number in numbers])
    sidecar = layout.windows.with_name(f"{layout.windows.name}.idx")
    sidecar.unlink(missing_ok=True)
    write_sidecars(Jsonl(), Shard(((TRACK, str(layout.windows)),)), all_files(), LIMITS)
    summary = merge([plan.summary(number) for number in numbers])
    rejected = [part for part in map(layout.rejected_part, numbers) if part.exists()]
    if rejected:
        _join(layout.rejected, rejected)
    summary = msgspec.structs.replace(summary, wall_seconds=perf_counter() - began)
    with replacing(layout.summary) as file:
        file.write(msgspec.json.format(msgspec.json.encode(plain(summary)), indent=1))
    with replacing(layout.report) as file:
        file.write(report_html(summary).encode())
    return summary


def _join(target: Path, parts: Sequence[Path]) -> None:
    with replacing(target) as file:
        for part in parts:
            with part.open("rb") as piece:
                shutil.copyfileobj(piece, file, _COPY_BYTES)


def _sizes(layout: CurateLayout) -> dict[str, int | None]:
    found = [path for path in layout.own_files() if path != layout.ledger]
    return {path.name: None if path.name in TIMED else path.stat().st_size for path in found}
