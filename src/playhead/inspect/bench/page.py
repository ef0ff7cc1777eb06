"""The results of a bench as one page of HTML."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

from playhead.inspect.bench.report import BenchReport, rates
from playhead.inspect.bench.storage_speed import StorageSpeed
from playhead.inspect.bench.sweep import NAMES, Sweep
from playhead.inspect.bench.text import (
    STAGE_COLUMNS,
    BenchResults,
    facts_of,
    storage_note,
    sweep_advice,
    trial_cells,
    verdict_of,
    wait_cells,
    worker_cells,
)
from playhead.inspect.bench.timeline import STAGES, key, stretches, timeline
from playhead.inspect.bench.timeline import STYLE as TIMELINE_STYLE
from playhead.inspect.bench.values import RunFigures
from playhead.inspect.readable import readable_bytes, readable_count, readable_seconds, readable_share
from playhead.web_page import cards, document, pairs, section, table

STYLE = f"""{TIMELINE_STYLE}
.cards{{grid-template-columns:repeat(auto-fit,minmax(min(300px,45%),1fr))}}
.verdict{{font-size:20px;font-weight:600;margin:0 0 6px}}.evidence{{margin:0}}.also{{color:var(--soft);margin:6px 0 0}}
.change{{margin:12px 0;padding:8px 12px;border-left:4px solid var(--kept);background:var(--page);font-weight:600}}
h3{{font-size:14px;font-weight:500;color:var(--soft);margin:14px 0 6px}}
.stack{{display:flex;height:14px;border-radius:4px;overflow:hidden;background:var(--line);margin:0 0 10px}}
polyline{{fill:none;stroke:var(--kept);stroke-width:2}}circle{{fill:var(--kept)}}circle.best{{fill:var(--lost)}}
td:last-child{{overflow-wrap:anywhere}}
"""
_MOST_WAITS = 20
_WIDTH, _HEIGHT = 400, 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 14, 12, 40


def page_of(results: BenchResults, recipe: str) -> str:
    """The page. Law: it holds no script and asks no other server for anything."""
    body = []
    if results.report is not None:
        body += _run(results.report)
    if results.sweep is not None:
        body.append(section("Sweep", _sweep(results.sweep)))
    if results.storage is not None:
        body.append(section("The storage by itself", _storage(results.storage)))
    if results.report is not None:
        body.append(section("What was run", pairs([("recipe", recipe), *facts_of(results.report)])))
    return document(f"playhead bench {recipe}", "".join(body), STYLE)


def _run(report: BenchReport) -> list[str]:
    also = "".join(f'<p class="also">{_words(each)}</p>' for each in report.bottleneck.also if not report.mock)
    stopped = f'<p class="also">stopped by {escape(report.stopped)}</p>' if report.stopped else ""
    found = [
        f"<section>{_verdict(report)}{also}{stopped}</section>",
        f'<div style="margin-top:16px">{_cards(report)}</div>',
        section("Timeline of loading", _timelines(report)),
        section("Seconds by stage", _stages(report)),
    ]
    if report.slow:
        found.append(section("Waits over five medians", _waits(report)))
    return found


def _verdict(report: BenchReport) -> str:
    """What the first line on a terminal says, in parts."""
    if report.mock:
        return f'<p class="verdict">{_words(verdict_of(report))}</p>'
    found = report.bottleneck
    return (
        f'<p class="verdict">{found.title}</p><p class="evidence">{_words(found.evidence)}</p>'
        f'<p class="change">{_words(found.change)}</p>'
    )


def _words(text: str) -> str:
    """A text with `code` in it."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def _cards(report: BenchReport) -> str:
    figures, speed = report.figures, rates(report.figures)
    memory = figures.memory
    limit = "" if memory.limit is None else f"{readable_share(memory.limit.share)} of {memory.limit.origin} in use"
    return cards(
        [
            (f"{speed['steps']:,.1f}", "steps a second", f"{speed['samples']:,.0f} samples a second"),
            (
                readable_share(figures.wait_share),
                "of the time the consumer waited",
                f"in {readable_count(figures.num_batches, 'batch', 'batches')}",
            ),
            (readable_share(figures.busy_share), "of the time workers were busy", str(figures.settings)),
            (f"{readable_bytes(speed['bytes'])}/s", "from storage", _cache_note(figures)),
            (readable_seconds(report.first_seconds), "to the first batch", "workers start, kernels load"),
            (readable_bytes(memory.resident_bytes), "resident", limit),
        ]
    )


