"""The tutorial notebook runs from top to bottom in an empty folder."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

TUTORIAL = Path(__file__).parent.parent / "docs" / "tutorial.ipynb"
TIMEOUT_SECONDS = 120  # for each cell


# The kernel's own packages use what newer versions of others have retired; the notebook itself is not concerned.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::ResourceWarning")
def test_the_tutorial_runs(tmp_path: Path) -> None:
    notebook = nbformat.read(TUTORIAL, as_version=4)
    NotebookClient(
        notebook, timeout=TIMEOUT_SECONDS, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    # A kernel may send what one cell prints in several pieces.
    printed = "".join(output.text for cell in notebook.cells for output in cell.get("outputs", []) if "text" in output)
    assert "the same samples, the same weights, the same state\n" in printed


def test_every_cell_of_the_tutorial_says_what_it_is_for() -> None:
    cells = nbformat.read(TUTORIAL, as_version=4).cells
    kinds = [cell.cell_type for cell in cells]
    assert kinds[0] == kinds[-1] == "markdown"
    assert kinds.count("code") >= 10
    for before, cell in zip(kinds, cells[1:], strict=False):
        assert cell.cell_type == "markdown" or before == "markdown", cell.source
