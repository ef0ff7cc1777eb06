"""Work on its way to a worker, and tasks on their way to disk."""

from __future__ import annotations

import pickle
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from deliveries import stream
from playhead import Loader
from playhead.feed.collate import Shape
from playhead.feed.progress import Progress
from playhead.feed.state import Position
from playhead.feed.tasks import Work
from playhead.order.picks import Picks
from playhead.read import Request

NUMBERS = st.integers(0, 2**63 - 1)
SIZES = st.none() | NUMBERS


@st.composite
def works(draw: st.DrawFn) -> Work:
    count = draw(st.integers(1, 5))
    columns = [np.array(draw(st.lists(NUMBERS, min_size=count, max_size=count)), np.int64) for _ in range(4)]
    known = draw(st.none() | st.dictionaries(st.integers(0, count - 1), st.none() | NUMBERS, min_size=1))
    lengths = columns[3] if draw(st.booleans()) else None
    request = Request(draw(NUMBERS), Picks(*columns[:3]), lengths, draw(NUMBERS), draw(NUMBERS), known)
    return Work(request, draw(st.booleans()), Shape(draw(SIZES), draw(SIZES)), draw(st.booleans()))


def plain(work: Work) -> Any:
    """All there is to a work, to be compared."""
    request = work.request
    picks = [request.picks.source.tolist(), request.picks.epoch.tolist(), request.picks.row.tolist()]
    lengths = None if request.lengths is None else request.lengths.tolist()
    asked = (request.stream, request.step, request.lane, request.known)
    return picks, lengths, asked, work.idle, work.shape, work.packed


@given(works())
def test_work_is_the_same_after_its_way_to_a_worker(work: Work) -> None:
    for found in (Work.from_bytes(work.to_bytes()), pickle.loads(pickle.dumps(work))):  # noqa: S301
        assert plain(found) == plain(work)
        assert {type(found.idle), type(found.packed)} == {bool}
        assert found.request.picks.row.dtype == np.int64


def test_a_task_is_stored_with_its_position_and_without_the_steps_around_it(tmp_path: Path) -> None:
    loader = Loader(stream(tmp_path, "fixed"), rank=0, world_size=1)
    for batch in islice(loader, 7):
        assert isinstance(batch.task.progress, Progress)
        data = pickle.dumps(batch.task)
        assert len(data) < 2000
        found = pickle.loads(data)  # noqa: S301  # our own
        assert isinstance(found.progress, Position)
        assert loader.state_dict() == loader.state_dict(after=batch)
        assert (found.after.cursor, found.after.lanes_done) == (batch.task.after.cursor, batch.task.after.lanes_done)
        assert found.after.totals.tolist() == batch.task.after.totals.tolist()
