"""How the files of a storage are reached: what a request costs, and which processes see them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from playhead.store.addresses import is_url
from playhead.store.files import Files


class Access(NamedTuple):
    """`requests_cost`: a request takes a round trip, so that few large ones, and many at once, are better.

    `in_process`: the file is in the memory of this process, and no other process sees it.
    """

    requests_cost: bool
    in_process: bool = False


ON_DISK = Access(requests_cost=False)
ON_NETWORK = Access(requests_cost=True)


def access_of(files: Files, path: str) -> Access:
    """What a storage says of a path by an optional method, `access(path)`.

    A wrapper without the method (whose storage is its attribute `files`) leaves the answer to what it wraps. A storage
    without it is taken for a network where the path is a URL, and for a disk where it is not.
    """
    return _answering(files)(path)


def requests_cost(files: Files, path: str) -> bool:
    """Whether a request for a file takes a round trip; otherwise its bytes are as near as a disk."""
    return access_of(files, path).requests_cost


def num_costly(files: Files, paths: Iterable[str]) -> int:
    """For how many of these files a request takes a round trip."""
    ask = _answering(files)
    return sum([ask(path).requests_cost for path in paths])


def any_in_process(files: Files, paths: Iterable[str]) -> bool:
    """Whether other processes do not see one of these files."""
    ask = _answering(files)
    return any(ask(path).in_process for path in paths)


def _answering(files: object) -> Callable[[str], Access]:
    while files is not None:
        ask: Callable[[str], Access] | None = getattr(files, "access", None)
        if ask is not None:
            return ask
        files = getattr(files, "files", None)
    return _by_path


def _by_path(path: str) -> Access:
    return ON_NETWORK if is_url(path) else ON_DISK
