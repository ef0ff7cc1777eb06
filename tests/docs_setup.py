"""Small data for the pages of the documentation, named by their `<!-- setup: ... -->` comments.

Each function runs in the page's fresh directory and writes files there.
"""

from __future__ import annotations

import json
from pathlib import Path


def make_data() -> None:
    """Speech and text in JSON lines, with lengths, languages and ids."""
    Path("speech").mkdir()
    for shard in range(4):
        rows = [
            {"id": f"s{shard}-{i}", "duration": 1 + (i * 7 + shard) % 30, "text": "word " * (i % 9 + 1), "lang": "en"}
            for i in range(50)
        ]
        _write(Path("speech") / f"part-{shard:03d}.jsonl", rows)
    for name, count in (("web", 300), ("books", 100), ("dev", 30)):
        _write(Path(f"{name}.jsonl"), [{"id": f"{name}-{i}", "num_tokens": 10 + i % 200} for i in range(count)])
    Path("bad-ids.txt").write_text("web-3\nweb-5\n")
    Path("bad-rows.txt").write_text("0\n7\n")
    Path("lengths.py").write_text("def count_words(sample):\n    return len(sample['text'].split())\n")


def _write(file: Path, rows: list[dict[str, object]]) -> None:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
