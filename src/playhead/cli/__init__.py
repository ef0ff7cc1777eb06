"""The `playhead` command.

In: command-line arguments. Out: calls to the library, results on stdout, and errors on stderr.
Each command is one thin file here that imports what it needs inside its function, so that `playhead --help` is quick.
"""

from __future__ import annotations

from playhead.cli.app import main

__all__ = ["main"]
