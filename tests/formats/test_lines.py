"""Rows of lines against the obvious loop over them."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from playhead.formats.lines import find_rows


def rows_one_by_one(data: bytes) -> tuple[list[tuple[int, int]], int, bool]:
    rows, begin = [], 0
    lines = data.split(b"\n")
    if data.endswith(b"\n"):
        lines.pop()
    for line in lines:
        end = begin + len(line.rstrip(b" \t\r"))
        if end > begin:
            rows.append((begin, end))
        begin += len(line) + 1
    return rows, len(lines), all(data[low] == ord("{") and data[high - 1] == ord("}") for low, high in rows)


@given(st.lists(st.sampled_from([b"\n", b" ", b"\t", b"\r", b"{", b"}", b"x", b"{}\n"]), min_size=1).map(b"".join))
@example(b"\n")
@example(b" \r\n{}  \t\n\n  {} ")
@example(b"{}" + b" " * 100_000 + b"\n{}")
def test_rows_are_the_lines_that_are_not_blank_without_the_white_space_after_them(data: bytes) -> None:
    found = find_rows(data, 0, 1)
    rows = list(zip(found.starts.tolist(), found.ends.tolist(), strict=True))
    assert (rows, found.num_lines, found.regular) == rows_one_by_one(data)
