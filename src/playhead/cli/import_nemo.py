"""`playhead import-nemo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def import_nemo(
    config: Annotated[Path, typer.Argument(help="A training configuration of NeMo, a dataset of it, or an input_cfg.")],
    out: Annotated[Path, typer.Option(help="The recipe to write; the report is written beside it.")] = Path(
        "recipe.yaml"
    ),
    section: Annotated[str | None, typer.Option(help="The dataset to import, such as model.train_ds.")] = None,
    lanes: Annotated[int | None, typer.Option(min=1, help="Micro-batches in an optimizer step, on all ranks.")] = None,
    tokenizer: Annotated[str | None, typer.Option(help="The tokenizer.json that counts tokens.")] = None,
    template: Annotated[str | None, typer.Option(help="The chat template that makes tokens of conversations.")] = None,
    base: Annotated[Path | None, typer.Option(help="Where relative paths begin; by default here, as in NeMo.")] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", help="A value that the job is started with, key.key=value. Repeatable.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a recipe and a report that exist.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON, too.")] = False,
) -> None:
    """Turn the data configuration of a NeMo job into a recipe, and report what became of every setting.

    NeMo need not be installed. What cannot be mapped is refused by name, and nothing is written then.
    """
    from playhead.cli.import_nemo_view import print_imported, print_imported_json
    from playhead.recipe.nemo import ImportOptions, import_nemo
    from playhead.recipe.nemo.files import write_imported

    options = ImportOptions(
        section=section,
        lanes=lanes,
        tokenizer=tokenizer,
        template=template,
        base_dir=base,
        recipe_dir=out.absolute().parent,
        overrides=overrides or [],
    )
    imported = import_nemo(config, options)
    report = write_imported(imported, out, force=force)
    if as_json:
        print_imported_json(imported, out, report)
    else:
        print_imported(imported, out, report)
