"""Array types and the one decorator for compiled kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
UIntArray = npt.NDArray[np.uint64]
LengthArray = npt.NDArray[np.uint32]
BoolArray = npt.NDArray[np.bool_]
Array = npt.NDArray[Any]

P = ParamSpec("P")
R = TypeVar("R")


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function of integers and arrays with numba, cached on disk.

    numba is imported here, on first use, to keep `import playhead` quick.
    """
    from numba import njit

    compiled: Callable[P, R] = njit(cache=True, nogil=True)(function)
    return compiled
