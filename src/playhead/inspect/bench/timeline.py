"""A timeline of loading, as SVG: what each worker did and when, with the consumer's waits above."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from decimal import Decimal
from html import escape

from playhead.inspect.bench.recording import BatchRecord
from playhead.inspect.readable import readable_seconds

STAGES = ("storage", "decode", "map", "collate", "other")  # in the order in which a batch goes through them
STYLE = """
:root{--storage:#c2703d;--decode:#1f5fa8;--map:#2e8b57;--collate:#8a5fb0;--other:#9aa5b4;--wait:#c0392b;--train:#dbe3ee}
@media (prefers-color-scheme:dark){:root{--storage:#e0905b;--decode:#5b9ff0;--map:#5fbf88;--collate:#b894dd;
--other:#6b7686;--wait:#ff7466;--train:#2b3644}}
.storage{fill:var(--storage);background:var(--storage)}.decode{fill:var(--decode);background:var(--decode)}
.map{fill:var(--map);background:var(--map)}.collate{fill:var(--collate);background:var(--collate)}
.other{fill:var(--other);background:var(--other)}.wait{fill:var(--wait);background:var(--wait)}
.train{fill:var(--train);background:var(--train)}rect.fetch{fill:var(--storage);opacity:.55}
svg.timeline{min-width:760px}svg.timeline text{font-size:12px}
"""
MOST_BATCHES = 120  # in one picture
_WIDTH, _LEFT, _RIGHT = 1040, 92, 8
_ROW, _BAR, _AXIS = 30, 20, 26
_FETCH = 4
_MOST_TICKS = 10


def stretches(records: Sequence[BatchRecord]) -> list[tuple[str, Sequence[BatchRecord]]]:
    """The parts of a run worth a picture: all of a short one; else around its longest wait, and its middle."""
    if len(records) <= 1.5 * MOST_BATCHES:
        return [("the whole run", records)]
    longest = max(range(len(records)), key=lambda number: records[number].wait)
    places = [("around the longest wait", longest), ("in the middle of the run", len(records) // 2)]
    found = []
    for name, centre in places:
        first = max(0, min(centre - MOST_BATCHES // 2, len(records) - MOST_BATCHES))
        found.append((name, records[first : first + MOST_BATCHES]))
    return found


def timeline(records: Sequence[BatchRecord], start: float) -> str:
    """One row for the consumer, one for each worker. Times are since `start`."""
    workers = sorted({record.worker for record in records})
    begin = records[0].asked
    end = max(record.given for record in records)
    scale = (_WIDTH - _LEFT - _RIGHT) / max(end - begin, 1e-9)
    height = _ROW * (1 + len(workers)) + _AXIS

    def bar(name: str, first: float, last: float, top: float, size: float, title: str) -> str:
        if last <= begin:
            return ""
        left, right = (_LEFT + (at - begin) * scale for at in (max(first, begin), last))
        shape = f'x="{left:.1f}" y="{top:.0f}" width="{max(right - left, 0.3):.1f}" height="{size:.0f}"'
        return f'<rect class="{name}" {shape}><title>{escape(title)}</title></rect>'

    parts = [_label("consumer", 0), *(_label(f"worker {worker}", row) for row, worker in enumerate(workers, 1))]
    for i, record in enumerate(records):
        name = f"step {record.timing.step:,}, lane {record.timing.lane}"
        if i + 1 < len(records):
            parts.append(bar("train", record.given, records[i + 1].asked, 5, _BAR, f"{name}: with the consumer"))
        parts.append(bar("wait", record.asked, record.given, 5, _BAR, f"{name}: waited {_text(record.wait)}"))
        top = _ROW * (1 + workers.index(record.worker)) + 5
        for stage, first, last in _spans(record):
            parts.append(bar(stage, first, last, top, _BAR, f"{name}: {stage} {_text(last - first)}"))
        timing = record.timing
        if timing.fetch_ended:
            fetched = f"{name}: fetched ahead, {_text(timing.fetch_ended - timing.fetch_began)}"
            parts.append(bar("fetch", timing.fetch_began, timing.fetch_ended, top + _BAR + 1, _FETCH, fetched))
    parts += _axis(begin - start, end - start, height, scale)
    about = f'viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="what the consumer and each worker did over time"'
    return f'<div class="wide"><svg class="timeline" {about}>{"".join(parts)}</svg></div>'


def key() -> str:
    """What the colours mean."""
    names = [("wait", "the consumer waits"), ("train", "the consumer works")]
    names += [(stage, "waits for storage" if stage == "storage" else stage) for stage in STAGES]
    shown = "".join(f'<span class="{name}"></span>{text}' for name, text in names)
    return f'<p class="key">{shown}; thin line: fetched ahead</p>'


def _spans(record: BatchRecord) -> Iterator[tuple[str, float, float]]:
    at, seconds = record.timing.began, record.timing.own_seconds()
    for stage in STAGES:
        if seconds[stage] > 0:
            yield stage, at, at + seconds[stage]
            at += seconds[stage]


def _label(text: str, row: int) -> str:
    return f'<text x="{_LEFT - 10}" y="{_ROW * row + 20}" text-anchor="end">{text}</text>'


def _axis(begin: float, end: float, height: int, scale: float) -> Iterator[str]:
    base = height - _AXIS + 4
    yield f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{base}" y2="{base}"/>'
    for at in ticks(begin, end):
        left = _LEFT + (float(at) - begin) * scale
        yield f'<line x1="{left:.1f}" x2="{left:.1f}" y1="{base}" y2="{base + 5}"/>'
        anchor = "end" if left > _WIDTH - _RIGHT - 20 else "middle"
        yield f'<text x="{left:.1f}" y="{base + 18}" text-anchor="{anchor}">{at:f} s</text>'


def ticks(begin: float, end: float) -> list[Decimal]:
    """Round numbers between two times, each 1, 2 or 5 times a power of ten from the next."""
    exponent = math.floor(math.log10(max(end - begin, 1e-6) / _MOST_TICKS))
    steps = (Decimal(digit).scaleb(power) for power in (exponent, exponent + 1) for digit in (1, 2, 5))
    step = next(step for step in steps if (end - begin) / float(step) <= _MOST_TICKS)
    first, last = math.ceil(begin / float(step)), math.floor(end / float(step))
    return [number * step for number in range(first, last + 1)]


def _text(seconds: float) -> str:
    return readable_seconds(max(0.0, seconds))
