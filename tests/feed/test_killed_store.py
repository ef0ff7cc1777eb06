"""Training from a real store that is killed and started again in mid-run: the stream is that of a local run."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from cached_runs import by_shards, delivered, left_in, receipt_of, recipe_of, write_shards
from deliveries import seen
from playhead import Loader
from playhead.store.objects import create
from store_servers import seaweedfs

KILLED_AFTER = 30  # batches of 144


@pytest.mark.full
@pytest.mark.parametrize("cache", [None, {}], ids=["plain", "cached"])
def test_a_store_killed_and_started_again_in_mid_run_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: dict[str, Any] | None
) -> None:
    data, work = tmp_path / "data", tmp_path / "weed"
    work.mkdir()
    write_shards(data)
    expected = delivered(recipe_of(data, tmp_path / "local", data, **by_shards()))
    with ExitStack() as servers:
        server = servers.enter_context(seaweedfs(work))
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        bucket = server.make_bucket("train")
        for path in data.iterdir():
            create(f"{bucket}/{path.name}", path)
        recipe = recipe_of(bucket, tmp_path / "remote", data, cache, **by_shards())
        found = []
        with Loader(recipe, workers=2) as loader:
            for batch in loader:
                found.append(seen(batch))
                if len(found) == KILLED_AFTER:
                    os.kill(server.pid, signal.SIGKILL)
                    servers.enter_context(seaweedfs(work))
            receipt = receipt_of(loader)
    assert (found, receipt) == expected
    if cache is not None:
        assert left_in(recipe) == []
