"""In: a recipe of audio, and a lhotse dataset. Out: what the dataset makes of the cuts of every micro-batch.

Rows become the cuts that lhotse itself would read (cuts.py), in workers; the dataset is called there (loader.py).
"""

from playhead.errors import RecipeError

try:
    import lhotse as _lhotse  # noqa: F401
except ImportError as error:
    raise RecipeError("playhead.lhotse needs lhotse, which is not installed", fix="pip install lhotse") from error

from playhead.lhotse.loader import CutSampler, DataLoader

__all__ = ["CutSampler", "DataLoader"]
