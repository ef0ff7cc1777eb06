"""Ctrl-C and SIGTERM as one exception, so that a command can leave in good order."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import typer

from playhead.cli.report import print_error
from playhead.errors import PrepareError


class Stopped(BaseException):
    """The user, or the system, asked us to stop. Not an `Exception`: nothing that survives errors may survive it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.name = signal.Signals(number).name
        self.exit_code = 128 + number


@contextmanager
def stoppable() -> Iterator[None]:
    """Raise `Stopped` at the first SIGINT or SIGTERM; the next ones wait until the block is over."""

    def stop(number: int, _: FrameType | None) -> None:
        for each in before:
            signal.signal(each, signal.SIG_IGN)
        raise Stopped(number)

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def ending_cleanly(*, as_json: bool) -> Iterator[None]:
    """Work that can be taken up again: a signal ends it with one message, and the exit code of the signal."""
    try:
        with stoppable():
            yield
    except Stopped as stopped:
        print_error(PrepareError(f"stopped by {stopped.name}", fix="run it again to go on"), as_json=as_json)
        raise typer.Exit(stopped.exit_code) from None
