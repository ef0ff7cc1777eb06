"""Pages in Debian's chromium; `make test-full` installs it where it may."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

# A browser connects to its vendor unless it is told not to.
_QUIET = [
    *("--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
]


def shown(page: str, script: str, folder: Path) -> str:
    """The document that a browser makes of a page, in a window 1,200 wide, after a script has run in it on loading."""
    probe = folder / "probe.html"
    probe.write_text(
        page.replace("</body>", f"<script>addEventListener('load', () => {{\n{script}\n}})</script></body>")
    )
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}", *_QUIET]
    size = ["--window-size=1200,900", "--virtual-time-budget=2000", "--dump-dom"]
    command = [_browser(), *options, *size, probe.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=True).stdout


def _browser() -> str:
    found = shutil.which("chromium")
    if found is None:
        if os.environ.get("CI"):
            pytest.fail("chromium is not installed; `make test-full` installs it")
        pytest.skip("chromium is not installed: apt-get install chromium")
    return found
