"""A sample's own random generator, made on first use: most maps never need it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from playhead.seeds import extend

if TYPE_CHECKING:
    import numpy as np


class SampleGenerator(Struct):
    """A numpy Generator keyed by (seed, source name, epoch, row): the same on any rank and worker, after any resume."""

    _source_key: int
    _epoch: int
    _row: int
    _generator: np.random.Generator | None = None

    def keyed(self, source_key: int) -> SampleGenerator:
        """The generator of the same sample for another purpose."""
        return SampleGenerator(source_key, self._epoch, self._row)

    def choose(self, name: str, count: int) -> int:
        """A number below `count`, by the sample's key and a name alone."""
        return extend(self._source_key, name, self._epoch, self._row) % count

    @property
    def generator(self) -> np.random.Generator:
        """The numpy Generator itself, for code that requires one."""
        if self._generator is None:
            import numpy as np

            key = extend(self._source_key, self._epoch, self._row)
            self._generator = np.random.Generator(np.random.Philox(key=key))
        return self._generator

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.generator, name)
