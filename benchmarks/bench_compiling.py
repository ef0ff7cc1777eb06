"""First use: the time to compile what preparing a recipe and taking its first batch need, kernel by kernel.

Every kind of batching starts with an empty cache in a process of its own, and "all" goes through all of them in one.
CPU seconds, so that a busy machine matters less.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

BATCHINGS = {
    "fixed": {"type": "fixed", "size": 4},
    "budget": {"type": "budget", "budget": 200, "quadratic": 100},
    "bucket": {"type": "bucket", "num": 3, "budget": 200},
    "pack": {"type": "pack", "max_length": 128},
}


def first_batch(folder: Path, batching: dict, num_sources: int) -> None:
    from playhead import Loader, Recipe, prepare_recipe

    sources = []
    for i in range(num_sources):
        path = folder / f"source{i}.jsonl"
        rows = [{"n": 1 + j % 40, "id": f"{i}-{j}", "tokens": [j] * (1 + j % 40)} for j in range(500)]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        source = {"name": f"source{i}", "path": str(path), "length": "n", "keep": {"n": [2, None]}}
        sources.append(source | {"shuffle": "shards" if i else "global"})
    values = {"sources": sources, "batching": batching, "lanes": 2, "cache_dir": str(folder / "cache")}
    recipe = Recipe.parse(values | {"weights_in": "length"})
    prepare_recipe(recipe, workers=1)
    loader = Loader(recipe)
    for _ in zip(loader, range(3), strict=False):
        state = loader.state_dict()
    resumed = Loader(recipe)
    resumed.load_state_dict(state)
    next(iter(resumed))


def measured(kinds: list[str]) -> None:
    """Run the kinds, and print what was compiled: [kernel, signature, seconds with and without its callees]."""
    import numba.core.event as events

    started: list[list[float]] = []
    found: list[tuple[str, str, float, float]] = []

    class Listener(events.Listener):
        def on_start(self, _: events.Event) -> None:
            started.append([time.process_time(), 0.0])

        def on_end(self, event: events.Event) -> None:
            begin, inner = started.pop()
            whole = time.process_time() - begin
            if started:
                started[-1][1] += whole
            function = event.data["dispatcher"].py_func
            name = f"{function.__module__.removeprefix('playhead.')}.{function.__name__}"
            found.append((name, str(event.data["args"]), whole, whole - inner))

    begin = time.process_time()
    with events.install_listener("numba:compile", Listener()), tempfile.TemporaryDirectory() as folder:
        for kind in kinds:
            for num_sources in (1, 2) if len(kinds) > 1 else (2,):
                at = Path(folder) / f"{kind}-{num_sources}"
                at.mkdir()
                first_batch(at, BATCHINGS[kind], num_sources)
    print(json.dumps({"total": time.process_time() - begin, "kernels": found}))


def main() -> None:
    for name, kinds in [*((kind, [kind]) for kind in BATCHINGS), ("all", [*BATCHINGS])]:
        with tempfile.TemporaryDirectory() as cache:
            words = [sys.executable, __file__, *kinds]
            environment = os.environ | {"NUMBA_CACHE_DIR": cache}
            run = subprocess.run(words, env=environment, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603  # itself
        result = json.loads(run.stdout.splitlines()[-1])
        kernels = result["kernels"]
        compiling = sum(own for *_, own in kernels)
        print(f"{name:8} {len(kernels):3} signatures  compiling {compiling:5.1f} s of {result['total']:5.1f} s of CPU")
    by_name = defaultdict(list)
    for kernel, signature, _, own in kernels:
        by_name[kernel].append((own, signature))
    for kernel, each in sorted(by_name.items(), key=lambda pair: -sum(own for own, _ in pair[1])):
        print(f"  {sum(own for own, _ in each):6.2f} s  {len(each)} x {kernel}")
        if len(each) > 1:
            print("".join(f"             {signature}\n" for _, signature in each), end="")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        measured(sys.argv[1:])
    else:
        main()
