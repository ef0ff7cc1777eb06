"""The files that several patterns name."""

from __future__ import annotations

from collections.abc import Sequence

from playhead.errors import DataError
from playhead.store.files import Files
from playhead.store.together import ask_together


def list_files(files: Files, patterns: Sequence[str]) -> list[str]:
    """The files that the patterns name, in the order of the patterns and by name within one.

    Law: no file is listed twice, and every pattern matches a file; otherwise it is an error.
    """
    seen: dict[str, str] = {}
    matches = ask_together(files, patterns, lambda i: files.list(patterns[i]))
    for pattern, found in zip(patterns, matches, strict=True):
        if not found:
            raise DataError(
                f"{pattern}: no file matches this pattern",
                expected="at least one file",
                fix="correct the path, or restore the files",
            )
        for path in found:
            if path in seen:
                raise DataError(
                    f"{path}: is listed twice",
                    found=f'it matches "{seen[path]}" and again "{pattern}"',
                    expected="every file once; its rows would be seen twice as often",
                    fix="remove one of the patterns",
                )
            seen[path] = pattern
    return list(seen)
