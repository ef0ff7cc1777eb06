"""One implementation of `Files` on trial: files are put, read, and compared with what must come out."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from playhead.errors import PlayheadError, StoreError
from playhead.store import Files, Ranges, Stamp

Wanted = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Trial:
    """The arguments of `check_files`, and a folder of this run alone."""

    files: Files
    write: Callable[[str, bytes], str]
    remove: Callable[[str], None] | None
    mark_seconds: float
    can_list: bool
    copy_reads: bool
    folder: str

    def put(self, name: str, data: bytes) -> str:
        return self.write(f"{self.folder}/{name}", data)

    def replace(self, name: str, data: bytes) -> str:
        """Put a file in place of another, late enough for another modification mark."""
        time.sleep(self.mark_seconds)
        return self.put(name, data)

    def read(self, path: str, stamp: Stamp | None, wanted: Wanted) -> list[bytes]:
        return [bytes(part) for part in self.files.read(path, stamp, ranges_of(wanted))]

    def expect_bytes(self, law: str, path: str, stamp: Stamp | None, data: bytes, wanted: Wanted) -> None:
        try:
            found = self.read(path, stamp, wanted)
        except Exception as error:
            raise AssertionError(f"{law}: broken on {path}, ranges {wanted}: {error!r}") from error
        expect(found == [data[first:end] for first, end in wanted], law, f"{path}, ranges {wanted}")

    def expect_refused(
        self, kind: type[PlayheadError], law: str, path: str, stamp: Stamp | None, wanted: Wanted
    ) -> None:
        expect_error(kind, law, path, lambda: self.read(path, stamp, wanted))

    def expect_old_or_refused(self, law: str, path: str, stamp: Stamp, old: bytes) -> None:
        """What is kept of an old file may still be read under its stamp; nothing else."""
        try:
            found = self.read(path, stamp, [(0, 1), (5, 2_000)])
        except StoreError as error:
            expect(path in str(error), "an error names the path", f"{path}: {error}")
        except Exception as error:
            raise AssertionError(f"{law}: broken on {path}: {error!r}") from error
        else:
            expect(found == [old[:1], old[5:2_000]], law, f"{path}: other bytes than the old ones were read")


def ranges_of(wanted: Wanted) -> Ranges:
    return Ranges([first for first, _ in wanted], [end for _, end in wanted])


def expect(holds: bool, law: str, detail: str) -> None:
    if not holds:
        raise AssertionError(f"{law}: broken on {detail}")


def expect_error(kind: type[Exception], law: str, path: str, call: Callable[[], object]) -> None:
    try:
        call()
    except kind as error:
        expect(
            not isinstance(error, PlayheadError) or path in str(error), "an error names the path", f"{path}: {error}"
        )
    except Exception as error:
        raise AssertionError(f"{law}: broken on {path}: {error!r}") from error
    else:
        raise AssertionError(f"{law}: broken on {path}: there was no error")


def num_open() -> int:
    """The files that this process has open; sockets and pipes are not counted."""
    number = 0
    for link in Path("/proc/self/fd").glob("*"):
        try:
            number += os.readlink(link).startswith("/")  # noqa: PTH115 - sockets are not paths
        except OSError:  # closed meanwhile
            continue
    return number
