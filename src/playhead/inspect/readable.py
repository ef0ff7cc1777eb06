"""Seconds, shares and bytes as people read them."""

from __future__ import annotations


def readable_seconds(seconds: float) -> str:
    if seconds >= 100:
        return f"{seconds:,.0f} s"
    if seconds >= 1:
        return f"{seconds:.1f} s"
    milliseconds = 1000 * seconds
    return f"{milliseconds:.0f} ms" if milliseconds >= 10 else f"{milliseconds:.2g} ms" if seconds else "0 ms"


def readable_share(fraction: float) -> str:
    return f"{100 * fraction:.1f} %" if 0 < fraction < 0.1 else f"{100 * fraction:.0f} %"


def readable_count(number: int, one: str, many: str | None = None) -> str:
    """A number of things by name; the plural is `many`, by default with an "s"."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def readable_bytes(number: float) -> str:
    for unit in ("bytes", "KB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "bytes" or number >= 10 else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:,.1f} TB"
