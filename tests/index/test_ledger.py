from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.errors import DataError
from playhead.index.ledger import Ledger


def records(*firsts: int) -> np.ndarray:
    return np.array([[first, first * 10] for first in firsts], dtype=np.uint64).reshape(-1, 2)


@given(st.sets(st.integers(0, 40)), st.sets(st.integers(0, 40)), st.integers(0, 45))
def test_a_look_up_finds_the_last_record_at_or_before(
    tmp_path_factory: pytest.TempPathFactory, first: set[int], second: set[int], wanted: int
) -> None:
    ledger = Ledger(tmp_path_factory.mktemp("ledger") / "a.ledger", 2)
    later = {value + 41 for value in second}
    ledger.append(records(*sorted(first)))
    ledger.append(records(*sorted(first | later)))
    assert ledger.records()[:, 0].tolist() == sorted(first | later)
    below = [value for value in first | later if value <= wanted]
    found = ledger.at_or_before(wanted)
    assert (None if found is None else found.tolist()) == ([max(below), max(below) * 10] if below else None)


def test_appending_what_is_there_changes_nothing(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "a.ledger", 2)
    assert ledger.append(records(1, 5)) == 2
    before = ledger.path.read_bytes()
    assert ledger.append(records(1, 5)) == 0
    assert ledger.path.read_bytes() == before


def test_a_record_that_differs_is_refused(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "a.ledger", 2)
    ledger.append(records(1, 5))
    with pytest.raises(DataError, match="another record for 5"):
        ledger.append(np.array([[5, 51]], dtype=np.uint64))


@pytest.mark.parametrize("torn", range(1, 16))
def test_a_torn_record_is_not_seen_and_is_overwritten(tmp_path: Path, torn: int) -> None:
    ledger = Ledger(tmp_path / "a.ledger", 2)
    ledger.append(records(1, 5, 9))
    with ledger.path.open("r+b") as file:
        file.truncate(2 * 16 + torn)
    assert ledger.at_or_before(100).tolist() == [5, 50]
    ledger.append(records(7))
    assert ledger.records().tolist() == [[1, 10], [5, 50], [7, 70]]


def test_processes_that_append_at_once_leave_every_record_once(tmp_path: Path) -> None:
    path = tmp_path / "a.ledger"
    code = (
        "import sys; import numpy as np; from pathlib import Path; from playhead.index.ledger import Ledger\n"
        "ledger = Ledger(Path(sys.argv[1]), 2)\n"
        "for i in range(200): ledger.append(np.array([[j, j * 10] for j in range(i + 1)], dtype=np.uint64))\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", code, str(path)]) for _ in range(3)]
    assert [process.wait() for process in running] == [0, 0, 0]
    assert Ledger(path, 2).records().tolist() == records(*range(200)).tolist()
