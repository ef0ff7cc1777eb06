"""The migration report: what became of every setting, what to check, and the commands to run before training."""

from __future__ import annotations

from typing import Any

from playhead.recipe.nemo.convert import Imported
from playhead.recipe.nemo.entries import num_sources
from playhead.recipe.nemo.notes import Kind, Note

_TITLES: dict[Kind, str] = {"changed": "Changed", "ignored": "Ignored", "mapped": "Mapped"}
_MEANINGS: dict[Kind, str] = {
    "changed": "These settings mean something else now. Read each of them.",
    "ignored": "These settings have no counterpart in a recipe; the last column says why.",
    "mapped": "These settings mean the same in the recipe.",
}


def commands(recipe: str) -> list[tuple[str, str]]:
    """The commands to run before a job is started, and what each is for."""
    return [
        (f"playhead prepare {recipe}", "build the indexes; every broken row is named"),
        (f"playhead check {recipe}", "find what would stop or spoil the run"),
        (f"playhead plan {recipe}", "see the shares, the batches and the padding"),
        (f"playhead verify {recipe}", "prove the promises on this data, with real kills and resumes"),
        (f"playhead run {recipe} --steps 20", "read some steps"),
    ]


def report_json(imported: Imported, recipe: str, report: str) -> dict[str, Any]:
    """The report as plain values."""
    rows: dict[str, Any] = {kind: [_row(note) for note in imported.notes.of(kind)] for kind in _TITLES}
    return {
        "config": imported.config,
        "recipe": recipe,
        "report": report,
        "num_sources": num_sources(imported.values),
        **rows,
        "checklist": imported.notes.checklist,
        "commands": [command for command, _ in commands(recipe)],
    }


def report_markdown(imported: Imported, recipe: str) -> str:
    """The report as a page."""
    lines = [
        f"# {imported.config} as {recipe}",
        "",
        f"Sources: {num_sources(imported.values)}. Settings: "
        + ", ".join(f"{len(imported.notes.of(kind))} {kind}" for kind in ("mapped", "changed", "ignored"))
        + ".",
        "",
        "## Before the first run",
        "",
        *(f"- [ ] {item}" for item in imported.notes.checklist),
        "",
        "```text",
        *_aligned(recipe),
        "```",
    ]
    for kind, title in _TITLES.items():
        notes = imported.notes.of(kind)
        if notes:
            lines += ["", f"## {title}", "", _MEANINGS[kind], ""]
            lines += ["| place | was | now | why |", "|---|---|---|---|"]
            lines += [f"| {' | '.join(map(_cell, (note.place, note.was, note.now, note.why)))} |" for note in notes]
    return "\n".join(lines) + "\n"


def _aligned(recipe: str) -> list[str]:
    found = commands(recipe)
    width = max(len(command) for command, _ in found)
    return [f"{command:<{width}}  # {purpose}" for command, purpose in found]


def _row(note: Note) -> dict[str, str]:
    return {"place": note.place, "was": note.was, "now": note.now, "why": note.why}


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
