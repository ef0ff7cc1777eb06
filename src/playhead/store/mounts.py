"""Which local paths are on a network: mounted from a file server, where a request takes a round trip."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

_MOUNTS = "/proc/self/mountinfo"
# Types of file systems on a network. With FUSE are file servers and buckets (disks are fuseblk).
_REMOTE = re.compile(
    r"afs|autofs|beegfs|ceph|cifs|fuse(\..*)?|gpfs|lustre|nfs4?|ocfs2|panfs|pvfs2|smb3|smbfs|vastnfs|wekafs"
)
_ESCAPED = re.compile(r"\\([0-7]{3})")


class Mount(NamedTuple):
    """A mounted file system: where, and whether it is on a network."""

    place: str
    is_remote: bool


def network_mount(path: str) -> str | None:
    """Where the file system of a file is mounted, if it is on a network. Folders are looked up once in a process."""
    return _network_mount(path.rpartition("/")[0]) if _mounts() else None


def parse_mounts(text: str) -> tuple[Mount, ...]:
    """The file systems in the kernel's list of mounts, innermost first; none if none of them is on a network."""
    found: dict[str, Mount] = {}  # of two in one place, the later one is seen
    for line in text.splitlines():
        about, separator, kind = line.partition(" - ")
        fields = about.split(" ")
        if separator and len(fields) > 4:
            place = _ESCAPED.sub(lambda escaped: chr(int(escaped[1], 8)), fields[4])
            found[place] = Mount(place, _REMOTE.fullmatch(kind.partition(" ")[0]) is not None)
    mounts = sorted(found.values(), key=lambda mount: -len(mount.place))
    return tuple(mounts) if any(mount.is_remote for mount in mounts) else ()


@lru_cache(maxsize=1)
def _mounts() -> tuple[Mount, ...]:
    try:
        return parse_mounts(Path(_MOUNTS).read_text("utf-8", "surrogateescape"))
    except OSError:  # not on Linux
        return ()


@lru_cache(maxsize=1 << 12)
def _network_mount(folder: str) -> str | None:
    """By the path as it is given, then as its links lead."""
    for place in (os.path.abspath(folder), os.path.realpath(folder)):  # noqa: PTH100 - a Path takes longer
        mount = next((mount for mount in _mounts() if f"{place}/".startswith(f"{mount.place.rstrip('/')}/")), None)
        if mount is not None and mount.is_remote:
            return mount.place
    return None
