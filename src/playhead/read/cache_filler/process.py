"""The process of a shard cache's filler: `python -m playhead.read.cache_filler.process DIR`.

It inherits the descriptor that holds the filler's lock, and ends when its standard input is closed: by the rank that
started it, or by that rank's end. What it prints are messages for that rank, one on a line.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from pathlib import Path
from threading import Event, Thread

from playhead.read.cache_filler.filling import Filler
from playhead.read.priority import give_way
from playhead.store.shard_cache.directory import CacheDirectory


def main(root: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the rank
    give_way()
    stopped = Event()
    Thread(target=_wait_for_end, args=(stopped,), daemon=True).start()
    directory, status = CacheDirectory(Path(root)), 0
    try:
        Filler(directory, _say).run(stopped.is_set)
    except Exception as error:  # noqa: BLE001 - printed, as it would be otherwise
        if not (isinstance(error, OSError) and directory.missing()):  # a cache that is removed is said by its ranks
            traceback.print_exc()
        status = 1
    sys.stdout.flush()
    os._exit(status)  # requests that are in flight need not be waited for


def _wait_for_end(stopped: Event) -> None:
    while sys.stdin.buffer.read(1 << 10):
        pass
    stopped.set()


def _say(message: str) -> None:
    print(" ".join(message.split()), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
