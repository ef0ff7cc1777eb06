"""A report as one page of HTML that needs nothing else: no script, no other server."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape

STYLE = """
:root{--text:#1c2430;--soft:#5b6675;--line:#dde2e8;--page:#f6f7f9;--card:#fff;--every:#b9cbe3;--kept:#1f5fa8;--lost:#c2703d}
@media (prefers-color-scheme:dark){:root{--text:#e6eaf0;--soft:#9aa5b4;--line:#313a46;--page:#14181e;--card:#1c222a;
--every:#3d5270;--kept:#6fb1ff;--lost:#e0905b}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--text);font:15px/1.45 system-ui,sans-serif}
main{max-width:1080px;margin:0 auto;padding:24px 16px 48px}
h1{font-size:24px;margin:0 0 16px}h2{font-size:17px;margin:0 0 10px}
section{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:16px;margin-top:16px}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(180px,1fr));gap:12px}
.card{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:12px 14px}
.number{font-size:26px;font-weight:600;font-variant-numeric:tabular-nums}
small,.note,.key{color:var(--soft)}.note{margin:8px 0 0}.key{margin:0 0 8px}
.key span{display:inline-block;width:12px;height:12px;border-radius:2px;margin:0 5px 0 14px}
.key span:first-child{margin-left:0}.key .every{background:var(--every)}.key .kept{background:var(--kept)}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(300px,1fr));gap:16px}
figure{margin:0}figure svg{max-width:460px}
svg{width:100%;height:auto;font:13px system-ui,sans-serif}svg text{fill:var(--soft)}svg .axis{fill:var(--text)}
svg line{stroke:var(--line)}rect.every{fill:var(--every)}rect.kept{fill:var(--kept)}
.wide{overflow-x:auto}table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th{text-align:left;vertical-align:bottom;color:var(--soft);font-weight:500}
th,td{padding:4px 12px 4px 0;border-bottom:1px solid var(--line)}
th.num,td.num{text-align:right;white-space:nowrap}
tr:last-child td{border-bottom:0}code{font:13px ui-monospace,monospace}
.bar{width:120px;height:8px;border-radius:4px;background:var(--line);overflow:hidden}
.bar div{height:100%;background:var(--lost)}
"""

_NUMBER = re.compile(r"-?[\d,.]+( (%|s|ms|bytes|[KMGT]B))?|all|")  # "all" and nothing stand in columns of numbers


def document(title: str, body: str, style: str = "") -> str:
    """The page; `body` is HTML already, `style` is added to the style of all reports."""
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    title = escape(title)
    return (
        f'<!doctype html><html lang="en"><head>{head}<title>{title}</title><style>{STYLE}{style}</style></head>'
        f"<body><main><h1>{title}</h1>{body}</main></body></html>\n"
    )


def section(title: str, body: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{body}</section>"


def cards(figures: Iterable[tuple[str, str, str]]) -> str:
    """The main figures side by side, each a number, what it is, and more about it."""
    inner = "".join(
        f'<div class="card"><div class="number">{escape(number)}</div><div>{escape(name)}</div>'
        f"<small>{escape(more)}</small></div>"
        for number, name, more in figures
    )
    return f'<div class="cards">{inner}</div>'


def pairs(pairs: Iterable[tuple[str, object]]) -> str:
    return table(("name", "value"), [(f"<code>{escape(name)}</code>", escape(_shown(value))) for name, value in pairs])


def _shown(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    return f"{value:,.3f}".rstrip("0").rstrip(".") if isinstance(value, float) else f"{value:,}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; cells are HTML already, and columns of numbers stand to the right."""
    rows = [*rows]
    columns = zip(*rows, strict=True) if rows else [("-",)] * len(head)
    places = [' class="num"' if all(map(_NUMBER.fullmatch, column)) else "" for column in columns]
    titles = "".join(f"<th{place}>{escape(title)}</th>" for title, place in zip(head, places, strict=True))
    cells = ((f"<td{place}>{cell}</td>" for cell, place in zip(row, places, strict=True)) for row in rows)
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in cells)
    return f'<div class="wide"><table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table></div>'
