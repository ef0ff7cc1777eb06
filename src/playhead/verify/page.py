"""The report as one page of HTML."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from playhead.verify.figures import Figures, percentile
from playhead.verify.verdict import TAGS, Difference, Outcome, Share, Verdict
from playhead.verify.verify import VerifyReport
from playhead.web_page import cards, document, pairs, section, table

STYLE = """
.verdict{display:inline-block;min-width:76px;padding:1px 8px;border-radius:10px;text-align:center;font-size:13px;
color:#fff;background:#6b7686}
.passed{background:#2e7d4f}.failed{background:#b3362b}.unproven{background:#b7791f}
td{vertical-align:top}td p{margin:0 0 2px}.evidence{color:var(--soft)}
h3{font-size:15px;margin:14px 0 6px}polyline{fill:none;stroke:var(--kept);stroke-width:1.5}
dl{display:grid;grid-template-columns:max-content 1fr;gap:2px 14px;margin:0}dt{color:var(--soft)}dd{margin:0}
"""
_MIB = 1 << 20
_WIDTH, _HEIGHT = 400, 150
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 10, 8, 26


def page_of(report: VerifyReport) -> str:
    """The page. Law: it holds no script and asks no other server for anything."""
    bad = [verdict for verdict in report.verdicts if not verdict.is_good]
    body = [
        _cards(report),
        section("Verdicts", _verdicts(report.verdicts)),
        *(section(f"{verdict.question}: {verdict.outcome}", _details(verdict)) for verdict in bad),
        section("Proportions of the sources", _shares(report.figures.shares)) if report.figures.shares else "",
        section("Along the run", _plots(report.figures)) if report.figures.step_seconds else "",
        section("What was run", pairs(_about(report))),
    ]
    return document(f"playhead verify {report.recipe}", "".join(body), STYLE)


def _cards(report: VerifyReport) -> str:
    passed = sum(verdict.outcome == "passed" for verdict in report.verdicts)
    figures = report.figures
    found = [(f"{passed} of {len(report.verdicts)}", "passed", f"in {report.seconds:,.0f} s")]
    if figures.seconds_to_first is not None:
        found.append((f"{figures.seconds_to_first:,.2f} s", "to the first batch", "of the slowest rank"))
    if figures.step_seconds:
        median, high = (f"{1000 * percentile(figures.step_seconds, q):,.1f} ms" for q in (50, 95))
        found.append((median, "waited for a step", f"half of them; 95 % within {high}"))
    found.append((f"{report.steps:,}", "steps", f"of {report.lanes} lanes, on {report.settings.world_size} ranks"))
    return cards(found)


def _verdicts(verdicts: Sequence[Verdict]) -> str:
    rows = []
    for verdict in verdicts:
        evidence = "".join(f'<p class="evidence">{escape(text)}</p>' for text in verdict.evidence)
        tag = f"<p><b>{escape(verdict.tag)}</b></p>" if verdict.tag else ""
        what = f"<p>{escape(verdict.title)}</p>{tag}{evidence}"
        rows.append((verdict.question, _badge(verdict.outcome), what, f"{verdict.seconds:,.1f}"))
    note = '<p class="note">Seconds are those of the runs that a question needs; runs are shared.</p>'
    return table(("", "verdict", "question and evidence", "seconds"), rows) + note


def _badge(outcome: Outcome) -> str:
    return f'<span class="verdict {outcome.replace(" ", "-")}">{outcome}</span>'


def _details(verdict: Verdict) -> str:
    parts = [f"<p>{escape(verdict.title)}</p>"]
    if verdict.tag is not None:
        parts.append(f"<p><b>{escape(verdict.tag)}</b>: {escape(TAGS[verdict.tag])}</p>")
    parts += [f'<p style="white-space:pre-wrap">{escape(text)}</p>' for text in verdict.evidence]
    if verdict.difference is not None:
        lines = "".join(
            f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in facts_of(verdict.difference)
        )
        parts.append(f"<h3>The smallest difference</h3><dl>{lines}</dl>")
        causes = "".join(f"<li>{escape(cause)}</li>" for cause in verdict.difference.causes)
        parts.append(f"<h3>Usual causes</h3><ul>{causes}</ul>" if causes else "")
    return "".join(parts)


def facts_of(difference: Difference) -> list[tuple[str, str]]:
    """A difference as labels and texts."""
    rank = "" if difference.rank is None else f", rank {difference.rank}"
    facts = [("first at", f"step {difference.step:,}{rank}, lane {difference.lane}")]
    if difference.runs[0]:
        facts.append(("runs", f"{difference.runs[1]}, against {difference.runs[0]}"))
    facts += [("expected", difference.expected), ("delivered", difference.delivered)]
    if difference.field is not None:
        facts.append(("field", f"{difference.field}{difference.element or ''}"))
    if difference.expected_value is not None:
        facts += [("expected value", difference.expected_value), ("delivered value", difference.delivered_value or "")]
    return [*facts, *([("note", difference.note)] if difference.note else [])]


def _shares(shares: Sequence[Share]) -> str:
    rows = [
        (
            escape(share.source),
            escape(share.stream),
            f"{100 * share.weight:.2f} %",
            f"{100 * share.planned:.2f} %",
            f"{100 * share.bound:.2f} %",
            f"{100 * share.delivered:.2f} %",
            f"{share.num_delivered:,}",
            f"{share.num_planned:,}",
        )
        for share in shares
    ]
    head = ("source", "sub-stream", "weight", "planned", "bound", "delivered", "samples", "planned in these steps")
    note = "Of the samples. Weights that are stated in length are converted by the mean lengths of the sources."
    return table(head, rows) + f'<p class="note">{note}</p>'


def _plots(figures: Figures) -> str:
    plots = [
        _plot([value / _MIB for value in values], f"memory of rank {rank} and its workers, MiB, by step")
        for rank, values in figures.memory.items()
    ]
    plots.append(_plot([1000 * value for value in figures.step_seconds], "waited for a step, ms, rank by rank"))
    return f'<div class="plots">{"".join(f"<figure>{plot}</figure>" for plot in plots)}</div>'


def _plot(values: Sequence[float], title: str) -> str:
    """A line over the steps, from 0 up."""
    top = max(values, default=0.0) or 1.0
    across = (_WIDTH - _LEFT - _RIGHT) / max(1, len(values) - 1)
    points = " ".join(
        f"{_LEFT + i * across:.1f},{_TOP + (1 - value / top) * (_HEIGHT - _TOP - _BOTTOM):.1f}"
        for i, value in enumerate(values)
    )
    base = _HEIGHT - _BOTTOM
    labels = (
        f'<text x="{_LEFT - 6}" y="{_TOP + 8}" text-anchor="end">{top:,.0f}</text>'
        f'<text x="{_LEFT - 6}" y="{base}" text-anchor="end">0</text>'
        f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 6}" text-anchor="middle" class="axis">{escape(title)}</text>'
    )
    line = f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{base}" y2="{base}"/>'
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title)}">'
        f'{line}<polyline points="{points}"/>{labels}</svg>'
    )


def _about(report: VerifyReport) -> list[tuple[str, object]]:
    settings = report.settings
    return [
        ("recipe", report.recipe),
        ("plan", report.fingerprint),
        ("version", report.version),
        ("ranks", settings.world_size),
        ("workers of each", str(settings.options)),
        ("steps", report.steps),
        ("loader", settings.loader or "Playhead's"),
        ("contents compared", "yes" if settings.payload else "no"),
        ("started by", settings.launch.launcher),
        ("records", str(settings.records)),
    ]
