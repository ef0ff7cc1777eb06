"""Array types and the one decorator for compiled kernels."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
UIntArray = npt.NDArray[np.uint64]
LengthArray = npt.NDArray[np.uint32]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
Array = npt.NDArray[Any]

P = ParamSpec("P")
R = TypeVar("R")


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function of integers and arrays with numba, cached on disk.

    The cache is where NUMBA_CACHE_DIR says, else beside the source, else (a read-only installation) in the user's
    cache directory. Any number of processes may fill it at once: numba puts whole files in place. numba is imported
    here, on first use, to keep `import playhead` quick.
    """
    import numba

    config: Any = numba.config  # its settings are made at import, and are not typed
    given = config.CACHE_DIR
    directory = given or _cache_directory(str(Path(function.__code__.co_filename).parent))
    try:
        config.CACHE_DIR = directory or ""  # read when a function is decorated; restored for other users of numba
        compiled: Callable[P, R] = numba.njit(cache=directory is not None, nogil=True)(function)
    finally:
        config.CACHE_DIR = given
    return compiled


@cache
def _cache_directory(folder: str) -> str | None:
    """The cache directory for kernels of the modules in a folder: "" is beside them; None means no cache."""
    beside = Path(folder) / "__pycache__"
    if os.access(beside if beside.exists() else folder, os.W_OK):
        return ""
    return _user_cache()


@cache
def _user_cache() -> str | None:
    try:
        directory = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "playhead" / "kernels"
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, RuntimeError) as error:
        problem = str(error)
    else:
        if os.access(directory, os.W_OK):
            return str(directory)
        problem = f"{directory} cannot be written"
    warnings.warn(
        f"compiled kernels cannot be cached, and every process compiles them for about ten seconds: {problem}; "
        "set NUMBA_CACHE_DIR to a directory that can be written",
        stacklevel=2,
    )
    return None
