"""Histograms as SVG: pictures that need no script and print well."""

from __future__ import annotations

from html import escape

from playhead.curate.summary import Histogram

WIDTH, HEIGHT = 400, 210
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 14, 10, 42
_LABELS = 5  # of a scale; so many fit under a plot
_WHOLE_LABELS = 12


def histogram_svg(every: Histogram, kept: Histogram, axis: str, *, whole: bool = False) -> str:
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


def _bin_label(histogram: Histogram, i: int, *, whole: bool) -> str:
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
