"""Threads of a worker that decode the media of a micro-batch together: decoders release the interpreter's lock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from playhead.store import done_together


class DecodeThreads:
    """So many threads beside the one that calls; 0 are none. They start when there is work for them."""

    def __init__(self, num: int) -> None:
        self._num = num
        self._threads = ThreadPoolExecutor(num, thread_name_prefix="playhead-decode") if num else None

    def call(self, functions: Sequence[Callable[[], None]]) -> None:
        """Call all functions. Law: an exception is that of the first that fails."""
        if self._threads is None or len(functions) < 2:
            for function in functions:
                function()
        else:
            done_together(self._threads, self._num, len(functions), lambda i: functions[i]())


NO_THREADS = DecodeThreads(0)
