from __future__ import annotations

from pathlib import Path

from commands import playhead


def test_the_demo_says_where_it_cannot_write(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    done = playhead(tmp_path, "demo", "file")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("PrepareError: file: cannot be written")
