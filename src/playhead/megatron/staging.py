"""Several files that appear together: written under other names, closed, and only then renamed, in the order created.

They are not forced to the disk, which would take most of the time: a cache is made from other files and can be made
again. After a loss of power `check-cache` finds what was cut short.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

from playhead.store import writing_to

_ABANDONED_SECONDS = 3600


class _Staged(NamedTuple):
    file: BinaryIO
    temporary: Path
    target: Path


@contextmanager
def staged(directory: Path, retired: Sequence[Path]) -> Iterator[Callable[[Path], BinaryIO]]:
    """Files to fill; `retired` ones are removed just before the new ones take their names.

    Law: if the block fails, or the disk refuses a byte, no file has changed and no temporary one is left.
    """
    opened: list[_Staged] = []

    def create(target: Path) -> BinaryIO:
        temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        opened.append(_Staged(temporary.open("wb"), temporary, target))
        return opened[-1].file

    try:
        with writing_to(directory):
            yield create
            for one in opened:
                one.file.close()
            for path in retired:
                path.unlink(missing_ok=True)
            for one in opened:
                one.temporary.replace(one.target)
    finally:
        for one in opened:
            with suppress(OSError):
                one.file.close()
            with suppress(OSError):
                one.temporary.unlink(missing_ok=True)


def sweep(directory: Path, name: str) -> None:
    """Remove what a killed run left of an entry. A file written to within the hour may be another run's: it stays."""
    for path in directory.glob(f".{name}-*.tmp"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > _ABANDONED_SECONDS:
                path.unlink()
