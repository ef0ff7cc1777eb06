"""`playhead megatron`: dataset caches and datasets of Megatron-LM."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(
    name="megatron",
    help="Megatron's dataset caches and .bin/.idx files, without Megatron.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_JOB = {"allow_extra_args": True, "ignore_unknown_options": True}
_Config = Annotated[Path | None, typer.Option("--config", help="A YAML file of the job's arguments by name.")]
_Release = Annotated[str | None, typer.Option(help="0.15 to 0.19 or main; by default that of megatron.core, or 0.16.")]
_Like = Annotated[Path | None, typer.Option(help="Take the tokenizer from this description.txt of a job.")]
_Keep = Annotated[bool, typer.Option("--keep-partial-validation-sequence", help="Keep the last, partial one.")]
_At = Annotated[int, typer.Option(min=0, help="The current iteration of training: it decides the phase.")]
_Workers = Annotated[int | None, typer.Option(min=1, help="Datasets at a time; by default one a core.")]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def _request(context: typer.Context, config: Path | None, **own: Any) -> Any:
    """The request of a job: flags and options as given, after those of the file, which they replace."""
    from playhead.megatron.arguments import read_named, read_request

    named = {} if config is None else read_named(str(config))
    return read_request(context.args, {**named, **{name: value for name, value in own.items() if value}})


@app.command("prepare-cache", context_settings=_JOB)
def prepare_cache(
    context: typer.Context,
    config: _Config = None,
    megatron_release: _Release = None,
    like: _Like = None,
    keep_partial: _Keep = False,
    at_iteration: _At = 0,
    workers: _Workers = None,
    memory: Annotated[int | None, typer.Option(min=1, help="Megabytes that may be used.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done; write nothing.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Build everything again.")] = False,
    per_dataset_sequences: Annotated[Path | None, typer.Option(help="Write the counts for fast start there.")] = None,
    as_json: _Json = False,
) -> None:
    """Build the dataset caches of a GPT training job, byte for byte as Megatron would.

    Give the training job's own flags as they are: all those of a launch script may be pasted.
    """
    from playhead.cli.megatron_view import building, print_cache, print_estimate
    from playhead.megatron.prepare_job import CacheOptions, prepare_request
    from playhead.store import all_files

    own = {"megatron_release": megatron_release, "like": like, "at_iteration": at_iteration}
    request = _request(context, config, **own, keep_partial_validation_sequence=keep_partial)
    options = CacheOptions(
        workers=workers, memory_mb=memory, dry_run=dry_run, force=force, per_dataset_sequences=per_dataset_sequences
    )
    with building() as progress:
        report = prepare_request(request, all_files(), options, progress, announce=print_estimate)
    print_cache(report, as_json=as_json)


@app.command("check-cache", context_settings=_JOB)
def check_cache(
    context: typer.Context,
    config: _Config = None,
    megatron_release: _Release = None,
    like: _Like = None,
    keep_partial: _Keep = False,
    at_iteration: _At = 0,
    workers: _Workers = None,
    as_json: _Json = False,
) -> None:
    """Show whether a job will hit its cache; if not, what is missing or stale, or which argument differs.

    The exit code is 1 if it will not.
    """
    from playhead.cli.megatron_view import print_check
    from playhead.megatron.check_job import check_request
    from playhead.store import all_files

    own = {"megatron_release": megatron_release, "like": like, "at_iteration": at_iteration}
    request = _request(context, config, **own, keep_partial_validation_sequence=keep_partial)
    report = check_request(request, all_files(), workers)
    print_check(report, asked_fast=request.fast_load, as_json=as_json)
    if not report.good or report.misread or (request.fast_load and report.fast_load):
        raise typer.Exit(1)


@app.command("tokenize")
def tokenize(
    paths: Annotated[list[str], typer.Argument(metavar="FILES...", help="Files of JSON lines.")],
    tokenizer: Annotated[Path, typer.Option(help="A tokenizer.json.")],
    out: Annotated[str, typer.Option(help="The prefix of the .bin and .idx to write.")],
    key: Annotated[str, typer.Option(help="The field that holds the text.")] = "text",
    eod: Annotated[str | None, typer.Option(help="A token to put after every document.")] = None,
    special_tokens: Annotated[bool, typer.Option("--special-tokens", help="Add the tokenizer's own.")] = False,
    workers: Annotated[int, typer.Option(min=1, help="Worker processes.")] = 1,
    as_json: _Json = False,
) -> None:
    """Tokenize JSON lines into a Megatron dataset, each line a document, in order. Resumes where it was interrupted."""
    from playhead.cli.megatron_view import print_tokenized, tokenizing
    from playhead.megatron import tokenize as tokenize_files

    with tokenizing() as progress:
        done = tokenize_files(
            paths,
            tokenizer,
            out,
            key=key,
            eod=eod,
            special_tokens=special_tokens,
            workers=workers,
            progress=progress,
        )
    print_tokenized(done, as_json=as_json)


@app.command("merge")
def merge(
    prefixes: Annotated[list[str], typer.Argument(help="The datasets to join, in order.")],
    out: Annotated[str, typer.Option(help="The prefix of the .bin and .idx to write.")],
    as_json: _Json = False,
) -> None:
    """Join Megatron datasets into one."""
    from playhead.cli.megatron_view import print_written
    from playhead.megatron import merge as merge_datasets

    print_written(merge_datasets(prefixes, out), as_json=as_json)
