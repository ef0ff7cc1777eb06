from __future__ import annotations

import json
from pathlib import Path

from alm_rows import conversation, write_manifest
from playhead import Loader, Recipe
from playhead.curate.run import curate_windows
from playhead.prepare import prepare


def test_a_recipe_reads_the_windows_as_they_are(tmp_path: Path) -> None:
    path = write_manifest(tmp_path / "talks.jsonl", [conversation(i) for i in range(6)])
    summary = curate_windows([str(path)], tmp_path / "out").summary
    recipe_file = tmp_path / "recipe.yaml"
    recipe_file.write_text(
        "seed: 1\nlanes: 1\nepochs: 1\nbatching: {type: fixed, size: 4}\n"
        f"sources:\n  - {{name: talks, path: {tmp_path}/out/windows.jsonl, ids: id,\n"
        "     length: {field: duration, unit: seconds}}\n"
    )
    recipe = Recipe.load(recipe_file)
    report = prepare(recipe)
    assert report.sources[0].num_rows == summary.num_kept > 10
    ids = {json.loads(line)["id"] for line in (tmp_path / "out" / "windows.jsonl").read_text().splitlines()}
    with Loader(recipe, collate=lambda samples: {"ids": [s["id"] for s in samples]}) as loader:
        seen = [name for batch in loader for name in batch["ids"]]
    assert sorted(seen) == sorted(ids)
