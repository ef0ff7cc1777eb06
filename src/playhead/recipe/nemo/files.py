"""The recipe and the report of an import, written to files."""

from __future__ import annotations

from pathlib import Path

from playhead.errors import RecipeError
from playhead.recipe.nemo.convert import Imported
from playhead.recipe.nemo.report import report_markdown
from playhead.recipe.nemo.write import recipe_text
from playhead.store import replacing


def write_imported(imported: Imported, recipe: Path, *, force: bool = False) -> Path:
    """Write the recipe and, beside it, `<name>.migration.md`; the path of the latter. Existing files are kept."""
    report = recipe.with_suffix(".migration.md")
    if recipe.suffix not in (".yaml", ".yml"):
        raise RecipeError(
            f"--out {recipe}: a recipe is a YAML file", fix=f"for example --out {recipe.with_suffix('.yaml')}"
        )
    if recipe.resolve() == Path(imported.config).resolve():
        raise RecipeError(f"--out {recipe}: is the configuration itself", fix="write the recipe to another file")
    for file in (recipe, report):
        if file.exists() and not force:
            raise RecipeError(f"{file}: exists already", fix="write elsewhere with --out, or replace it with --force")
    header = [
        f"Imported from {Path(imported.config).name} by `playhead import-nemo`.",
        f"What became of every setting is in {report.name}.",
    ]
    texts = {
        report: report_markdown(imported, recipe.name),
        recipe: recipe_text(imported.values, imported.notes.found, header),
    }
    for file, text in texts.items():
        with replacing(file) as opened:
            opened.write(text.encode())
    return report
