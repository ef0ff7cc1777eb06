"""A prepared source as the plan sees it: selected rows, numbered from 0, with their lengths."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from playhead.errors import NotPreparedError, RecipeError
from playhead.formats.rows import Fetch, Rows
from playhead.formats.schema import Track
from playhead.index.histogram import Histogram
from playhead.index.layout import Layout, layout_of
from playhead.index.opened import Index, open_index
from playhead.index.selection import Selection, nothing_left, open_selection
from playhead.recipe.tree import Leaf
from playhead.recipe.values import Recipe, ShuffleUnit
from playhead.store import Files
from playhead.types import Array, IntArray, LengthArray


@dataclass(frozen=True)
class Table:
    """The selected rows of one source. Law: a row's number is fixed as long as its fingerprints are."""

    name: str
    num_rows: int
    length_sum: int
    lengths_digest: str
    histogram: Histogram | None
    output_histogram: Histogram | None
    shard_rows: IntArray
    longest: tuple[int, int] | None
    longest_output: tuple[int, int] | None
    index: Index
    selection: Selection
    unit: ShuffleUnit = "shard"

    def lengths_of(self, rows: IntArray) -> LengthArray:
        """The length of each row; 0 for a source without lengths."""
        return self._look_up(self.index.lengths, rows)

    def outputs_of(self, rows: IntArray) -> LengthArray:
        """The output length of each row; 0 for a source without."""
        return self._look_up(self.index.outputs, rows)

    def raw_rows(self, rows: IntArray) -> IntArray:
        """The row's number before selection."""
        return self.selection.raw_rows(rows)

    def locate(self, rows: IntArray, fetch: Fetch | None = None) -> Rows:
        """The locations of rows, in the order given, for a reader; `fetch` reads their bytes, if given."""
        return self.index.locate(self.raw_rows(rows), fetch)

    def place(self, row: int) -> str:
        """Where a row is, human-readable."""
        return self.where(row).place(0)

    def where(self, row: int) -> Rows:
        """The place of a row, without access to its bytes."""
        return self.locate(np.array([row], dtype=np.int64))

    @property
    def block_track(self) -> Track | None:
        """The track in which rows are in blocks, if there is one."""
        return next((track for track in self.index.meta.tracks if track.kind == "blocks"), None)

    @cached_property
    def unit_rows(self) -> IntArray:
        """The selected rows of each unit that `shuffle: shards` shuffles: each shard, or each block."""
        if self.unit == "shard":
            return self.shard_rows
        return np.diff(self.selection.num_before(self.index.block_starts(self._blocks())))

    @property
    def unit_bytes(self) -> IntArray:
        """The size of each unit: all files of a shard together, or a block."""
        if self.unit == "shard":
            sizes = [sum(file.size for file in shard.files) for shard in self.index.meta.shards]
            return np.array(sizes, dtype=np.int64)
        firsts, ends = (self.index.arrays[self._blocks().array(part)] for part in ("block_firsts", "block_ends"))
        return (ends - firsts).astype(np.int64)

    def _blocks(self) -> Track:
        track = self.block_track
        if track is None:
            raise RecipeError(
                f'source "{self.name}": `shuffle_unit: block`, but its rows are not in blocks',
                found=f"format {self.index.meta.format}",
                expected="a format whose files consist of blocks of rows, such as parquet and arrow",
                fix="remove `shuffle_unit`: shards are shuffled then",
            )
        return track

    def preload(self) -> None:
        """Ask the system to start reading the lengths in the background."""
        self.index.preload()

    def find(self, sample_id: str) -> IntArray:
        """The selected rows with an id."""
        return self.selection.selected_rows(self.index.find(sample_id))

    def _look_up(self, lengths: Array | None, rows: IntArray) -> LengthArray:
        return np.zeros(rows.size, dtype=np.uint32) if lengths is None else self.selection.look_up(lengths, rows)


def open_table(leaf: Leaf, recipe: Recipe, files: Files | None = None) -> Table:
    """Map a prepared source. It builds nothing: an error names what is missing and the command that makes it.

    From `files` it reads only the lists in `drop_ids` and `drop_rows`.
    """
    layout = layout_of(leaf, recipe, files)
    index = open_index(layout.directory)
    if index is None or index.meta.fingerprint != layout.fingerprint or index.meta.patterns != layout.patterns:
        raise _not_prepared(layout, _missing(layout))
    if not layout.draws_alike(index.meta):
        raise _not_prepared(layout, "its lengths were measured with random numbers of another `seed`")
    selection = open_selection(layout, index.meta.num_rows)
    if selection is None:
        raise _not_prepared(layout, "its selection is missing, or older than the recipe")
    index.check_arrays()
    meta = selection.meta
    if meta.num_rows == 0:
        raise nothing_left(layout, index, meta.losses)
    return Table(
        name=leaf.source.name,
        num_rows=meta.num_rows,
        length_sum=meta.length_sum,
        lengths_digest=meta.lengths_digest,
        histogram=selection.histogram,
        output_histogram=selection.output_histogram,
        shard_rows=selection.shard_rows,
        longest=meta.longest,
        longest_output=meta.longest_output,
        index=index,
        selection=selection,
        unit=leaf.source.shuffle_unit,
    )


def open_tables(leaves: Iterable[Leaf], recipe: Recipe, files: Files | None = None) -> dict[str, Table]:
    """Tables by the path of their leaf in the recipe."""
    return {leaf.path: open_table(leaf, recipe, files) for leaf in leaves}


def _missing(layout: Layout) -> str:
    if not layout.measured:
        return "its index is missing, or older than the recipe"
    return "its lengths are not measured, or with another map (or text of its module), `decode` or `sequence`"


def _not_prepared(layout: Layout, problem: str) -> NotPreparedError:
    return NotPreparedError(
        f'{layout.leaf.path} "{layout.leaf.source.name}" is not prepared: {problem}',
        found=f"no match under {layout.directory}",
        fix=f"run `playhead prepare {'--measure ' if layout.measured else ''}<recipe>`",
    )
