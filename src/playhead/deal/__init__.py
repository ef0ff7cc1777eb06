"""Step -> this rank: which lanes are ours, and who we are.

In: lanes, rank and world size. Out: the lanes of a rank. The one look at torch, jax or the environment is here.
"""

from playhead.deal.identity import Identity, identify
from playhead.deal.lanes import (
    after_lane,
    check_world,
    lanes_left,
    lanes_of_rank,
    lanes_per_rank,
    num_done,
    worlds_that_fit,
)

__all__ = [
    "Identity",
    "after_lane",
    "check_world",
    "identify",
    "lanes_left",
    "lanes_of_rank",
    "lanes_per_rank",
    "num_done",
    "worlds_that_fit",
]
