"""Signals as one exception, also where a library raises its own in its place."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from playhead.cli.stopping import Stopped, stoppable


def waits_as_ray_does(number: int) -> None:
    """What a handler raises is lost, but for an interrupt, in whose place it raises its own."""
    try:
        signal.raise_signal(number)
    except KeyboardInterrupt:
        raise KeyboardInterrupt from None
    except BaseException:  # noqa: BLE001 - lost
        return


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("wait", [signal.raise_signal, waits_as_ray_does])
def test_a_signal_is_one_exception_whatever_a_library_makes_of_it(
    number: signal.Signals, wait: Callable[[int], None]
) -> None:
    before = signal.getsignal(number)
    with pytest.raises(Stopped) as stopped, stoppable():
        wait(number)
    assert (stopped.value.name, stopped.value.exit_code) == (number.name, 128 + number)
    assert signal.getsignal(number) == before


def test_an_interrupt_without_a_signal_is_left_alone() -> None:
    with pytest.raises(KeyboardInterrupt) as interrupted, stoppable():
        raise KeyboardInterrupt
    assert not isinstance(interrupted.value, Stopped)
