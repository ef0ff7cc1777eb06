"""A folder mounted again by a file server of our own, through FUSE, whose every read takes a while."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_START_SECONDS = 30.0


@contextmanager
def mounted(folder: Path, place: Path, seconds: float) -> Iterator[None]:
    """The folder, to be read under another path as well."""
    place.mkdir()
    process = subprocess.Popen([sys.executable, __file__, str(folder), str(place), str(seconds)])
    try:
        end = time.monotonic() + _START_SECONDS
        while not place.is_mount():
            assert process.poll() is None, "FUSE mounts nothing here"
            assert time.monotonic() < end
            time.sleep(0.01)
        yield
    finally:
        subprocess.run(["fusermount3", "-u", "-z", str(place)], check=False)  # noqa: S607 - of the system
        process.wait(20)


def serve(folder: str, place: str, seconds: float) -> None:
    """The main function of the file server, until its folder is unmounted."""
    from mfusepy import FUSE, FuseOSError, Operations

    class Reads(Operations):
        use_ns = True

        def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:  # noqa: ARG002 - the protocol's
            try:
                found = os.lstat(folder + path)
            except OSError as error:
                raise FuseOSError(error.errno) from error
            times = {f"st_{kind}time": getattr(found, f"st_{kind}time_ns") for kind in "amc"}
            names = ("st_mode", "st_nlink", "st_size", "st_uid", "st_gid")
            return {name: getattr(found, name) for name in names} | times

        def readdir(self, path: str, fh: int) -> list[str]:  # noqa: ARG002
            return [".", "..", *(found.name for found in Path(folder + path).iterdir())]

        def open(self, path: str, flags: int) -> int:
            return os.open(folder + path, flags)

        def read(self, path: str, size: int, offset: int, fh: int) -> bytes:  # noqa: ARG002
            time.sleep(seconds)
            return os.pread(fh, size, offset)

        def release(self, path: str, fh: int) -> int:  # noqa: ARG002
            os.close(fh)
            return 0

    FUSE(Reads(), place, foreground=True, ro=True, direct_io=True, subtype="slow")


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2], float(sys.argv[3]))
