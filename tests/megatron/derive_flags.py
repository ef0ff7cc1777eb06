"""Derives `playhead/megatron/flags_by_release.json` from a list of every flag of Megatron's own parsers.

    python tests/megatron/derive_flags.py ../shared/megatron_flags.json

The list has, for each flag, the releases that have it, the values it takes there and its default. What is written is
what matters here: names by release and number of values, and the defaults of the flags that Playhead takes.
"""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path
from typing import Any

from playhead.megatron import releases
from playhead.megatron.releases import RELEASES, TAKEN

TARGET = Path(releases.__file__).with_name("flags_by_release.json")
_KNOWN = {"0", "1", "3", "*", "+"}


def derive(flags: dict[str, Any]) -> dict[str, Any]:
    groups: dict[tuple[str, int, int], list[str]] = {}
    defaults: dict[str, dict[str, Any]] = {}
    for spelled, about in sorted(flags.items()):
        name = spelled.replace("_", "-")
        if name == "help":
            continue
        by_release = {
            release: about["by_release"][release] if "by_release" in about else about["takes_default"]
            for release in RELEASES
            if about["in"] == "all" or release in about["in"]
        }
        for takes, first, last in _stretches({release: str(takes) for release, (takes, _) in by_release.items()}):
            names = groups.setdefault((takes, first, last), [])
            if name not in names:
                names.append(name)
        if name in TAKEN:
            wanted = {release: default for release, (_, default) in by_release.items() if default not in (None, False)}
            if wanted:
                defaults[name] = wanted
    return {
        "flags": [
            {
                "takes": takes,
                "first": RELEASES[first],
                "last": RELEASES[last],
                "names": textwrap.wrap(" ".join(names), 110, break_on_hyphens=False),
            }
            for (takes, first, last), names in sorted(groups.items())
        ],
        "defaults": defaults,
    }


def _stretches(takes: dict[str, str]) -> list[tuple[str, int, int]]:
    """Consecutive releases in which a flag takes the same number of values."""
    found: list[tuple[str, int, int]] = []
    for release, number in takes.items():
        assert number in _KNOWN, number
        place = RELEASES.index(release)
        if found and found[-1][0] == number and found[-1][2] == place - 1:
            found[-1] = (number, found[-1][1], place)
        else:
            found.append((number, place, place))
    return found


if __name__ == "__main__":
    source = json.loads(Path(sys.argv[1]).read_text())
    TARGET.write_text(json.dumps(derive(source["flags"]), indent=1) + "\n")
