"""The commands put together, and how their errors are printed.

Exit codes: 0 done; 1 a problem in the user's data or recipe; 2 wrong usage; 130 interrupted.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from playhead.cli import (
    bench,
    cache,
    check,
    curate,
    demo,
    fetch,
    import_nemo,
    megatron,
    plan,
    prepare,
    run,
    schema,
    simulate,
    verify,
)
from playhead.cli.report import print_error
from playhead.errors import PlayheadError

app = typer.Typer(
    name="playhead",
    help="Training data as a pure function of (recipe, step).",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # a traceback is for our own bugs, and then it should be a plain one
    rich_markup_mode=None,
)

# One line for each command.
app.command("demo")(demo.demo)
app.command("prepare")(prepare.prepare)
app.command("fetch")(fetch.fetch)
app.command("plan")(plan.plan)
app.command("check")(check.check)
app.command("run")(run.run)
app.command("verify")(verify.verify)
app.command("bench")(bench.bench)
app.command("simulate")(simulate.simulate)
app.command("schema")(schema.schema)
app.command("import-nemo")(import_nemo.import_nemo)
app.add_typer(cache.app)
app.add_typer(curate.app)
app.add_typer(megatron.app)


def main() -> None:
    """Run the command in `sys.argv`; never returns."""
    try:
        app()
    except PlayheadError as error:
        print_error(error, as_json="--json" in sys.argv[1:])
        sys.exit(1)


def _print_version(wanted: bool) -> None:
    if wanted:
        from playhead import __version__

        typer.echo(f"playhead {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and stop.")
    ] = False,
) -> None:
    pass
