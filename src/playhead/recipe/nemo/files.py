"""The files of an import: sidecars that are there already, and the recipe and the report that are written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from playhead.errors import RecipeError
from playhead.recipe.environment import expand_environment
from playhead.recipe.nemo.context import Context
from playhead.recipe.nemo.entries import Dataset
from playhead.recipe.nemo.report import Imported, report_markdown
from playhead.recipe.nemo.stream import Stream
from playhead.recipe.nemo.write import recipe_text
from playhead.recipe.patterns import expand_braces
from playhead.store import is_url, replacing

_OFFSET_BYTES = 8
_MOST_FILES = 100_000


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


def note_sidecars(streams: list[Stream], root: str | None, context: Context) -> None:
    """Note how many files of each source have a usable sidecar. Files in stores are not looked at."""
    for stream in streams:
        for dataset in stream.datasets:
            _note(dataset, root, context)


def _note(dataset: Dataset, root: str | None, context: Context) -> None:
    try:
        files = [Path(context.recipe_dir, path) for path in _files(dataset)]
        at = None if root is None else Path(context.recipe_dir, str(expand_environment(root, os.environ)))
    except (RecipeError, OSError):  # `prepare` reports paths that cannot be looked at
        return
    found = [(file, _sidecar(file, at)) for file in files[:_MOST_FILES]]
    present = [(file, sidecar) for file, sidecar in found if sidecar.is_file()]
    good = [sidecar for file, sidecar in present if _is_usable(file, sidecar)]
    place = f"{dataset.place} .idx"
    if good:
        why = "checked by their size"
        context.notes.mapped(place, f"{len(good)} of {len(found)} files", "used by `playhead prepare`", why)
    if len(good) < len(present):
        bad = next(sidecar for file, sidecar in present if not _is_usable(file, sidecar))
        why = f"empty, cut short or older than its file, such as {bad}"
        context.notes.ignored(place, f"{len(present) - len(good)} files", why)


def _files(dataset: Dataset) -> Iterator[str]:
    options = dataset.values.get("options", {})
    for given in (dataset.values.get("path", []), options.get("tar", [])):
        for pattern in [given] if isinstance(given, str) else given:
            for path in expand_braces(str(expand_environment(pattern, os.environ)), dataset.place):
                if not is_url(path) and "*" not in path:
                    folder = Path(path)
                    yield from map(str, sorted(folder.glob("*.jsonl"))) if folder.is_dir() else [path]


def _sidecar(file: Path, root: Path | None) -> Path:
    return Path(f"{file}.idx") if root is None else root / f"{str(file).lstrip('/')}.idx"


def _is_usable(file: Path, sidecar: Path) -> bool:
    """Whole offsets, the last of which is within the file."""
    size = sidecar.stat().st_size
    if not size or size % _OFFSET_BYTES or not file.is_file():
        return False
    with sidecar.open("rb") as opened:
        opened.seek(-_OFFSET_BYTES, os.SEEK_END)
        return int.from_bytes(opened.read(), "little") <= file.stat().st_size
