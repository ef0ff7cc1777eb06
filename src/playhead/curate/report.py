"""`report.html`: what a run found and did, on one page that needs nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape

import msgspec

from playhead.curate.plot import histogram_svg
from playhead.curate.reasons import MEANINGS
from playhead.curate.report_style import STYLE
from playhead.curate.summary import Notable, Summary, percentages, rates

_NUMBER = re.compile(r"-?[\d,.]+( %)?")


def report_html(summary: Summary) -> str:
    """The page. Law: it holds no script and asks no other server for anything."""
    sections = [
        _figures(summary),
        _section("Where segments were lost", _losses(summary)),
        _section("Windows", _plots(summary)),
        _section("Rejected rows", _rejected(summary)) if summary.num_rejected else "",
        _section("Largest rows", _notable(summary.largest)),
        _section("Slowest rows", _notable(summary.slowest)),
        _section("Stages", _metrics(summary)),
        _section("Parameters", _pairs(summary.parameters.items())),
    ]
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    return (
        f'<!doctype html><html lang="en"><head>{head}<title>Curated windows</title><style>{STYLE}</style></head>'
        f"<body><main><h1>Curated windows</h1>{''.join(sections)}</main></body></html>\n"
    )


def _section(title: str, body: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{body}</section>"


def _figures(summary: Summary) -> str:
    """The few numbers one looks for first."""
    share = summary.num_kept / summary.num_windows if summary.num_windows else 0.0
    figures = [
        ("rows", f"{summary.num_rows:,}", f"{summary.num_rejected:,} rejected, {summary.num_low_rate:,} of a low rate"),
        ("hours of recordings", _hours(summary.seconds_recorded), f"{_hours(summary.seconds_in)} h in segments"),
        ("windows", f"{summary.num_windows:,}", f"{_hours(summary.seconds_windows)} h, overlapping ones counted each"),
        ("windows kept", f"{summary.num_kept:,}", f"{100 * share:.1f} % of all windows"),
        ("hours kept", _hours(summary.seconds_kept), f"{summary.num_truncations:,} segments cut at the limit"),
    ]
    cards = "".join(
        f'<div class="card"><div class="number">{number}</div><div>{name}</div><small>{escape(more)}</small></div>'
        for name, number, more in figures
    )
    return f'<div class="cards">{cards}</div>'


def _losses(summary: Summary) -> str:
    shares = percentages(summary)
    rows = []
    for reason, loss in summary.losses.items():
        of_segments, of_seconds = shares[reason]
        bar = f'<div class="bar"><div style="width:{min(100.0, of_seconds):.2f}%"></div></div>'
        numbers = (f"{loss.count:,}", f"{of_segments:.2f} %", f"{loss.seconds:,.1f}", f"{of_seconds:.2f} %")
        rows.append((f"<code>lost_{reason}</code>", escape(MEANINGS[reason]), *numbers, bar))
    head = ("reason", "meaning", "segments", "of all", "seconds", "of all", "")
    note = "A segment is lost if no window begins with it; it may still stand inside one. The last two are in lost_win."
    return _table(head, rows) + f'<p class="note">{note}</p>'


def _plots(summary: Summary) -> str:
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


def _rejected(summary: Summary) -> str:
    rows = [(escape(reason), f"{number:,}") for reason, number in summary.rejected.items()]
    note = '<p class="note">The rows themselves are in <code>rejected.jsonl</code>.</p>'
    return _table(("reason", "rows"), rows) + note


def _notable(rows: Sequence[Notable]) -> str:
    cells = [(escape(row.file), f"{row.line:,}", f"{row.bytes:,}", f"{1000 * row.seconds:,.2f}") for row in rows]
    return _table(("file", "line", "bytes written", "milliseconds"), cells)


def _metrics(summary: Summary) -> str:
    speed = rates(summary)
    wanted = {
        "wall clock, seconds": summary.wall_seconds,
        "rows a second": speed["rows_per_second"],
        "seconds of audio a second": speed["audio_seconds_per_second"],
        "windows a second": speed["windows_per_second"],
    }
    return _pairs([*wanted.items(), *msgspec.to_builtins(summary.metrics).items()])


def _pairs(pairs: Iterable[tuple[str, object]]) -> str:
    return _table(("name", "value"), [(f"<code>{escape(name)}</code>", escape(_shown(value))) for name, value in pairs])


def _shown(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    return f"{value:,.3f}".rstrip("0").rstrip(".") if isinstance(value, float) else f"{value:,}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Cells are HTML already."""
    rows = [*rows]
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    columns = zip(*rows, strict=True) if rows else [("",)] * len(head)
    numeric = [all(map(_NUMBER.fullmatch, column)) for column in columns]
    titles = "".join(
        f"<th{' class=num' if right else ''}>{escape(title)}</th>" for title, right in zip(head, numeric, strict=True)
    )
    return f'<div class="wide"><table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table></div>'


def _cell(cell: str) -> str:
    return f'<td class="num">{cell}</td>' if _NUMBER.fullmatch(cell) else f"<td>{cell}</td>"


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:,.2f}"
