"""Step -> this rank: which lanes it takes, and which rank this process is.

In: lanes, rank and world size. Out: the lanes of a rank. Only here are torch, jax and the environment asked.
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
