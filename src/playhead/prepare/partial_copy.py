"""One file copied so that an interrupted copy continues at the byte where it stopped."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO

from playhead.errors import DataError
from playhead.fingerprint import DIGEST_BYTES, digest, digest_bytes
from playhead.store import File, sync_directory, writing_to
from playhead.store.addresses import without_query

ENDING = ".partial"
_PIECE_BYTES = 8 << 20
_NAME_CHARACTERS = 16


LeftIn = Callable[[Path], Iterable[Path]]


def copy_resumably(
    file: File, target: Path, left_in: LeftIn, advance: Callable[[int], None], replacing: Callable[[], None]
) -> str:
    """Copy a file to `target`, and return the digest of its bytes; `advance` is called with the bytes of each piece.

    `left_in` gives what interrupted copies have left in a directory: `partials_in`, asked once for each. `replacing` is
    called when the copy is whole, right before it takes the place of what is there.

    Law: `target` is whole or as it was before. What was written is kept beside it when copying stops, under a name
    made of the stamp: it is continued only as long as the file is unchanged.
    """
    with writing_to(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = _partial_of(target, file)
        remove_partials(target, left_in, keep=partial)
        with partial.open("ab+") as out:
            found = _continued(file, out, advance)
            out.flush()
            os.fsync(out.fileno())
        written = partial.stat().st_size
        if written != file.size:
            partial.unlink()
            raise DataError(
                f"{without_query(file.path)}: could not be copied whole",
                found=f"{written:,} bytes",
                expected=f"{file.size:,}",
                fix="run it again",
            )
        replacing()
        partial.replace(target)
        sync_directory(target.parent)
    return found


def remove_partials(target: Path, left_in: LeftIn, keep: Path | None = None) -> None:
    """Remove what interrupted copies of a file have left."""
    for stale in left_in(target.parent):
        if stale != keep and stale.name.startswith(f"{_stem(target)}."):
            stale.unlink(missing_ok=True)


def partials_in(folder: Path) -> list[Path]:
    """What interrupted copies have left in a directory."""
    return [*folder.glob(f".*{ENDING}")]


def num_copied(file: File, target: Path) -> int:
    """The bytes of a file that an interrupted copy has written already."""
    try:
        return min(_partial_of(target, file).stat().st_size, file.size)
    except OSError:
        return 0


def digest_of(path: Path) -> str:
    """The digest of a file's bytes."""
    found = hashlib.blake2b(digest_size=DIGEST_BYTES)
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            found.update(piece)
    return found.hexdigest()


def _continued(file: File, out: BinaryIO, advance: Callable[[int], None]) -> str:
    """Append what is missing; the digest of all."""
    found = hashlib.blake2b(digest_size=DIGEST_BYTES)
    out.seek(0)
    offset = 0
    while offset < file.size and (piece := out.read(min(_PIECE_BYTES, file.size - offset))):
        found.update(piece)
        offset += len(piece)
    while offset < file.size:
        piece = file.read(offset, _PIECE_BYTES)
        if not piece:
            break
        out.write(piece)
        out.flush()
        found.update(piece)
        offset += len(piece)
        advance(len(piece))
    return found.hexdigest()


def _partial_of(target: Path, file: File) -> Path:
    stamp = digest([file.stamp.size, file.stamp.mark])[:_NAME_CHARACTERS]
    return target.with_name(f"{_stem(target)}.{stamp}{ENDING}")


def _stem(target: Path) -> str:
    """A hidden name of a fixed length: that of the file may be as long as a file system allows."""
    return f".{digest_bytes(os.fsencode(target.name))[:_NAME_CHARACTERS]}"