def _timelines(report: BenchReport) -> str:
    start = report.records[0].asked
    pictures = [
        f"<h3>{name}</h3>{timeline(part, start)}" for name, part in stretches(report.records[report.num_warm :])
    ]
    return key() + "".join(pictures)


def _stages(report: BenchReport) -> str:
    figures = report.figures
    total = sum(figures.stages.values()) or 1.0
    parts = "".join(
        f'<div class="{stage}" style="width:{100 * figures.stages[stage] / total:.2f}%" title="{stage}"></div>'
        for stage in STAGES
    )
    head = ("worker", "process", "batches", *STAGE_COLUMNS, "MB/s")
    rows = [worker_cells(row, figures.seconds) for row in report.workers]
    note = (
        "Of open, read and decode, the part under “ahead” was done by look-ahead threads while the worker did "
        "something else. “Waited for” is what the consumer waited for the batches of a worker."
    )
    return f'<div class="stack">{parts}</div>{table(head, rows)}<p class="note">{note}</p>'


def _waits(report: BenchReport) -> str:
    rows = [[*map(escape, wait_cells(wait))] for wait in report.slow[:_MOST_WAITS]]
    more = len(report.slow) - len(rows)
    note = f'<p class="note">{more:,} more, in --json</p>' if more else ""
    return table(("step", "lane", "worker", "waited", "stage", "shard"), rows) + note


def _cache_note(figures: RunFigures) -> str:
    if not figures.has_cache:
        return f"in {readable_count(figures.num_requests, 'request')}"
    return f"and {readable_bytes(figures.cache_bytes / figures.seconds)}/s from the shard cache"


def _sweep(found: Sweep) -> str:
    plots = []
    for setting, name in NAMES.items():
        points = found.of(setting)
        if points:
            chosen = getattr(found.best, setting) if found.recommends else None
            values = [(str(point.value), point.batches_per_second) for point in points]
            plots.append(_curve(values, f"batches a second by {name}", [point.value == chosen for point in points]))
    advice = sweep_advice(found)
    return f"<p>{_words(advice[0].upper() + advice[1:])}.</p>{_figures(plots)}"


def _storage(speed: StorageSpeed) -> str:
    plots = []
    for pattern in ("sequential", "random"):
        trials = [trial for trial in speed.trials if trial.pattern == pattern and trial.threads == 1]
        if not trials and speed.stopped:
            continue
        trials = trials if len(trials) > 1 else [trial for trial in speed.trials if trial.pattern == pattern]
        values = [(str(trial.processes * trial.threads), trial.bytes_per_second / 1e6) for trial in trials]
        plots.append(_curve(values, f"MB a second by readers, {pattern}", [False] * len(values)))
    head = ("reading", "processes", "threads", "bytes/s", "requests/s", "latency", "95 % within", "cores")
    rows = [trial_cells(trial) for trial in speed.trials]
    return (
        f'<p class="verdict">{escape(speed.verdict)}</p><p class="also">{escape(storage_note(speed))}</p>'
        f"{_figures(plots)}{table(head, rows)}"
    )


def _figures(plots: Sequence[str]) -> str:
    return f'<div class="plots">{"".join(f"<figure>{plot}</figure>" for plot in plots)}</div>'


def _curve(values: Sequence[tuple[str, float]], title: str, marked: Sequence[bool]) -> str:
    """A line through points that stand equally far apart, from 0 up; the marked ones are the recommended."""
    top = max(value for _, value in values) or 1.0
    across = (_WIDTH - _LEFT - _RIGHT) / max(1, len(values) - 1)
    base = _HEIGHT - _BOTTOM
    places = [(_LEFT + i * across, _TOP + (1 - value / top) * (base - _TOP)) for i, (_, value) in enumerate(values)]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dots = "".join(
        f'<circle class="{"best" if is_best else "point"}" cx="{x:.1f}" cy="{y:.1f}" r="{5 if is_best else 3}">'
        f"<title>{escape(name)}: {value:,.1f}</title></circle>"
        f'<text x="{x:.1f}" y="{base + 16}" text-anchor="middle">{escape(name)}</text>'
        for (x, y), (name, value), is_best in zip(places, values, marked, strict=True)
    )
    labels = (
        f'<text x="{_LEFT - 8}" y="{_TOP + 5}" text-anchor="end">{top:,.0f}</text>'
        f'<text x="{_LEFT - 8}" y="{base}" text-anchor="end">0</text>'
        f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 6}" text-anchor="middle" class="axis">{escape(title)}</text>'
    )
    axis = f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{base}" y2="{base}"/>'
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title)}">'
        f'{axis}<polyline points="{line}"/>{dots}{labels}</svg>'
    )
