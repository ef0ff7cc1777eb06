"""Laws checked one after another: any failure is an AssertionError that names the law."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def try_laws(laws: Iterable[Callable[[T], None]], trial: T) -> None:
    for law in laws:
        try:
            law(trial)
        except AssertionError:
            raise
        except Exception as error:
            name = law.__name__.strip("_").replace("_", " ")
            raise AssertionError(f"{name}: broken by {error!r}") from error
