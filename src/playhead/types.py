"""Array types and the one decorator for compiled kernels."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable
from functools import cache, cached_property, update_wrapper
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar

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


class kernel(Generic[P, R]):  # noqa: N801 - it is used as a decorator
    """Compile a function of integers and arrays with numba when it is first called, cached on disk.

    numba takes longer to import, and more memory, than all else in a worker process, and most workers call no kernel.
    The cache is where NUMBA_CACHE_DIR says, else beside the source, else (a read-only installation) in the user's
    cache directory. Any number of processes may fill it at once: numba puts whole files in place.
    """

    def __init__(self, function: Callable[P, R]) -> None:
        self._function = function
        update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._compiled(*args, **kwargs)  # type: ignore[no-any-return]

    @cached_property
    def _compiled(self) -> Any:
        with _COMPILING:
            return _with_numba(self._function)

    @property
    def _numba_type_(self) -> Any:
        """What numba asks of a kernel that another one calls."""
        return self._compiled._numba_type_


_COMPILING = threading.Lock()


def _with_numba(function: Callable[P, R]) -> Any:
    import numba

    config: Any = numba.config  # its settings are made at import, and are not typed
    given = config.CACHE_DIR
    directory = given or _cache_directory(str(Path(function.__code__.co_filename).parent))
    try:
        config.CACHE_DIR = directory or ""  # read when a function is decorated; restored for other users of numba
        return numba.njit(cache=directory is not None, nogil=True)(function)
    finally:
        config.CACHE_DIR = given


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
