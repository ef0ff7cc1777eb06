from __future__ import annotations

from pathlib import Path

from commands import playhead, printed


def test_the_demo_runs_to_its_end_and_runs_again(tmp_path: Path) -> None:
    first = printed(tmp_path, "demo", "here")
    assert "nothing changed" not in first
    assert "the same samples in the same steps" in first
    assert max(map(len, first.splitlines())) <= 120
    worlds = [line.split() for line in first.splitlines() if line.strip().startswith(("1 ", "2 ", "4 ", "8 "))]
    assert [row[:2] for row in worlds[:4]] == [["1", "800"], ["2", "400"], ["4", "200"], ["8", "100"]]
    assert len({tuple(row[2:]) for row in worlds[:4]}) == 1

    again = printed(tmp_path, "demo", "here")
    assert "nothing changed" in again
    facts = ("fingerprint", "steps go to", "a window")
    kept = [[line for line in out.splitlines() if line.startswith(facts)] for out in (first, again)]
    assert kept[0] == kept[1]
    assert len(kept[0]) == 4
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here"]  # all it makes is in its folder
    assert printed(tmp_path, "plan", "here/recipe.yaml", "--split", "dev").startswith("dev: ")


def test_the_demo_says_where_it_cannot_write(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    done = playhead(tmp_path, "demo", "file")
    assert done.returncode == 1
    assert done.stderr.startswith("PrepareError: file: cannot be written")
