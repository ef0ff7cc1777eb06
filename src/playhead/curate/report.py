"""`report.html`: the results of a run on one self-contained page. Its plots are SVG without scripts."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import msgspec

from playhead.curate.config import MEANINGS
from playhead.curate.summary import CurateSummary, Notable, WindowHistogram, percentages, rates
from playhead.web_page import cards, document, pairs, section, table

WIDTH, HEIGHT = 400, 210
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 14, 10, 42
_LABELS = 5  # of a scale; this many fit under a plot
_WHOLE_LABELS = 12


def histogram_svg(every: WindowHistogram, kept: WindowHistogram, axis: str, *, whole: bool = False) -> str:
    """All windows in a light colour and the kept ones in a strong one before them, one bar a bin.

    `whole` labels bins by the whole number in their middle. Bins at both ends that hold nothing are left out.
    """
    filled = [i for i, counts in enumerate(zip(every.counts, kept.counts, strict=True)) if any(counts)]
    if not filled:
        return '<p class="note">no windows</p>'
    bins = range(filled[0], filled[-1] + 1)
    most = max(*every.counts, *kept.counts)
    step = (WIDTH - _LEFT - _RIGHT) / len(bins)
    parts = [_grid_line(most, most), _grid_line(most // 2, most), _grid_line(0, most)] if most > 1 else []
    for n, i in enumerate(bins):
        left = _LEFT + n * step
        label = _bin_label(every, i, whole=whole)
        title = f"{label}: {every.counts[i]:,} windows, {kept.counts[i]:,} kept"
        parts.append(
            f"<g><title>{escape(title)}</title>"
            f"{_bar(left, step, every.counts[i] / most, 'every')}{_bar(left, step, kept.counts[i] / most, 'kept')}</g>"
        )
    edges = bins if whole else range(bins.start, bins.stop + 1)
    for i in edges[:: -(-len(edges) // (_WHOLE_LABELS if whole else _LABELS))]:
        at = _LEFT + (i - bins.start + (0.5 if whole else 0.0)) * step
        text = _bin_label(every, i, whole=True) if whole else f"{every.edges[i]:.4g}"
        parts.append(f'<text x="{at:.1f}" y="{HEIGHT - _BOTTOM + 16}" text-anchor="middle">{text}</text>')
    middle = (_LEFT + WIDTH - _RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 4}" text-anchor="middle" class="axis">{escape(axis)}</text>')
    about = f"{escape(axis)}: {sum(every.counts):,} windows, {sum(kept.counts):,} kept"
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{about}">{"".join(parts)}</svg>'


def _bin_label(histogram: WindowHistogram, i: int, *, whole: bool) -> str:
    low, high = histogram.edges[i], histogram.edges[i + 1]
    return f"{round((low + high) / 2)}" if whole else f"{low:.4g} to {high:.4g}"


def _y(share: float) -> float:
    return _TOP + (1 - share) * (HEIGHT - _TOP - _BOTTOM)


def _bar(left: float, step: float, share: float, kind: str) -> str:
    gap = min(2.0, step / 5)
    top = _y(share)
    height = HEIGHT - _BOTTOM - top
    place = f'x="{left + gap / 2:.1f}" y="{top:.1f}" width="{step - gap:.1f}" height="{height:.1f}"'
    return f'<rect {place} class="{kind}"/>'


def _grid_line(count: int, most: int) -> str:
    at = _y(count / most)
    return (
        f'<line x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>'
        f'<text x="{_LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{count:,}</text>'
    )


def report_html(summary: CurateSummary) -> str:
    """The page. Law: it contains no script and makes no requests."""
    sections = [
        _figures(summary),
        section("Where segments were lost", _losses(summary)),
        section("Windows", _plots(summary)),
        section("Rejected rows", _rejected(summary)) if summary.num_rejected else "",
        section("Largest rows", _notable(summary.largest)),
        section("Slowest rows", _notable(summary.slowest)),
        section("Stages", _metrics(summary)),
        section("Parameters", pairs(summary.parameters.items())),
    ]
    return document("Curated windows", "".join(sections))


def _figures(summary: CurateSummary) -> str:
    """The main figures."""
    share = summary.num_kept / summary.num_windows if summary.num_windows else 0.0
    figures = [
        ("rows", f"{summary.num_rows:,}", f"{summary.num_rejected:,} rejected, {summary.num_low_rate:,} of a low rate"),
        ("hours of recordings", _hours(summary.seconds_recorded), f"{_hours(summary.seconds_in)} h in segments"),
        ("windows", f"{summary.num_windows:,}", f"{_hours(summary.seconds_windows)} h, overlapping ones counted each"),
        ("windows kept", f"{summary.num_kept:,}", f"{100 * share:.1f} % of all windows"),
        ("hours kept", _hours(summary.seconds_kept), f"{summary.num_truncations:,} segments cut at the limit"),
    ]
    return cards((number, name, more) for name, number, more in figures)


def _losses(summary: CurateSummary) -> str:
    shares = percentages(summary)
    rows = []
    for reason, loss in summary.losses.items():
        of_segments, of_seconds = shares[reason]
        bar = f'<div class="bar"><div style="width:{min(100.0, of_seconds):.2f}%"></div></div>'
        numbers = (f"{loss.count:,}", f"{of_segments:.2f} %", f"{loss.seconds:,.1f}", f"{of_seconds:.2f} %")
        rows.append((f"<code>lost_{reason}</code>", escape(MEANINGS[reason]), *numbers, bar))
    head = ("reason", "meaning", "segments", "of all", "seconds", "of all", "")
    note = "A segment is lost if no window begins with it; it may still stand inside one. The last two are in lost_win."
    return table(head, rows) + f'<p class="note">{note}</p>'


def _plots(summary: CurateSummary) -> str:
    found = summary.histograms
    figures = [
        ("duration", "seconds a window", False),
        ("speakers", "speakers in a window", True),
        ("overlap", "largest overlap with another window of the row", False),
    ]
    plots = "".join(
        f"<figure>{histogram_svg(found[f'windows_{name}'], found[f'kept_{name}'], axis, whole=whole)}</figure>"
        for name, axis, whole in figures
    )
    key = '<p class="key"><span class="every"></span> all windows <span class="kept"></span> kept</p>'
    return f'{key}<div class="plots">{plots}</div>'


def _rejected(summary: CurateSummary) -> str:
    rows = [(escape(reason), f"{number:,}") for reason, number in summary.rejected.items()]
    note = '<p class="note">The rows themselves are in <code>rejected.jsonl</code>.</p>'
    return table(("reason", "rows"), rows) + note


def _notable(rows: Sequence[Notable]) -> str:
    cells = [(escape(row.file), f"{row.line:,}", f"{row.bytes:,}", f"{1000 * row.seconds:,.2f}") for row in rows]
    return table(("file", "line", "bytes written", "milliseconds"), cells)


def _metrics(summary: CurateSummary) -> str:
    speed = rates(summary)
    wanted = {
        "wall clock, seconds": summary.wall_seconds,
        "rows a second": speed["rows_per_second"],
        "seconds of audio a second": speed["audio_seconds_per_second"],
        "windows a second": speed["windows_per_second"],
    }
    return pairs([*wanted.items(), *msgspec.to_builtins(summary.metrics).items()])


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:,.2f}"
