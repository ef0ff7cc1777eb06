"""What `playhead import-nemo` prints: a summary, what was changed, and the next steps; or the report as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import typer

from playhead.recipe.nemo import Imported
from playhead.recipe.nemo.report import commands, num_sources, report_json


def print_imported(imported: Imported, recipe: Path, report: Path) -> None:
    notes = imported.notes
    sources = num_sources(imported.values)
    typer.echo(f"{recipe}: {sources} {'source' if sources == 1 else 'sources'} from {imported.config}")
    counts = ", ".join(f"{len(notes.of(kind))} {kind}" for kind in ("mapped", "changed", "ignored"))
    typer.echo(f"{report}: settings {counts}")
    changed = notes.of("changed")
    if changed:
        typer.echo("\nchanged:")
        for note in changed:
            typer.echo(f"  {note.place}: {note.was} -> {note.now}\n    {note.why}")
    typer.echo("\nbefore the first run:")
    for item in notes.checklist:
        typer.echo(f"  - {item}")
    typer.echo("\nthen:")
    for command, _ in commands(str(recipe)):
        typer.echo(f"  {command}")


def print_imported_json(imported: Imported, recipe: Path, report: Path) -> None:
    typer.echo(json.dumps(report_json(imported, str(recipe), str(report)), indent=2))
