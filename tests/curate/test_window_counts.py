"""Windows counted into histograms, and rows that are read again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.curate.config import WindowConfig
from playhead.curate.inputs import CurateInput, SpanReader, survey
from playhead.curate.tally import CurateTally, RowFacts
from playhead.errors import StoreError
from playhead.store import all_files

CONFIG = WindowConfig()
LONGEST = CONFIG.max_duration + 9

windows = st.lists(
    st.tuples(
        st.floats(0.0, LONGEST) | st.sampled_from([CONFIG.min_duration, CONFIG.max_duration]),
        st.integers(0, CONFIG.max_speakers + 2),
        st.floats(0.0, 1.0) | st.sampled_from([0.05, 0.15, 0.3, 0.35, 1.0, float("nan")]),
        st.booleans(),
    )
)


def facts_of(durations: list[float], speakers: list[int], overlaps: list[float], kept: list[int]) -> RowFacts:
    return RowFacts(
        numbers={"num_windows": len(durations)},
        losses={},
        durations=np.array(durations, dtype=np.float64),
        speakers=np.array(speakers, dtype=np.int64),
        overlaps=np.array(overlaps, dtype=np.float64),
        kept=np.array(kept, dtype=np.int64),
        kept_overlaps=np.array([overlaps[i] for i in kept], dtype=np.float64),
    )


@given(st.lists(windows, max_size=3))
def test_histograms_count_what_a_search_in_their_edges_finds(rows: list[list[tuple[float, int, float, bool]]]) -> None:
    tally = CurateTally(CONFIG)
    for row in rows:
        kept = [i for i, window in enumerate(row) if window[3]]
        tally.add(facts_of([one[0] for one in row], [one[1] for one in row], [one[2] for one in row], kept))
    found = tally.summary(0, 0, 0.0).histograms
    for column, name in enumerate(("duration", "speakers", "overlap")):
        for when in ("windows", "kept"):
            values = [one[column] for row in rows for one in row if when == "windows" or one[3]]
            edges = np.array(found[f"{when}_{name}"].edges)
            places = np.searchsorted(edges, np.array(values, dtype=np.float64), side="right") - 1
            counts = np.bincount(np.clip(places, 0, edges.size - 2), minlength=edges.size - 1)
            assert list(found[f"{when}_{name}"].counts) == counts.tolist()


def test_a_small_file_gives_the_same_rows_again_until_it_changes(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"a": 1}\n\n{"a": 2}\n')
    files = all_files()
    span = survey(files, CurateInput(str(file), files.stamp(str(file)))).span(0, 2)
    reader = SpanReader(files)
    for _ in range(3):
        assert list(reader.rows(span)) == [(1, b'{"a": 1}'), (3, b'{"a": 2}')]
    file.write_text('{"a": 1}\n\n{"a": 2}\n{"a": 3}\n')
    with pytest.raises(StoreError, match="has changed since the run began"):
        reader.rows(span)
