"""A few rows of every source: readable, as long as the index says, with text and one sample rate."""

from __future__ import annotations

from collections.abc import Iterator

from playhead.errors import PlayheadError
from playhead.read.length import is_compared
from playhead.read.recount import recount_of
from playhead.recipe.tree import Leaf, branches, evaluation_branch
from playhead.recipe.units import readable
from playhead.recipe.values import Fixed, Pack, Recipe
from playhead.verify.checks.context import Context, PreparedSource
from playhead.verify.checks.finding import Problem, Severity
from playhead.verify.checks.registry import check
from playhead.verify.checks.sampled_rows import RowFacts
from playhead.verify.checks.wording import counted, listed

_LONGEST_MEAN_SECONDS = 3600
_SHORTEST_LONGEST_SECONDS = 0.05
_MOST_WITHOUT_LENGTH = 0.01


@check("PH020", "error", "a row cannot be read, decoded or mapped", "recipe", "tables")
def unreadable_rows(context: Context) -> Iterator[Problem]:
    severity: Severity = "warning" if context.recipe.on_error == "substitute" else "error"
    for source in context.prepared:
        facts = context.rows[source.leaf.path]
        bad = [(row, row.problem) for row in facts if row.problem is not None and not row.changed]
        if bad:
            yield _about_rows(source, bad, len(facts), "cannot be made into samples", severity)


@check("PH021", "error", "a sample is not as long as the index says", "recipe", "tables")
def other_lengths(context: Context) -> Iterator[Problem]:
    for source in context.prepared:
        facts = context.rows[source.leaf.path]
        bad = [(row, row.mismatch) for row in facts if row.mismatch is not None]
        if bad:
            enforced = bad[0][0].enforced and context.recipe.on_length_mismatch == "error"
            severity: Severity = "error" if enforced else "warning"
            yield _about_rows(source, bad, len(facts), "have another length than in the index", severity)


def _about_rows(
    source: PreparedSource, bad: list[tuple[RowFacts, PlayheadError]], count: int, what: str, severity: Severity
) -> Problem:
    row, error = bad[0]
    place = "" if row.place in error.problem else f" ({row.place})"
    found = f"row {row.row:,}{place}: {error.problem}" + (f"; {error.found}" if error.found else "")
    text = f'rows of "{source.name}" {what}: {len(bad):,} of the {count:,} that were read'
    return Problem(source.leaf.path, text, found, error.expected, error.fix, severity)


@check("PH022", "warning", "the lengths of a source are implausible", "recipe", "tables")
def implausible_lengths(context: Context) -> Iterator[Problem]:
    for source in context.prepared:
        table, unit = source.table, source.leaf.unit
        if table.histogram is None or table.longest is None:
            continue
        mean, longest = table.length_sum / table.num_rows, table.longest[1]
        none = int(table.histogram.counts[0]) / table.num_rows
        problem = None
        if longest <= 1:
            problem = f"no row is longer than {readable(longest, unit)}"
        elif none > _MOST_WITHOUT_LENGTH:
            problem = f"{none:.1%} of the rows have length 0"
        elif unit == "seconds" and mean > 1000 * _LONGEST_MEAN_SECONDS:
            problem = f"rows are {readable(mean, unit)} long on average: are these milliseconds, or samples?"
        elif unit == "seconds" and longest < 1000 * _SHORTEST_LONGEST_SECONDS:
            problem = f"no row is longer than {longest / 1000:g} s"
        if problem is not None:
            fix = "correct the field that holds the length or its `unit`, or leave the rows out with `keep`"
            yield Problem(f"{source.leaf.path}.length", f"{source.name}: {problem}", fix=fix)


@check("PH023", "note", "lengths are taken on trust: nothing compares them with the samples", "recipe")
def trusted_lengths(context: Context) -> Iterator[Problem]:
    trusted = [source.leaf for source in context.sources if _is_trusted(context.recipe, source.leaf)]
    if trusted:
        names = listed(leaf.source.name for leaf in trusted)
        seconds = trusted[0].unit == "seconds"
        yield Problem(
            f"{trusted[0].path}.length",
            f"the lengths of {counted(len(trusted), 'source')} are taken on trust: {names}",
            found=f"lengths in {trusted[0].unit}, and no {'`sequence_rate`' if seconds else 'field to compare with'}",
            fix="add `sequence_rate`, the sampling rate of the sequence field"
            if seconds
            else "name the field that lengths count with `sequence:`",
        )


def _is_trusted(recipe: Recipe, leaf: Leaf) -> bool:
    if leaf.source.length is None or leaf.is_noise or isinstance(leaf.batching, Fixed):
        return False
    return not (is_compared(recipe, leaf) or recount_of(recipe, leaf, {}) or isinstance(leaf.batching, Pack))


@check("PH024", "warning", "a field of text is missing or empty", "recipe", "tables")
def empty_texts(context: Context) -> Iterator[Problem]:
    for source in context.prepared:
        facts = [row for row in context.rows[source.leaf.path] if row.problem is None]
        for name in dict.fromkeys(name for row in facts for name in row.texts):
            empty = [row for row in facts if not row.texts.get(name, False)]
            if empty:
                yield Problem(
                    source.leaf.path,
                    f'"{source.name}" has rows without text in field "{name}"',
                    found=f"{len(empty):,} of the {len(facts):,} that were read, for one row {empty[0].row:,} "
                    f"({empty[0].place})",
                    expected="a text that is not empty",
                    fix=f'leave such rows out with `keep: {{{name}: "re:[^ ]"}}`, or name another field',
                )


@check("PH025", "warning", "sample rates are mixed without resampling, or are not `sequence_rate`", "recipe", "tables")
def mixed_rates(context: Context) -> Iterator[Problem]:
    evaluation = [evaluation_branch(context.recipe, split) for split in context.recipe.evaluation]
    for branch in (*branches(context.recipe), *evaluation):
        rates: dict[int, tuple[Leaf, RowFacts]] = {}
        for leaf in branch.leaves():
            for row in context.rows.get(leaf.path, ()):
                rates.update({rate: (leaf, row) for rate in row.rates.values() if rate not in rates})
        planned = context.recipe.sequence_rate
        if planned is not None and rates and {*rates} != {round(planned)}:
            expected = f"{planned:g} Hz, by which lengths are compared (`sequence_rate`)"
        elif len(rates) > 1:
            expected = "one sample rate in a batch"
        else:
            continue
        seen = "; ".join(f"{rate:,} Hz in {leaf.source.name}, row {row.row:,}" for rate, (leaf, row) in rates.items())
        fix = f"resample: `audio: {{sample_rate: {round(planned or max(rates))}}}`, for the recipe or the source"
        yield Problem("audio", f"sample rates in {branch.name} are not alike", seen, expected, fix)
