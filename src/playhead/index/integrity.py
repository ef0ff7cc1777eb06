"""Whether the arrays of an index changed after they were written, and the error for impossible numbers in them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from playhead.errors import NotPreparedError
from playhead.fingerprint import ArrayDigest
from playhead.store import load_bytes, unreadable

LARGE_BYTES = 64 << 20


def damaged_arrays(directory: Path, digests: Mapping[str, str], *, everything: bool) -> tuple[str, ...]:
    """The files whose bytes do not have the digest they were written with; large ones only if `everything` is true."""
    found = []
    for name, expected in digests.items():
        path = f"{directory}/{name}.npy"
        try:
            data = load_bytes(path)
        except FileNotFoundError:
            found.append(f"{name}.npy")
            continue
        except OSError as error:
            raise unreadable(path, error) from error
        if data.size > LARGE_BYTES and not everything:
            continue
        digest = ArrayDigest()
        digest.update(data)
        if digest.hexdigest() != expected:
            found.append(f"{name}.npy")
    return tuple(found)


def damaged(path: str | Path, found: str, expected: str | None = None) -> NotPreparedError:
    """The error for an impossible number: the file was changed after it was written."""
    return NotPreparedError(
        f"{path}: the index is damaged",
        found=found,
        expected=expected,
        fix="run `playhead prepare --verify` on the recipe, which makes it again; then check the disk",
    )
