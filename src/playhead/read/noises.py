"""The recordings that augmentations add: rows of the sources in `noises`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from playhead.errors import DataError, SampleError
from playhead.formats.media import Media, MediaCrop
from playhead.formats.rows import Fetch, Sample
from playhead.index.table import Table
from playhead.read.audio import Audio, audio_in
from playhead.read.row_decoder import RowDecoder


@dataclass(frozen=True)
class NoiseSource:
    """A source of noise, ready to read."""

    table: Table
    decoder: RowDecoder
    fetch: Fetch

    def raws(self, rows: Sequence[int]) -> list[Sample] | None:
        """Rows as they are in their files, read together; None if one fails, so that each must be read alone."""
        try:
            return self.decoder.raw(self.table.locate(np.array(rows, np.int64), self.fetch))
        except (SampleError, DataError):
            return None

    def audio(self, row: int, raw: Sample | None, field: str, crop: MediaCrop) -> Audio:
        """The audio of a row, cropped; an error names its location."""
        try:
            read = self.decoder.raw(self.table.locate(np.array([row]), self.fetch)) if raw is None else [raw]
            sample = self.decoder.with_media(read)[0]
            value = sample.get(field)
            wanted: Sample = {field: replace(value, crop=crop)} if isinstance(value, Media) else sample
            samples, problem = self.decoder.decoded([wanted])
            if problem is not None:
                raise problem
            return audio_in(samples[0], field).cropped(crop)
        except (SampleError, DataError) as error:
            error.at_row(f'noise of source "{self.table.name}", row {row:,}', self.table.place(row))
            raise


Noises = Mapping[str, NoiseSource]
