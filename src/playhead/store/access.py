"""How the files of a storage are accessed: what a request costs, and which processes can read them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from playhead.store.addresses import is_url
from playhead.store.files import Files


class Access(NamedTuple):
    """`requests_cost`: a request takes a round trip, so few large requests, sent concurrently, are better.

    `in_process`: the file is in the memory of this process, and no other process can read it.
    """

    requests_cost: bool
    in_process: bool = False


ON_DISK = Access(requests_cost=False)
ON_NETWORK = Access(requests_cost=True)


def access_of(files: Files, path: str) -> Access:
    """The access to a path, from the optional method `access(path)` of a storage.

    For a wrapper without the method, the storage that it wraps (its attribute `files`) decides. A storage without it
    counts as a network if the path is a URL, and as a disk otherwise.
    """
    return _answering(files)(path)


def requests_cost(files: Files, path: str) -> bool:
    """Whether a request for a file takes a round trip; otherwise its bytes are on a disk or in memory."""
    return access_of(files, path).requests_cost


def num_costly(files: Files, paths: Iterable[str]) -> int:
    """For how many of these files a request takes a round trip."""
    ask = _answering(files)
    return sum([ask(path).requests_cost for path in paths])


def any_in_process(files: Files, paths: Iterable[str]) -> bool:
    """Whether one of these files cannot be read by other processes."""
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
