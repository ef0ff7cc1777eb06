"""Ctrl-C and SIGTERM as one exception, so that a command can exit cleanly."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import typer

from playhead.cli.report import print_error
from playhead.errors import PrepareError

STOPPING = (signal.SIGINT, signal.SIGTERM)


class Stopped(KeyboardInterrupt):
    """The user, or the system, asked the command to stop. Not an `Exception`: no error handler may catch it.

    A KeyboardInterrupt: Ray, while it waits, loses every other exception that a handler of a signal raises.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.name = signal.Signals(number).name
        self.exit_code = 128 + number


class StopSignals:
    """The first SIGINT or SIGTERM becomes `Stopped`, at once or after a deferred block; later ones are ignored."""

    def __init__(self) -> None:
        self._deferred = False
        self._pending: int | None = None
        self.received: int | None = None

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Defer signals until the block has finished."""
        self._deferred = True
        try:
            yield
        finally:
            self._deferred = False
        if self._pending is not None:
            raise Stopped(self._pending)

    def receive(self, number: int, _: FrameType | None) -> None:
        for each in STOPPING:
            signal.signal(each, signal.SIG_IGN)
        self.received = number
        if not self._deferred:
            raise Stopped(number)
        self._pending = number


@contextmanager
def stoppable() -> Iterator[StopSignals]:
    """Raise `Stopped` inside the block at the first SIGINT or SIGTERM."""
    signals = StopSignals()
    before = {number: signal.signal(number, signals.receive) for number in STOPPING}
    try:
        yield signals
    except KeyboardInterrupt as error:
        if isinstance(error, Stopped) or signals.received is None:
            raise
        raise Stopped(signals.received) from None  # a library has raised its own in place of it
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def ending_cleanly(*, as_json: bool) -> Iterator[None]:
    """Resumable work: a signal ends it with one message, and the exit code of the signal."""
    try:
        with stoppable():
            yield
    except Stopped as stopped:
        print_error(PrepareError(f"stopped by {stopped.name}", fix="run it again to resume"), as_json=as_json)
        raise typer.Exit(stopped.exit_code) from None
